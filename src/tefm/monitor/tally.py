"""`Tally`: how often each value of one thing occurs, such as the buckets of a field or the entries of a level.

A tally is all that is kept of records: it is small, and it names nobody. Values of one entity are correlated, so n of
them say less than n independent ones. The design effect (Rao and Scott 1981) measures this: the variance of the shares
with entities as units, divided by the variance for independent values.

Missing, new and known values of a field are counted separately. A value is *new* if training did not have it: an
unknown word, or a number outside the range.

Shapes: N records, M things counted (of a set, several per record), J cells, G groups of labels (the classes, and last
the things without a label), S sequences, U units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tefm.monitor.observe import SampledRecords, SequenceAnswers
from tefm.tables.columns import Columns, columns_of
from tefm.tables.mappers import CategoryMapper, FlagMapper, NumberMapper, SetMapper
from tefm.tables.readers.table import open_table
from tefm.tables.vectorise import Vectoriser
from tefm.tables.words import distinct_pairs

#: What is counted: of a field, whether it is missing, whether it has a value that training did not have, which of the
#: known values it has, and how many members a set has; the entries of a level of codes; errors in bins; answers.
#: `shares` is the mean probability of a class, which has no tally.
Kind = Literal[
    "missing", "new", "values", "size", "codes", "reconstruction", "quantisation", "confidence", "predicted", "shares",
    "label", "right",
]  # fmt: skip
#: Tallies of one field.
OF_FIELDS: frozenset[Kind] = frozenset({"missing", "new", "values", "size"})
#: How many of a field's new words are remembered, for the message.
WORDS = 5
#: A field with more rare words than this has no end of them (a name, an address): nothing in it counts as new.
MOST = 100_000

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts of one thing.

    >>> tally = Tally.of("ward", "values", np.array([0, 1, 1, 2]), np.array([0, 0, 1, 2]), np.array([0, 0, 1, 1]), 3, 2)
    >>> tally.counts_GJ.tolist(), tally.counts_J.tolist(), tally.total
    ([[1, 1, 0], [0, 1, 1], [0, 0, 0]], [1, 2, 1], 4)
    """

    #: the field, or the number of the level; empty where there is only one such tally
    subject: str
    kind: Kind
    counts_GJ: NDArray[np.int64]
    #: the design effect, 1 for independent things
    effect: float = 1.0
    #: whether neighbouring cells are alike: buckets and bins, not categories
    ordered: bool = False

    @classmethod
    def of(
        cls,
        subject: str,
        kind: Kind,
        cell_M: NDArray[Any],
        unit_M: NDArray[Any],
        group_M: NDArray[Any],
        cells: int,
        classes: int,
        ordered: bool = False,
    ) -> Tally:
        """Count things: their cell, their unit (the entity) and the class number of their label, −1 without one."""
        group_M = np.where(group_M < 0, classes, group_M)
        counts_M = np.bincount(group_M * cells + cell_M, minlength=(classes + 1) * cells)
        return cls(subject, kind, counts_M.reshape(classes + 1, cells), _effect(cell_M, unit_M, cells), ordered)

    @property
    def name(self) -> tuple[str, Kind]:
        return self.subject, self.kind

    @property
    def counts_J(self) -> NDArray[np.int64]:
        counts_J: NDArray[np.int64] = self.counts_GJ.sum(axis=0)
        return counts_J

    @property
    def total(self) -> int:
        return int(self.counts_GJ.sum())

    @property
    def shares_J(self) -> NDArray[np.float64]:
        return self.counts_J / max(1, self.total)


def _effect(cell_M: NDArray[Any], unit_M: NDArray[Any], cells: int) -> float:
    """The mean design effect over the cells, at least 1."""
    total = len(cell_M)
    _, unit_M = np.unique(unit_M, return_inverse=True)
    sizes_U = np.bincount(unit_M)
    if total < 2 or len(sizes_U) < 2 or sizes_U.max() == 1:
        return 1.0
    pairs, often = np.unique(unit_M.astype(np.int64) * cells + cell_M, return_counts=True)
    of_unit, of_cell = pairs // cells, pairs % cells
    shares_J = np.bincount(cell_M, minlength=cells) / total
    # the sum over units of (count − share × size)², cell by cell
    squares_J = np.bincount(of_cell, weights=often.astype(np.float64) ** 2, minlength=cells)
    products_J = np.bincount(of_cell, weights=often * sizes_U[of_unit].astype(np.float64), minlength=cells)
    spread_J = squares_J - 2 * shares_J * products_J + shares_J**2 * float((sizes_U.astype(np.float64) ** 2).sum())
    used_J = (shares_J > 0) & (shares_J < 1)
    if not used_J.any():
        return 1.0
    # Σ (1 − p) d / (J − 1) with d = variance / (p (1 − p) / n)
    mean = float((spread_J[used_J] / (shares_J[used_J] * total)).sum() / (used_J.sum() - 1))
    return max(1.0, mean * len(sizes_U) / (len(sizes_U) - 1))


def unit_effect(unit_S: NDArray[Any]) -> float:
    """The largest design effect that units can have: that of things which are equal within each of them."""
    sizes_U = np.unique(unit_S, return_counts=True)[1].astype(np.float64)
    return float((sizes_U**2).sum() / max(1.0, sizes_U.sum()))


#: Counts things: what they are of, their kind, the cell of each, the number of cells, and the entry that has each.
Count = Callable[..., Tally]


