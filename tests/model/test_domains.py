"""Several domains in one language model: what each answers, on disk and back, and which one a table belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from commands import refused, tefm
from conftest import QUICK, STAYS, Explained, stays
from support.kept import Kept

from tefm.base.errors import InputError, SettingsError
from tefm.codes.coder import SlotCoder
from tefm.model.domains import Domains, domain_names
from tefm.model.estimator import TEFM
from tefm.model.run import TaskTable, fit_frames, fit_tasks
from tefm.model.task import Split, Task
from tefm.pipeline.config import ModelConfig
from tefm.serve.server import load_models
from tefm.show.figures import Outcome
from tefm.tables.schema import Schema

FLOWS = Schema.from_yaml("{record: flow, label: attack, fields: {bytes: number, port: category, flags: number}}")
#: Codes and steps for two domains, without explanations.
SETTINGS: dict[str, Any] = {**QUICK, "explanations": "none", "align": "none"}


def flows(count: int, seed: int = 0) -> pl.DataFrame:
    """Network flows; those to port 6667 are attacks."""
    rng = np.random.default_rng(seed)
    port = rng.choice(["80", "443", "6667"], count)
    return pl.DataFrame(
        {
            "bytes": rng.integers(0, 1_000, count),
            "port": port,
            "flags": rng.integers(0, 5, count),
            "attack": np.where(port == "6667", "attack", "benign"),
        }
    )


def tables(backbone: Path, **settings: Any) -> dict[str, TaskTable]:
    """Two domains, yet to be fitted."""
    frames = {"stays": (STAYS, stays(200)), "flows": (FLOWS, flows(240))}
    return {
        name: TaskTable.of_frame(
            TEFM(schema, backbone=str(backbone), device="cpu", **{**SETTINGS, **settings}), frame, Split()
        )
        for name, (schema, frame) in frames.items()
    }


Fitted = tuple[Domains, dict[str, Outcome]]


@pytest.fixture(scope="module")
def joint(kept: Kept, backbones: dict[str, Path]) -> Fitted:
    """Both domains in one model; tests leave it as it is."""

    def fit() -> Fitted:
        given = tables(backbones["llama"])
        outcomes = fit_frames(given, compare=False)
        return Domains({name: table.model for name, table in given.items()}), outcomes

    return kept.made("domains", fit)


@pytest.fixture(scope="module")
def saved(joint: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return joint[0].save(tmp_path_factory.mktemp("domains") / "model")


NEW = {"stays": stays(40, seed=9).drop("died"), "flows": flows(40, seed=9).drop("attack")}


def test_one_language_model_learns_both_domains(joint: Fitted) -> None:
    """What decides each label is planted, and both are found."""
    domains, outcomes = joint
    stays_model, flows_model = domains["stays"].fitted, domains["flows"].fitted
    assert stays_model.classifier.backbone.model is flows_model.classifier.backbone.model
    for outcome in outcomes.values():
        assert (outcome.test.scores.auroc.value or 0) > 0.95
    assert stays_model.classifier.vocabulary.names[0] == "<stay_a_0>"
    assert flows_model.classifier.vocabulary.names[0] == "<flow_a_0>"
    ids = [of.classifier.ids for of in (stays_model, flows_model)]
    assert ids[0] is not None and ids[1] is not None
    assert ids[1].begin == ids[0].begin and not set(range(ids[1].first, ids[1].past)) & set(ids[0].all)


def test_domains_answer_the_same_after_save_and_load(joint: Fitted, saved: Path) -> None:
    loaded = Domains.load(saved, device="cpu")
    assert list(loaded) == ["stays", "flows"]
    assert loaded["stays"].fitted.classifier.backbone.model is loaded["flows"].fitted.classifier.backbone.model
    assert (saved / "language" / "config.json").is_file() and not (saved / "domains" / "flows" / "language").exists()
    for name, table in NEW.items():
        expected = joint[0][name].predict_proba(table)
        np.testing.assert_array_equal(loaded[name].predict_proba(table), expected)
        np.testing.assert_array_equal(TEFM.load(saved, device="cpu", domain=name).predict_proba(table), expected)


def test_a_table_finds_its_domain(joint: Fitted, explained: Explained) -> None:
    domains = joint[0]
    assert [domains.domain_of(table) for table in NEW.values()] == ["stays", "flows"]
    both = pl.concat([NEW["stays"].head(5), NEW["flows"].head(5)], how="horizontal")
    explained(InputError, lambda: domains.domain_of(both), "fit several domains: stays, flows", "--domain")
    neither = NEW["flows"].drop("port")
    explained(InputError, lambda: domains.domain_of(neither), "no domain has all its columns", "stays, flows")
    explained(InputError, lambda: domains["flow"], "no such domain", "did you mean 'flows'?")


# ---- a domain that is added later -----------------------------------------------------------------------------------

VISITS = Schema.from_yaml("{record: stayover, label: late, fields: {hours: number, day: category}}")


def visits(count: int, seed: int = 0) -> pl.DataFrame:
    """Visits; those on Sundays are late."""
    rng = np.random.default_rng(seed)
    day = rng.choice(["monday", "friday", "sunday"], count)
    late = np.where(day == "sunday", "late", "early")
    return pl.DataFrame({"hours": rng.integers(0, 24, count), "day": day, "late": late})


def test_a_domain_is_added_and_the_others_answer_the_same_to_the_bit(saved: Path, tmp_path: Path) -> None:
    domains = Domains.load(saved, device="cpu")
    before = {name: domains[name].predict_proba(table) for name, table in NEW.items()}
    config = domains.extension(ModelConfig.checked({**SETTINGS, "explanations": QUICK["explanations"]}))
    model = TEFM(VISITS, device="cpu", **dict(config))
    outcome = fit_frames({"": TaskTable.of_frame(model, visits(240), Split())}, extends=domains, compare=False)[""]
    extended = Domains({**domains, "visits": model})
    assert (outcome.test.scores.auroc.value or 0) > 0.95
    assert extended["visits"].fitted.classifier.vocabulary.stem == "sta"
    loaded = Domains.load(extended.save(tmp_path / "model"), device="cpu")
    for of in (domains, extended, loaded):
        for name, table in NEW.items():
            np.testing.assert_array_equal(of[name].predict_proba(table), before[name])
    new = visits(40, seed=9).drop("late")
    np.testing.assert_array_equal(loaded["visits"].predict_proba(new), extended["visits"].predict_proba(new))
    assert len(loaded["visits"].explain(new.head(1))) == 1
    for part in (saved / "language").iterdir():
        if part.name == "chat_template.jinja":
            continue  # a bundle's is not run, and written anew from its texts
        assert (tmp_path / "model" / "language" / part.name).read_bytes() == part.read_bytes(), part
    # the tensors of the language model are in memory once
    shared = {weight.data_ptr() for weight in loaded.backbone.model.parameters()}
    adapted = {weight.data_ptr() for weight in loaded["visits"].fitted.classifier.backbone.model.parameters()}
    assert shared < adapted


# ---- the command line, and what is refused --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def task_files(backbones: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three task files with their tables; the third is for a domain that is added."""
    folder = tmp_path_factory.mktemp("tasks")
    tables = {"stays": (STAYS, stays(150)), "flows": (FLOWS, flows(160)), "visits": (VISITS, visits(160))}
    settings = {**SETTINGS, "codes": {**QUICK["codes"], "steps": 30}, "tune": {"steps": 4}}
    paths = {}
    for name, (schema, frame) in tables.items():
        frame.write_csv(folder / f"{name}.csv")
        schema.save(folder / f"{name}.schema.yaml")
        body = {"table": f"{name}.csv", "schema": f"{name}.schema.yaml", **settings}
        body |= {} if name == "visits" else {"backbone": str(backbones["llama"])}
        paths[name] = folder / f"{name}.yaml"
        paths[name].write_text(yaml.safe_dump(body))
    return paths


