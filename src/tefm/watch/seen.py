"""Which words the training table had. The frequent ones are in the vectoriser; the others are kept as hashes.

A word that is not among them is *new*. Without this, a field with more values than the vectoriser tells apart would
hide a new category among its rare ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.records.columns import columns_of
from tefm.records.mappers import CategoryMapper, SetMapper
from tefm.records.readers.table import open_table
from tefm.records.vectorise import Vectoriser

#: A field with more rare words than this has no end of them (a name, an address): nothing in it counts as new.
MOST = 100_000

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Seen:
    """The rare words of each category and set, as sorted hashes; a field without an entry has too many."""

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
