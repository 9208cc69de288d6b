"""Scores by class and by predicted probability, for a page or a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.scoring.bootstrap import Interval

#: Ranges of probability for calibration.
BINS = 10
#: Classes of a confusion matrix, at most.
MOST_CLASSES = 12


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
