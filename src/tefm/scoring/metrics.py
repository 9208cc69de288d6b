"""How good probabilities are: ranking, decisions and calibration, each with its uncertainty.

The uncertainty is a 95% percentile bootstrap over sequences. A resample is a row of counts (how often each
sequence was drawn), so that what is sorted or binned is sorted and binned once, and a thousand resamples are a few
matrix products.

Shapes: N sequences, Q classes, R resamples (rows of counts), G groups of equal scores, B bins of confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Metric = Literal["auroc", "auprc", "accuracy", "macro_f1", "brier", "ece"]

#: Equal-width bins of the expected calibration error, as Guo et al. 2017 count it.
BINS = 15
#: Counts held at a time: 32 MB.
CHUNK_CELLS = 4_000_000
#: How far the probabilities of a sequence may be from adding up to 1; half precision is good to about 1e-3.
TOLERANCE = 2e-3


@dataclass(frozen=True)
class Interval:
    """A figure and the range that 95% of the resamples fall in; nan where the figure is not defined."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def to_dict(self) -> dict[str, float | None]:
        """None for nan, which JSON does not know."""
        named = {"value": self.value, "low": self.low, "high": self.high}
        return {name: None if math.isnan(number) else number for name, number in named.items()}


@dataclass(frozen=True)
class Scores:
    """All figures of one model on one set of sequences.

    AUROC and AUPRC (average precision) are those of the positive class; of several classes they are the mean of one
    against the rest over the classes that occur. Macro F1 is the mean over the classes that occur in the labels or the
    predictions. Brier is the squared error of the positive class's probability; of several classes its sum over them.
    ECE compares the probability of the predicted class with how often it is right, in 15 bins.
    """

    n: int
    classes: tuple[str, ...]
    auroc: Interval
    auprc: Interval
    accuracy: Interval
    macro_f1: Interval
    brier: Interval
    ece: Interval

    def to_dict(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "classes": list(self.classes),
            "auroc": self.auroc.to_dict(),
            "auprc": self.auprc.to_dict(),
            "accuracy": self.accuracy.to_dict(),
            "macro_f1": self.macro_f1.to_dict(),
            "brier": self.brier.to_dict(),
            "ece": self.ece.to_dict(),
        }


def score(
    probabilities_NQ: NDArray[Any],
    labels_N: NDArray[Any],
    classes: tuple[str, ...],
    *,
    predicted_N: NDArray[Any] | None = None,
    positive: int = 1,
    resamples: int = 1000,
    seed: int = 0,
) -> Scores:
    """Every figure of these predictions; `labels_N` and `predicted_N` are class numbers.

    The prediction is the most probable class unless `predicted_N` says otherwise. `positive` is the class that AUROC,
    AUPRC and Brier are about when there are two.

    >>> scores = score(np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]), np.array([0, 0, 1]), ("no", "yes"))
    >>> scores.auroc.value, round(scores.accuracy.value, 3), round(scores.brier.value, 3)
    (1.0, 0.667, 0.137)
    """
    sample = _checked(probabilities_NQ, labels_N, predicted_N, positive)
    columns = sample.probabilities_NQ.shape[1]
    if len(classes) != columns:
        raise InputError(
            f"there are {columns} probabilities per sequence, but {len(classes)} classes",
            remedy="give one name per column of the probabilities, in their order",
        )
    drawn = [
        {name: measure(sample, counts_RN) for name, measure in METRICS.items()}
        for counts_RN in _counts(len(sample.labels_N), resamples, seed)
    ]
    figures = {name: _interval(np.concatenate([chunk[name] for chunk in drawn])) for name in METRICS}
    return Scores(len(sample.labels_N), tuple(classes), **figures)


