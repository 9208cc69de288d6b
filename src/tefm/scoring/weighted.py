"""Metrics of the same predictions under many weightings at once, one value per row of weights; and the bootstrap.

A weight is how often a sequence counts: all ones for the sample itself, the draws of a bootstrap, or the number of
records that share a value. `metrics.py` has the same metrics for a single weighting.

A bootstrap resample is a row of weights too (how often each sequence was drawn), so sorting and binning happen once,
and a thousand resamples take a few matrix products. The first row is always the sample itself.

Shapes: N sequences, Q classes, R rows of weights, or resamples, G groups of equal scores, B bins of confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import SettingsError

Floats = NDArray[np.float64]

#: Equal-width bins of the expected calibration error, as in Guo et al. 2017.
BINS = 15


def auroc(scores_N: NDArray[Any], positive_N: NDArray[np.bool_], weights_RN: Floats) -> Floats:
    """The chance that a positive scores higher than a negative, a tie counting half; nan where either is missing.

    >>> weights_RN = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    >>> auroc(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]), weights_RN)
    array([0.875,   nan])
    """
    positive_RG, negative_RG = groups(scores_N, positive_N, weights_RN)
    above_RG = np.cumsum(positive_RG, axis=1) - positive_RG / 2
    pairs_R = positive_RG.sum(axis=1) * negative_RG.sum(axis=1)
    return _ratio((negative_RG * above_RG).sum(axis=1), pairs_R)


def average_precision(scores_N: NDArray[Any], positive_N: NDArray[np.bool_], weights_RN: Floats) -> Floats:
    """The precision at each group of equal scores, weighted by the recall it adds; nan as for `auroc`."""
    positive_RG, negative_RG = groups(scores_N, positive_N, weights_RN)
    hits_RG = np.cumsum(positive_RG, axis=1)
    retrieved_RG = np.cumsum(positive_RG + negative_RG, axis=1)
    precision_RG = _ratio(hits_RG, retrieved_RG, otherwise=0.0)  # nothing retrieved yet adds no recall
    average_R = _ratio((positive_RG * precision_RG).sum(axis=1), positive_RG.sum(axis=1))
    return np.where(negative_RG.any(axis=1), average_R, np.nan)


Ranking = Callable[[NDArray[Any], NDArray[np.bool_], Floats], Floats]


def macro(
    metric: Ranking, probabilities_NQ: Floats, labels_N: NDArray[Any], weights_RN: Floats, *, positive: int = 1
) -> Floats:
    """`auroc` or `average_precision` of the positive class; of several classes, the mean of one against the rest.

    The mean is over the classes that occur, and nan where there is only one.
    """
    values_QR = [
        metric(probabilities_NQ[:, label], labels_N == label, weights_RN)
        for label in ranked_classes(probabilities_NQ.shape[1], positive)
    ]
    defined_QR = ~np.isnan(values_QR)
    return _ratio(np.where(defined_QR, values_QR, 0.0).sum(axis=0), defined_QR.sum(axis=0))


def ranked_classes(classes: int, positive: int) -> tuple[int, ...]:
    """The classes to rank against the rest: of two, each against the other would be the same comparison twice."""
    return (positive,) if classes == 2 else tuple(range(classes))


def macro_f1(labels_N: NDArray[Any], predicted_N: NDArray[Any], classes: int, weights_RN: Floats) -> Floats:
    """The mean F1 over the classes that occur in labels or predictions."""
    true_NQ, predicted_NQ = (numbers_N[:, None] == np.arange(classes) for numbers_N in (labels_N, predicted_N))
    both_RQ = weights_RN @ (true_NQ & predicted_NQ)
    either_RQ = weights_RN @ (true_NQ.astype(np.float64) + predicted_NQ)
    f1_RQ = _ratio(2 * both_RQ, either_RQ, otherwise=0.0)
    return _ratio(f1_RQ.sum(axis=1), (either_RQ > 0).sum(axis=1))


def mean(values_N: NDArray[Any], weights_RN: Floats) -> Floats:
    mean_R: Floats = weights_RN @ values_N.astype(np.float64) / weights_RN.sum(axis=1)
    return mean_R


def brier(probabilities_NQ: Floats, labels_N: NDArray[Any], weights_RN: Floats, *, positive: int = 1) -> Floats:
    """The squared error of the positive class's probability; of several classes, its sum over them."""
    classes = probabilities_NQ.shape[1]
    errors_NQ = (probabilities_NQ - (labels_N[:, None] == np.arange(classes))) ** 2
    return mean(errors_NQ[:, ranked_classes(classes, positive)].sum(axis=1), weights_RN)


