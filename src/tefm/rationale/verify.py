"""Whether a rationale is sufficient: the model predicts again, from the selected features only and from all others.

The smallest rationale that passes: slots are added in ranked order, then the unneeded ones are dropped.

It imports neither torch nor the libraries that read tables, so that a stored rationale can be shown anywhere.

Shapes: S sequences, A selected sequences, N records of all of them, D slots, Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tefm.rationale.masked_model import Keep, MaskedModel, Numbers, Order, Over, order_over
from tefm.scoring.calibration import Floats
from tefm.tables.sequences import Sequences

#: Explained at `Verification`.
Verdict = Literal["sufficient", "default", "insufficient"]

#: The evidence is how much all features raise the probability of the answer. Less than this counts as none.
MARGIN = 0.05
#: The share of the evidence that sufficient features account for.
HALF = 0.5
#: The sizes of rationales that are tried first: 1, 2, 3, 4, 6, 8, 12, 16, 24, …
COARSE_SIZES = sorted(factor * 2**power for factor in (1, 3) for power in range(40))


@dataclass(frozen=True)
class Answer:
    """The model's answer to some of the features."""

    #: the predicted class
    says: str
    #: per class
    probabilities: dict[str, float]

    @property
    def p(self) -> float:
        """The probability of the predicted class."""
        return self.probabilities[self.says]


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

    def answers(self, classes: Sequence[str]) -> list[Answer]:
        """Each of them with the names of the classes."""
        pairs = zip(self.label_S.tolist(), self.p_SQ.tolist(), strict=True)
        return [Answer(classes[label], dict(zip(classes, p_Q, strict=True))) for label, p_Q in pairs]


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
    - `insufficient`: anything else, also an answer that flips at the threshold with nearly the same probability.
    """

    #: the model's answer to all features, to the selected ones only, to all others, and to no features
    full: Answer
    alone: Answer
    without: Answer
    nothing: Answer
    verdict: Verdict

    @property
    def passed(self) -> bool:
        """Whether the selected features are sufficient."""
        return self.verdict == "sufficient"

    @property
    def sufficiency(self) -> float:
        """How much the probability falls with only the selected features; 0 is best."""
        return self.full.p - self.alone.probabilities[self.full.says]

    @property
    def comprehensiveness(self) -> float:
        """How much the probability falls without the selected features; higher is better."""
        return self.full.p - self.without.probabilities[self.full.says]


def verify(
    masked_model: MaskedModel, sequences: Sequences, keep_ND: Keep, classes: Sequence[str]
) -> list[Verification]:
    """Check each sequence with one call of the model, which sees duplicates once."""
    everything_ND = np.ones_like(keep_ND)
    masks = [everything_ND, keep_ND, ~keep_ND, ~everything_ND]
    full, alone, without, nothing = predict(masked_model, sequences, masks)
    answers = [of.answers(classes) for of in (full, alone, without, nothing)]
    verdict_S = verdicts(full, alone, nothing).tolist()
    return [Verification(*values) for values in zip(*answers, verdict_S, strict=True)]


# ---- the smallest rationale that passes -----------------------------------------------------------------------------


def until_sufficient(
    masked_model: MaskedModel,
    scores_ND: NDArray[Any],
    sequences: Sequences,
    *,
    over: Over = "sequence",
    prune: bool = True,
) -> Keep:
    """Grow each rationale in ranked order until it passes the check, and return the smallest that passes.

    A size is a number of slots of the whole sequence, or of each of its records. `COARSE_SIZES` are tried first, for
    all sequences at a time, then every size between the last that fails and the first that passes. (Passing is not
    monotone: a smaller size may pass between two coarse ones that fail, and is not searched for.) Finally, `prune`
    drops each slot that is not needed to pass, from the lowest rank up.

    All features always pass, unless nothing in the records supports the answer: then no slot is selected.
    """
    order_ND = order_over(scores_ND, sequences, over)
    present_ND = sequences.x_ND > 0
    limit_S = np.zeros(len(sequences), dtype=np.int64)
    np.maximum.at(limit_S, sequences.sequence_N, np.where(present_ND, order_ND, -1).max(axis=1, initial=-1) + 1)
    full, nothing = predict(masked_model, sequences, [present_ND, np.zeros_like(present_ND)])
    growth = _Growth(masked_model, sequences, order_ND, full, nothing)
    size_S = growth.smallest_sizes(limit_S)
    keep_ND = growth.first(np.arange(len(sequences)), size_S)
    return growth.pruned(keep_ND, int(size_S.max(initial=0))) if prune else keep_ND


@dataclass(frozen=True, eq=False)
class _Growth:
    masked_model: MaskedModel
    sequences: Sequences
    order_ND: Order
    full: MaskedPredictions
    nothing: MaskedPredictions

    def passes(self, chosen_A: Numbers, keep: Keep) -> NDArray[np.bool_]:
        """Whether these slots of the chosen sequences are sufficient."""
        (alone,) = predict(self.masked_model, self.sequences.select(chosen_A), [keep])
        return sufficient(self.full.select(chosen_A), alone, self.nothing.select(chosen_A))

    def first(self, chosen_A: Numbers, size_A: Numbers) -> Keep:
        """The first `size_A` slots of the chosen sequences."""
        size_N = np.repeat(size_A, self.sequences.lengths[chosen_A])
        return self.order_ND[self.sequences.places(chosen_A)] < size_N[:, None]

    def smallest_sizes(self, limit_S: Numbers) -> Numbers:
        """The smallest size that passes, up to the limit; 0 where nothing supports the answer."""
        size_S, failed_S = limit_S.copy(), np.zeros(len(limit_S), dtype=np.int64)
        # if all features together do not pass, no selection of them does
        supported_S = sufficient(self.full, self.full, self.nothing)
        size_S[~supported_S] = 0
        open_A = np.flatnonzero(supported_S & (limit_S > 0))
        for size in COARSE_SIZES:
            if not len(open_A):
                break
            size_A = np.minimum(size, limit_S[open_A])
            passed_A = self.passes(open_A, self.first(open_A, size_A))
            size_S[open_A[passed_A]] = size_A[passed_A]
            failed_S[open_A[~passed_A]] = size_A[~passed_A]
            open_A = open_A[~passed_A & (size_A < limit_S[open_A])]

        between_S = np.maximum(size_S - failed_S - 1, 0) * (failed_S > 0)
        if between_S.any():
            chosen_A = np.repeat(np.arange(len(limit_S)), between_S)
            first_A = np.repeat(np.cumsum(between_S) - between_S, between_S)
            size_A = failed_S[chosen_A] + 1 + np.arange(len(chosen_A)) - first_A
            passed_A = self.passes(chosen_A, self.first(chosen_A, size_A))
            np.minimum.at(size_S, chosen_A[passed_A], size_A[passed_A])
        return size_S

    def pruned(self, keep_ND: Keep, largest: int) -> Keep:
        """Without the slots that are not needed to pass; `largest` is the size of the largest rationale."""
        sequence_N, count = self.sequences.sequence_N, len(self.sequences)
        keep_ND = keep_ND.copy()
        for place in range(largest - 1, -1, -1):
            tried_ND = keep_ND & (self.order_ND != place)
            some_left_S = np.bincount(sequence_N, tried_ND.sum(axis=1), minlength=count) > 0
            changed_S = np.bincount(sequence_N, (tried_ND != keep_ND).any(axis=1), minlength=count) > 0
            chosen_A = np.flatnonzero(some_left_S & changed_S)
            if len(chosen_A):
                passed_A = self.passes(chosen_A, tried_ND[self.sequences.places(chosen_A)])
                rows = self.sequences.places(chosen_A[passed_A])
                keep_ND[rows] = tried_ND[rows]
        return keep_ND
