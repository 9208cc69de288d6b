"""Vectorising: a table becomes slots, and slots become a table again.

`Vectoriser.fit` reads the training rows once, in batches; `transform` and `inverse` are the forward
and backward of what it learned.

Shapes: N records, D slots.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tefm.base.errors import InputError
from tefm.records.flags import flags_of, refuse_neither
from tefm.records.layout import Layout, Slots
from tefm.records.mappers import (
    CategoryMapper,
    FlagMapper,
    Mapper,
    NumberMapper,
    SetMapper,
    concatenated,
    distinct_pairs,
    most_frequent,
)
from tefm.records.readers.table import Table, open_table
from tefm.records.schema import TRUE_WORDS, Field, Schema, Side
from tefm.records.words import Words, numbers_of, split_strings, text_of, word_ids, words_of

#: Numbers kept to find the bucket edges: with more rows than this, edges come from a random sample of them,
#: whose quantiles are within 0.1 percentage points of the whole.
SAMPLE_CELLS = 20_000_000
SAMPLE_ROWS = 200_000
#: Distinct words counted per column before the rare ones are dropped.
WORDS_KEPT = 500_000
#: Batches vectorised at the same time: numpy, polars and Arrow work outside Python's lock.
THREADS = min(4, os.cpu_count() or 1)
#: A batch has at most so many records, and so many slots in all.
BATCH_ROWS, BATCH_SLOTS = 1 << 17, 1 << 23
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

    # ---- learning ---------------------------------------------------------------------------------------------

    @classmethod
    def fit(cls, source: Any, schema: Schema, *, seed: int = 0) -> Vectoriser:
        """Learn buckets and enumerations from the training rows of a table (in memory or on disk)."""
        table = open_table(source)
        learners = {f.name: _Learner(f, schema) for f in schema.fields}
        numbers = [f for f in schema.fields if f.kind == "number"]
        sample = _RowSample(len(numbers), seed)
        rows = 0
        for columns in columns_of(table, schema):
            rows += columns.height
            sample.add(np.stack([columns.numbers(f) for f in numbers], axis=1) if numbers else None)
            for f in schema.fields:
                if f.kind != "number":
                    learners[f.name].update(columns)
        if rows == 0:
            raise InputError("the table has no rows", file=table.name, remedy="give at least one training row")
        values = dict(zip((f.name for f in numbers), sample.columns(), strict=True))
        mappers = tuple(
            NumberMapper.fit(f.name, values[f.name], f.buckets, f.unit)
            if f.kind == "number"
            else learners[f.name].finish()
            for f in schema.fields
        )
        return cls(table_schema=schema, mappers=mappers)

    # ---- forward and backward ---------------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """Which slot holds what."""
        return Layout(tuple(slot for mapper in self.mappers for slot in mapper.slots))

    def transform(self, source: Any) -> Slots:
        """The slots of every record of a table."""
        parts = list(self.batches(source))
        return np.concatenate(parts) if parts else np.zeros((0, self.layout.width), dtype=self.layout.dtype)

    def batches(self, source: Any) -> Iterator[Slots]:
        """The slots of a table batch by batch, for tables larger than memory."""
        return (slots_ND for slots_ND, _ in self.batches_beside(source, ()))

    def batches_beside(self, source: Any, beside: Sequence[str]) -> Iterator[_Batch]:
        """The slots batch by batch, each with other columns of the same rows (the label, the entity) beside it."""
        layout = self.layout
        widths = [len(mapper.slots) for mapper in self.mappers]
        ends = np.cumsum(widths).tolist()

        def vectorised(columns: Columns) -> _Batch:
            # Slot by slot, turned over at the end: writing the columns of a long array one by one is slower.
            # The gap keeps the rows from standing a power of two apart, where they push each other out of the cache.
            out_DN = np.empty((layout.width, columns.height + CACHE_LINE), dtype=layout.dtype)[:, : columns.height]
            for f, mapper, width, end in zip(self.table_schema.fields, self.mappers, widths, ends, strict=True):
                out_DN[end - width : end] = _forward(columns, f, mapper)
            return np.ascontiguousarray(out_DN.T), columns.frame.select(beside)

        rows = min(BATCH_ROWS, max(1, BATCH_SLOTS // layout.width))
        return _in_threads(vectorised, columns_of(open_table(source), self.table_schema, beside, rows))

    def inverse(self, slots_ND: NDArray[Any]) -> pl.DataFrame:
        """Slots as a table again, one column per field: a bucket's middle value, a value, a list of members."""
        if slots_ND.ndim != 2 or slots_ND.shape[1] != self.layout.width:
            raise InputError(f"these are no slots of this schema: shape {slots_ND.shape}, not (N, {self.layout.width})")
        series = []
        start = 0
        for mapper in self.mappers:
            width = len(mapper.slots)
            part = slots_ND[:, start : start + width]
            values: list[Any]
            dtype: pl.DataType | type[pl.DataType] = pl.String
            if isinstance(mapper, SetMapper):
                values, dtype = mapper.backward(part), pl.List(pl.String)
            else:
                values = mapper.backward(part[:, 0])
                dtype = pl.Float64 if isinstance(mapper, NumberMapper) else dtype
            series.append(pl.Series(mapper.field, values, dtype))
            start += width
        return pl.DataFrame(series)

    def readable(self, source: Any) -> Table:
        """The table, opened; an error with the difference of the columns where it does not fit."""
        table = open_table(source)
        needed_columns(table, self.table_schema)
        return table