def counter(of: SampledRecords | SequenceAnswers, classes: int) -> Count:
    """Counts things that records or answers have: one each, or those of the entries `own_M`."""

    def count(
        subject: str,
        kind: Kind,
        cell_M: NDArray[Any],
        cells: int,
        own_M: NDArray[np.int64] | slice = slice(None),
        *,
        ordered: bool = False,
    ) -> Tally:
        unit_M, label_M = of.unit_S[own_M], of.label_S[own_M]
        return Tally.of(subject, kind, cell_M.astype(np.int64), unit_M, label_M, cells, classes, ordered)

    return count


# ---- fields -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Seen:
    """Which rare words the training table had: sorted hashes for each category and set.

    The frequent words are in the vectoriser. Without the rare ones, a field with more values than the vectoriser tells
    apart would hide a new category among them. A field without an entry has too many words to keep.
    """

    hashes: Mapping[str, Hashes]

    @classmethod
    def of(cls, table: Any, vectoriser: Vectoriser) -> Seen:
        """The words of a table."""
        known = known_words(vectoriser)
        words: dict[str, set[str]] = {name: set() for name in known}
        for columns in columns_of(open_table(table), vectoriser.table_schema):
            for f in vectoriser.table_schema.fields:
                if f.name in words:
                    words[f.name].update(word for word in columns.words(f).vocabulary if word not in known[f.name])
                    if len(words[f.name]) > MOST:
                        del words[f.name]
        return cls({name: np.sort(hashed(rare)) for name, rare in words.items()})

    def is_new(self, field: str, words: Iterable[str | None], known: frozenset[str]) -> NDArray[np.bool_]:
        """Whether each word is neither known to the vectoriser nor among the rare words."""
        words = list(words)
        new = np.array([word is not None and word not in known for word in words], dtype=bool)
        if field not in self.hashes:
            return np.zeros(len(words), dtype=bool)
        rare = np.flatnonzero(new)
        new[rare] = ~np.isin(hashed([str(words[i]) for i in rare]), self.hashes[field])
        return new


def known_words(vectoriser: Vectoriser) -> dict[str, frozenset[str]]:
    """The words that the vectoriser tells apart, for each category and set."""
    return {
        mapper.field: frozenset(mapper.values)
        for mapper in vectoriser.mappers
        if isinstance(mapper, CategoryMapper | SetMapper)
    }


def hashed(words: Iterable[str]) -> Hashes:
    """64 bits per word, the same on every machine."""
    digests = [blake2b(word.encode(), digest_size=8).digest() for word in words]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


@dataclass(frozen=True, eq=False)
class Raw:
    """What a message says about new values; never stored."""

    #: the most frequent new words of a field
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: the numbers of a field, absent ones left out
    numbers: dict[str, NDArray[np.float64]] = field(default_factory=dict)


def field_tallies(
    count: Count, records: SampledRecords, vectoriser: Vectoriser, seen: Seen | None, raw: Raw
) -> Iterator[Tally]:
    """What every field has, counted; what messages need is put into `raw`.

    Without `seen`, the records are compared with each other: a word that occurs once is one that the others lack.
    """
    columns = Columns.of(records.frame, vectoriser.table_schema)
    for f, mapper, own in vectoriser.parts:
        first_N = records.x_SD[:, own.start].astype(np.int64)
        match mapper:
            case FlagMapper():  # off and missing are the same
                yield count(f.name, "values", first_N, 2)
                continue
            case NumberMapper():
                row_M = np.flatnonzero(first_N)
                value_M = raw.numbers[f.name] = columns.numbers(f)[row_M]
                new_M = (value_M < mapper.low[0]) | (value_M > mapper.high[-1])
                cell_M, cells = first_N[row_M] - 1, len(mapper.middle)
            case CategoryMapper() | SetMapper():
                words = columns.words(f)
                row_M, ids_M = distinct_pairs(words)
                often = np.bincount(ids_M, minlength=len(words.vocabulary))
                new = _new_words(f.name, words.vocabulary, often, frozenset(mapper.values), seen)
                raw.words[f.name] = _most_frequent(words.vocabulary, np.where(new, often, 0))
                place = {word: number for number, word in enumerate(mapper.values)}
                cell = np.array([place.get(word, len(place)) for word in words.vocabulary], dtype=np.int64)
                new_M, cell_M, cells = new[ids_M], cell[ids_M], len(place) + 1
        size_N = np.bincount(row_M, minlength=len(records))
        yield count(f.name, "missing", size_N == 0, 2)
        yield count(f.name, "new", new_M, 2, row_M)
        yield count(f.name, "values", cell_M[~new_M], cells, row_M[~new_M], ordered=isinstance(mapper, NumberMapper))
        if isinstance(mapper, SetMapper) and mapper.count is not None:
            some = np.flatnonzero(size_N)
            bucket = mapper.count.forward(size_N[some].astype(np.float64))
            yield count(f.name, "size", bucket - 1, len(mapper.count.middle), some, ordered=True)


def _new_words(
    field: str, words: Sequence[str], often: NDArray[np.int64], known: frozenset[str], seen: Seen | None
) -> NDArray[np.bool_]:
    """Which words are new."""
    if seen is not None:
        return seen.is_new(field, words, known)
    new: NDArray[np.bool_] = np.array([word not in known for word in words], dtype=bool) & (often == 1)
    return new


def _most_frequent(words: Sequence[str], often: NDArray[np.int64]) -> tuple[str, ...]:
    """The words to remember of those that occur, in alphabetical order where they are as frequent."""
    occurring = sorted((-times, word) for word, times in zip(words, often.tolist(), strict=True) if times)
    return tuple(word for _, word in occurring[:WORDS])
