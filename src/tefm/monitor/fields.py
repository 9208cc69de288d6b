"""The fields of some records, counted: missing values, new values, and which of the known values they have.

The three are kept apart, so that each names its cause. A value is *new* if training did not have it: a word that is
not among its words, a number outside its range. The values are those that are neither missing nor new.

Shapes: N records, M values of a field (of a set, several per record), W slots of a field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tefm.monitor.observe import SampledRecords, SequenceAnswers
from tefm.monitor.tally import Kind, Tally
from tefm.tables.columns import Columns, columns_of
from tefm.tables.layout import Slots
from tefm.tables.mappers import CategoryMapper, FlagMapper, NumberMapper, SetMapper
from tefm.tables.readers.table import open_table
from tefm.tables.schema import Field
from tefm.tables.vectorise import Vectoriser
from tefm.tables.words import distinct_pairs

#: How many of a field's new words are remembered, for the message.
WORDS = 5
#: A field with more rare words than this has no end of them (a name, an address): nothing in it counts as new.
MOST = 100_000

Hashes = NDArray[np.uint64]


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
        words: dict[str, set[str]] = {name: set() for name in known_words(vectoriser)}
        known = known_words(vectoriser)
        for columns in columns_of(open_table(table), vectoriser.table_schema):
            for f in vectoriser.table_schema.fields:
                if f.name in words:
                    vocabulary = columns.words(f).vocabulary if f.kind == "set" else columns.word_ids(f)[1]
                    words[f.name].update(word for word in vocabulary if word is not None and word not in known[f.name])
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


class Cells(NamedTuple):
    """Things to count: the record and the cell of each, out of a number of cells."""

    subject: str
    kind: Kind
    row_M: NDArray[np.int64]
    cell_M: NDArray[np.int64]
    cells: int
    ordered: bool = False

    @classmethod
    def of_every(cls, subject: str, kind: Kind, cell_N: NDArray[Any], cells: int, *, ordered: bool = False) -> Cells:
        """One thing per record."""
        return cls(subject, kind, np.arange(len(cell_N)), cell_N.astype(np.int64), cells, ordered)

    def tally(self, of: SampledRecords | SequenceAnswers, classes: int) -> Tally:
        """The things counted; `of` is what has them."""
        unit_M, label_M = of.unit_S[self.row_M], of.label_S[self.row_M]
        return Tally.of(self.subject, self.kind, self.cell_M, unit_M, label_M, self.cells, classes, self.ordered)


def field_cells(records: SampledRecords, vectoriser: Vectoriser, seen: Seen | None, raw: Raw) -> Iterator[Cells]:
    """What is counted of every field; what messages need is put into `raw`.

    Without `seen`, the records are compared with each other: a word that occurs once is one that the others lack.
    """
    columns = Columns.of(records.frame, vectoriser.table_schema)
    for f, mapper, own in vectoriser.parts:
        field = _Field(records.x_SD[:, own], columns, f, seen, raw)
        match mapper:
            case FlagMapper():  # off and missing are the same
                yield Cells.of_every(f.name, "values", field.x_NW[:, 0], 2)
            case NumberMapper():
                yield from field.number(mapper)
            case CategoryMapper():
                yield from field.category(mapper)
            case SetMapper():
                yield from field.members(mapper)


@dataclass(frozen=True, eq=False)
class _Field:
    """One field of the records."""

    x_NW: Slots
    columns: Columns
    field: Field
    seen: Seen | None
    raw: Raw

    def number(self, mapper: NumberMapper) -> Iterator[Cells]:
        values_N, slot_N = self.columns.numbers(self.field), self.x_NW[:, 0].astype(np.int64)
        new_N = (slot_N > 0) & ((values_N < mapper.low[0]) | (values_N > mapper.high[-1]))
        self.raw.numbers[self.field.name] = values_N[slot_N > 0]
        yield from self._one_value(slot_N, new_N, len(mapper.middle), ordered=True)

    def category(self, mapper: CategoryMapper) -> Iterator[Cells]:
        ids_N, words = self.columns.word_ids(self.field)
        new_N = self._new(ids_N, words, frozenset(mapper.values))[ids_N]
        yield from self._one_value(self.x_NW[:, 0].astype(np.int64), new_N, len(mapper.values) + 1, ordered=False)

    def _one_value(
        self, slot_N: NDArray[np.int64], new_N: NDArray[np.bool_], cells: int, *, ordered: bool
    ) -> Iterator[Cells]:
        """A field with at most one value per record: its slot is 0 where it is missing."""
        name, present, known = self.field.name, np.flatnonzero(slot_N > 0), np.flatnonzero((slot_N > 0) & ~new_N)
        yield Cells.of_every(name, "missing", slot_N == 0, 2)
        yield Cells(name, "new", present, new_N[present].astype(np.int64), 2)
        yield Cells(name, "values", known, slot_N[known] - 1, cells, ordered)

    def members(self, mapper: SetMapper) -> Iterator[Cells]:
        name, words = self.field.name, self.columns.words(self.field)
        row_M, ids_M = distinct_pairs(words)
        size_N = np.bincount(row_M, minlength=len(self.x_NW))
        yield Cells.of_every(name, "missing", size_N == 0, 2)
        new_M = self._new(ids_M, words.vocabulary, frozenset(mapper.values))[ids_M]
        yield Cells(name, "new", row_M, new_M.astype(np.int64), 2)
        place = {word: number for number, word in enumerate(mapper.values)}
        cell_M = np.array([place.get(word, len(place)) for word in words.vocabulary], dtype=np.int64)[ids_M]
        yield Cells(name, "values", row_M[~new_M], cell_M[~new_M], len(place) + 1)
        if mapper.count is not None:
            some = np.flatnonzero(size_N > 0)
            bucket = mapper.count.forward(size_N[some].astype(np.float64)).astype(np.int64)
            yield Cells(name, "size", some, bucket - 1, len(mapper.count.middle), ordered=True)

    def _new(self, ids: NDArray[np.int64], words: list[Any], known: frozenset[str]) -> NDArray[np.bool_]:
        """Which words are new; the most frequent of them are remembered."""
        often: Counter[str] = Counter()
        for word, count in zip(words, np.bincount(ids, minlength=len(words)).tolist(), strict=True):
            if word is not None:
                often[word] += count
        if self.seen is not None:
            new = self.seen.is_new(self.field.name, words, known)
        else:
            new = np.array([word not in known and often.get(word) == 1 for word in words], dtype=bool)
        names = {words[i] for i in np.flatnonzero(new)}
        frequent = sorted((name for name in names if often[name]), key=lambda name: (-often[name], name))
        self.raw.words[self.field.name] = tuple(frequent[:WORDS])
        return new
