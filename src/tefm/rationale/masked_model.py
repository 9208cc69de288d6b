"""The model's predictions from some of the slots only.

Masked slots are removed, the record is encoded again, and the model reads the new codes. It is the frozen model that
makes the predictions, never one that was trained together with the selection of slots.

Shapes: S sequences, N records of all of them, D slots, K levels, Q classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.records.layout import Slots
from tefm.records.sequences import Sequences
from tefm.scoring.calibration import Calibration, Floats

Keep = NDArray[np.bool_]
Encode = Callable[[Slots], NDArray[np.integer[Any]]]


@dataclass(frozen=True)
class MaskedModel:
    """Slots in, probabilities out."""

    encode: Encode
    #: the logits of the classes for each sequence of codes
    logits: Callable[[Sequences], NDArray[Any]]
    calibration: Calibration

    def __call__(self, sequences: Sequences, keep_ND: Keep | None = None) -> Floats:
        """The probability of each class for each sequence; identical inputs are predicted once."""
        if keep_ND is not None:
            sequences = sequences.masked(keep_ND)
        codes = sequences.with_values(self.encode(sequences.x_ND))
        first, number_S = _distinct(codes)
        return self.calibration.probabilities(self.logits(codes.select(first)))[number_S]

    def decide(self, probabilities_SQ: Floats) -> NDArray[np.int64]:
        """Class numbers."""
        return self.calibration.predict(probabilities_SQ)


def _distinct(sequences: Sequences) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first of each group of sequences that the model reads alike, and the number of each sequence's group."""
    number_of: dict[Any, int] = {}
    first, number_S = [], np.zeros(len(sequences), dtype=np.int64)
    for i in range(len(sequences)):
        rows = slice(int(sequences.starts[i]), int(sequences.starts[i + 1]))
        content = (
            sequences.codes_NK[rows].tobytes(),
            sequences.texts[i] if sequences.texts is not None else "",
            tuple(sequences.gaps[rows]) if sequences.gaps is not None else (),
        )
        if content not in number_of:
            number_of[content] = len(number_of)
            first.append(i)
        number_S[i] = number_of[content]
    return np.array(first, dtype=np.int64), number_S
