"""What answers for a model: its language model from codes, and what reads the fields themselves beside it.

Shapes: S sequences, F distinct ones, Q classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tefm.codes.coder import SlotCoder
from tefm.language.classifier import Classifier
from tefm.tables.sequences import Sequences

#: Sequences whose features are held at once.
CHUNK = 8_192
#: The maximum number of remembered answers; beyond it, the memory is emptied.
REMEMBERED_ANSWERS = 500_000

Floats = NDArray[np.float64]


class FieldModel(Protocol):
    """A model that answers from slots: trees for the label, or the head of a question."""

    @property
    def cheap(self) -> bool:
        """Whether a search may ask it thousands of times."""

    def logits(self, slots: Sequences) -> Floats:
        """The logits of the classes."""


@dataclass(frozen=True, eq=False)
class Answerer:
    """Slots in, logits of the classes out.

    The slots are encoded once, and the language model reads the codes. With a model of the fields beside it, the
    logits are the weighted mean of both.
    """

    classifier: Classifier
    coder: SlotCoder
    #: what answers beside the language model
    beside: FieldModel | None = None
    #: the weight of the language model; the rest is that of the model of the fields
    share: float = 1.0
    #: the language model's answers, where they are kept between calls
    memory: RememberedLogits | None = None

    def remembering(self) -> Self:
        """An answerer with a memory: the language model is not asked again about codes of an earlier call."""
        return self if self.memory is not None else replace(self, memory=RememberedLogits(self.classifier))

    def codes(self, slots: Sequences) -> Sequences:
        """What the language model reads: the sequences as codes."""
        return self.coder.coded(slots)

    def logits(self, slots: Sequences, codes: Sequences | None = None, *, show: bool = False) -> NDArray[Any]:
        """The logits of the classes for every sequence of slots; give its `codes` where they are known.

        Each distinct sequence is answered once. `show` displays the progress of the language model.
        """
        if self.beside is None:
            return self._by_language_model(self.codes(slots) if codes is None else codes, show=show)
        first, number_S = slots.distinct()
        slots = slots.select(first)
        logits_FQ = np.zeros((len(first), len(self.classifier.writer.classes)))
        if self.share and len(first):
            codes = self.codes(slots) if codes is None else codes.select(first)
            logits_FQ += self.share * self._by_language_model(codes, show=show)
        for start in range(0, len(first), CHUNK):
            part = slice(start, start + CHUNK)
            logits_FQ[part] += self.by_fields(slots.select(np.arange(len(first))[part]))
        return logits_FQ[number_S]

    def by_model(self, slots: Sequences) -> NDArray[Any]:
        """The language model's part of the logits."""
        if not self.share:
            return np.zeros((len(slots), len(self.classifier.writer.classes)))
        return self.share * self._by_language_model(self.codes(slots))

    def by_fields(self, slots: Sequences) -> Floats:
        """The part of the logits that the model of the fields adds."""
        if self.beside is None or self.share == 1:
            return np.zeros((len(slots), len(self.classifier.writer.classes)))
        return (1 - self.share) * self.beside.logits(slots)

    def _by_language_model(self, codes: Sequences, *, show: bool = False) -> NDArray[Any]:
        return self.classifier.logits(codes, show=show) if self.memory is None else self.memory(codes)


class RememberedLogits:
    """`Classifier.logits` with a memory, for a classifier whose weights no longer change.

    A table that is read in parts has the same few codes in each of them, and so have the masked versions of a record.
    """

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier
        self._known: dict[Any, NDArray[Any]] = {}

    def __call__(self, sequences: Sequences) -> NDArray[Any]:
        first, number_S = self.classifier.distinct(sequences)
        asked = sequences.select(first)
        contents = [self._content(asked, i) for i in range(len(asked))]
        new = [i for i, content in enumerate(contents) if content not in self._known]
        if len(self._known) + len(new) > REMEMBERED_ANSWERS:
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
