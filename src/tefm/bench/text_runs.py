"""Text beside codes, measured through the pipeline of `tefm fit`: our model, its parts, and tabular models.

Every line of a table and seed has the same rows in the same parts. The figures hold the probabilities of all test rows,
so that intervals can be computed again.

Shapes: N records, S sequences, Q classes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field as Setting

from tefm.bench.baselines.embeddings import EMBEDDINGS, embeddings_of, lightgbm_with
from tefm.bench.measurement import Bench, Figures, Measurement
from tefm.bench.table_runs import scored
from tefm.bench.text_tables import TEXT_TABLES, parts_of
from tefm.bench.user_data import folder_of
from tefm.fit import baseline_data
from tefm.language.backbone import open_backbone
from tefm.pipeline import fit as fit_pipeline
from tefm.prepare import Preparation, class_numbers_of, prepare
from tefm.records.notes import record_texts
from tefm.records.readers.table import open_table
from tefm.records.schema import Schema
from tefm.records.sequences import Sequences
from tefm.task import ModelConfig
from tefm.taskdata import Part, TaskData

#: What a line reads, and with which model.
Line = Literal[
    "codes and text",
    "trees beside",
    "random body",
    "text",
    "codes",
    "lightgbm and text",
    "lightgbm and embeddings",
    "lightgbm",
    "logistic and text",
    "tfidf",
]
LANGUAGE: tuple[Line, ...] = ("codes and text", "trees beside", "random body", "text", "codes")
#: The tabular model of each other line.
TABULAR = {
    "lightgbm and text": "lightgbm",
    "lightgbm and embeddings": EMBEDDINGS,
    "lightgbm": "lightgbm",
    "logistic and text": "logistic",
    "tfidf": "tfidf",
}


class TextRun(Measurement):
    """One line of a table with text, with one seed, which is that of the sample, the split and the model."""

    KIND: ClassVar[str] = "text"

    table: str
    seed: int
    line: Line
    #: rows that are drawn from a larger table; None takes all
    most: int | None = None
    #: settings of the model
    settings: dict[str, Any] = Setting(default_factory=dict)

    @property
    def description(self) -> str:
        return f"{self.KIND}: {self.line}, {self.table}, seed {self.seed}"

    def measure(self, bench: Bench) -> Figures:
        table = TEXT_TABLES[self.table]
        frame = table.read(folder_of(bench.sources, table.source))
        if self.most is not None and len(frame) > self.most:
            frame = frame[np.sort(np.random.default_rng(self.seed).permutation(len(frame))[: self.most])]
        parts = parts_of(table, frame, self.seed)
        data = _Data(frame, parts, table.schema, self.config)
        figures: Figures = {"sequences": {part: int((parts == part).sum()) for part in ("train", "validation", "test")}}
        if self.line in LANGUAGE:
            return figures | self._language_model(data)
        return figures | self._tabular(data)

    @property
    def config(self) -> ModelConfig:
        """The settings of `tefm fit`; nothing is explained here."""
        own = {"text": {"inputs": "text"}, "trees beside": {"beside": "trees"}}.get(self.line, {})
        return ModelConfig.checked({"explanations": "none", "seed": self.seed, **self.settings, **own})

    def _language_model(self, data: _Data) -> Figures:
        config = self.config
        schema = _without_text(data.schema) if self.line == "codes" else data.schema
        preparation, arrays = prepare(data.part("train"), data.part("validation"), schema, config)
        if self.line == "text":
            arrays = _only_text(arrays, data)
        backbone = open_backbone(
            config.backbone, layers=config.kept_layers, random_body=self.line == "random body", seed=self.seed
        )
        fitted = fit_pipeline(arrays, config, backbone=backbone)
        test = data.frame.filter(pl.Series(data.parts == "test"))
        rows = preparation.sequences(test)
        slots = data.with_text(test, rows) if self.line == "text" else preparation.slots(test, rows)
        read = fitted.read(slots)
        labels_S = class_numbers_of(rows, fitted.classes)
        p_SQ, tokens = fitted.answer(read), float(fitted.tokens(read).mean())
        share = {} if fitted.trees is None else {"share": fitted.trees.share}
        return {
            "tokens": tokens,
            **share,
            **_scored(p_SQ, fitted.decide(p_SQ), labels_S, fitted.classes, fitted.positive),
        }

    def _tabular(self, data: _Data) -> Figures:
        from tefm.bench.baselines.compare import BASELINES, fit_baselines

        preparation, arrays = prepare(data.part("train"), data.part("validation"), data.schema, data.config)
        sequences = preparation.sequences(data.frame)
        examples = baseline_data(preparation, data.frame, sequences, data.parts)
        if self.line == "lightgbm":
            examples = replace(examples, notes=None)
        model, available = TABULAR[self.line], BASELINES
        if model == EMBEDDINGS:
            assert examples.notes is not None, "there is text"
            backbone = open_backbone(data.config.backbone, layers=data.config.layers)
            available = {EMBEDDINGS: lightgbm_with(embeddings_of(backbone, examples.notes))}
        result = fit_baselines(
            replace(examples, texts=examples.notes),
            models=(model,),
            available=available,
            kinds=("last",),
            positive=arrays.positive,
            decision=data.config.decision_for(arrays.classes, arrays.shares),
            shares=arrays.shares,
            seed=self.seed,
            resamples=0,
        )[model]
        labels_S = class_numbers_of(sequences.select(data.parts == "test"), arrays.classes)
        chosen = {name: result.figures[name] for name in ("kind", "settings", "seconds")}
        scored = _scored(result.test_NQ, result.predicted_N, labels_S, arrays.classes, arrays.positive)
        return {"chosen": chosen, **scored}


class _Data:
    """A table in parts."""

    def __init__(self, frame: pl.DataFrame, parts: NDArray[np.str_], schema: Schema, config: ModelConfig) -> None:
        self.frame, self.parts, self.schema = frame, parts, schema
        self.config = config.model_copy(update={"inputs": "codes"})

    def part(self, name: str) -> Any:
        return open_table(self.frame.filter(pl.Series(self.parts == name)), name=name)

    def with_text(self, frame: pl.DataFrame, sequences: Sequences) -> Sequences:
        """Sequences whose records are their texts alone."""
        context = Preparation(self.schema, self.config, _NEVER).context(frame, sequences)
        return replace(sequences, texts=record_texts(context))


#: In place of a vectoriser, where only texts are read.
_NEVER: Any = object()


def _only_text(arrays: TaskData, data: _Data) -> TaskData:
    """The same task about texts alone."""

    def only(part: Part, name: str) -> Part:
        return replace(part, sequences=data.with_text(data.part(name).frame(), part.sequences))

    return replace(arrays, training=only(arrays.training, "train"), validation=only(arrays.validation, "validation"))


def _without_text(schema: Schema) -> Schema:
    return schema.model_copy(update={"text": (), "text_budgets": (), "ignore": (*schema.ignore, *schema.text)})


def _scored(
    p_SQ: NDArray[np.float64],
    predicted_S: NDArray[np.int64],
    labels_S: NDArray[np.int64],
    classes: tuple[str, ...],
    positive: int,
) -> Figures:
    """The scores, and what they are computed from."""
    figures = scored(p_SQ, predicted_S, labels_S, classes, positive, resamples=1_000)
    return {**figures, "labels": labels_S.tolist()}
