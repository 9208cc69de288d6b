"""Curves of a ranking: ROC, precision–recall, and the counts at every threshold.

scikit-learn computes them; the results are plain numbers for a page, JSON or a plot.

Shapes: S sequences, Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from tefm.scoring.metrics import auroc, average_precision

Floats = NDArray[np.float64]
Points = tuple[float, ...]

#: A curve has at most this many points: more cannot be seen at the width of a plot.
POINTS = 200
#: Of several classes, this many of the most frequent ones have a curve of their own.
CURVES = 6
#: Thresholds from 0 to 1 at which predictions are counted.
THRESHOLDS = 101
#: The name of the mean over the classes.
MACRO = "mean of all classes"


@dataclass(frozen=True)
class Operating:
    """Where the decisions of the model are on both curves; None where a rate is not defined."""

    false_positive_rate: float | None
    recall: float | None
    precision: float | None


@dataclass(frozen=True)
class Curve:
    """The ROC and precision–recall curves of one class against the rest, from the strictest threshold on."""

    name: str
    #: sequences of this class
    sequences: int
    false_positive_rate: Points
    true_positive_rate: Points
    recall: Points
    precision: Points
    auroc: float
    average_precision: float
    #: None for a mean over classes
    operating: Operating | None = None


@dataclass(frozen=True)
class ThresholdCounts:
    """The predictions at each of many thresholds, of sequences with `positives` and `negatives`.

    >>> counts = threshold_counts(np.array([0.9, 0.6, 0.2]), np.array([True, False, False]), 0.5)
    >>> at = counts.thresholds.index(0.5)
    >>> counts.true_positives[at], counts.false_positives[at], counts.own
    (1, 1, 50)
    """

    thresholds: Points
    true_positives: tuple[int, ...]
    false_positives: tuple[int, ...]
    positives: int
    negatives: int
    #: the position of the model's own threshold
    own: int


def ranking_curves(
    p_SQ: Floats, labels_S: NDArray[Any], predicted_S: NDArray[Any], classes: Sequence[str], *, positive: int = 1
) -> tuple[Curve, ...]:
    """The curves of the positive class; of several classes, those of the most frequent ones and their mean.

    A class that no sequence has, or that all have, has no curve. The mean is over all classes that have one.
    """
    counts_Q = np.bincount(labels_S, minlength=len(classes))
    defined = [number for number in range(len(classes)) if 0 < counts_Q[number] < len(labels_S)]
    if len(classes) == 2:
        defined = [positive] if positive in defined else []
    frequent = sorted(defined, key=lambda number: -counts_Q[number])

    def curve(number: int) -> Curve:
        return class_curve(p_SQ[:, number], labels_S == number, predicted_S == number, classes[number])

    shown = tuple(curve(number) for number in frequent[:CURVES])
    if len(classes) == 2 or not shown:
        return shown
    return (*shown, _mean([*shown, *(curve(number) for number in frequent[CURVES:])]))


def class_curve(p_S: Floats, positive_S: NDArray[np.bool_], predicted_S: NDArray[np.bool_], name: str) -> Curve:
    """One class against the rest; `predicted_S` are the decisions of the model, for the operating point."""
    false_positive_rate, true_positive_rate, _ = roc_curve(positive_S, p_S)
    precision, recall, _ = precision_recall_curve(positive_S, p_S, drop_intermediate=True)
    hits, called, positives = (int(which_S.sum()) for which_S in (positive_S & predicted_S, predicted_S, positive_S))
    roc, ranked = _few(false_positive_rate, true_positive_rate), _few(recall[::-1], precision[::-1])
    return Curve(
        name,
        positives,
        *roc,
        *ranked,
        auroc=auroc(p_S, positive_S),
        average_precision=average_precision(p_S, positive_S),
        operating=Operating(_ratio(called - hits, len(p_S) - positives), _ratio(hits, positives), _ratio(hits, called)),
    )


def _mean(curves: Sequence[Curve]) -> Curve:
    """The mean of curves at the same false positive rates, and at the same recalls."""
    grid = np.linspace(0, 1, THRESHOLDS)
    true_positive_rate = np.mean([np.interp(grid, c.false_positive_rate, c.true_positive_rate) for c in curves], axis=0)
    # precision at the first threshold that reaches a recall, as average precision counts it
    precision = np.mean([np.asarray(c.precision)[np.searchsorted(c.recall, grid)] for c in curves], axis=0)
    places = tuple(grid.tolist())
    return Curve(
        MACRO,
        sum(curve.sequences for curve in curves),
        places,
        tuple(true_positive_rate.tolist()),
        places,
        tuple(precision.tolist()),
        auroc=float(np.mean([curve.auroc for curve in curves])),
        average_precision=float(np.mean([curve.average_precision for curve in curves])),
    )


def threshold_counts(p_S: Floats, positive_S: NDArray[np.bool_], own: float) -> ThresholdCounts:
    """True and false positives when the class is predicted from each threshold on; `own` is the model's threshold."""
    thresholds = np.unique([*np.round(np.linspace(0, 1, THRESHOLDS), 2), own])

    def at_least(values: Floats) -> tuple[int, ...]:
        return tuple((len(values) - np.searchsorted(np.sort(values), thresholds)).tolist())

    return ThresholdCounts(
        tuple(thresholds.tolist()),
        at_least(p_S[positive_S]),
        at_least(p_S[~positive_S]),
        int(positive_S.sum()),
        int((~positive_S).sum()),
        int(np.searchsorted(thresholds, own)),
    )


def _few(x: Floats, y: Floats) -> tuple[Points, Points]:
    """At most `POINTS` points of a curve, both ends among them."""
    chosen = np.unique(np.linspace(0, len(x) - 1, min(POINTS, len(x))).round().astype(np.int64))
    return tuple(x[chosen].tolist()), tuple(y[chosen].tolist())


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
