"""Answers that are remembered: a prompt that comes again, in another call, is not put to the language model again.

A table that is read in parts holds the same few codes in each of them, and so do the masked versions of a record.

Shapes: S sequences, F distinct ones, Q classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.language.classifier import Classifier
from tefm.records.sequences import Sequences

#: Answers that are kept at most; then it starts afresh.
KEPT = 500_000


class RememberedLogits:
    """`Classifier.logits` with a memory, for a classifier whose weights no longer change."""

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier.remembering()
        self._known: dict[Any, NDArray[Any]] = {}

    def __call__(self, sequences: Sequences) -> NDArray[Any]:
        first, number_S = self.classifier.distinct(sequences)
        asked = sequences.select(first)
        contents = [self._content(asked, i) for i in range(len(asked))]
        new = [i for i, content in enumerate(contents) if content not in self._known]
        if len(self._known) + len(new) > KEPT:
            self._known, new = {}, list(range(len(contents)))
        if new:
            answers_FQ = self.classifier.logits(asked.select(new))
            self._known.update(zip((contents[i] for i in new), answers_FQ, strict=True))
        if not contents:
            return self.classifier.logits(asked)
        logits_SQ: NDArray[Any] = np.stack([self._known[content] for content in contents])[number_S]
        return logits_SQ

    def _content(self, sequences: Sequences, i: int) -> tuple[Any, ...]:
        """All that the prompt of a sequence depends on."""
        rows = slice(int(sequences.starts[i]), int(sequences.starts[i + 1]))
        values = rows.stop - rows.start if self.classifier.ids is None else sequences.values[rows].tobytes()
        gaps = () if sequences.gaps is None else tuple(sequences.gaps[rows])
        return values, "" if sequences.texts is None else sequences.texts[i], gaps
