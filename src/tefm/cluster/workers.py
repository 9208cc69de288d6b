"""What a worker does with a part of a table. Each holds a loaded model, and returns Arrow tables.

What workers return does not depend on which parts they had before.
"""

from __future__ import annotations

import base64
import os
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from tefm.base.errors import TefmError
from tefm.cluster.plan import TablePart
from tefm.codes.stream import encoded
from tefm.codes.tokenizer import RecordTokenizer
from tefm.explain.reasons import Question
from tefm.model.estimator import TEFM
from tefm.model.explainer import explain_slots
from tefm.tables.readers.arrow import open_pieces
from tefm.tables.readers.table import Table, open_table
from tefm.tables.references import References
from tefm.tables.words import text_of

#: Columns beside those of the result: the part that a row is from, the sequence's first row, and the process.
PART, FIRST, REPLACEMENT = "__part", "__first", "__worker"
#: Columns of rows on their way to a bucket.
ROW, BUCKET = "__row", "__bucket"
#: The explanations of a part, and the number of the sequence in it that each is about.
EXPLANATION, SEQUENCE = "explanation", "__sequence"


@dataclass(frozen=True)
class Encoder:
    """Codes of a part."""

    tokenizer: RecordTokenizer
    absent: bool

    def __call__(self, part: TablePart, table: Table) -> pl.DataFrame:
        return pl.concat(encoded(self.tokenizer, self.tokenizer.vectoriser.readable(table, absent=self.absent)))


@dataclass(frozen=True)
class Predictor:
    """Predictions for the sequences of a part."""

    model: TEFM
    absent: bool

    def __call__(self, part: TablePart, table: Table) -> pl.DataFrame:
        preceding = part.start // (self.model.preparation.config.window or 1)
        return pl.concat(self.model.predicted(table, absent=self.absent, before=preceding))


@dataclass(frozen=True)
class Explainer:
    """Explanations for the sequences of a part, pickled."""

    model: TEFM
    absent: bool
    question: Question
    references: References | None
    only: Sequence[str] | None

    def __call__(self, part: TablePart, table: Table) -> pl.DataFrame:
        fitted, preparation = self.model.fitted, self.model.preparation
        frame, sequences = preparation.to_predict(table, absent=self.absent)
        if preparation.entity is None:  # sequences are numbered
            before = part.start // (preparation.config.window or 1)
            names = [str(before + number) for number in range(len(sequences))]
            sequences = replace(sequences, ids=np.array(names, dtype=object))
        chosen = np.arange(len(sequences))
        if self.only is not None:
            chosen = chosen[np.isin(sequences.names.astype(str), self.only)]
        slots = preparation.slots(frame, sequences.select(chosen))
        explanations = explain_slots(fitted, preparation, slots, self.question, self.references)
        contents = [pickle.dumps(one) for one in explanations]
        return pl.DataFrame({EXPLANATION: contents, SEQUENCE: chosen}, {EXPLANATION: pl.Binary, SEQUENCE: pl.Int64})


class OnParts:
    """A worker of parts in order: `batch` names one part, whose rows are read here."""

    def __init__(self, make: Callable[[], Any], like: pl.DataFrame | None) -> None:
        self.work, self.like = make(), like

    def __call__(self, batch: dict[str, Any]) -> pa.Table:
        (content,), (number,) = batch["part"], batch["number"]
        part: TablePart = pickle.loads(content)
        with telling():
            return marked(self.work(part, open_pieces(part.pieces, self.like)), int(number))


class OnBuckets:
    """A worker of buckets: all rows of some entities, which the shuffle brought together."""

    def __init__(self, make: Callable[[], Any], entity: str) -> None:
        self.work, self.entity = make(), entity

    def __call__(self, batch: pa.Table) -> pa.Table:
        frame = pl.DataFrame(batch).sort(ROW)
        # sequences are in the order of their first rows
        first = frame[ROW].filter(text_of(frame[self.entity], ()).is_first_distinct())
        with telling():
            result = self.work(TablePart(0, ()), open_table(frame.drop(ROW, BUCKET)))
        numbers = result[SEQUENCE] if SEQUENCE in result.columns else pl.int_range(result.height, eager=True)
        return marked(result.with_columns(first.gather(numbers).alias(FIRST)), int(frame[BUCKET][0]))


def to_buckets(batch: dict[str, Any], *, like: pl.DataFrame, entity: str, buckets: int) -> pa.Table:
    """The rows of a part, each with the bucket that it goes to."""
    part: TablePart = pickle.loads(batch["part"][0])
    frame = open_pieces(part.pieces, like).frame()
    rows = pl.int_range(part.start, part.start + frame.height, dtype=pl.Int64, eager=True)
    bucket = (text_of(frame[entity], ()).hash() % buckets).cast(pl.Int64)
    return frame.with_columns(rows.alias(ROW), bucket.alias(BUCKET)).to_arrow()


@contextmanager
def telling() -> Iterator[None]:
    """An error of ours as text that `told` finds again: of an exception in a worker, Ray brings back only its text."""
    try:
        yield
    except TefmError as error:
        raise RuntimeError(f"tefm<{base64.b64encode(pickle.dumps(error)).decode()}>") from None


def told(text: str) -> TefmError | None:
    """The error of ours in the text of another, if there is one."""
    match = re.search(r"tefm<([\w+/=]+)>", text)
    error: TefmError | None = None if match is None else pickle.loads(base64.b64decode(match[1]))
    return error


def marked(frame: pl.DataFrame, number: int) -> pa.Table:
    """A result with the part that it is from, and the process that made it if it replaces one that died."""
    import ray

    context = ray.get_runtime_context()
    worker = f"{context.get_node_id()}:{os.getpid()}" if context.was_current_actor_reconstructed else None
    return frame.with_columns(pl.lit(number).alias(PART), pl.lit(worker, dtype=pl.String).alias(REPLACEMENT)).to_arrow()