# ---- columns of a batch -----------------------------------------------------------------------------------------


@dataclass
class Columns:
    """One batch of a table, field by field, with its side tables."""

    frame: pl.DataFrame
    schema: Schema
    file: str
    #: the columns that each field is read from
    sources: dict[str, tuple[str, ...]]
    #: the words that mean "missing" in each field
    missing: dict[str, frozenset[str]]
    sides: dict[str, pl.DataFrame]

    @property
    def height(self) -> int:
        return self.frame.height

    def numbers(self, f: Field) -> NDArray[np.float64]:
        return numbers_of(self._series(f)[0], f, self.missing[f.name], file=self.file)

    def word_ids(self, f: Field) -> tuple[NDArray[np.int64], list[str | None]]:
        """The word of each record, as its place in a list of words."""
        return word_ids(self._series(f)[0], self.missing[f.name])

    def words(self, f: Field) -> Words:
        """The words of a set: of one column, a list, a delimited string, several columns or a side table."""
        columns = self._series(f)
        if f.name in self.sides:
            keys = pl.DataFrame({"key": text_of(columns[0], self.schema.missing_words)})
            columns = [keys.join(self.sides[f.name], on="key", how="left", maintain_order="left")["values"]]
        if f.delimiter is not None:
            columns = [c if isinstance(c.dtype, pl.List) else split_strings(c, f.delimiter) for c in columns]
        words = [words_of(column, self.missing[f.name]) for column in columns]
        return words[0] if len(words) == 1 else concatenated(words)

    def _series(self, f: Field) -> list[pl.Series]:
        columns = [self.frame[name] for name in self.sources[f.name]]
        for column in columns:
            if isinstance(column.dtype, pl.List) and (f.kind != "set" or column.dtype.inner.is_nested()):
                raise InputError(
                    f"field {f.name!r} is a {f.kind}, but the column holds {column.dtype}",
                    file=self.file,
                    column=column.name,
                    remedy="one list of values per record is a `set`; flatten lists of lists first",
                )
        return columns


def _read_from(f: Field, columns: Container[str]) -> tuple[str, ...]:
    """The columns of a table that a field is read from.

    A column of the field's own name takes the place of a side table (a loader attached it)
    and of columns that are not there (a decoded table has one column per field).
    """
    own = f.name in columns and (f.side is not None or any(name not in columns for name in f.source))
    return (f.name,) if own else f.source


def needed_columns(table: Table, schema: Schema) -> tuple[str, ...]:
    """The columns to read; where some are missing, an error that shows the difference."""
    there = frozenset(table.columns)
    needed = list(dict.fromkeys(name for f in schema.fields for name in _read_from(f, there)))
    missing = [name for name in needed if name not in there]
    if missing:
        known = {*needed, schema.entity, schema.time, schema.label, *schema.text, *schema.ignore}
        extra = [name for name in table.columns if name not in known]
        lines = [f"  − {name}  (in the schema, not in the table)" for name in missing[:20]]
        lines += [f"  + {name}  (in the table, not in the schema)" for name in extra[:20]]
        raise InputError(
            f"{len(missing)} of {len(needed)} columns are missing\n" + "\n".join(lines),
            file=table.name,
            column=missing[0],
            remedy="rename the columns, or edit the schema (`tefm inspect TABLE` writes one)",
        )
    return tuple(needed)


def columns_of(table: Table, schema: Schema, beside: Sequence[str] = (), rows: int = BATCH_ROWS) -> Iterator[Columns]:
    needed = needed_columns(table, schema)
    there = frozenset(table.columns)
    sources = {f.name: _read_from(f, there) for f in schema.fields}
    common = schema.missing_words
    missing = {f.name: common | {word.strip().lower() for word in f.absent} for f in schema.fields}
    sides = {f.name: _side_lists(f.side, schema) for f in schema.fields if f.side is not None and f.name not in there}
    for frame in table.batches([*needed, *beside], rows):
        yield Columns(frame, schema, table.name, sources, missing, sides)


