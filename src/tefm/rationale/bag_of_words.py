"""Free text as the surrogate reads it: a bag of hashed words, and of pairs of neighbours.

Every record has the text of each column; the language model reads these beside the codes. The surrogate adds up one
vector per word, so the text of a column can be kept or replaced by itself.

Shapes: N records, M columns of text, W words of all texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tefm.tables.sequences import Sequences, Texts, notes_of

#: Vectors of words. Words that share one are rare enough, and the check asks the language model anyway.
BUCKETS = 1 << 14
#: At most this many words of a text are read.
MOST_WORDS = 512


def texts_NM_of(sequences: Sequences) -> Texts:
    """The texts of every record, one sequence after another, column by column."""
    assert sequences.texts is not None, "there are texts"
    pairs = zip(sequences.texts, sequences.lengths.tolist(), strict=True)
    return np.array([note for text, length in pairs for note in notes_of(text, length)], dtype=object)


def columns_of(sequences: Sequences) -> int:
    """How many columns of text the records have."""
    return texts_NM_of(sequences.select([0])).shape[1] if sequences.texts is not None and len(sequences) else 0


def with_texts(sequences: Sequences, texts: Texts) -> Sequences:
    """The sequences with these texts of their records, whatever they are grouped by, in the form that they have now."""
    assert sequences.texts is not None, "there are texts"
    notes_N = [tuple(note) for note in texts.reshape(-1, texts.shape[-1]).tolist()]
    changed = [
        notes_N[end - 1][0] if isinstance(text, str) else tuple(notes_N[start:end])
        for text, (start, end) in zip(sequences.texts, pairwise(sequences.starts.tolist()), strict=True)
    ]
    return replace(sequences, texts=changed)


@lru_cache(maxsize=50_000)
def word_numbers(text: str, column: int) -> tuple[int, ...]:
    """The vectors of a text's words and pairs of neighbours; another column has others.

    >>> len(word_numbers("No fever, no cough", 0)), word_numbers("fever", 0) == word_numbers("fever", 1)
    (7, False)
    """
    words = re.findall(r"\w+", text.lower())[:MOST_WORDS]
    pairs = [f"{one} {other}" for one, other in pairwise(words)]
    return tuple(crc32(f"{column} {word}".encode()) % BUCKETS for word in (*words, *pairs))


def bags_of(texts_NM: Texts) -> Sequences:
    """The words of each record: their vectors' numbers and their weights, W×2; a text counts as one, however long."""
    words: list[tuple[int, float]] = []
    starts = [0]
    for note in texts_NM:
        for column, text in enumerate(note):
            numbers = word_numbers(text, column)
            words += [(number, len(numbers) ** -0.5) for number in numbers]
        starts.append(len(words))
    return Sequences(np.array(words, dtype=np.float64).reshape(-1, 2), np.array(starts))


def bags_by_column(texts: Texts) -> Sequences:
    """The words of each column of a record by itself, N × M."""
    columns = np.eye(texts.shape[-1], dtype=bool)
    return bags_of(np.where(columns, texts.reshape(-1, 1, texts.shape[-1]), "").reshape(-1, texts.shape[-1]))


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
        return torch.where(keep, self.own_TMh[record], self.donors_BTMh[:, record]).sum(dim=1)
