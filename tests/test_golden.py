"""Golden figures: a change of structure must not move what models answer, nor what commands print.

Small models are fitted in the usual ways, and what they answer is compared with stored figures (`goldens`), of which
there is one file per kind of processor. To store those of this machine:

    TEFM_WRITE_GOLDEN=1 pytest tests/test_golden.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from commands import Finished, run, tefm
from conftest import MASKS, ONLY_PREDICTS, QUICK, STAYS, quick, stays
from goldens import FOLDER, check, plain

from tefm import TEFM, Domains, RecordTokenizer, Schema
from tefm.codes.config import RECIPES, Recipe

#: A shorter fit than `QUICK`: enough that answers differ between sequences.
SHORT: dict[str, Any] = {
    **QUICK,
    **ONLY_PREDICTS,
    "codes": {**QUICK["codes"], "steps": 60},
    "tune": {"learning_rate": 3e-3, "steps": 12},
}
QUESTIONS: dict[str, Any] = {
    "asked": [
        {"next": "drugs", "values": 5},  # of five, one is held out
        {"next": "age", "above": 60},
        {"within": "20 days"},
        {"column": "slept", "ask": "Did the patient sleep well?"},
    ],
    "hold_out": 0.2,
    "least": 5,
    "histories": 120,
    "pairs": 300,
    "scored": 40,
}
#: Trained with `QUESTIONS` (one in other letters), held out, and new.
ASKED = ["Next stay: morphine?", "did the patient sleep well?", "Next stay: aspirin?", "Will it rain?"]


def nights(patients: int, seed: int = 0) -> pl.DataFrame:
    """Stays whose label is right in most cases, and whether the patient slept well, which the age decides."""
    frame = stays(patients, seed)
    wrong = pl.Series(np.random.default_rng((seed, 1)).random(frame.height) < 0.2)
    return frame.with_columns(
        died=pl.when(wrong ^ (pl.col("died") == "yes")).then(pl.lit("yes")).otherwise(pl.lit("no")),
        slept=pl.when(pl.col("age") > 50).then(pl.lit("yes")).otherwise(pl.lit("no")),
    )


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Another number of threads adds up in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# ---- what models answer ---------------------------------------------------------------------------------------------

MODELS: dict[str, dict[str, Any]] = {
    "codes": {},
    "unsupervised and aligned": {
        "task_aware": False,
        "align": {"steps": 12},
        "explanations": "none",
        "rationale": "none",
    },
    "windows": {"window": 2, "background": "no", "balance": "train", "rationale": "none", **ONLY_PREDICTS},
}


@pytest.mark.parametrize("name", MODELS)
def test_predictions_and_explanations(name: str, backbones: dict[str, Path]) -> None:
    settings = MODELS[name]
    model = quick(backbones["llama"], STAYS, **{**MASKS, **settings}).fit(stays(120))
    check(f"{name}: probabilities", model.predict_proba(stays(40, seed=1)).tolist())
    if settings.get("explanations") != "none":
        explanations = [
            [e.answer.p, e.settling.precision.value, e.flips.value, len(e.settling.findings)]
            for e in model.explain(stays(12, seed=2))
        ]
        check(f"{name}: explanations", explanations)
        rationales = model.explain_masked(stays(12, seed=2))
        check(f"{name}: masks", [[r.full.p, r.alone.p, r.without.p, r.retention.kept] for r in rationales])


#: What else there is to choose: another objective of the codes, an adapter, words, costs.
OTHER: dict[str, Any] = {
    "codes": {**SHORT["codes"], "recipe": "paper"},
    "layers": 2,
    "start": "words",
    "prompt": "mortality",
    "style": "full",
    "positive": "no",
    "decision": {"cost": {"yes": 5, "no": 1}},
    "tune": {**SHORT["tune"], "trains": "lora", "label_share": 1.0},
    "balance": "all",
    "deterministic": True,
    "seed": 3,
}


def test_other_settings(backbones: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    # the paper's objective, with what else a recipe holds as it is in ours
    monkeypatch.setitem(RECIPES, "paper", Recipe(scaled=True, gradient=True, beam=1))
    model = TEFM(STAYS, backbone=str(backbones["llama"]), device="cpu", **{**SHORT, **OTHER}).fit(stays(120))
    check("other settings", model.predict_table(stays(20, seed=1)).to_dict(as_series=False))
    check("other settings: scores", model.evaluate(stays(60, seed=2), resamples=20).to_dict())


def test_a_fit_that_is_quick(backbones: dict[str, Path]) -> None:
    model = TEFM(STAYS, backbone=str(backbones["llama"]), device="cpu", quick=True, **without(SHORT, "explanations"))
    table = model.fit(stays(120)).predict_table(stays(40, seed=1))
    check("quick", table.to_dict(as_series=False))


def units(rows: int, seed: int = 0) -> pl.DataFrame:
    """Single records, each of one of eight units, which its ward and its age decide."""
    rng = np.random.default_rng(seed)
    ward, age = rng.integers(0, 4, rows), rng.integers(20, 90, rows)
    return pl.DataFrame(
        {
            "age": age,
            "ward": np.array(["heart", "lung", "skin", "eye"])[ward],
            "unit": [f"unit {2 * of + (years > 55)}" for of, years in zip(ward.tolist(), age.tolist(), strict=True)],
        }
    )


def test_many_classes(backbones: dict[str, Path]) -> None:
    schema = Schema.from_yaml("{label: unit, fields: {age: number, ward: category}}")
    model = TEFM(schema, backbone=str(backbones["llama"]), device="cpu", **SHORT).fit(units(240))
    table = model.predict_table(units(20, seed=1))
    assert table["predicted"].n_unique() > 2
    check("many classes", table.to_dict(as_series=False))
    check("many classes: scores", model.evaluate(units(60, seed=2), resamples=20).to_dict())


def test_free_text_in_the_prompt(backbones: dict[str, Path]) -> None:
    schema = Schema.from_yaml(
        """
        record: stay
        entity: patient
        time: day
        label: died
        text: [note]
        fields: {age: number, ward: category, drugs: {kind: set, delimiter: ;}}
        """
    )
    settings = {**SHORT, "explanations": QUICK["explanations"]}
    model = TEFM(schema, backbone=str(backbones["llama"]), device="cpu", **settings).fit(stays(100))
    check("free text", model.predict_table(stays(30, seed=1)).to_dict(as_series=False))
    explanations = model.explain(stays(3, seed=2))
    check("free text: explanations", [[e.answer.p, e.flips.value, len(e.influences)] for e in explanations])


def test_codes_of_a_tokenizer() -> None:
    """Task-aware codes, and codes that do not use the label."""
    for name, options in {"tokenizer": {}, "tokenizer without labels": {"task_aware": False}}.items():
        tokenizer = RecordTokenizer(device="cpu", **QUICK["codes"]).fit(stays(120), STAYS, **options)
        codes = tokenizer.encode(stays(30, seed=1))
        check(name, codes.tolist())
        check(f"{name}: decoded", tokenizer.decode(codes[:10]).to_dicts())


def test_questions_without_a_label(backbones: dict[str, Path]) -> None:
    """Trained and new ones, and one that is taught."""
    schema = Schema.from_yaml(
        """
        record: stay
        entity: patient
        time: day
        ignore: [note, died, slept]
        fields: {age: number, ward: category, drugs: {kind: set, delimiter: ;}}
        """
    )
    model = TEFM(schema, backbone=str(backbones["llama"]), device="cpu", questions=QUESTIONS, **SHORT)
    model.fit(nights(120))
    check("questions alone", model.ask(stays(8, seed=1), ASKED, anyway=True).to_dict(as_series=False))
    check("questions alone: known", model.questions_.to_dict(as_series=False))
    check("questions alone: taught", model.teach(stays(50, seed=2), "Did the patient die?", answer="died"))
    check(
        "questions alone: taught, asked", model.ask(stays(8, seed=1), "Did the patient die?").to_dict(as_series=False)
    )


# ---- what commands print --------------------------------------------------------------------------------------------

CPU = ("--device", "cpu")
FAST = (*CPU, "--no-compare")
NIGHTS = Schema.from_yaml(
    """
    record: stay
    entity: patient
    time: day
    label: died
    ignore: [note, slept]
    fields: {age: number, ward: category, drugs: {kind: set, delimiter: ;}}
    """
)
FLOWS = Schema.from_yaml("{record: flow, label: attack, fields: {bytes: number, port: category, flags: number}}")
VISITS = Schema.from_yaml("{record: visit, label: late, fields: {hours: number, weekday: category}}")


def flows(rows: int, seed: int = 0) -> pl.DataFrame:
    """Network flows; those to port 6667 are attacks."""
    rng = np.random.default_rng(seed)
    port = rng.choice(["80", "443", "6667"], rows)
    numbers = {"bytes": rng.integers(0, 1_000, rows), "flags": rng.integers(0, 5, rows)}
    return pl.DataFrame({**numbers, "port": port, "attack": np.where(port == "6667", "attack", "benign")})


def visits(rows: int, seed: int = 0) -> pl.DataFrame:
    """Visits; those on Sundays are late."""
    rng = np.random.default_rng(seed)
    day = rng.choice(["monday", "friday", "sunday"], rows)
    late = np.where(day == "sunday", "late", "early")
    return pl.DataFrame({"hours": rng.integers(0, 24, rows), "weekday": day, "late": late})


def write_task(path: Path, schema: Schema, frame: pl.DataFrame, backbone: Path, **settings: Any) -> None:
    """A task file, with its schema and its table beside it."""
    frame.write_csv(path.with_suffix(".csv"))
    path.with_suffix(".schema").write_text(schema.to_yaml())
    task = {"table": f"{path.stem}.csv", "schema": f"{path.stem}.schema", "backbone": str(backbone), **settings}
    path.write_text(json.dumps(task))  # JSON is YAML


#: All that a model can have: explanations, questions, trees.
WHOLE: dict[str, Any] = {
    **SHORT,
    "layers": 2,
    "explanations": {**QUICK["explanations"], "donors": 60},
    "questions": QUESTIONS,
    "beside": "trees",
    "split": {"shares": [0.6, 0.2, 0.2]},
}


@pytest.fixture(scope="module")
def folder(backbones: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Task files, and tables of records that no model has seen."""
    folder = tmp_path_factory.mktemp("golden")
    write_task(folder / "stays.yaml", NIGHTS, nights(150), backbones["llama"], **WHOLE)
    write_task(folder / "flows.yaml", FLOWS, flows(160), backbones["llama"], **SHORT, align="none")
    write_task(folder / "some.yaml", STAYS, stays(100), backbones["llama"], **SHORT, align="none")
    write_task(folder / "visits.yaml", VISITS, visits(120), backbones["llama"], **SHORT)
    for name, frame in {"flows": flows(10, seed=9), "visits": visits(10, seed=9)}.items():
        frame.write_csv(folder / f"new_{name}.csv")
    stays(12, seed=9).write_csv(folder / "new_stays.csv")
    stays(2, seed=8).write_csv(folder / "few_stays.csv")
    later = nights(60, seed=7)
    later.write_csv(folder / "later_stays.csv")
    older = later.filter(pl.col("day") < "2024-04").with_columns(pl.col("age") + 60)
    older.write_csv(folder / "older_stays.csv")
    return folder