def _in_threads(vectorise: Callable[[Columns], _Batch], batches: Iterable[Columns]) -> Iterator[_Batch]:
    """The slots of every batch, in order, with a few batches under way at a time."""
    with ThreadPoolExecutor(THREADS) as pool:
        under_way: deque[Future[_Batch]] = deque()
        for columns in batches:
            under_way.append(pool.submit(vectorise, columns))
            if len(under_way) > THREADS:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


def _side_lists(side: Side, schema: Schema) -> pl.DataFrame:
    """A long side table as one list of values per key."""
    long = open_table(side.table).frame([side.key, side.value])
    texts = {"key": text_of(long[side.key], schema.missing_words), "values": text_of(long[side.value], ())}
    return pl.DataFrame(texts).drop_nulls().group_by("key", maintain_order=True).agg("values")


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


# ---- what fit collects ------------------------------------------------------------------------------------------


@dataclass
class _Learner:
    """Counts the words of a field that is no number."""

    field: Field
    schema: Schema
    counts: Counter[str] = attribute(default_factory=Counter)
    lengths: Counter[int] = attribute(default_factory=Counter)

    def update(self, columns: Columns) -> None:
        words: Sequence[str | None]
        if self.field.kind == "set":
            found = columns.words(self.field)
            words, (rows, ids) = found.vocabulary, distinct_pairs(found)
            per_record = np.bincount(rows, minlength=columns.height)
            sizes, times = np.unique(per_record[per_record > 0], return_counts=True)
            self.lengths.update(dict(zip(sizes.tolist(), times.tolist(), strict=True)))
        else:
            ids, words = columns.word_ids(self.field)
            if self.field.kind == "flag":
                refuse_neither(words, self.field, columns.file)
        for word, count in zip(words, np.bincount(ids, minlength=len(words)).tolist(), strict=True):
            if word is not None:
                self.counts[word] += count
        if len(self.counts) > 2 * WORDS_KEPT:
            self.counts = Counter(dict(self.counts.most_common(WORDS_KEPT)))

    def finish(self) -> Mapper:
        f = self.field
        if f.kind == "flag":
            on = f.on if f.on is not None else TRUE_WORDS
            written = [
                word for word in most_frequent(self.counts, len(self.counts)) if word in on or word.lower() in on
            ]
            return FlagMapper(field=f.name, on=written[0] if written else on[0])
        values = most_frequent(self.counts, f.limit)
        known = value_names(f)
        names = {value: known[value] for value in values if value in known}
        if f.kind == "category":
            return CategoryMapper(field=f.name, values=values, names=names)
        sizes = np.array(sorted(self.lengths), dtype=np.float64)
        times = np.array([self.lengths[int(size)] for size in sizes], dtype=np.int64)
        count = NumberMapper.fit(f.name, np.repeat(sizes, times), f.buckets) if f.count else None
        return SetMapper(field=f.name, values=values, count=count, names=names)


def value_names(field: Field) -> dict[str, str]:
    """The human names of a field's values, out of the schema and its lookup table."""
    if field.lookup is None:
        return field.names
    table = open_table(field.lookup.table).frame([field.lookup.key, field.lookup.name]).cast(pl.String).drop_nulls()
    return {key.strip(): name.strip() for key, name in table.rows()} | field.names


class _RowSample:
    """A uniform sample of rows over a stream: each row draws a key, the smallest keys stay."""

    def __init__(self, width: int, seed: int) -> None:
        self.limit = min(SAMPLE_ROWS, max(10_000, SAMPLE_CELLS // max(width, 1)))
        self.rng = np.random.default_rng(seed)
        self.keys = np.zeros(0)
        self.rows = np.zeros((0, width))

    def add(self, batch: NDArray[np.float64] | None) -> None:
        if batch is None:
            return
        keys = self.rng.random(len(batch))
        if len(self.keys) == self.limit:  # most rows of a long stream lose against the largest key kept
            stay = keys < self.keys.max()
            keys, batch = keys[stay], batch[stay]
        self.keys = np.concatenate([self.keys, keys])
        self.rows = np.concatenate([self.rows, batch])
        if len(self.keys) > self.limit:
            keep = np.argpartition(self.keys, self.limit)[: self.limit]
            self.keys, self.rows = self.keys[keep], self.rows[keep]

    def columns(self) -> list[NDArray[np.float64]]:
        return [self.rows[:, i] for i in range(self.rows.shape[1])]
