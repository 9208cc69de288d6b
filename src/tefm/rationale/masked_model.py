"""The judge: what the language model says of records of which only some slots are kept.

Masked slots are coded again, and the model reads the new codes. It is the frozen model that predicts, never one that
was trained together with what selects the slots.

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
    #: per sequence of codes the logits of the classes
    logits: Callable[[Sequences], NDArray[Any]]
    calibration: Calibration

    def __call__(self, sequences: Sequences, keep_ND: Keep | None = None) -> Floats:
        """Per sequence the probability of each class; sequences that read the same are asked about once."""
        if keep_ND is not None:
            sequences = sequences.masked(keep_ND)
        found = sequences.with_values(self.encode(sequences.x_ND))
        first, of_first = _distinct(found)
        return self.calibration.probabilities(self.logits(found.select(first)))[of_first]

    def decide(self, probabilities_SQ: Floats) -> NDArray[np.int64]:
        """Class numbers."""
        return self.calibration.predict(probabilities_SQ)


def _distinct(sequences: Sequences) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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
