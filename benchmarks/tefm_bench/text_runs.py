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

from tefm.model.run import baseline_data
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.data import TaskData
from tefm.pipeline.fit import fit as fit_pipeline
from tefm.pipeline.prepare import label_numbers, prepare, records_of
from tefm.tables.records import Records
from tefm.tables.schema import Schema
from tefm.tables.sequences import Sequences, record_texts
from tefm_bench.backbones import opened
from tefm_bench.baselines.embeddings import EMBEDDINGS, embeddings_of, lightgbm_with
from tefm_bench.measurement import Bench, Figures, Measurement
from tefm_bench.table_runs import scored
from tefm_bench.text_model import TextModel, Texts, TextTask
from tefm_bench.text_tables import TEXT_TABLES, parts_of
from tefm_bench.user_data import tables_folder

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
        frame = table.read(tables_folder(bench.sources))
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
        own = {"beside": "trees"} if self.line == "trees beside" else {}
        return ModelConfig.checked({"explanations": "none", "seed": self.seed, **self.settings, **own})

    def _language_model(self, data: _Data) -> Figures:
        config = self.config
        schema = _without_text(data.schema) if self.line == "codes" else data.schema
        prepared = prepare(data.part("train", schema), config, validation=data.part("validation", schema))
        preparation, arrays = prepared.preparation, prepared.given.data
        backbone = opened(
            config.backbone, layers=config.kept_layers, random_body=self.line == "random body", seed=self.seed
        )
        test = data.part("test", schema)
        labels_S = label_numbers(test.sequences, arrays.classes)
        if self.line == "text":
            model = TextModel.fit(_text_task(arrays), config, backbone)
            tested = _texts(test.with_texts(), labels_S)
            p_SQ, tokens_S = model.probabilities(tested), [len(prompt) for prompt in model.prompts(tested)]
            scored = _scored(p_SQ, model.decide(p_SQ), labels_S, arrays.classes, arrays.positive)
            return {"tokens": float(np.mean(tokens_S)), **scored}
        fitted = fit_pipeline(prepared.given, backbone=backbone)
        slots = preparation.slots(test)
        codes = fitted.codes(slots)
        p_SQ, tokens = fitted.probabilities(slots, codes), float(fitted.tokens(codes).mean())
        share = {} if fitted.trees is None else {"share": fitted.trees.share}
        scored = _scored(p_SQ, fitted.decide(p_SQ), labels_S, fitted.classes, fitted.positive)
        return {"tokens": tokens, **share, **scored}

    def _tabular(self, data: _Data) -> Figures:
        from tefm_bench.baselines.compare import BASELINES, fit_baselines

        prepared = prepare(data.part("train"), data.config, validation=data.part("validation"))
        preparation, arrays = prepared.preparation, prepared.given.data
        records = preparation.records(data.frame)
        examples = baseline_data(preparation, records, data.parts)
        if self.line == "lightgbm":
            examples = replace(examples, notes=None)
        model, available = TABULAR[self.line], BASELINES
        if model == EMBEDDINGS:
            assert examples.notes is not None, "there is text"
            backbone = opened(data.config.backbone, layers=data.config.layers)
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
        labels_S = label_numbers(records.sequences.select(data.parts == "test"), arrays.classes)
        chosen = {name: result.figures[name] for name in ("kind", "settings", "seconds")}
        scored = _scored(result.test_NQ, result.predicted_N, labels_S, arrays.classes, arrays.positive)
        return {"chosen": chosen, **scored}


class _Data:
    """A table in parts."""

    def __init__(self, frame: pl.DataFrame, parts: NDArray[np.str_], schema: Schema, config: ModelConfig) -> None:
        self.frame, self.parts, self.schema, self.config = frame, parts, schema, config

    def part(self, name: str, schema: Schema | None = None) -> Records:
        frame = self.frame.filter(pl.Series(self.parts == name))
        return records_of(frame, schema or self.schema, self.config, file=name)


def _text_task(arrays: TaskData) -> TextTask:
    """The task with nothing but the texts of its records."""
    training, validation = (_texts(part.sequences, part.labels_S) for part in (arrays.training, arrays.validation))
    return TextTask(
        training, validation, arrays.classes, arrays.positive, arrays.prompt, arrays.shares, arrays.stopping
    )


def _texts(sequences: Sequences, labels_S: NDArray[np.int64]) -> Texts:
    """The text of every record; each is a sequence of its own."""
    texts = record_texts(sequences)
    assert texts is not None, "the table has text"
    return Texts(texts, sequences.lengths.tolist(), labels_S)


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