@pytest.fixture(scope="module")
def whole(folder: Path) -> Finished:
    """What `tefm fit --json` printed of the model of all kinds, which is in `model`."""
    torch.set_num_threads(1)
    return tefm("fit", folder / "stays.yaml", "--out", folder / "model", *CPU, "--json")


COMMANDS: dict[str, tuple[str, ...]] = {
    "predict": ("predict", "model", "new_stays.csv", *CPU),
    "evaluate": ("evaluate", "model", "later_stays.csv", *CPU),
    "explain": ("explain", "model", "few_stays.csv", *CPU),
    "explain --class": ("explain", "model", "few_stays.csv", "--class", "yes", "--entity", "p1", *CPU),
    "explain --question": ("explain", "model", "few_stays.csv", "--question", ASKED[0], "--entity", "p1", *CPU),
    "explain --population": ("explain", "model", "new_stays.csv", "--population", "5", *CPU),
    "ask": ("ask", "model", "few_stays.csv", *ASKED, *CPU),
    "ask --list": ("ask", "model", "--list"),
    "tokens": ("tokens", "model", "new_stays.csv"),
    "monitor": ("monitor", "model", "later_stays.csv", *CPU),
    "monitor --by": ("monitor", "model", "older_stays.csv", "--by", "month", "--reference", "stays.csv", *CPU),
    "inspect": ("inspect", "stays.csv", "--label", "died"),
    "doctor": ("doctor", "model/tokenizer", "later_stays.csv", *CPU),
}


