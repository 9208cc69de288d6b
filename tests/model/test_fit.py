"""A task from table to figures: what is judged, and what is said about figures that mean little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import ONLY_PREDICTS, QUICK, STAYS, quick, stays
from rich.console import Console

import tefm.model.run
from tefm.model.estimator import TEFM
from tefm.model.remarks import behind, open_questions, rare, repeated, thinned, unlabelled, without_unseen
from tefm.model.run import TaskTable, fit_frame, split_parts, start
from tefm.model.task import Split
from tefm.pipeline.config import ModelConfig
from tefm.scoring.breakdown import Evaluation
from tefm.scoring.metrics import Verdict, score
from tefm.scoring.weighted import Interval
from tefm.show.terminal import evaluation_table, outcome_tables, prediction_table
from tefm.tables.grouping import by_entity
from tefm.tables.infer import infer_schema
from tefm.tables.records import Records
from tefm.tables.schema import Schema
from tefm.tables.sequences import PARTS, Sequences
from tefm.tabular import learners

#: Codes for tests of what happens around them.
FEW_STEPS = {**QUICK["codes"], "steps": 20}


def shown(*parts: Any) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get()


def labelled(*labels: str | None) -> Sequences:
    frame = pl.DataFrame({"x": range(len(labels)), "label": labels})
    return by_entity(frame, Schema.from_yaml("{label: label, fields: {x: number}}"))


def test_a_class_without_training_sequences_is_not_judged() -> None:
    sequences = labelled("a", "b", "c", "a", None, "c")
    parts = np.array(["train", "train", "test", "test", "test", "validation"])
    found, remarks = without_unseen(sequences, parts)
    assert found.tolist() == ["train", "train", "", "test", "test", ""]
    assert len(remarks) == 1
    assert "2 sequences are not scored" in remarks[0]
    assert "(c)" in remarks[0]
    found, remarks = without_unseen(sequences.select([0, 1, 3, 4]), parts[[0, 1, 3, 4]])
    assert (found.tolist(), remarks) == (parts[[0, 1, 3, 4]].tolist(), [])


def test_a_fit_that_is_behind_says_what_may_help() -> None:
    def remarks(first: str, second: str, low: float, **settings: Any) -> list[str]:
        verdict = Verdict((first, second), "AUROC", (0.9, 0.8), Interval(0.1, low, 0.2))
        return behind(verdict, ModelConfig.checked({"beside": "none"} | settings))

    assert "`beside: trees`" in remarks("LightGBM", "TEFM (codes)", 0.05)[0]
    assert not remarks("LightGBM", "TEFM (codes)", -0.05), "no difference can be told"
    assert not remarks("TEFM (codes)", "LightGBM", 0.05)
    assert not remarks("LightGBM", "TEFM (codes and trees)", 0.05, beside="trees"), "they answer already"
    assert not behind(None, ModelConfig())


def test_fields_that_give_the_label_away_are_named_before_training(caplog: pytest.LogCaptureFixture) -> None:
    frame = stays(80).with_columns(left=pl.when(pl.col("died") == "yes").then(pl.col("age").fill_null(50)))
    schema = infer_schema(frame, entity="patient", time="day", label="died")
    started = start(TaskTable.of_frame(TEFM(schema), frame, Split()))
    (remark,) = [remark for remark in started.remarks if "'left'" in remark]
    assert "is present in 100% of the records labelled 'yes' and 0% of the others" in remark
    assert "`ignore: [left]`" in remark
    assert remark in caplog.messages
    started = start(TaskTable.of_frame(TEFM(schema.without(["left", "drugs"])), frame, Split()))
    assert not [remark for remark in started.remarks if "ignore" in remark]


def test_rare_classes_are_named() -> None:
    assert rare(("a", "b", "c"), labelled(*"a" * 30, *"b" * 3)) == [
        "too few test sequences for reliable figures: b (3), c (0)"
    ]
    assert rare(("a", "b"), labelled(*"a" * 30, *"b" * 20)) == []


def test_sequences_without_a_label_are_counted() -> None:
    assert unlabelled(labelled("a", None, "b", None)) == [
        "2 of 4 sequences have no label: they are neither trained on nor scored"
    ]
    assert unlabelled(labelled("a", "b")) == []


def test_a_balance_that_leaves_next_to_nothing_says_so() -> None:
    flows = labelled(*"a" * 500, *"b" * 60, "c", None)
    balanced, whole = ModelConfig(balance="train"), ModelConfig(balance="none")
    (remark,) = thinned(balanced, flows)
    assert "the rarest (c, 1): 3 of 561 training sequences are used" in remark
    assert thinned(balanced, flows.select(range(560))) == []
    assert thinned(whole, flows) == []


def test_test_sequences_that_repeat_training_ones_are_counted() -> None:
    frame = pl.DataFrame({"host": [0, 0, 1, 1, 2, 2, 3], "x": [1, 2, 1, 2, 2, 1, 1], "label": ["a"] * 7})
    schema = Schema.from_yaml("{entity: host, label: label, fields: {x: number}}")
    records = Records.of_frame(frame, schema)
    (remark,) = repeated(records, np.array(["train", "test", "test", "test"]))
    assert remark.startswith("1 of 3 test sequences")  # the order of the records counts, and so does their number
    assert repeated(records, np.array(["train", "validation", "test", "test"])) == []


def test_a_new_class_at_the_end_of_a_table_does_not_stop_the_fit(backbones: dict[str, Path]) -> None:
    """Split by time, it is in the test part alone."""
    frame = stays(60)
    last = frame["day"].sort().gather(range(-4, 0))
    frame = frame.with_columns(died=pl.when(pl.col("day").is_in(last.implode())).then(pl.lit("lost")).otherwise("died"))
    model = quick(backbones["llama"], **ONLY_PREDICTS)
    outcome = fit_frame(model, frame, Split(by="time", shares=(0.6, 0.2, 0.2)), compare=False)
    assert model.fitted.classes == ("no", "yes")
    assert "(lost)" in outcome.remarks[0]
    assert "too few test sequences" in outcome.remarks[-1]
    assert outcome.sequences["test"] == outcome.test.scores.n < 12
    assert outcome.to_dict()["remarks"] == list(outcome.remarks)
    assert "! too few test sequences" in shown(*outcome_tables(outcome))


def test_records_that_tie_or_contradict_each_other_are_remarked_before_the_training(
    backbones: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Not in windows, which know no entities."""
    frame = stays(20).with_columns(day=pl.lit("2024-01-31"))
    model = quick(backbones["llama"], **ONLY_PREDICTS, tune={"steps": 1})
    outcome = fit_frame(model, frame, Split(shares=(0.6, 0.2, 0.2)), compare=False)
    several = frame.group_by("patient").agg(pl.len(), pl.col("died").n_unique())
    tied, differ = (several["len"] > 1).sum(), (several["died"] > 1).sum()
    remarks = [remark for remark in outcome.remarks if "entities" in remark]
    assert remarks == [line for line in caplog.messages if "entities" in line]
    assert remarks == [
        f"{tied} of 20 entities ('patient') have records at the same time ('day'): these stay in the file's order",
        f"{differ} of 20 entities ('patient') have records with different labels ('died'): the label of the last "
        f"record is used; for {differ} the last records are at the same time, and the file's order decides",
    ]
    assert open_questions(Records.of_frame(frame, STAYS, window=5)) == []


