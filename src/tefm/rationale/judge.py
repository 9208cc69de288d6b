"""The judge: what the language model says of records of which only some slots are kept.

Masked slots are coded again, and the model reads the new codes. It is the frozen model that predicts, never one that
was trained together with what selects the slots.

Shapes: S sequences, N records of all of them, D slots, K levels, Q classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.language.calibrate import Calibration, Floats
from tefm.language.reader import CodeSequences, rows_of
from tefm.records.layout import Slots

Keep = NDArray[np.bool_]
Encode = Callable[[Slots], NDArray[np.integer[Any]]]


@dataclass(frozen=True)
class SlotSequences:
    """Sequences as slots: the records of all of them one after another, and where each begins."""

    x_ND: Slots
    starts: NDArray[np.integer[Any]]
    #: free text per sequence, and words per record about the time since the one before
    texts: Sequence[str] | None = None
    gaps: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts).astype(np.int64)

    @property
    def sequence_N(self) -> NDArray[np.int64]:
        """The number of the sequence that each record belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def last_SD(self) -> Slots:
        """The slots of the last record of each sequence."""
        last_SD: Slots = self.x_ND[self.starts[1:] - 1]
        return last_SD

    def records(self, chosen: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """The rows of some sequences, by number."""
        return rows_of(self.starts, chosen)[0]

    def select(self, chosen: NDArray[np.integer[Any]]) -> SlotSequences:
        """Some of the sequences, by number; a number may come several times."""
        at, starts = rows_of(self.starts, chosen)
        return SlotSequences(
            self.x_ND[at],
            starts,
            None if self.texts is None else [self.texts[i] for i in chosen],
            None if self.gaps is None else [self.gaps[row] for row in at],
        )

    def masked(self, keep_ND: Keep) -> SlotSequences:
        """x ⊙ m: what is not kept is absent."""
        assert keep_ND.shape == self.x_ND.shape, "one mask per record"
        return replace(self, x_ND=np.where(keep_ND, self.x_ND, 0).astype(self.x_ND.dtype))

    def coded(self, encode: Encode) -> CodeSequences:
        """What a language model reads of them."""
        return CodeSequences(encode(self.x_ND), self.starts, self.texts, self.gaps)


@dataclass(frozen=True)
class Judge:
    """Slots in, probabilities out."""

    encode: Encode
    #: per sequence of codes the logits of the classes
    logits: Callable[[CodeSequences], NDArray[Any]]
    calibration: Calibration

    def __call__(self, sequences: SlotSequences, keep_ND: Keep | None = None) -> Floats:
        """Per sequence the probability of each class; sequences that read the same are asked about once."""
        if keep_ND is not None:
            sequences = sequences.masked(keep_ND)
        found = sequences.coded(self.encode)
        first, of_first = _distinct(found)
        return self.calibration.probabilities(self.logits(found.select(first)))[of_first]

    def decide(self, probabilities_SQ: Floats) -> NDArray[np.int64]:
        """Class numbers."""
        return self.calibration.predict(probabilities_SQ)


def _distinct(sequences: CodeSequences) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The sequences that differ in anything a model is shown, and for each sequence its place among them."""
    place: dict[Any, int] = {}
    first, of_first = [], np.zeros(len(sequences), dtype=np.int64)
    for i in range(len(sequences)):
        rows = slice(int(sequences.starts[i]), int(sequences.starts[i + 1]))
        said = (
            sequences.codes_NK[rows].tobytes(),
            sequences.texts[i] if sequences.texts is not None else "",
            tuple(sequences.gaps[rows]) if sequences.gaps is not None else (),
        )
        if said not in place:
            place[said] = len(place)
            first.append(i)
        of_first[i] = place[said]
    return np.array(first, dtype=np.int64), of_first