def printed(folder: Path, *arguments: str) -> Any:
    """What a command prints with `--json`; arguments that name a file of the folder get its path."""
    paths = [folder / of if (folder / of).exists() else of for of in arguments]
    finished = run(*paths, "--json")
    assert finished.status in ((0, 3) if arguments[0] == "monitor" else (0,)), finished.stderr
    return finished.json


def test_the_json_of_a_fit(whole: Finished, folder: Path) -> None:
    check("tefm fit", whole.json)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("whole")
def test_the_json_of_commands(name: str, folder: Path) -> None:
    check(f"tefm {name}", printed(folder, *COMMANDS[name]))


def test_several_domains_and_one_that_is_added(folder: Path) -> None:
    outcome = tefm("fit", folder / "some.yaml", folder / "flows.yaml", "--out", folder / "domains", *FAST, "--json")
    check("domains: fit", outcome.json)
    before = {name: printed(folder, "predict", "domains", f"new_{name}.csv", *CPU) for name in ("stays", "flows")}
    check("domains: predict", before)
    extended = tefm("extend", folder / "domains", folder / "visits.yaml", "--out", folder / "extended", *FAST, "--json")
    check("domains: extend", extended.json)
    check("domains: predict with the new one", printed(folder, "predict", "extended", "new_visits.csv", *CPU))
    after = {name: printed(folder, "predict", "extended", f"new_{name}.csv", *CPU) for name in before}
    assert after == before


