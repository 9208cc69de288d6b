"""Free text as the surrogate reads it: a bag of hashed words, and of pairs of neighbours.

Every record has the text of each column; the language model reads these beside the codes. The surrogate adds up one
vector per word, so the text of a column can be kept or replaced by itself.

Shapes: N records, M columns of text, W words of all texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tefm.tables.sequences import Notes, Sequences, notes_of

#: Vectors of words. Words that share one are rare enough, and the check asks the language model anyway.
BUCKETS = 1 << 14
#: At most this many words of a text are read.
MOST_WORDS = 512

#: The texts of one record, one per column.
Note = tuple[str, ...]


def notes_N_of(sequences: Sequences) -> list[Note]:
    """The texts of every record, one sequence after another."""
    assert sequences.texts is not None, "there are texts"
    pairs = zip(sequences.texts, sequences.lengths.tolist(), strict=True)
    return [note for text, length in pairs for note in notes_of(text, length)]


def columns_of(sequences: Sequences) -> int:
    """How many columns of text the records have."""
    return len(notes_N_of(sequences.select([0]))[0]) if sequences.texts is not None and len(sequences) else 0


def with_notes(sequences: Sequences, notes_N: Sequence[Note]) -> list[str | Notes]:
    """The texts of sequences whose records have these notes, in the form that their texts have now."""
    assert sequences.texts is not None, "there are texts"
    starts = sequences.starts.tolist()
    return [
        notes_N[end - 1][0] if isinstance(text, str) else tuple(notes_N[start:end])
        for text, start, end in zip(sequences.texts, starts[:-1], starts[1:], strict=True)
    ]


@lru_cache(maxsize=50_000)
def word_numbers(text: str, column: int) -> tuple[int, ...]:
    """The vectors of a text's words and pairs of neighbours; another column has others.

    >>> len(word_numbers("No fever, no cough", 0)), word_numbers("fever", 0) == word_numbers("fever", 1)
    (7, False)
    """
    words = re.findall(r"\w+", text.lower())[:MOST_WORDS]
    pairs = [f"{one} {other}" for one, other in pairwise(words)]
    return tuple(crc32(f"{column} {word}".encode()) % BUCKETS for word in (*words, *pairs))


@dataclass(frozen=True)
class Bags:
    """The words of records, which `torch.nn.EmbeddingBag` adds up; a text counts as one, however long it is."""

    numbers_W: Tensor
    weights_W: Tensor
    #: where each record begins
    starts_N: Tensor

    @classmethod
    def of(cls, notes_N: Sequence[Note]) -> Bags:
        numbers: list[int] = []
        weights: list[float] = []
        starts = []
        for note in notes_N:
            starts.append(len(numbers))
            for column, text in enumerate(note):
                words = word_numbers(text, column)
                numbers += words
                weights += [max(1, len(words)) ** -0.5] * len(words)
        numbers_W, weights_W = torch.tensor(numbers, dtype=torch.long), torch.tensor(weights, dtype=torch.float32)
        return cls(numbers_W, weights_W, torch.tensor(starts, dtype=torch.long))

    @classmethod
    def by_column(cls, notes_N: Sequence[Note]) -> Bags:
        """The words of each column of a record by itself, N × M."""
        return cls.of([("",) * m + (text,) for note in notes_N for m, text in enumerate(note)])

    def select(self, rows: NDArray[np.int64]) -> Bags:
        """Some of the records."""
        ends = np.append(self.starts_N.numpy()[1:], len(self.numbers_W))
        starts = self.starts_N.numpy()[rows]
        lengths = ends[rows] - starts
        new_starts = np.cumsum(lengths) - lengths
        places = torch.from_numpy(np.arange(lengths.sum()) + np.repeat(starts - new_starts, lengths))
        return Bags(self.numbers_W[places], self.weights_W[places], torch.from_numpy(new_starts))

    def __add__(self, other: Bags) -> Bags:
        return Bags(
            torch.cat([self.numbers_W, other.numbers_W]),
            torch.cat([self.weights_W, other.weights_W]),
            torch.cat([self.starts_N, other.starts_N + len(self.numbers_W)]),
        )


@dataclass(frozen=True, eq=False)
class ReadTexts:
    """What the surrogate makes of the texts of a sequence (T × M × h) and of its donors (B × T × M × h)."""

    own_TMh: Tensor
    donors_BTMh: Tensor

    @property
    def columns(self) -> int:
        return self.own_TMh.shape[1]

    def of(self, record: int, keep_M: NDArray[np.bool_]) -> Tensor:
        """What it makes of the texts of a record in each look-alike, B × h."""
        keep = torch.from_numpy(keep_M.copy())[:, None]
        mixed_Bh: Tensor = torch.where(keep, self.own_TMh[record], self.donors_BTMh[:, record]).sum(dim=1)
        return mixed_Bh
