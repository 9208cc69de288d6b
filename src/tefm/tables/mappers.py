"""What was learned about each field, as pairs of forward (values → slots) and backward (slots → values).

One mapper per kind of field. Backward inverts forward as far as a slot's precision allows: a bucket decodes to its
middle value, and a value outside the most frequent ones to "other".

Shapes: N records, W slots of this field.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from pydantic import Field as Setting

from tefm.base.errors import InputError, TefmWarning
from tefm.tables.layout import Slot
from tefm.tables.schema import FALSE_WORDS, TRUE_WORDS, Field
from tefm.tables.words import Words, as_numbers, distinct_pairs

#: What a rare or unseen value decodes to; vectorised again, it is "other".
OTHER = "‹other›"
#: A float that needs this many more digits than its neighbour was not written by a person: 89.00000000000001.
EXTRA_DIGITS = 8


class _Mapper(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str


class NumberMapper(_Mapper):
    """Equal-frequency buckets 1…B, none of them empty in training; absent is 0."""

    kind: Literal["number"] = "number"
    #: a value belongs to the first bucket whose edge it does not exceed; the last bucket has no edge
    edges: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    #: what a bucket decodes to: the lower median of its training values
    middle: tuple[float, ...]
    unit: str | None = None

    @classmethod
    def fit(cls, field: str, values: NDArray[np.float64], buckets: int, unit: str | None = None) -> NumberMapper:
        """Buckets of about equal frequency; ties give fewer buckets, never empty ones."""
        values = np.sort(values[np.isfinite(values)])
        if not len(values):  # no training values: one bucket for all
            return cls(field=field, edges=(), low=(0.0,), high=(0.0,), middle=(0.0,), unit=unit)
        edges = equal_frequency_edges(values, buckets)
        starts = np.concatenate([[0], np.searchsorted(values, edges, side="right")])
        ends = np.append(starts[1:], len(values))
        return cls(
            field=field,
            edges=tuple(edges.tolist()),
            low=tuple(values[starts].tolist()),
            high=tuple(values[ends - 1].tolist()),
            middle=tuple(values[(starts + ends - 1) // 2].tolist()),
            unit=unit,
        )

    @property
    def slots(self) -> tuple[Slot, ...]:
        return (Slot(self.field, "number", len(self.middle)),)

    def forward(self, values_N: NDArray[np.float64]) -> NDArray[np.uint8]:
        """The bucket of each value; NaN and ±inf are absent."""
        bucket_N = np.ones(len(values_N), dtype=np.uint8)
        for edge in self.edges:  # a few comparisons of the whole column are faster than a binary search per value
            bucket_N += values_N > edge
        bucket_N *= np.isfinite(values_N)
        return bucket_N

    def backward(self, slots_NW: NDArray[Any]) -> pl.Series:
        return pl.Series([None, *self.middle], dtype=pl.Float64).gather(slots_NW[:, 0]).alias(self.field)

    def in_words(self, value: int, last: int | None = None) -> str:
        """The range of a bucket in words, or of several from `value` to `last`."""
        last, buckets = last or value, len(self.middle)
        low, high = _short(self.low[value - 1]), _short(self.high[last - 1])
        if buckets > 1 and value == 1 and last == buckets:
            return "recorded"
        if buckets > 1 and value == 1 and low != high:
            text = high if high.startswith("<") else f"≤ {high}"
        elif buckets > 1 and last == buckets and low != high:
            text = low if low.startswith(">") else f"≥ {low}"
        else:
            text = low if low == high else f"{low}–{high}"
        return f"{text} {self.unit}" if self.unit else text


def equal_frequency_edges(values: NDArray[np.float64], buckets: int) -> NDArray[np.float64]:
    """The last value of every bucket but the last, for sorted values.

    Every edge is a training value, so no bucket is empty. If there are few distinct values, each has its own bucket.
    Otherwise a value that fills a bucket by itself (the many zeros of a column of gains) is a bucket, and the others
    share what is left equally: the zeros do not use up their buckets.
    """
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) <= buckets:
        return distinct[:-1]
    heap, more = np.zeros(len(distinct), dtype=bool), True
    while more:
        share = counts[~heap].sum() / max(1, buckets - heap.sum())
        more = bool((counts[~heap] >= share).any()) and heap.sum() < buckets - 1
        heap |= (counts >= share) & more
    edges: list[float] = []
    left, heaps, filled = int(counts[~heap].sum()), int(heap.sum()), 0
    for at in range(len(distinct) - 1):
        filled += 0 if heap[at] else int(counts[at])
        free = buckets - len(edges) - heaps  # buckets for what is no heap, this one included
        if free + heaps <= 1:
            break
        if heap[at] or (heap[at + 1] and free > 1) or filled * max(1, free) >= left:
            edges.append(float(distinct[at]))
            left, heaps, filled = left - filled, heaps - int(heap[at]), 0
    return np.array(edges)


class CategoryMapper(_Mapper):
    """The most frequent values as 1…V, every other value as V+1; absent is 0."""

    kind: Literal["category"] = "category"
    values: tuple[str, ...]
    names: dict[str, str] = {}

    @property
    def slots(self) -> tuple[Slot, ...]:
        return (Slot(self.field, "category", len(self.values) + 1),)

    def forward(self, ids_N: NDArray[np.int64], words: Sequence[str | None]) -> NDArray[np.uint16]:
        """The slot value of each word; `ids_N` are indices into `words`, where None is absent."""
        slots: dict[str | None, int] = {value: slot for slot, value in enumerate(self.values, start=1)}
        slots[None] = 0
        return np.array([slots.get(word, len(self.values) + 1) for word in words], dtype=np.uint16)[ids_N]

    def backward(self, slots_NW: NDArray[Any]) -> pl.Series:
        return pl.Series([None, *self.values, OTHER], dtype=pl.String).gather(slots_NW[:, 0]).alias(self.field)

    def in_words(self, value: int) -> str:
        if value > len(self.values):
            return "other"
        return self.names.get(self.values[value - 1], self.values[value - 1])


class FlagMapper(_Mapper):
    """On is 1; off and missing are both absent."""

    kind: Literal["flag"] = "flag"
    #: how the training table writes "on", for decoding
    on: str

    @property
    def slots(self) -> tuple[Slot, ...]:
        return (Slot(self.field, "flag", 1),)

    def backward(self, slots_NW: NDArray[Any]) -> pl.Series:
        return pl.Series([None, self.on], dtype=pl.String).gather(slots_NW[:, 0]).alias(self.field)

    def in_words(self, value: int) -> str:
        return "yes"


class SetMapper(_Mapper):
    """A bucketed count of distinct values (optional), then one flag for each of the most frequent values."""

    kind: Literal["set"] = "set"
    values: tuple[str, ...]
    count: NumberMapper | None
    names: dict[str, str] = {}

    @property
    def slots(self) -> tuple[Slot, ...]:
        members = (Slot(self.field, "flag", 1, member=value) for value in self.values)
        return (*(self.count.slots if self.count else ()), *members)

    def forward(self, words: Words, records: int) -> NDArray[np.uint8]:
        rows, ids = distinct_pairs(words)
        index = {value: position for position, value in enumerate(self.values, start=1)}
        slot_of = np.array([index.get(word, 0) for word in words.vocabulary], dtype=np.int64)
        out_WN = np.zeros((1 + len(self.values), records), dtype=np.uint8)
        out_WN[slot_of[ids], rows] = 1  # rarer values land in slot 0, which is overwritten next
        if self.count is None:
            return out_WN[1:]
        counts = np.bincount(rows, minlength=records).astype(np.float64)
        out_WN[0] = self.count.forward(np.where(counts > 0, counts, np.nan))
        return out_WN

    def backward(self, slots_NW: NDArray[Any]) -> pl.Series:
        """The members of each record; members without a flag of their own are counted as "other"."""
        decoded = []
        for row in slots_NW:
            members, count = self.present(row)
            unknown = max(1, int(self.count.low[count - 1])) - len(members) if self.count and count else 0
            decoded.append(members + [f"{OTHER} {i + 1}" for i in range(unknown)])
        return pl.Series(self.field, decoded, pl.List(pl.String))

    def present(self, slots_W: NDArray[Any]) -> tuple[list[str], int]:
        """The members of one record and its count bucket (0 if absent or not counted)."""
        members = [self.values[i] for i in np.flatnonzero(slots_W[1:] if self.count else slots_W)]
        return members, int(slots_W[0]) if self.count else 0

    def member_in_words(self, member: str) -> str:
        name = self.names.get(member)
        return f"{name} ({member})" if name else member


Mapper = Annotated[NumberMapper | CategoryMapper | FlagMapper | SetMapper, Setting(discriminator="kind")]


def most_frequent(counts: Counter[str], limit: int) -> tuple[str, ...]:
    """The `limit` most frequent words; ties in alphabetical order, so that the same data gives the same slots.

    "Other" itself is excluded: it occurs in decoded tables.
    """
    words = [word for word in counts if not word.startswith(OTHER)]
    return tuple(sorted(words, key=lambda word: (-counts[word], word))[:limit])


def _short(value: float) -> str:
    """Four digits of a number; the float next to a round number stands for an open-ended one, such as > 89."""
    for sign, towards in (("> ", -math.inf), ("< ", math.inf)):
        bound = math.nextafter(value, towards)
        if not bound or len(repr(value)) - len(repr(bound)) >= EXTRA_DIGITS:
            return sign + _short(bound)
    is_plain = abs(value) < 1e15 and (abs(value) >= 1e4 or float(value).is_integer())
    return f"{value:.0f}" if is_plain else f"{value:.4g}"


def flags_of(ids_N: NDArray[np.int64], words: Sequence[str | None], f: Field, file: str) -> NDArray[np.uint8]:
    """Whether each record's flag is on.

    A value that is neither yes nor no is not an error after training: a number other than 0 is on (a count that was 0
    or 1 in training), any other word is absent, and a warning names it.
    """
    state = np.array([word is not None and f.is_on(word) for word in words], dtype=np.uint8)
    unknown = _neither(words, f)
    if unknown:
        values = as_numbers(pl.Series([words[i] for i in unknown])).fill_null(0)
        state[unknown] = (values.is_finite() & (values != 0)).to_numpy()
        count = int(np.isin(ids_N, unknown).sum())
        warnings.warn(
            f"field {f.name!r} is a flag, but {count:,} of {len(ids_N):,} values in this batch are neither yes nor no; "
            "numbers other than 0 count as on, anything else as absent "
            f"[file {file}, column {f.source[0]!r}, value {words[unknown[0]]!r}]",
            TefmWarning,
            stacklevel=2,
        )
    return state[ids_N]


def refuse_neither(words: Sequence[str | None], f: Field, file: str) -> None:
    """Refuse words of the training table that are neither yes nor no: the schema needs a correction."""
    unknown = _neither(words, f)
    if unknown:
        are_numbers = as_numbers(pl.Series([words[i] for i in unknown])).null_count() == 0
        raise InputError(
            f"field {f.name!r} is a flag, but this value is neither yes nor no",
            file=file,
            column=f.source[0],
            value=words[unknown[0]],
            remedy=f"change its kind to `{'number' if are_numbers else 'category'}`, "
            "or list the values that mean yes under the field's `on:`",
        )


def _neither(words: Sequence[str | None], f: Field) -> list[int]:
    """The indices of the words that are neither yes nor no; if the field lists its yes words, all others mean no."""
    if f.on is not None:
        return []
    yes_or_no = {*TRUE_WORDS, *FALSE_WORDS}
    return [i for i, word in enumerate(words) if word is not None and word.lower() not in yes_or_no]