# ---- what was saved before ------------------------------------------------------------------------------------------

#: Models of version 0.1.0, as `tefm fit` and `tefm extend` saved them; they stay as they are. `bundle` is that of
#: `WHOLE` with masks, `domains` are stays and flows, and visits that were added.
BUNDLE, DOMAINS = FOLDER / "bundle", FOLDER / "domains"
#: A loaded model learns nothing, so its probabilities are nearly the same on every processor.
ELSEWHERE = 1e-4


def answers(model: TEFM) -> dict[str, Any]:
    """What a model of stays predicts, and how it answers questions."""
    return {
        "predict": model.predict_table(stays(12, seed=9)).to_dict(as_series=False),
        "ask": model.ask(stays(4, seed=9), ASKED).to_dict(as_series=False),
    }


def test_a_stored_bundle_answers_as_before(tmp_path: Path) -> None:
    model = TEFM.load(BUNDLE, device="cpu")
    before = answers(model)
    check("stored bundle", before, elsewhere=ELSEWHERE)
    check("stored bundle: known questions", model.questions_.to_dict(as_series=False), elsewhere=ELSEWHERE)
    check("stored bundle: codes", model.tokenizer_.encode(stays(12, seed=9)).tolist(), elsewhere=0)
    check("stored bundle: monitor", model.monitor(stays(40, seed=9)).to_dict())
    model.teach(stays(50, seed=2), "Did the patient die?", answer="died")
    check("stored bundle: taught", model.ask(stays(4, seed=9), "Did the patient die?").to_dict(as_series=False))
    assert plain(answers(TEFM.load(model.save(tmp_path / "again"), device="cpu"))) == plain(before)


@pytest.mark.parametrize("asked", [("explain",), ("explain", "--question", ASKED[0]), ("rationale",)])
def test_a_stored_bundle_explains_as_before(asked: tuple[str, ...], tmp_path: Path) -> None:
    stays(3, seed=9).write_csv(tmp_path / "stays.csv")
    command, *options = asked
    cards = tefm(command, BUNDLE, tmp_path / "stays.csv", *options, *CPU, "--json").json
    check(f"stored bundle: {' '.join(asked)}", cards)


def test_stored_domains_answer_as_before(tmp_path: Path) -> None:
    tables = {"some": stays(12, seed=9), "flows": flows(12, seed=9), "visits": visits(12, seed=9)}
    domains = Domains.load(DOMAINS, device="cpu")
    now = {name: domains[name].predict_table(table).to_dict(as_series=False) for name, table in tables.items()}
    check("stored domains", now, elsewhere=ELSEWHERE)
    assert [domains.domain_of(table) for table in tables.values()] == list(tables)
    again = Domains.load(domains.save(tmp_path / "again"), device="cpu")
    assert now == {name: again[name].predict_table(table).to_dict(as_series=False) for name, table in tables.items()}


def without(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}
