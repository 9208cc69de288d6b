"""From calibrated probabilities to a class: what a decision should be good at, and its fit on validation sequences.

With two classes a decision is a threshold on the probability of the positive one, with more it is a weight per class:
the class with the largest weighted probability is predicted.

Shapes: N sequences, Q classes, I intervals between neighbouring probabilities, R resamples, G distinct probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tefm.scoring import weighted
from tefm.scoring.weighted import resample_counts

Floats = NDArray[np.float64]
Rule = Literal["accuracy", "f1", "balanced", "cost"]

#: With fewer validation sequences, no threshold or weight is fitted.
SEQUENCES_NEEDED = 50
#: Resamples of the validation sequences over which the best threshold is averaged.
RESAMPLES = 200
#: The weight of a class with fewer validation sequences than this stays 1.
CLASS_NEEDS = 10
#: Sequences that weights are fitted on, at most; how often all classes are gone through; the factors that are tried.
WEIGHED, ROUNDS, FACTORS = 20_000, 3, np.geomspace(1 / 8, 8, 13)


@dataclass(frozen=True)
class Decision:
    """What a decision should be good at.

    `accuracy`: be right as often as possible. `f1`: the best F1 of the positive class, with more than two classes the
    best macro F1. `balanced`: the best mean recall of the classes. `cost`: the lowest expected cost.
    """

    rule: Rule = "accuracy"
    #: with `cost`, what it costs to miss each class
    costs: tuple[float, ...] = ()

    def threshold(self, p_N: Floats, positive_N: NDArray[np.bool_], positive: int) -> float | None:
        """With two classes, the probability from which the positive one is predicted.

        >>> p_N, positive_N = np.array([0.1, 0.2, 0.3]), np.array([False, False, True])
        >>> Decision("cost", costs=(1.0, 4.0)).threshold(p_N, positive_N, positive=1)
        0.2
        """
        if self.rule == "cost":
            return self.costs[1 - positive] / sum(self.costs)
        if len(p_N) < SEQUENCES_NEEDED or positive_N.all() or not positive_N.any():
            return None
        return _most_accurate(p_N, positive_N) if self.rule == "accuracy" else _best(p_N, positive_N, self.rule)

    def weights(self, p_NQ: Floats, labels_N: NDArray[Any]) -> tuple[float, ...]:
        """With more than two classes, the weight of each; empty where the most probable class is predicted.

        >>> Decision("cost", costs=(1.0, 4.0, 1.0)).weights(np.zeros((0, 3)), np.zeros(0))
        (1.0, 4.0, 1.0)
        """
        if self.rule == "cost":
            return self.costs
        if self.rule == "accuracy" or len(p_NQ) < SEQUENCES_NEEDED:
            return ()
        return tuple(_best_weights(p_NQ, labels_N, self.rule).tolist())


#: The most probable class, more or less.
ACCURACY = Decision()


def one_answer(answers_Q: NDArray[Any], classes: Sequence[str], rule: str) -> list[str]:
    """A warning, with its remedy, about a model that answers one class for everyone.

    >>> one_answer(np.array([3, 0]), ("no", "yes"), "accuracy")
    ['the model answers “no” for all 3 sequences: fit it with `decision: f1` or `decision: balanced`']
    >>> one_answer(np.array([2, 1]), ("no", "yes"), "accuracy")
    []
    """
    if np.count_nonzero(answers_Q) != 1:
        return []
    remedy = "fit it with `decision: f1` or `decision: balanced`"
    if rule in ("f1", "balanced"):
        remedy = "it has not learned to tell the classes apart; train longer, add fields, or check the label"
    elif rule == "cost":
        remedy = "raise the cost of missing the other classes"
    return [f"the model answers “{classes[int(answers_Q.argmax())]}” for all {answers_Q.sum():,} sequences: {remedy}"]


# ---- two classes ----------------------------------------------------------------------------------------------------


def _most_accurate(p_N: Floats, positive_N: NDArray[np.bool_]) -> float:
    """One half, unless it is worse than the best threshold by more than one standard error.

    In that case, the middle of the widest range of thresholds within one standard error of the best; of equally wide
    ranges, the nearest to 0.5. The best threshold of a small sample is mostly luck. In a simulation with 330 validation
    sequences, the accuracy on new ones with calibrated logits was 0.778 at one half, 0.776 by this rule, 0.774 by the
    middle alone and 0.771 at the best threshold; with logits off by 2 it was 0.640, 0.773, 0.773 and 0.771.
    """
    between_U, group_N = np.unique(p_N, return_inverse=True)
    edges = np.concatenate([[0.0], between_U, [1.0]])
    low_I, high_I = edges[:-1], edges[1:]
    # the groups i, i + 1, … are above interval i: they are predicted positive
    true_positive_I, false_positive_I = (
        np.append(np.cumsum(np.bincount(group_N, counted_N, minlength=len(between_U))[::-1])[::-1], 0.0)
        for counted_N in (positive_N, ~positive_N)
    )
    value_I = (true_positive_I + (~positive_N).sum() - false_positive_I) / len(p_N)
    nonempty_I = high_I > low_I
    low_I, high_I, value_I = low_I[nonempty_I], high_I[nonempty_I], value_I[nonempty_I]
    best = float(value_I.max())
    good_I = value_I >= best - math.sqrt(best * (1 - best) / len(p_N)) - 1e-12
    edges_of_good = np.flatnonzero(np.diff(good_I, prepend=False, append=False)).tolist()
    runs = zip(edges_of_good[::2], edges_of_good[1::2], strict=True)
    ranges = [(float(low_I[first]), float(high_I[end - 1])) for first, end in runs]
    if any(low < 0.5 <= high for low, high in ranges):
        return 0.5
    low, high = max(ranges, key=lambda r: (r[1] - r[0], -abs((r[0] + r[1]) / 2 - 0.5)))
    return (low + high) / 2


def _best(p_N: Floats, positive_N: NDArray[np.bool_], rule: Rule) -> float:
    """The median of the best thresholds of resamples: the best threshold of one sample is mostly luck.

    In a simulation with 2,861 validation sequences, 2.3% of them positive, the F1 on new ones was 0.237 by this rule,
    0.235 at the best threshold of the sample, 0.055 at one half, and at most 0.252.
    """
    p_G = np.unique(p_N)[::-1]
    middle_G = (p_G + np.append(p_G[1:], 0.0)) / 2  # below p_G[i], above the next one
    best_R = []
    for counts_RN in resample_counts(len(p_N), RESAMPLES, seed=0):
        positive_RG, negative_RG = weighted.groups(p_N, positive_N, counts_RN)
        hits_RG, alarms_RG = positive_RG.cumsum(axis=1), negative_RG.cumsum(axis=1)
        hits_R1, alarms_R1 = hits_RG[:, -1:], alarms_RG[:, -1:]
        if rule == "f1":
            value_RG = 2 * hits_RG / (hits_RG + alarms_RG + hits_R1).clip(min=1)
        else:
            value_RG = hits_RG / hits_R1.clip(min=1) - alarms_RG / alarms_R1.clip(min=1)
        best_R.append(middle_G[value_RG.argmax(axis=1)])
    return float(np.median(np.concatenate(best_R)))


# ---- more classes ---------------------------------------------------------------------------------------------------


def _best_weights(p_NQ: Floats, labels_N: NDArray[Any], rule: Rule) -> Floats:
    """One class at a time: the factor of its weight that is best while the others stay."""
    if len(p_NQ) > WEIGHED:
        drawn = np.random.default_rng(0).permutation(len(p_NQ))[:WEIGHED]
        p_NQ, labels_N = p_NQ[drawn], labels_N[drawn]
    weights_Q = np.ones(p_NQ.shape[1])
    best = _value(p_NQ.argmax(axis=1), labels_N, len(weights_Q), rule)
    enough = np.flatnonzero(np.bincount(labels_N, minlength=len(weights_Q)) >= CLASS_NEEDS)
    for _ in range(ROUNDS):
        before = best
        for label in enough:
            others_NQ = p_NQ * weights_Q
            own_N = others_NQ[:, label].copy()
            others_NQ[:, label] = -1.0
            other_N, highest_N = others_NQ.argmax(axis=1), others_NQ.max(axis=1)
            chosen = 1.0
            for factor in FACTORS:
                predicted_N = np.where(factor * own_N > highest_N, label, other_N)
                value = _value(predicted_N, labels_N, len(weights_Q), rule)
                if value > best + 1e-9:
                    best, chosen = value, factor
            weights_Q[label] *= chosen
        if best == before:
            break
    weights_Q /= weights_Q.max()
    return weights_Q


def _value(predicted_N: NDArray[Any], labels_N: NDArray[Any], classes: int, rule: Rule) -> float:
    """Macro F1, or the mean recall, over the classes that occur."""
    correct_Q, true_Q, predicted_Q = (
        np.bincount(numbers_N, minlength=classes)
        for numbers_N in (labels_N[predicted_N == labels_N], labels_N, predicted_N)
    )
    below_Q = (true_Q + predicted_Q) / 2 if rule == "f1" else true_Q
    return float((correct_Q / np.maximum(below_Q, 0.5))[below_Q > 0].mean())