def paired_difference(
    metric: Metric,
    a_probabilities_NQ: NDArray[Any],
    b_probabilities_NQ: NDArray[Any],
    labels_N: NDArray[Any],
    *,
    a_predicted_N: NDArray[Any] | None = None,
    b_predicted_N: NDArray[Any] | None = None,
    positive: int = 1,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """How much higher a figure is for model a than for model b on the same sequences.

    Both are resampled together: what is hard for both does not widen the interval.
    """
    if metric not in METRICS:
        raise SettingsError("there is no such metric", value=metric, remedy=f"choose one of {', '.join(METRICS)}")
    a = _checked(a_probabilities_NQ, labels_N, a_predicted_N, positive)
    b = _checked(b_probabilities_NQ, labels_N, b_predicted_N, positive)
    measure = METRICS[metric]
    drawn = [measure(a, counts_RN) - measure(b, counts_RN) for counts_RN in _counts(len(labels_N), resamples, seed)]
    return _interval(np.concatenate(drawn))


# ---- the sample and its resamples -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Sample:
    probabilities_NQ: Floats
    labels_N: Numbers
    predicted_N: Numbers
    positive: int

    @property
    def asked(self) -> tuple[int, ...]:
        """The classes that ranking is about: of two, each against the rest would be the same comparison twice."""
        classes = self.probabilities_NQ.shape[1]
        return (self.positive,) if classes == 2 else tuple(range(classes))


def _checked(
    probabilities_NQ: NDArray[Any], labels_N: NDArray[Any], predicted_N: NDArray[Any] | None, positive: int
) -> _Sample:
    p_NQ = np.asarray(probabilities_NQ, dtype=np.float64)
    if p_NQ.ndim != 2 or p_NQ.shape[1] < 2 or not len(p_NQ):
        raise InputError(
            f"probabilities of the shape {p_NQ.shape} cannot be scored",
            remedy="give one row per sequence (at least one) and one column per class (at least two)",
        )
    wrong_N = ~np.isfinite(p_NQ).all(axis=1) | (p_NQ < 0).any(axis=1) | (np.abs(p_NQ.sum(axis=1) - 1) > TOLERANCE)
    if wrong_N.any():
        first = int(wrong_N.argmax())
        raise InputError(
            f"{wrong_N.sum()} of {len(p_NQ)} rows are no probabilities, row {first + 1} first: they are nan, below 0, "
            "or do not add up to 1",
            value=p_NQ[first].tolist(),
            remedy="turn logits into probabilities (Calibration.probabilities); nan points to a training that diverged",
        )
    labels = _class_numbers(labels_N, p_NQ.shape, "labels")
    predicted = p_NQ.argmax(axis=1) if predicted_N is None else _class_numbers(predicted_N, p_NQ.shape, "predictions")
    if positive not in range(p_NQ.shape[1]):
        raise SettingsError(
            "the positive class is none of the classes",
            value=positive,
            remedy=f"choose a number from 0 to {p_NQ.shape[1] - 1}",
        )
    return _Sample(p_NQ, labels, predicted, positive)


def _class_numbers(numbers_N: NDArray[Any], shape: tuple[int, ...], what: str) -> Numbers:
    numbers_N = np.asarray(numbers_N)
    if numbers_N.shape != shape[:1]:
        raise InputError(
            f"there are {shape[0]} sequences, but {what} of the shape {numbers_N.shape}", remedy="give one each"
        )
    if not np.issubdtype(numbers_N.dtype, np.integer) or numbers_N.min() < 0 or numbers_N.max() >= shape[1]:
        raise InputError(
            f"{what} are class numbers from 0 to {shape[1] - 1}",
            value=sorted(set(numbers_N.tolist()))[:8],
            remedy="number the classes in alphabetical order, and leave sequences without a label out",
        )
    return numbers_N.astype(np.int64)


def _counts(n: int, resamples: int, seed: int) -> Iterator[Floats]:
    """How often each sequence is drawn, a chunk of resamples at a time; the very first row is the sample itself."""
    if resamples < 0:
        raise SettingsError("the number of resamples is below 0", value=resamples, remedy="1,000 are usual")
    rng = np.random.default_rng(seed)
    yield np.ones((1, n))
    chunk = max(1, CHUNK_CELLS // n)
    for start in range(0, resamples, chunk):
        drawn = min(chunk, resamples - start)
        rows = rng.integers(0, n, size=(drawn, n)) + n * np.arange(drawn)[:, None]
        yield np.bincount(rows.ravel(), minlength=drawn * n).reshape(drawn, n).astype(np.float64)


def _interval(values_R: Floats) -> Interval:
    """The first value is that of the sample; resamples that lack a class are nan and skipped."""
    drawn = values_R[1:][~np.isnan(values_R[1:])]
    low, high = np.quantile(drawn, (0.025, 0.975)) if len(drawn) else (math.nan, math.nan)
    return Interval(float(values_R[0]), float(low), float(high))


# ---- the figures, each for many resamples at once -------------------------------------------------------------------


def _macro_ranking(sample: _Sample, counts_RN: Floats, figure: Callable[[Floats, Floats], Floats]) -> Floats:
    """The mean of a ranking figure over the classes that occur; nan where none can be told from the rest."""
    total_R, found_R = np.zeros(len(counts_RN)), np.zeros(len(counts_RN))
    for asked in sample.asked:
        score_N = sample.probabilities_NQ[:, asked]
        order_N = np.argsort(-score_N, kind="stable")
        firsts_G = np.flatnonzero(np.diff(score_N[order_N], prepend=np.inf))  # equal scores are one group
        sorted_RN = counts_RN[:, order_N]
        of_class_N = (sample.labels_N == asked)[order_N]
        positive_RG = np.add.reduceat(sorted_RN * of_class_N, firsts_G, axis=1)
        negative_RG = np.add.reduceat(sorted_RN * ~of_class_N, firsts_G, axis=1)
        there_R = positive_RG.any(axis=1) & negative_RG.any(axis=1)
        total_R[there_R] += figure(positive_RG[there_R], negative_RG[there_R])
        found_R += there_R
    mean_R: Floats = np.divide(total_R, found_R, out=np.full(len(counts_RN), np.nan), where=found_R > 0)
    return mean_R


def _auroc(positive_RG: Floats, negative_RG: Floats) -> Floats:
    """The chance that a positive ranks above a negative one, a tie counting half; the best group comes first.

    >>> _auroc(np.array([[1.0, 1.0, 0.0]]), np.array([[0.0, 1.0, 1.0]]))
    array([0.875])
    """
    above_RG = np.cumsum(positive_RG, axis=1) - positive_RG / 2
    won_R: Floats = (negative_RG * above_RG).sum(axis=1) / (positive_RG.sum(axis=1) * negative_RG.sum(axis=1))
    return won_R


def _average_precision(positive_RG: Floats, negative_RG: Floats) -> Floats:
    """The precision at each group of equal scores, weighted by the recall it adds."""
    found_RG = np.cumsum(positive_RG, axis=1)
    taken_RG = np.cumsum(positive_RG + negative_RG, axis=1)
    precision_RG = found_RG / np.maximum(taken_RG, 1)  # nothing taken yet: nothing found, and no weight
    average_R: Floats = (positive_RG * precision_RG).sum(axis=1) / positive_RG.sum(axis=1)
    return average_R


def _accuracy(sample: _Sample, counts_RN: Floats) -> Floats:
    return _mean(counts_RN, sample.predicted_N == sample.labels_N)


def _macro_f1(sample: _Sample, counts_RN: Floats) -> Floats:
    numbers_Q = np.arange(sample.probabilities_NQ.shape[1])
    true_NQ, predicted_NQ = (of[:, None] == numbers_Q for of in (sample.labels_N, sample.predicted_N))
    both_RQ = counts_RN @ (true_NQ & predicted_NQ)
    either_RQ = counts_RN @ (true_NQ.astype(np.float64) + predicted_NQ)
    f1_RQ = 2 * both_RQ / np.maximum(either_RQ, 1)
    macro_R: Floats = f1_RQ.sum(axis=1) / (either_RQ > 0).sum(axis=1)
    return macro_R


def _brier(sample: _Sample, counts_RN: Floats) -> Floats:
    true_NQ = sample.labels_N[:, None] == np.arange(sample.probabilities_NQ.shape[1])
    errors_NQ = (sample.probabilities_NQ - true_NQ) ** 2
    return _mean(counts_RN, errors_NQ[:, sample.asked].sum(axis=1))


def _ece(sample: _Sample, counts_RN: Floats) -> Floats:
    confidence_N = sample.probabilities_NQ[np.arange(len(sample.labels_N)), sample.predicted_N]
    bin_N = np.clip(np.ceil(confidence_N * BINS).astype(np.int64) - 1, 0, BINS - 1)  # a bin includes its upper edge
    surplus_N = confidence_N - (sample.predicted_N == sample.labels_N)
    surplus_NB = np.where(bin_N[:, None] == np.arange(BINS), surplus_N[:, None], 0.0)
    error_R: Floats = np.abs(counts_RN @ surplus_NB).sum(axis=1) / counts_RN.sum(axis=1)
    return error_R


def _mean(counts_RN: Floats, values_N: NDArray[Any]) -> Floats:
    mean_R: Floats = counts_RN @ values_N.astype(np.float64) / counts_RN.sum(axis=1)
    return mean_R


METRICS: Mapping[Metric, Callable[[_Sample, Floats], Floats]] = {
    "auroc": lambda sample, counts_RN: _macro_ranking(sample, counts_RN, _auroc),
    "auprc": lambda sample, counts_RN: _macro_ranking(sample, counts_RN, _average_precision),
    "accuracy": _accuracy,
    "macro_f1": _macro_f1,
    "brier": _brier,
    "ece": _ece,
}
