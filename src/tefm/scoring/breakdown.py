"""Scores by class, by group and by predicted probability, for a page or a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.scoring import weighted
from tefm.scoring.bootstrap import Interval, bootstrap, resample_counts

#: Ranges of probability for calibration.
BINS = 10
#: Classes of a confusion matrix, at most.
MOST_CLASSES = 12
#: Resamples of the AUROC of a group: there are many groups, and this many give the interval to about 5% of its width.
RESAMPLES = 200


@dataclass(frozen=True)
class ClassScores:
    """How well one of several classes is predicted; None where a score is not defined."""

    name: str
    #: sequences of this class
    sequences: int
    recall: float | None
    precision: float | None
    f1: float | None


@dataclass(frozen=True)
class GroupScores:
    """How well the sequences of one group are predicted."""

    name: str
    sequences: int
    #: None for a group that is too small
    accuracy: Interval | None = None
    #: with two classes, the share of the positive one
    positive: float | None = None
    #: of the positive class; None for a group that is too small or has one class only, and for several classes
    auroc: Interval | None = None


@dataclass(frozen=True)
class Bin:
    """Sequences with about the same predicted probability: its mean, and how often the class was observed."""

    predicted: float
    observed: Interval
    sequences: int


def scores_by_class(
    labels_S: NDArray[Any], predicted_S: NDArray[Any], classes: Sequence[str]
) -> tuple[ClassScores, ...]:
    """Each class against the rest, the most frequent first.

    >>> for scores in scores_by_class(np.array([0, 0, 1]), np.array([0, 1, 1]), ("a", "b", "c")):
    ...     print(scores.name, scores.sequences, scores.recall, scores.precision, scores.f1)
    a 2 0.5 1.0 0.6666666666666666
    b 1 1.0 0.5 0.6666666666666666
    c 0 None None None
    """

    def scores(number: int, name: str) -> ClassScores:
        is_class_S, is_predicted_S = labels_S == number, predicted_S == number
        actual, predicted = int(is_class_S.sum()), int(is_predicted_S.sum())
        correct = int((is_class_S & is_predicted_S).sum())
        return ClassScores(
            name,
            actual,
            correct / actual if actual else None,
            correct / predicted if predicted else None,
            2 * correct / (actual + predicted) if actual + predicted else None,
        )

    return tuple(sorted((scores(*named) for named in enumerate(classes)), key=lambda scores: -scores.sequences))


@dataclass(frozen=True)
class Confusion:
    """How often each class was predicted for the sequences of each class."""

    classes: tuple[str, ...]
    #: a row per true class, a column per predicted one
    counts: tuple[tuple[int, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        return {"classes": list(self.classes), "counts": [list(row) for row in self.counts]}


def confusion(
    labels_S: NDArray[Any], predicted_S: NDArray[Any], classes: Sequence[str], most: int = MOST_CLASSES
) -> Confusion:
    """The confusion matrix; with more than `most` classes, of the most frequent ones and of all others together.

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), ("no", "yes")).counts
    ((1, 1), (0, 1))
    >>> print(confusion(np.array([2, 2, 1, 0]), np.array([2, 1, 1, 2]), ("a", "b", "c"), most=1))
    Confusion(classes=('c', 'others'), counts=((1, 1), (1, 1)))
    """
    counts_QQ = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(counts_QQ, (labels_S, predicted_S), 1)
    names = tuple(classes)
    if len(classes) > most:
        kept = np.sort(np.argsort(-counts_QQ.sum(axis=1), kind="stable")[:most])
        group_Q = np.full(len(classes), most)
        group_Q[kept] = np.arange(most)
        grouped = np.zeros((most + 1, most + 1), dtype=np.int64)
        np.add.at(grouped, (group_Q[:, None], group_Q[None, :]), counts_QQ)
        counts_QQ, names = grouped, (*(classes[number] for number in kept), "others")
    return Confusion(names, tuple(tuple(row) for row in counts_QQ.tolist()))


def scores_by_group(
    group_S: NDArray[Any],
    names: Sequence[str],
    correct_S: NDArray[np.bool_],
    *,
    p_S: NDArray[Any] | None = None,
    positive_S: NDArray[np.bool_] | None = None,
    least: int,
    seed: int = 0,
) -> tuple[GroupScores, ...]:
    """The scores of each group that occurs; one with fewer sequences than `least` is only counted.

    With two classes, `p_S` is the probability of the positive class and `positive_S` says which sequences have it.

    >>> right_S = np.arange(8) > 0
    >>> for scores in scores_by_group(np.array([0, 0, 0, 0, 0, 0, 1, 1]), ("a", "b"), right_S, least=5):
    ...     print(scores.name, scores.sequences, scores.accuracy)
    a 6 0.833 [0.436, 0.970]
    b 2 None
    """

    def scores(number: int, name: str) -> GroupScores:
        inside_S = group_S == number
        n = int(inside_S.sum())
        if n < least:
            return GroupScores(name, n)
        accuracy = wilson(float(correct_S[inside_S].mean()), n)
        if p_S is None or positive_S is None:
            return GroupScores(name, n, accuracy)
        p, positive = p_S[inside_S], positive_S[inside_S]
        auroc = None
        if positive.any() and not positive.all():
            counts = resample_counts(n, RESAMPLES, seed)
            auroc = Interval.of(bootstrap(lambda counts_RN: weighted.auroc(p, positive, counts_RN), counts))
        return GroupScores(name, n, accuracy, float(positive.mean()), auroc)

    return tuple(scores(number, name) for number, name in enumerate(names) if (group_S == number).any())


def difference_between(group_S: NDArray[Any], correct_S: NDArray[np.bool_]) -> float:
    """How much accuracy differs between groups: its variance between them, which small groups hardly change.

    >>> right_S = np.array([True, True, False, False])
    >>> difference_between(np.array([0, 0, 1, 1]), right_S), difference_between(np.array([0, 1, 0, 1]), right_S)
    (0.25, 0.0)
    """
    sizes_G = np.bincount(group_S)
    occurs_G = sizes_G > 0
    means_G = np.bincount(group_S, correct_S)[occurs_G] / sizes_G[occurs_G]
    return float(np.average((means_G - correct_S.mean()) ** 2, weights=sizes_G[occurs_G]))


def reliability(p_S: NDArray[Any], observed_S: NDArray[Any], bins: int = BINS) -> tuple[Bin, ...]:
    """How often a class was observed among sequences with about the same predicted probability; no empty ranges.

    >>> for bin in reliability(np.array([0.1, 0.9, 0.9]), np.array([0, 1, 0])):
    ...     print(bin.predicted, bin.observed.value, bin.sequences)
    0.1 0.0 1
    0.9 0.5 2
    """
    bin_S = np.clip(np.ceil(np.asarray(p_S) * bins).astype(np.int64) - 1, 0, bins - 1)
    result = []
    for number in np.unique(bin_S):
        inside_S = bin_S == number
        sequences = int(inside_S.sum())
        observed = wilson(float(np.mean(observed_S[inside_S])), sequences)
        result.append(Bin(float(np.mean(p_S[inside_S])), observed, sequences))
    return tuple(result)


def wilson(share: float, n: int, z: float = 1.96) -> Interval:
    """A share of n with its 95% Wilson interval, which stays within 0 and 1 and is never empty.

    >>> print(wilson(0.5, 100))
    0.500 [0.404, 0.596]
    """
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))
