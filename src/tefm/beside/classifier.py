"""A language model that reads codes, and a head that reads fields, as one classifier of slots.

Shapes: S sequences, F distinct ones, Q classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sized
from copy import copy
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tefm.codes.coder import SlotCoder
from tefm.language.classifier import Classifier
from tefm.language.remember import RememberedLogits
from tefm.records.sequences import Sequences

#: Sequences whose features are held at once.
CHUNK = 8_192


class ClassifierBeside(Classifier, ABC):
    """The logits are a mean of both, with the language model's `share`. It takes sequences of slots, not of codes."""

    takes_slots: ClassVar[bool] = True

    def __init__(self, reader: Classifier, coder: SlotCoder, share: float) -> None:
        super().__init__(reader.backbone, reader.writer)
        self.reader, self.coder, self.share = reader, coder, share
        # slots that differ may have the same codes
        self._remembered, self._remembers = RememberedLogits(reader), False

    def remembering(self) -> ClassifierBeside:
        """The same, which asks its language model once about the same codes in several calls."""
        same = copy(self)
        same._remembers = True
        return same

    @abstractmethod
    def head_logits(self, slots: Sequences) -> NDArray[np.float64]:
        """What the head alone says, from slots."""

    @property
    @abstractmethod
    def cheap(self) -> bool:
        """Whether the head is so cheap that a search may ask it thousands of times."""

    def prompts(self, sequences: Sequences) -> list[NDArray[np.int64]]:
        """The prompt of each sequence of slots as token ids."""
        return self.reader.prompts(self.coder.coded(sequences))

    def logits(self, sequences: Sequences, *, batch_tokens: int | None = None, show: bool = False) -> NDArray[Any]:
        """The logits of the classes; each distinct sequence of slots is read once."""
        first, number_S = self.distinct(sequences)
        if not len(first):
            return np.zeros((0, len(self.writer.first_tokens)))
        logits_FQ = self._nothing(first)
        if self.share:
            codes, remembered = self.coder.coded(sequences.select(first)), self._remembered
            read = remembered if self._remembers else partial(self.reader.logits, batch_tokens=batch_tokens, show=show)
            logits_FQ += self.share * read(codes)
        for start in range(0, len(first), CHUNK):
            logits_FQ[start : start + CHUNK] += self.by_head(sequences.select(first[start : start + CHUNK]))
        return logits_FQ[number_S]

    def by_model(self, codes: Sequences) -> NDArray[Any]:
        """The language model's part of the logits, from codes; for searches, which ask about the same ones often."""
        return self.share * self._remembered(codes) if self.share else self._nothing(codes)

    def by_head(self, slots: Sequences) -> NDArray[np.float64]:
        """The head's part of the logits, from slots."""
        return (1 - self.share) * self.head_logits(slots) if self.share < 1 else self._nothing(slots)

    def _nothing(self, sequences: Sized) -> NDArray[np.float64]:
        return np.zeros((len(sequences), len(self.writer.first_tokens)))