def calibration_error(
    probabilities_NQ: Floats, labels_N: NDArray[Any], predicted_N: NDArray[Any], weights_RN: Floats
) -> Floats:
    """The expected calibration error: the predicted class's probability against how often it is right, in bins."""
    confidence_N = probabilities_NQ[np.arange(len(labels_N)), predicted_N]
    bin_N = np.clip(np.ceil(confidence_N * BINS).astype(np.int64) - 1, 0, BINS - 1)  # a bin includes its upper edge
    surplus_N = confidence_N - (predicted_N == labels_N)
    surplus_NB = np.where(bin_N[:, None] == np.arange(BINS), surplus_N[:, None], 0.0)
    error_R: Floats = np.abs(weights_RN @ surplus_NB).sum(axis=1) / weights_RN.sum(axis=1)
    return error_R


def groups(scores_N: NDArray[Any], positive_N: NDArray[np.bool_], weights_RN: Floats) -> tuple[Floats, Floats]:
    """The weight of positives and of negatives in each group of equal scores, highest score first."""
    scores_N = np.asarray(scores_N, dtype=np.float64)
    order_N = np.argsort(-scores_N, kind="stable")
    sorted_N, positive_N, weights_RN = scores_N[order_N], positive_N[order_N], weights_RN[:, order_N]
    firsts_G = np.flatnonzero(np.concatenate([[True], sorted_N[1:] != sorted_N[:-1]]))
    return (
        np.add.reduceat(weights_RN * positive_N, firsts_G, axis=1),
        np.add.reduceat(weights_RN * ~positive_N, firsts_G, axis=1),
    )


def _ratio(above: NDArray[Any], below: NDArray[Any], otherwise: float = np.nan) -> Floats:
    """The quotient, and `otherwise` where there is nothing to divide by."""
    quotient: Floats = np.divide(above, below, out=np.full(below.shape, otherwise), where=below > 0)
    return quotient


# ---- the bootstrap ---------------------------------------------------------------------------------------------------

#: Counts in memory at a time: 32 MB.
CHUNK_CELLS = 4_000_000


@dataclass(frozen=True)
class Interval:
    """A metric and the range of 95% of its resamples; nan where the metric is not defined."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values_R: Floats) -> Interval:
        """From the values of `bootstrap`; resamples that lack a class are nan and skipped.

        >>> print(Interval.of(np.array([0.5, 0.25, 0.5, 0.75])))
        0.500 [0.263, 0.738]
        """
        resampled = values_R[1:][~np.isnan(values_R[1:])]
        low, high = np.quantile(resampled, (0.025, 0.975)) if len(resampled) else (math.nan, math.nan)
        return cls(float(values_R[0]), float(low), float(high))

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def to_dict(self) -> dict[str, float | None]:
        """None for nan, which JSON does not have."""
        return {name: None if math.isnan(number) else number for name, number in vars(self).items()}


def bootstrap(metric: Callable[[Floats], Floats], counts: Iterable[Floats]) -> Floats:
    """A metric of the sample (the first value) and of its resamples, from chunks of counts.

    >>> right_N = np.array([1.0, 1.0, 0.0, 1.0])
    >>> values_R = bootstrap(lambda counts_RN: counts_RN @ right_N / 4, resample_counts(4, resamples=200, seed=0))
    >>> values_R.shape, float(values_R[0]), float(values_R[1:].std(ddof=1).round(1))  # √(0.75 × 0.25 / 4)
    ((201,), 0.75, 0.2)
    """
    return np.concatenate([metric(counts_RN) for counts_RN in counts])


def resample_counts(n: int, resamples: int, seed: int, *, strata_N: NDArray[Any] | None = None) -> Iterator[Floats]:
    """How often each of `n` sequences is drawn, a chunk of resamples at a time.

    With `strata_N` (classes, for example), every resample has as many sequences of each stratum as the sample.
    """
    if resamples < 0:
        raise SettingsError("the number of resamples is negative", value=resamples, remedy="for example 1,000")
    rng = np.random.default_rng(seed)
    strata = [] if strata_N is None else [np.flatnonzero(strata_N == stratum) for stratum in np.unique(strata_N)]
    yield np.ones((1, n))
    chunk = max(1, CHUNK_CELLS // n)
    for start in range(0, resamples, chunk):
        rows = min(chunk, resamples - start)
        if strata:
            drawn_RN = np.array([np.concatenate([rng.choice(of, len(of)) for of in strata]) for _ in range(rows)])
        else:
            drawn_RN = rng.integers(0, n, size=(rows, n))
        cells_RN = drawn_RN + n * np.arange(rows)[:, None]
        yield np.bincount(cells_RN.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)
