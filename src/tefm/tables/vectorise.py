"""Vectorising: a table becomes slots (encoded features), and slots become a table again.

`Vectoriser.fit` reads the training rows once, in batches; `transform` and `inverse` apply what it learned, forward and
backward.

Shapes: N records, D slots.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tefm.base.errors import InputError
from tefm.tables.columns import BATCH_ROWS, Columns, columns_of, completed, value_names
from tefm.tables.derived import read_with_derived
from tefm.tables.layout import Layout, Slot, Slots
from tefm.tables.mappers import (
    CategoryMapper,
    FlagMapper,
    Mapper,
    NumberMapper,
    SetMapper,
    flags_of,
    most_frequent,
    refuse_neither,
)
from tefm.tables.readers.source import selected
from tefm.tables.readers.table import Table, open_table
from tefm.tables.schema import Field, Schema
from tefm.tables.words import distinct_pairs

#: Numbers kept to find the bucket edges: with more rows than this, edges come from a random sample of them,
#: whose quantiles are within 0.1 percentage points of those of all rows.
SAMPLE_CELLS = 20_000_000
SAMPLE_ROWS = 200_000
#: Distinct words counted per column before the rare ones are dropped.
WORDS_KEPT = 500_000
#: Batches vectorised at the same time: numpy, polars and Arrow work outside Python's lock.
THREADS = min(4, os.cpu_count() or 1)
#: A batch has at most this many slots in all its records.
BATCH_SLOTS = 1 << 23
CACHE_LINE = 64

#: The slots of some records, and other columns of the same records.
_Batch = tuple[Slots, pl.DataFrame]


class Vectoriser(BaseModel):
    """The forward and backward map between records and slots, learned from training rows.

    >>> import polars as pl
    >>> from tefm import Field, Schema, Vectoriser
    >>> table = pl.DataFrame({"age": [30, 41, 52, None], "drugs": ["a;b", "a", None, "c;a"]})
    >>> schema = Schema(fields=(Field(name="age", kind="number", buckets=3, unit="years"),
    ...                         Field(name="drugs", kind="set", delimiter=";", top=2)))
    >>> vectoriser = Vectoriser.fit(table, schema)
    >>> slots = vectoriser.transform(table)
    >>> slots  # age bucket, number of drugs, drug a, drug b
    array([[1, 2, 1, 1],
           [2, 1, 1, 0],
           [3, 0, 0, 0],
           [0, 2, 1, 0]], dtype=uint8)
    >>> vectoriser.inverse(slots[:1]).to_dicts()
    [{'age': 30.0, 'drugs': ['a', 'b']}]
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    table_schema: Schema
    mappers: tuple[Mapper, ...]

    @classmethod
    def fit(cls, source: Any, schema: Schema, *, seed: int = 0, name: str | None = None) -> Vectoriser:
        """Learn buckets and enumerations from the training rows of a table (in memory or on disk).

        Here and below, `name` is what error messages call a frame in memory: the file that its rows come from.
        """
        table = open_table(source, name=name)
        learners = {f.name: _Learner(f) for f in schema.fields if f.kind != "number"}
        numbers = [f for f in schema.fields if f.kind == "number"]
        sample = _RowSample(len(numbers), seed)
        rows = 0
        for columns in columns_of(table, schema):
            rows += columns.height
            if numbers:
                sample.add(np.stack([columns.numbers(f) for f in numbers], axis=1))
            for learner in learners.values():
                learner.update(columns)
        if rows == 0:
            raise InputError("the table has no rows", file=table.name, remedy="give at least one training row")
        fitted: dict[str, Mapper] = {name: learner.finish() for name, learner in learners.items()}
        for f, values_N in zip(numbers, sample.rows.T, strict=True):
            fitted[f.name] = NumberMapper.fit(f.name, values_N, f.buckets, f.unit)
        return cls(table_schema=schema, mappers=tuple(fitted[f.name] for f in schema.fields))

    @property
    def layout(self) -> Layout:
        """The meaning of each slot."""
        static = self.table_schema.static
        return Layout(tuple(replace(slot, static=m.field in static) for m in self.mappers for slot in m.slots))

    @property
    def parts(self) -> Iterator[tuple[Field, Mapper, slice]]:
        """Each field with what was learned about it and the positions of its slots."""
        start = 0
        for f, mapper in zip(self.table_schema.fields, self.mappers, strict=True):
            end = start + len(mapper.slots)
            yield f, mapper, slice(start, end)
            start = end

    def transform(self, source: Any, *, name: str | None = None) -> Slots:
        """The slots of every record of a table."""
        parts = [slots_ND for slots_ND, _ in self.batches_with(source, (), name=name)]
        return np.concatenate(parts) if parts else np.zeros((0, self.layout.width), dtype=self.layout.dtype)

    def batches(self, source: Any) -> Iterator[Slots]:
        """The slots of a table batch by batch, for tables larger than memory."""
        return (slots_ND for slots_ND, _ in self.batches_with(source, ()))

    def batches_with(self, source: Any, extra: Sequence[str], *, name: str | None = None) -> Iterator[_Batch]:
        """The slots batch by batch, with the columns `extra` (the label, the entity) of the same rows."""
        layout, parts = self.layout, list(self.parts)

        def vectorised(columns: Columns) -> _Batch:
            # Slot by slot, transposed at the end: writing the columns of a long array one by one is slower.
            # The padding keeps rows from lying a power of two apart, where they evict each other from the cache.
            out_DN = np.empty((layout.width, columns.height + CACHE_LINE), dtype=layout.dtype)[:, : columns.height]
            for f, mapper, own in parts:
                out_DN[own] = _forward(columns, f, mapper)
            return np.ascontiguousarray(out_DN.T), selected(columns.frame, extra)

        rows = min(BATCH_ROWS, max(1, BATCH_SLOTS // layout.width))
        table = read_with_derived(open_table(source, name=name), self.table_schema)
        return _in_threads(vectorised, columns_of(table, self.table_schema, extra, rows))

    def inverse(self, slots_ND: NDArray[Any]) -> pl.DataFrame:
        """Slots as a table again, one column per field: a bucket's middle value, a value, a list of members."""
        if slots_ND.ndim != 2 or slots_ND.shape[1] != self.layout.width:
            raise InputError(f"not slots of this schema: their shape is {slots_ND.shape}, not (N, {self.layout.width})")
        return pl.DataFrame([mapper.backward(slots_ND[:, own]) for _, mapper, own in self.parts])

    def closed(self) -> Vectoriser:
        """The vectoriser of a saved model: its schema opens no lookup or side table by itself."""
        return self.model_copy(update={"table_schema": self.table_schema.closed(self.value_names)})

    @property
    def value_names(self) -> dict[str, dict[str, str]]:
        """The readable names of values, by field."""
        return {m.field: m.names for m in self.mappers if isinstance(m, CategoryMapper | SetMapper)}

    def readable(self, source: Any, *, absent: bool = False) -> Table:
        """The open table; if it lacks columns of fields, an error that lists them, or with `absent` absent values."""
        return completed(open_table(source, meds=self.table_schema.meds), self.table_schema, absent=absent)


def _in_threads(vectorise: Callable[[Columns], _Batch], batches: Iterable[Columns]) -> Iterator[_Batch]:
    """The slots of every batch, in order; a few batches are computed at a time."""
    with ThreadPoolExecutor(THREADS) as pool:
        pending: deque[Future[_Batch]] = deque()
        for columns in batches:
            pending.append(pool.submit(vectorise, columns))
            if len(pending) > THREADS:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _forward(columns: Columns, f: Field, mapper: Mapper) -> NDArray[Any]:
    match mapper:
        case NumberMapper():
            return mapper.forward(columns.numbers(f))
        case CategoryMapper():
            return mapper.forward(*columns.word_ids(f))
        case FlagMapper():
            return flags_of(*columns.word_ids(f), f, columns.file)
        case SetMapper():
            return mapper.forward(columns.words(f), columns.height)


# ---- fitting --------------------------------------------------------------------------------------------------------


@dataclass
class _Learner:
    """Counts the words of a field that is not a number."""

    field: Field
    counts: Counter[str] = attribute(default_factory=Counter)
    lengths: Counter[int] = attribute(default_factory=Counter)

    def update(self, columns: Columns) -> None:
        words = columns.words(self.field)
        ids = words.ids
        if self.field.kind == "set":
            rows, ids = distinct_pairs(words)
            per_record = np.bincount(rows, minlength=columns.height)
            sizes, times = np.unique(per_record[per_record > 0], return_counts=True)
            self.lengths.update(dict(zip(sizes.tolist(), times.tolist(), strict=True)))
        elif self.field.kind == "flag":
            refuse_neither(words.vocabulary, self.field, columns.file)
        often = np.bincount(ids, minlength=len(words.vocabulary)).tolist()
        self.counts.update(dict(zip(words.vocabulary, often, strict=True)))
        if len(self.counts) > 2 * WORDS_KEPT:
            self.counts = Counter(dict(self.counts.most_common(WORDS_KEPT)))

    def finish(self) -> Mapper:
        f = self.field
        if f.kind == "flag":
            written = [word for word in most_frequent(self.counts, len(self.counts)) if f.is_on(word)]
            return FlagMapper(field=f.name, on=written[0] if written else f.on_words[0])
        values = most_frequent(self.counts, f.limit)
        all_names = value_names(f)
        names = {value: all_names[value] for value in values if value in all_names}
        if f.kind == "category":
            return CategoryMapper(field=f.name, values=values, names=names)
        sizes = np.array(sorted(self.lengths), dtype=np.float64)
        times = np.array([self.lengths[int(size)] for size in sizes], dtype=np.int64)
        count = NumberMapper.fit(f.name, np.repeat(sizes, times), f.buckets) if f.count else None
        return SetMapper(field=f.name, values=values, count=count, names=names)


class _RowSample:
    """A uniform sample of rows from a stream: each row draws a random key, and the smallest keys are kept."""

    def __init__(self, width: int, seed: int) -> None:
        self.limit = min(SAMPLE_ROWS, max(10_000, SAMPLE_CELLS // max(width, 1)))
        self.rng = np.random.default_rng(seed)
        self.keys = np.zeros(0)
        self.rows = np.zeros((0, width))

    def add(self, batch: NDArray[np.float64]) -> None:
        keys = self.rng.random(len(batch))
        if len(self.keys) == self.limit:  # most rows of a long stream have a larger key than all kept ones
            smaller = keys < self.keys.max()
            keys, batch = keys[smaller], batch[smaller]
        self.keys = np.concatenate([self.keys, keys])
        self.rows = np.concatenate([self.rows, batch])
        if len(self.keys) > self.limit:
            keep = np.argpartition(self.keys, self.limit)[: self.limit]
            self.keys, self.rows = self.keys[keep], self.rows[keep]


# ---- raw values ------------------------------------------------------------------------------------------------------


def raw_values(
    frame: pl.DataFrame, vectoriser: Vectoriser, slots_ND: NDArray[Any], train_N: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], Layout]:
    """The values of every record, nan where absent, and what each column is.

    A category is its number among the words of the training records, and absent where these lack it. Flags and sets are
    the slots that they have anyway.
    """
    fields = Columns.of(frame, vectoriser.table_schema)
    columns: list[NDArray[Any]] = []
    slots: list[Slot] = []
    for f, mapper, own in vectoriser.parts:
        static = f.name in vectoriser.table_schema.static
        if f.kind in ("number", "category"):
            values_N = _numbers(fields, f) if f.kind == "number" else _category_codes(fields, f, train_N)
            columns.append(values_N[:, None])
            slots.append(Slot(f.name, f.kind, size=1, static=static))
        else:
            columns.append(slots_ND[:, own])
            slots += [replace(slot, size=1, static=static) for slot in mapper.slots]
    return np.hstack(columns, dtype=np.float32, casting="unsafe"), Layout(tuple(slots))


def _numbers(columns: Columns, f: Field) -> NDArray[np.float64]:
    values_N = columns.numbers(f)
    return np.where(np.isfinite(values_N), values_N, np.nan)


def _category_codes(columns: Columns, f: Field, train_N: NDArray[np.bool_]) -> NDArray[np.float64]:
    ids, vocabulary = columns.word_ids(f)
    words = pl.Series(vocabulary, dtype=pl.String).gather(ids)
    known = words.filter(pl.Series(train_N)).drop_nulls().unique().sort()
    return words.cast(pl.Enum(known), strict=False).to_physical().cast(pl.Float64).to_numpy()
