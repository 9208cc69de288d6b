"""Whether a rationale is sufficient: the model predicts again, from the selected features only and from all others.

It imports neither torch nor the libraries that read tables, so that a stored rationale can be shown anywhere.

Shapes: S sequences, A selected sequences, N records of all of them, D slots, Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tefm.rationale.masked_model import Keep, MaskedModel, Numbers
from tefm.scoring.calibration import Floats
from tefm.tables.sequences import Sequences

#: Explained at `Verification`.
Verdict = Literal["sufficient", "default", "insufficient"]

#: The evidence is how much all features raise the probability of the answer. Less than this counts as none.
MARGIN = 0.05
#: The share of the evidence that sufficient features account for.
HALF = 0.5


@dataclass(frozen=True, eq=False)
class MaskedPredictions:
    """Probabilities and class numbers of sequences under one mask."""

    p_SQ: Floats
    label_S: Numbers

    def select(self, chosen_A: Numbers) -> MaskedPredictions:
        """Those of some of the sequences."""
        return MaskedPredictions(self.p_SQ[chosen_A], self.label_S[chosen_A])

    def probability(self, label_S: Numbers) -> Floats:
        """The probability of the given class of each sequence."""
        return self.p_SQ[np.arange(len(label_S)), label_S]


def predict(masked_model: MaskedModel, sequences: Sequences, masks: Sequence[Keep]) -> list[MaskedPredictions]:
    """The predictions under each mask, in one call of the model, which sees duplicates once."""
    copies = sequences.select(np.tile(np.arange(len(sequences)), len(masks)))
    p_SQ = masked_model(copies, np.concatenate(masks))
    label_S = masked_model.decide(p_SQ)
    parts = zip(np.split(p_SQ, len(masks)), np.split(label_S, len(masks)), strict=True)
    return [MaskedPredictions(p, label) for p, label in parts]


def verdicts(full: MaskedPredictions, alone: MaskedPredictions, nothing: MaskedPredictions) -> NDArray[np.str_]:
    """The rule of `Verification`."""
    p_nothing_S = nothing.probability(full.label_S)
    evidence_S = full.probability(full.label_S) - p_nothing_S
    explained_S = alone.probability(full.label_S) - p_nothing_S
    little_S = evidence_S < MARGIN
    default_S = little_S & (nothing.label_S == full.label_S)
    enough_S = (alone.label_S == full.label_S) & ~little_S & (explained_S >= HALF * evidence_S)
    return np.select([default_S, enough_S], ["default", "sufficient"], "insufficient")


def sufficient(full: MaskedPredictions, alone: MaskedPredictions, nothing: MaskedPredictions) -> NDArray[np.bool_]:
    """Which sequences have the verdict `sufficient`."""
    sufficient_S: NDArray[np.bool_] = verdicts(full, alone, nothing) == "sufficient"
    return sufficient_S


@dataclass(frozen=True)
class Verification:
    """The model's answers for one sequence: to all features, to the rationale, to the rest, and to no features.

    That the rationale alone gives the same answer proves nothing if an empty record gives it too. The check therefore
    measures the *evidence*: how much more probable the answer is with all features than with empty records.

    - `default`: empty records get the same answer, and the evidence is below 0.05. Nothing in the records supports the
      answer, so no selection of features can be shown to explain it.
    - `sufficient`: there is evidence, and the rationale alone gets the same answer and at least half of the evidence.
    - `insufficient`: anything else. This includes an answer that depends on the decision threshold: empty records get
      a different one with nearly the same probability.

    If no field contains the label, nothing passes as sufficient by chance: a calibrated model is as sure of its answer
    as of the one for empty records.
    """

    #: the class number predicted from all features, and from each of the other inputs
    label: int
    label_alone: int
    label_without: int
    label_nothing: int
    #: the probability of each class
    full: tuple[float, ...]
    alone: tuple[float, ...]
    without: tuple[float, ...]
    nothing: tuple[float, ...]
    verdict: Verdict

    @property
    def same(self) -> bool:
        """Whether the rationale alone gets the same answer."""
        return self.label_alone == self.label

    @property
    def passed(self) -> bool:
        """Whether the rationale is sufficient."""
        return self.verdict == "sufficient"

    @property
    def evidence(self) -> float:
        """How much more probable the answer is with all features than with empty records."""
        return self.full[self.label] - self.nothing[self.label]

    @property
    def sufficiency(self) -> float:
        """How much the probability falls with the rationale only; 0 is best."""
        return self.full[self.label] - self.alone[self.label]

    @property
    def comprehensiveness(self) -> float:
        """How much the probability falls without the rationale; higher is better."""
        return self.full[self.label] - self.without[self.label]


def verify(masked_model: MaskedModel, sequences: Sequences, keep_ND: Keep) -> list[Verification]:
    """Check each sequence with one call of the model, which sees duplicates once."""
    everything_ND = np.ones_like(keep_ND)
    masks = [everything_ND, keep_ND, ~keep_ND, ~everything_ND]
    full, alone, without, nothing = predict(masked_model, sequences, masks)
    labels = (predictions.label_S.tolist() for predictions in (full, alone, without, nothing))
    probabilities = (map(tuple, predictions.p_SQ.tolist()) for predictions in (full, alone, without, nothing))
    verdict_S = verdicts(full, alone, nothing).tolist()
    return [Verification(*values) for values in zip(*labels, *probabilities, verdict_S, strict=True)]