@pytest.mark.parametrize("balance", ["none", "train", "all"])
def test_tabular_models_see_every_training_label(
    balance: str, backbones: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learners, "RATES", (0.1,))
    monkeypatch.setattr(learners, "LEAVES", (7,))
    monkeypatch.setattr(learners, "STRENGTHS", (0.1,))
    frame = stays(240).filter((pl.col("died") == "no") | (pl.col("age") < 50))
    model = quick(backbones["llama"], **ONLY_PREDICTS, balance=balance, tune={"steps": 2}, codes=FEW_STEPS)
    shares = Split(shares=(0.6, 0.2, 0.2))
    outcome = fit_frame(model, frame, shares)
    sequences = by_entity(frame, STAYS)
    parts, _ = split_parts(model.config, sequences, shares)
    labels = np.asarray(sequences.labels)
    rarest = {part: min(np.unique(labels[parts == part], return_counts=True)[1]) for part in PARTS}
    trained = int((parts == "train").sum())
    assert outcome.sequences["train"] == (trained if balance == "none" else 2 * rarest["train"])
    for part in ("validation", "test"):
        assert outcome.sequences[part] == (2 * rarest[part] if balance == "all" else (parts == part).sum())
    for figures in outcome.baselines.values():
        assert figures["train"] == trained  # whatever the balance
        assert figures["test"]["n"] == outcome.sequences["test"]
        assert figures["validation"]["n"] == outcome.sequences["validation"]
        assert figures["calibration"]["rule"] == model.fitted.calibration.rule
        assert bool(figures["calibration"]["bias"]) == (balance == "all")  # trained on other shares than it is used on
    assert outcome.verdict is not None and outcome.confusion is not None
    assert outcome.verdict.models[0] == "LightGBM" or outcome.verdict.models[1] == "LightGBM"
    assert np.sum(outcome.confusion.counts) == outcome.sequences["test"]
    body = outcome.to_dict()
    assert body["verdict"]["sentence"] == outcome.verdict.sentence
    assert list(body["confusion"]["classes"]) == ["no", "yes"]
    text = shown(*outcome_tables(outcome))
    assert outcome.verdict.sentence in text
    assert "Confusion matrix" in text
    for scores in (outcome.test.to_dict(), outcome.baselines["lightgbm"]["test_calibrated"]):
        auroc = scores["auroc"]
        assert f"{auroc['value']:.3f} [{auroc['low']:.3f}–{auroc['high']:.3f}]" in text


