"""Questions in words, measured through the code of `tefm fit`: trained ones, and those that no training saw.

A run is one table, one seed and one language model, with its pretrained weights or with random ones. Codes, questions,
histories and pairs depend on table and seed alone, so that runs differ in the language model only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal
from unittest.mock import patch

import numpy as np
import polars as pl
from pydantic import Field as Setting

from tefm.base.files import replacing
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.language.smollm2 import quietly
from tefm.model.ask import test_histories
from tefm.model.estimator import TEFM
from tefm.model.run import TaskTable, fit_frames, start
from tefm.model.task import Split
from tefm.pipeline.prepare import records_of
from tefm.questions import measure
from tefm.questions.measure import lightgbm_per_question
from tefm.questions.question_data import pairs_to_score
from tefm_bench.backbones import opened
from tefm_bench.measurement import Bench, Figures, Measurement
from tefm_bench.question_tables import QUESTION_TABLES
from tefm_bench.user_data import tables_folder

#: What is asked of each table, and how much is measured.
ASKED: dict[str, dict[str, Any]] = {
    "diabetes130": {"asked": [{"next": "diagnoses", "values": 130}], "hold_out": 0.25},
    "bpic2012": {"asked": [{"next": "activity", "values": 30, "again": False}], "hold_out": 0.3},
}
#: Histories and pairs of a whole run.
WHOLE: dict[str, Any] = {"pairs": 320_000, "scored": 1_500}
#: Trained questions that may stand in for a held-out one: all of them.
STAND_INS = 1_000


class Asking(Measurement):
    """The questions of a table, its split and the pairs that are scored: they depend on these settings alone."""

    table: str
    seed: int
    #: entities that are drawn from a larger table; None takes all
    most: int | None = None
    #: settings of `questions:` on top of those of the table
    asked: dict[str, Any] = Setting(default_factory=dict)

    def _table(self, bench: Bench, **settings: Any) -> TaskTable:
        frame, schema = question_table(bench, self.table, self.most, self.seed)
        questions = {**ASKED[self.table], **WHOLE, **self.asked}
        model = TEFM(schema, questions=questions, explanations="none", seed=self.seed, **settings)
        return TaskTable(model, records_of(frame, schema, model.config, file=self.table).timed(), Split(seed=self.seed))


class QuestionTrees(Asking):
    """One LightGBM for each trained question, on all its training labels, scored on the pairs that ours answers."""

    KIND: ClassVar[str] = "questions-lightgbm"

    def measure(self, bench: Bench) -> Figures:
        started = start(self._table(bench))
        data = started.prepared.given.data
        questions = data.questions
        assert questions is not None and data.layout is not None, "there are questions about slots"
        tested, x_ND = test_histories(started.prepared.preparation, questions, started.tested)
        pairs = pairs_to_score(tested, questions.config, seed=self.seed)
        slots = (data.training.slots_ND, data.validation.slots_ND, x_ND)
        figures = lightgbm_per_question(questions, data.layout, slots, tested, pairs, seed=self.seed)
        return {"lightgbm": {questions.questions[number].text: auroc for number, auroc in figures.items()}}


class QuestionRun(Asking):
    """One language model that learns all trained questions of a table."""

    KIND: ClassVar[str] = "questions"

    backbone: str = SMOLLM2
    #: the first blocks that are kept; None is the backbone's default, which is 6 for SmolLM2 and all for others
    layers: int | None = 6
    body: Literal["pretrained", "random"] = "pretrained"
    #: settings of the model
    settings: dict[str, Any] = Setting(default_factory=dict)

    def measure(self, bench: Bench) -> Figures:
        layers = self.layers if self.body == "pretrained" else None
        table = self._table(bench, backbone=str(self._backbone(bench)), layers=layers, **self.settings)
        model, shared = table.model, bench.folder / "artefacts" / f"questions-{self.table}-{self.seed}"
        with patch.object(measure, "STAND_INS", STAND_INS):
            outcome = fit_frames({"": table}, compare=False, checkpoint=shared)[""]
        book = outcome.questions
        assert book is not None, "the model answers questions"
        return {
            "questions": [
                {
                    "text": entry.question.text,
                    "trained": entry.trained,
                    "auroc": entry.figure.auroc,
                    "by_model": entry.by_model,
                    "by_fields": entry.by_fields,
                    "share": entry.share,
                    "asked": entry.asked,
                    "yes": entry.yes,
                }
                for entry in book.entries
            ],
            "new": book.new.model_dump(),
            "in_place": book.in_place.model_dump(),
            "tokens": outcome.test.tokens_mean,
            "steps": tuned.stopped_at if (tuned := model.fitted.history.get("tune")) else 0,
        }

    def _backbone(self, bench: Bench) -> str | Path:
        """The backbone's name, or the folder of one with the same architecture and random weights."""
        if self.body == "pretrained":
            return self.backbone
        name = f"random-{Path(self.backbone).name}-{self.layers}-{self.seed}"
        folder = bench.folder / "artefacts" / name
        if not (folder / "config.json").is_file():
            backbone = opened(self.backbone, layers=self.layers, random_body=True, seed=self.seed, device="cpu")
            with replacing(folder, ours=Path.is_dir) as temporary, quietly():
                backbone.model.save_pretrained(temporary)
                backbone.tokenizer.save_pretrained(temporary)
        return folder


def question_table(bench: Bench, name: str, most: int | None, seed: int) -> tuple[pl.DataFrame, Any]:
    """The rows of a table and its schema, without a label; of at most so many entities, drawn at random."""
    table = QUESTION_TABLES[name]
    folder = tables_folder(bench.sources)
    frame = table.read(folder)
    schema = table.schema_for(table.task_for(seed), frame, folder)
    entities = frame[str(schema.entity)].unique(maintain_order=True)
    if most is not None and len(entities) > most:
        drawn = np.random.default_rng(seed).permutation(len(entities))[:most]
        frame = frame.filter(pl.col(str(schema.entity)).is_in(entities.gather(drawn).implode()))
    return frame, schema
