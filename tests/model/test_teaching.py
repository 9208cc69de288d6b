"""What the language model learns from: labels and the teacher, sequences left out or without a label, masked copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import ONLY_PREDICTS, QUICK, STAYS, quick, stays

from tefm.codes.coder import SlotCoder
from tefm.model.estimator import TEFM
from tefm.pipeline import data as teaching
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.data import Lesson, TaskData, examples_of, lesson_of
from tefm.pipeline.prepare import prepare, records_of
from tefm.tables.schema import Schema


def lesson(fitted: TEFM, table: pl.DataFrame, **settings: Any) -> tuple[TaskData, ModelConfig, Lesson]:
    config = ModelConfig(**settings)
    model = TEFM(STAYS, tokenizer=fitted.tokenizer_, **settings)
    data = model.prepared(table, validation=stays(20, seed=9)).given.data
    coder = fitted.fitted.coder
    assert coder is not None
    return data, config, lesson_of(data, config, coder, coder.encode(data.training.slots_ND))


def rare(patients: int) -> pl.DataFrame:
    """Stays of which few patients die."""
    frame = stays(patients)
    last = frame.group_by("patient", maintain_order=True).agg(pl.col("died").sort_by("day").last())
    died = last.filter(pl.col("died") == "yes")["patient"]
    return frame.filter(~pl.col("patient").is_in(died[: -len(died) // 4].implode()))


def test_a_lesson_mixes_labels_and_the_teacher(fitted: TEFM) -> None:
    data, config, taught = lesson(fitted, stays(120), tune={"label_share": 0.3})
    assert taught.classes_SQ is not None
    np.testing.assert_allclose(taught.classes_SQ.sum(axis=1), 1)
    assert (taught.labels_S == data.training.labels_S).all() and len(taught.sequences) == examples_of(data, config)
    of_label_S = taught.classes_SQ[np.arange(len(taught.labels_S)), taught.labels_S]
    assert of_label_S.min() >= 0.3 - 1e-9 and of_label_S.max() < 1
    # the label follows from one drug, so models that never saw a patient are mostly right
    assert (of_label_S > 0.6).mean() > 0.8
    assert lesson(fitted, stays(120), tune={"label_share": 1.0})[2].classes_SQ is None


def test_sequences_left_out_of_the_balance_are_learned_from_too(fitted: TEFM) -> None:
    table = rare(200)
    data, config, taught = lesson(fitted, table, balance="train")
    trained = len(data.training.sequences)
    assert data.training.others is not None and taught.classes_SQ is not None
    assert trained + len(data.training.others) == table["patient"].n_unique()
    assert len(taught.labels_S) == examples_of(data, config) == 2 * trained, "as many others as are trained on"
    assert np.bincount(taught.labels_S[:trained]).tolist() == [trained // 2] * 2
    # at the shares of the balanced sequences, the teacher sees as many deaths in them as there are
    assert taught.classes_SQ[:trained, 1].mean() == pytest.approx(0.5, abs=0.1)
    assert taught.classes_SQ[trained:, 1].mean() < 0.3, "the others are survivors"
    whole = lesson(fitted, table, balance="train", tune={"label_share": 1.0})[2]
    assert len(whole.labels_S) == trained, "without a teacher nothing is known about them"


def test_sequences_without_a_label_are_learned_from(fitted: TEFM) -> None:
    unknown = pl.col("patient").str.slice(1).cast(pl.Int64) % 3 == 0
    table = stays(120).with_columns(died=pl.when(unknown).then(None).otherwise(pl.col("died")))
    data, config, taught = lesson(fitted, table)
    assert data.training.other_labels_S is not None and (data.training.other_labels_S == -1).all()
    assert len(taught.labels_S) == 120 == examples_of(data, config)
    truth = stays(120).group_by("patient", maintain_order=True).agg(pl.col("died").sort_by("day").last())
    others = truth.filter(unknown)["died"].to_numpy() == "yes"
    assert (taught.labels_S[80:] == others).mean() > 0.8, "their answer is the teacher's"


def test_masked_copies_come_last_and_are_limited(fitted: TEFM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teaching, "COPIED", 25)
    data, config, taught = lesson(fitted, stays(60), rationale="default")
    assert len(taught.sequences) == len(taught.labels_S) == examples_of(data, config) == 60 + 25
    whole, copies = taught.sequences.select(np.arange(60)), taught.sequences.select(np.arange(60, 85))
    coder = fitted.fitted.coder
    assert coder is not None and (whole.codes_NK == coder.encode(data.training.slots.x_ND)).all()
    lengths = dict(zip(data.training.sequences.names, data.training.sequences.lengths, strict=True))
    assert [lengths[name] for name in copies.names] == copies.lengths.tolist(), "copies of whole sequences"


def test_single_records_have_the_teacher_of_their_codes_also_after_an_interruption(backbones: dict[str, Path]) -> None:
    table = stays(150).drop("patient", "day")
    schema = STAYS.model_copy(update={"entity": None, "time": None})
    model = quick(backbones["llama"], schema, **ONLY_PREDICTS, tune={"steps": 1}).fit(table)
    config, coder = model.config, model.fitted.coder
    records = records_of(table, schema, config)
    data = prepare(records, config, validation=records, tokenizer=model.tokenizer_).given.data
    assert coder is not None
    other = SlotCoder(coder.config).fit(data.training.slots_ND, coder.layout, labels_N=data.training.record_labels_N)
    codes_NK = other.encode(data.training.slots_ND)
    at_once = lesson_of(data, config, other, codes_NK, own_codes=True)
    other.teacher_ = None  # as after loading
    resumed = lesson_of(data, config, other, codes_NK, own_codes=True)
    given = lesson_of(data, config, other, codes_NK)
    assert at_once.classes_SQ is not None and given.classes_SQ is not None
    np.testing.assert_array_equal(at_once.classes_SQ, resumed.classes_SQ)
    assert (at_once.classes_SQ != given.classes_SQ).any(), "codes of other records have another teacher"


@pytest.mark.all
def test_what_the_teacher_cannot_see_is_learned_from_the_labels(backbones: dict[str, Path]) -> None:
    """Which of two events came first: the last record and the mean of all, which the teacher has, do not say it."""
    rng = np.random.default_rng(0)
    rows = []
    for case in range(400):
        first = bool(rng.integers(2))
        for step, event in enumerate(("a", "b", "end") if first else ("b", "a", "end")):
            rows.append({"case": f"c{case}", "step": step, "event": event, "label": "yes" if first else "no"})
    frame = pl.DataFrame(rows)
    schema = Schema.from_yaml("{entity: case, time: step, label: label, fields: {event: category}}")
    tune = {"learning_rate": 3e-3, "steps": 250}
    settings = {
        "explanations": "none",
        "rationale": "none",
        "task_aware": False,
        "codes": QUICK["codes"],
        "tune": tune,
    }
    model = quick(backbones["llama"], schema, **settings).fit(frame.filter(pl.col("case").str.slice(1).cast(int) < 320))
    held_out = frame.filter(pl.col("case").str.slice(1).cast(int) >= 320)
    assert model.score(held_out) > 0.95