def test_a_huge_training_part_is_sampled_and_one_answer_for_all_is_said(
    backbones: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(learners, "LEAVES", (7,))
    monkeypatch.setattr(learners, "STRENGTHS", (0.1,))
    monkeypatch.setattr(tefm.model.run, "MOST_COMPARED", 60)
    costs = {"cost": {"yes": 1e-9, "no": 1}}
    model = quick(backbones["llama"], **ONLY_PREDICTS, decision=costs, tune={"steps": 2}, codes=FEW_STEPS)
    with caplog.at_level("WARNING", logger="tefm"):
        outcome = fit_frame(model, stays(120), Split())
        model.predict_table(stays(60, seed=1))
    assert {figures["train"] for figures in outcome.baselines.values()} == {60}
    remarks = (
        "LightGBM and logistic regression learn from 60 of 96 training sequences, drawn at random",
        "the model answers “no” for all 12 sequences: raise the cost of missing the other classes",
    )
    assert set(remarks) <= set(outcome.remarks)
    for remark in (*remarks, "“no” for all 60 sequences"):
        assert remark in caplog.text
    caplog.clear()
    model.predict(stays(40, seed=1))
    assert "for all" not in caplog.text  # too few to wonder


def test_an_evaluation_on_few_sequences_says_so() -> None:
    def told(count: int, unlabelled: int = 0) -> str:
        labels = np.arange(count) % 2
        p = np.full((count, 2), 0.5)
        scores = score(p, labels, ("no", "yes"), resamples=10)
        return shown(evaluation_table(Evaluation(scores, 8.0, 8.0, unlabelled=unlabelled)))

    assert "too few sequences" in told(6)
    assert "too few sequences" not in told(60)
    assert "3 more have no label and are not scored;" in told(6, unlabelled=3)


def test_of_several_classes_the_figures_are_means_and_say_so() -> None:
    for classes, told in ((("a", "b"), False), (("a", "b", "c"), True)):
        labels = np.arange(60) % len(classes)
        scores = score(np.full((60, len(classes)), 1 / len(classes)), labels, classes, resamples=10)
        assert ("means over the" in shown(evaluation_table(Evaluation(scores, 8.0, 8.0)))) == told


@pytest.mark.parametrize(("classes", "columns"), [(2, 5), (15, 4)])
def test_predictions_of_many_classes_fit_the_terminal(classes: int, columns: int) -> None:
    probabilities = {f"p(class {i})": [0.75 if i == 1 else 0.0] for i in range(classes)}
    found = prediction_table(pl.DataFrame({"host": ["a"], "records": [3], "predicted": ["class 1"], **probabilities}))
    assert len(found.columns) == columns
    assert "0.7500" in shown(found)
