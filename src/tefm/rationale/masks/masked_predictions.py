"""The model's predictions for the same sequences under several masks, and the verdicts that follow from them.

Shapes: S sequences, A selected sequences, N records of all of them, D slots, Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tefm.rationale.arrays import Keep, Numbers
from tefm.rationale.masked_model import MaskedModel
from tefm.rationale.verdict import HALF, MARGIN
from tefm.records.sequences import Sequences
from tefm.scoring.calibration import Floats


@dataclass(frozen=True, eq=False)
class Predictions:
    """Probabilities and class numbers of sequences under one mask."""

    p_SQ: Floats
    label_S: Numbers

    def select(self, chosen_A: Numbers) -> Predictions:
        """Those of some of the sequences."""
        return Predictions(self.p_SQ[chosen_A], self.label_S[chosen_A])

    def probability(self, label_S: Numbers) -> Floats:
        """The probability of the given class of each sequence."""
        return self.p_SQ[np.arange(len(label_S)), label_S]


def predict(masked_model: MaskedModel, sequences: Sequences, masks: Sequence[Keep]) -> list[Predictions]:
    """The predictions under each mask, in one call of the model, which sees duplicates once."""
    copies = sequences.select(np.tile(np.arange(len(sequences)), len(masks)))
    p_SQ = masked_model(copies, np.concatenate(masks))
    label_S = masked_model.decide(p_SQ)
    parts = zip(np.split(p_SQ, len(masks)), np.split(label_S, len(masks)), strict=True)
    return [Predictions(p, label) for p, label in parts]


def verdicts(full: Predictions, alone: Predictions, nothing: Predictions) -> NDArray[np.str_]:
    """The rule of `Verification`."""
    p_nothing_S = nothing.probability(full.label_S)
    evidence_S = full.probability(full.label_S) - p_nothing_S
    explained_S = alone.probability(full.label_S) - p_nothing_S
    little_S = evidence_S < MARGIN
    default_S = little_S & (nothing.label_S == full.label_S)
    enough_S = (alone.label_S == full.label_S) & ~little_S & (explained_S >= HALF * evidence_S)
    return np.select([default_S, enough_S], ["default", "sufficient"], "insufficient")


def sufficient(full: Predictions, alone: Predictions, nothing: Predictions) -> NDArray[np.bool_]:
    """Which sequences have the verdict `sufficient`."""
    sufficient_S: NDArray[np.bool_] = verdicts(full, alone, nothing) == "sufficient"
    return sufficient_S
