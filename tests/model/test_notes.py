"""Notes beside codes: the label is a word in the text of the first record, and no field says anything about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import Explained, quick
from support.kept import Kept

from tefm.base.errors import InputError, SchemaError, SettingsError
from tefm.explain.explanation import Explanation
from tefm.model.estimator import TEFM
from tefm.model.run import count_tokens, fit_frame
from tefm.model.task import Split, Task
from tefm.scoring.metrics import auroc
from tefm.tables.schema import Schema

SCHEMA = Schema.from_yaml("""
record: visit
entity: patient
time: day
label: ill
text: {note: {tokens: 24}, plan: 8}
fields: {age: number, ward: category}
""")
FILLERS = ("slept", "walked", "ate", "talked")
SETTINGS: dict[str, Any] = {
    "tune": {"learning_rate": 3e-3, "epochs": 10, "least": 200},
    "explanations": {"surrogate_steps": 300, "surrogate_hidden": 32, "questions": 1_200, "donors": 400},
    "task_aware": False,
    "beside": "none",  # trees read no text
}


def visits(patients: int, seed: int = 0) -> pl.DataFrame:
    """Three visits per patient; the note of the first one says "fever" or "calm", in between other words."""
    rng = np.random.default_rng(seed)
    rows = []
    for patient in range(patients):
        ill = bool(rng.random() < 0.5)
        for visit in range(3):
            words = list(rng.choice(FILLERS, size=3))
            if visit == 0:
                words.insert(int(rng.integers(3)), "fever" if ill else "calm")
            rows.append(
                {
                    "patient": f"p{patient}",
                    "day": f"2024-01-0{1 + visit}",
                    "age": int(rng.integers(20, 90)),
                    "ward": str(rng.choice(["heart", "lung"])),
                    "note": " ".join(words),
                    "plan": "home" if rng.random() < 0.5 else None,
                    "ill": "yes" if ill else "no",
                }
            )
    return pl.DataFrame(rows)


@pytest.fixture(scope="module")
def noted(kept: Kept, backbones: dict[str, Path]) -> TEFM:
    return kept.made("notes", lambda: quick(backbones["llama"], SCHEMA, **SETTINGS).fit(visits(400)))


NEW = visits(40, seed=1)


@pytest.mark.all
def test_a_word_of_an_earlier_record_decides(noted: TEFM) -> None:
    assert noted.evaluate(NEW).scores.accuracy.value >= 0.95
    others = {"fever": "calm", "calm": "fever"}
    swapped = NEW.with_columns(pl.col("note").str.replace_many(list(others), list(others.values())))
    before, after = (noted.predict_table(table)["predicted"] for table in (NEW, swapped))
    assert (before != after).mean() >= 0.9


def test_the_text_settles_the_answer(noted: TEFM) -> None:
    explanations = noted.explain(NEW.head(36))
    settled = [one for one in explanations if one.verified]
    assert len(settled) >= 9
    for one in settled:
        assert ("note", 1) in {(finding.field, finding.record) for finding in one.settling.findings}
        assert one.verdict == "made-up only", "texts hardly ever repeat"
        assert one.joint is not None
        strongest = max(one.joint.shares, key=lambda influence: abs(influence.change))
        assert (strongest.finding.field, strongest.finding.record) == ("note", 1)
        assert "fever" in strongest.finding.words or "calm" in strongest.finding.words
        assert strongest.observed is None  # texts hardly ever repeat
        assert strongest.words[0].words in ("fever", "calm")
        assert strongest.words[0].change > 0.05  # left out, one of the two answers is still the likelier one
        assert strongest.words[0].words in strongest.observation
        assert Explanation.from_json(one.to_json()) == one


def test_a_text_may_be_no_reason(noted: TEFM, explained: Explained) -> None:
    for one in noted.explain(NEW.head(9), without=["note"]):
        assert "note" not in {finding.field for finding in one.settling.findings} and not one.verified
    explained(SettingsError, lambda: noted.explain(NEW, without=["notes"]), "'notes'", "'note'")
    explained(SettingsError, lambda: noted.explain(NEW, sensitive=["note"]), "'note'", "'age'")


def test_a_taught_question_reads_the_text(noted: TEFM, tmp_path: Path) -> None:
    """No field tells the answer: only the state of the language model, which has read the words, does."""
    model = TEFM.load(noted.save(tmp_path / "model"), device="cpu")
    shown, later = (visits(count, seed).with_columns(feverish=pl.col("ill")) for count, seed in ((60, 5), (80, 6)))
    model.teach(shown, "Is there a fever?", answer="feverish", yes="yes")
    truth = later.group_by("patient", maintain_order=True).agg(pl.col("ill").last())["ill"] == "yes"
    answers = model.ask(later, "Is there a fever?")["p(yes)"].to_numpy()
    assert auroc(answers, truth.to_numpy()) > 0.9
    unread = later.with_columns(note=pl.lit(None, dtype=pl.String))
    assert auroc(model.ask(unread, "Is there a fever?")["p(yes)"].to_numpy(), truth.to_numpy()) < 0.7


def test_there_and_back(noted: TEFM, tmp_path: Path) -> None:
    noted.save(tmp_path / "model")
    again = TEFM.load(tmp_path / "model", device="cpu")
    assert again.schema == SCHEMA
    assert again.predict_table(NEW).equals(noted.predict_table(NEW))
    few = NEW.head(9)
    assert [str(one) for one in again.explain(few)] == [str(one) for one in noted.explain(few)]


def test_a_missing_column_is_named_or_counts_as_absent(noted: TEFM, explained: Explained) -> None:
    explained(InputError, lambda: noted.predict_table(NEW.drop("note")), "'note'")
    blank = NEW.with_columns(pl.lit(None, pl.String).alias("note"))
    absent = noted.predict_table(NEW.drop("note"), absent=True)
    assert absent.equals(noted.predict_table(blank))


def test_fit_counts_texts_in_every_form_and_says_what_was_cut(backbones: dict[str, Path]) -> None:
    model = quick(
        backbones["llama"],
        SCHEMA.with_text({"note": {"tokens": 2}}),
        codes={"levels": 2, "entries": 8, "latent": 8, "hidden": 16, "steps": 20},
        tune={"steps": 2},
        explanations="none",
        rationale="none",
        prompt={"all_text_tokens": 5},
    )
    outcome = fit_frame(model, visits(60), Split())
    (short,) = [remark for remark in outcome.remarks if "longer than their budget" in remark]
    (old,) = [remark for remark in outcome.remarks if "the oldest first" in remark]
    assert short.startswith("96 of 144 texts") and old.startswith("48 of 144 texts"), (short, old)
    forms = {count.format: count.mean for count in outcome.tokens}
    assert {"prose and text", "csv and text", "codes and text, with the question"} <= set(forms)
    bare_model = _without_text(model)
    bare = {count.format: count.mean for count in count_tokens(bare_model, bare_model.preparation.records(visits(60)))}
    assert forms["csv and text"] - bare["csv"] >= 5
    assert "+" in outcome.baselines["logistic"]["kind"]
    assert outcome.baselines["lightgbm"]["test_calibrated"]["auroc"]["value"] > 0.9


def _without_text(model: TEFM) -> TEFM:
    import copy
    from dataclasses import replace

    bare = copy.copy(model)
    schema = SCHEMA.model_copy(update={"text": (), "text_budgets": ()})
    bare.preparation_ = replace(model.preparation, schema=schema)
    return bare


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{note: {tokens: 0}}", ["'note'", "number of tokens"]),
        ("{note: many}", ["'note'", "'many'", "tokens: 64"]),
        ("{note: {token: 64}}", ["'note'", "tokens: 64"]),
        ("{note: }", ["'note'", "text: [note]"]),
        ("{age: 64}", ["'age'", "used twice"]),
    ],
)
def test_a_budget_that_is_none(text: str, parts: list[str], explained: Explained) -> None:
    body = f"{{entity: patient, text: {text}, fields: {{age: number}}}}"
    explained(SchemaError, lambda: Schema.from_yaml(body), *parts)


def test_a_task_names_texts() -> None:
    task = Task.from_yaml("{table: t.csv, entity: patient, time: day, label: ill, text: {note: {tokens: 30}}}")
    schema = task.schema_for(visits(30))
    assert (schema.text, schema.text_budgets) == (("note",), (30,))
    assert "note" not in (*schema.ignore, *schema.columns)
    assert Schema.from_yaml(schema.to_yaml()) == schema
    plain = Task.from_yaml("{table: t.csv, entity: patient, label: ill, text: [note]}").schema_for(visits(30))
    assert (plain.text, plain.text_budgets) == (("note",), ())
