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

from tefm.scoring.calibration import Calibration, Floats
from tefm.tables.sequences import Sequences

#: Which slots are kept.
Keep = NDArray[np.bool_]
#: Positions, or class numbers.
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class MaskedModel:
    """Slots in, probabilities out."""

    #: the logits of the classes for each sequence of slots
    logits: Callable[[Sequences], NDArray[Any]]
    calibration: Calibration
    #: of a model with a head beside the language model: the head's part of the logits, from slots
    head: Callable[[Sequences], Floats] | None = None
    #: of such a model, the language model's part of its answers
    language_model: MaskedModel | None = None

    def __call__(self, sequences: Sequences, keep_ND: Keep | None = None) -> Floats:
        """The probability of each class for each sequence; identical inputs are predicted once."""
        if keep_ND is not None:
            sequences = sequences.masked(keep_ND)
        first, number_S = sequences.distinct()
        return self.calibration.probabilities(self.logits(sequences.select(first)))[number_S]

    def beside(self, slots: Sequences) -> Floats:
        """What is added to the language model's part of the logits, after calibration."""
        assert self.head is not None, "the model has a head"
        logits_SQ = self.head(slots) / self.calibration.temperature
        return logits_SQ + np.array(self.calibration.bias) if self.calibration.bias else logits_SQ

    def decide(self, probabilities_SQ: Floats) -> NDArray[np.int64]:
        """Class numbers."""
        return self.calibration.predict(probabilities_SQ)
