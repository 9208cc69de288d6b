"""The fields of some records, counted: missing values, new values, and which of the known values they have.

The three are kept apart, so that each names its cause. A value is *new* if training did not have it: a word that is
not among its words, a number outside its range. The values are those that are neither missing nor new.

Shapes: N records, M values of a field (of a set, several per record).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.monitor.observe import Count, SampledRecords
from tefm.monitor.tally import Tally
from tefm.tables.columns import Columns, columns_of
from tefm.tables.mappers import CategoryMapper, FlagMapper, NumberMapper, SetMapper
from tefm.tables.readers.table import open_table
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