def test_commands_find_the_domain(task_files: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    fit = tefm(
        "fit", task_files["stays"], task_files["flows"], "--out", folder, "--device", "cpu", "--no-compare", "--json"
    )
    assert list(fit.json["domains"]) == ["stays", "flows"] and not folder.with_name("model.checkpoint").exists()
    tables = {name: path.with_suffix(".csv") for name, path in task_files.items()}
    stays_before = tefm("predict", folder, tables["stays"], "--json").json
    assert "p(attack)" in tefm("predict", folder, tables["flows"], "--json").json[0]
    assert tefm("evaluate", folder, tables["flows"], "--domain", "flows", "--json").json["n"] == 160
    assert "--domain" in refused("predict", folder, tables["visits"])
    assert "did you mean 'flows'?" in refused("predict", folder, tables["flows"], "--domain", "flow")
    assert "several domains: stays, flows" in refused("ask", folder, "--list")
    tefm("extend", folder, task_files["visits"], "--device", "cpu", "--no-compare")
    assert "p(late)" in tefm("predict", folder, tables["visits"], "--json").json[0]
    assert tefm("predict", folder, tables["stays"], "--json").json == stays_before
    assert "already has a domain with this name" in refused("extend", folder, task_files["visits"], "--device", "cpu")


@pytest.mark.all
def test_a_model_of_one_task_becomes_one_with_domains(task_files: dict[str, Path], tmp_path: Path) -> None:
    tables = {name: path.with_suffix(".csv") for name, path in task_files.items()}
    alone = tmp_path / "alone"
    tefm("fit", task_files["flows"], "--out", alone, "--device", "cpu", "--no-compare")
    assert "single, unnamed domain" in refused("predict", alone, tables["flows"], "--domain", "flows")
    before = tefm("predict", alone, tables["flows"], "--json").json
    tefm("extend", alone, task_files["visits"], "--out", tmp_path / "two", "--device", "cpu", "--no-compare")
    assert list(Domains.load(tmp_path / "two", device="cpu")) == ["flows", "visits"]
    assert tefm("predict", tmp_path / "two", tables["flows"], "--json").json == before


def test_what_domains_cannot_share_is_refused_before_any_training(
    task_files: dict[str, Path], tmp_path: Path, explained: Explained, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any, **settings: Any) -> None:
        raise AssertionError("a stage has begun")

    monkeypatch.setattr(SlotCoder, "fit", refuse)
    tasks = {name: Task.load(task_files[name]) for name in ("stays", "flows")}
    deeper = tasks["flows"].model_copy(update={"model": tasks["flows"].model.model_copy(update={"layers": 1})})
    call = lambda: fit_tasks({**tasks, "flows": deeper}, tmp_path / "model", device="cpu")  # noqa: E731
    explained(SettingsError, call, "`layers` differs between stays and flows")
    lost = tasks["flows"].model_copy(update={"table": str(tmp_path / "lost.csv")})
    explained(InputError, lambda: fit_tasks({**tasks, "flows": lost}, tmp_path / "model", device="cpu"), "lost.csv")
    paths = [Path("a/flows.yaml"), Path("b/flows.yaml")]
    explained(SettingsError, lambda: domain_names(paths), "two task files have the same name")


@pytest.mark.all
def test_an_interrupted_fit_of_domains_resumes(
    task_files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted before the calibration: nothing is learned again, and the answers are those of one run."""
    tasks = {name: Task.load(task_files[name]) for name in ("stays", "flows")}
    whole, _ = fit_tasks(tasks, tmp_path / "whole", device="cpu", compare=False)
    with monkeypatch.context() as patch:
        patch.setattr("tefm.pipeline.stages.calibrate", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fit_tasks(tasks, tmp_path / "model", device="cpu", compare=False)
    assert (tmp_path / "model.checkpoint").is_dir()
    monkeypatch.setattr(SlotCoder, "fit", lambda *given, **settings: pytest.fail("codes are learned again"))
    resumed, _ = fit_tasks(tasks, tmp_path / "model", device="cpu", compare=False)
    for name, table in NEW.items():
        np.testing.assert_array_equal(resumed[name].predict_proba(table), whole[name].predict_proba(table))


def test_an_added_domain_cannot_change_the_language_model(joint: Fitted, explained: Explained) -> None:
    for settings in ({"backbone": "smollm2-135m"}, {"align": "default"}, {"tune": {"trains": "full"}}):
        (name,) = settings
        config = ModelConfig.checked(settings)
        explained(SettingsError, lambda config=config: joint[0].extension(config), f"`{name}` would change")


def test_domains_are_served_as_models(saved: Path) -> None:
    served = load_models([str(saved)], device="cpu")
    assert [model.name for model in served] == ["stays", "flows"]
    assert [model.name for model in load_models([f"all={saved}"], device="cpu")] == ["all-stays", "all-flows"]
