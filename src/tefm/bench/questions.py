"""Questions in words, measured through the code of `tefm fit`: trained ones, and those that no training saw.

A run is one table, one seed and one language model, with its pretrained weights or with random ones. Codes, questions,
histories and pairs depend on table and seed alone, so that runs differ in the language model only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
from pydantic import Field as Setting

from tefm.base.files import replacing_folder
from tefm.bench.measurement import Bench, Figures, Measurement
from tefm.bench.question_tables import QUESTION_TABLES
from tefm.bench.user_data import tables_folder
from tefm.fit import fit_frame
from tefm.language.backbone import open_backbone
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.language.smollm2 import quietly
from tefm.model import TEFM
from tefm.task import Split

#: What is asked of each table, and how much is measured.
ASKED: dict[str, dict[str, Any]] = {
    "diabetes130": {"asked": [{"next": "diagnoses", "values": 130}], "hold_out": 0.25},
    "bpic2012": {"asked": [{"next": "activity", "values": 30}], "hold_out": 0.3},
}
#: Histories and pairs of a whole run.
WHOLE: dict[str, Any] = {"pairs": 60_000, "scored": 1_500, "scored_yes": 100, "stand_ins": 1_000}


class QuestionRun(Measurement):
    """One language model that learns all trained questions of a table."""

    KIND: ClassVar[str] = "questions"

    table: str
    seed: int
    backbone: str = SMOLLM2
    #: the first blocks that are kept; None keeps all
    layers: int | None = 6
    body: Literal["pretrained", "random"] = "pretrained"
    #: entities that are drawn from a larger table; None takes all
    most: int | None = None
    #: settings of `questions:` on top of those of the table
    asked: dict[str, Any] = Setting(default_factory=dict)
    #: settings of the model
    settings: dict[str, Any] = Setting(default_factory=dict)
    #: one LightGBM per question; it does not depend on the language model
    compare: bool = False

    def measure(self, bench: Bench) -> Figures:
        frame, schema = question_table(bench, self.table, self.most, self.seed)
        model = TEFM(
            schema,
            questions={**ASKED[self.table], **WHOLE, **self.asked},
            backbone=str(self._backbone(bench)),
            layers=self.layers if self.body == "pretrained" else None,
            explanations="none",
            seed=self.seed,
            **self.settings,
        )
        shared = bench.folder / "artefacts" / f"questions-{self.table}-{self.seed}"
        split = Split(seed=self.seed)
        outcome = fit_frame(model, frame, split, compare=self.compare, checkpoint=shared, file=self.table)
        book = outcome.questions
        assert book is not None, "the model answers questions"
        return {
            "questions": [
                {
                    "text": entry.question.text,
                    "trained": entry.trained,
                    "auroc": entry.figure.auroc,
                    "lightgbm": entry.lightgbm,
                    "asked": entry.asked,
                    "yes": entry.yes,
                }
                for entry in book.entries
            ],
            "new": book.new.model_dump(),
            "in_place": book.in_place.model_dump(),
            "tokens": outcome.test.tokens_mean,
            "steps": model.fitted.history["tune"].stopped_at,
        }

    def _backbone(self, bench: Bench) -> str | Path:
        """The backbone's name, or the folder of one with the same architecture and random weights."""
        if self.body == "pretrained":
            return self.backbone
        name = f"random-{Path(self.backbone).name}-{self.layers}-{self.seed}"
        folder = bench.folder / "artefacts" / name
        if not (folder / "config.json").is_file():
            opened = open_backbone(self.backbone, layers=self.layers, random_body=True, seed=self.seed, device="cpu")
            with replacing_folder(folder, ours=Path.is_dir) as temporary, quietly():
                opened.model.save_pretrained(temporary)
                opened.tokenizer.save_pretrained(temporary)
        return folder


def question_table(bench: Bench, name: str, most: int | None, seed: int) -> tuple[pl.DataFrame, Any]:
    """The rows of a table and its schema, without a label; of at most so many entities, drawn at random."""
    table = QUESTION_TABLES[name]
    folder = tables_folder(bench.sources, table)
    frame = table.read(folder)
    schema = table.schema_for(table.task_for(seed), frame, folder)
    entities = frame[str(schema.entity)].unique(maintain_order=True)
    if most is not None and len(entities) > most:
        drawn = np.random.default_rng(seed).permutation(len(entities))[:most]
        frame = frame.filter(pl.col(str(schema.entity)).is_in(entities.gather(drawn).implode()))
    return frame, schema
