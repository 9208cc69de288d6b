"""How good predictions are: ranking, decisions and calibration, each with its uncertainty.

`auroc`, `average_precision`, `f1_per_class` and `macro_f1` are single numbers. `score` gives every metric of a model
with a 95% percentile bootstrap over sequences, and `paired_difference` compares two models.

Shapes: N sequences, Q classes, R resamples (rows of counts), E sequences of all parts, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.scoring import weighted
from tefm.scoring.bootstrap import Interval, bootstrap, resample_counts

__all__ = [
    "METRICS",
    "Interval",
    "Metric",
    "Predicted",
    "Scores",
    "auroc",
    "average_precision",
    "f1_per_class",
    "macro_f1",
    "mean_differences",
    "paired_difference",
    "score",
]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Metric = Literal["auroc", "auprc", "accuracy", "macro_f1", "brier", "ece"]

#: How far the probabilities of a sequence may be from adding up to 1; half precision is good to about 1e-3.
TOLERANCE = 2e-3


# ---- single numbers -------------------------------------------------------------------------------------------------


def auroc(scores_N: NDArray[Any], positive_N: NDArray[Any], weights_N: NDArray[Any] | None = None) -> float:
    """The chance that a positive scores higher than a negative, a tie counting half; nan where either is missing.

    A weight is how often a sequence counts.

    >>> auroc(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]))
    0.875
    """
    return float(weighted.auroc(scores_N, np.asarray(positive_N, dtype=bool), _weights(weights_N, len(scores_N)))[0])


def average_precision(scores_N: NDArray[Any], positive_N: NDArray[Any], weights_N: NDArray[Any] | None = None) -> float:
    """The area under the precision-recall curve, without interpolation; nan where positives or negatives are missing.

    >>> round(average_precision(np.array([0.9, 0.6, 0.3]), np.array([True, False, True])), 3)
    0.833
    """
    positive_N = np.asarray(positive_N, dtype=bool)
    return float(weighted.average_precision(scores_N, positive_N, _weights(weights_N, len(scores_N)))[0])


def f1_per_class(
    labels_N: NDArray[Any], predicted_N: NDArray[Any], classes: int, weights_N: NDArray[Any] | None = None
) -> Floats:
    """The F1 of each class number; 0 for a class that occurs in neither labels nor predictions.

    >>> f1_per_class(np.array([0, 0, 1]), np.array([0, 1, 1]), classes=3).round(3).tolist()
    [0.667, 0.667, 0.0]
    """
    f1_RQ, _ = weighted.f1_per_class(labels_N, predicted_N, classes, _weights(weights_N, len(labels_N)))
    f1_Q: Floats = f1_RQ[0]
    return f1_Q


def macro_f1(
    labels_N: NDArray[Any], predicted_N: NDArray[Any], classes: int, weights_N: NDArray[Any] | None = None
) -> float:
    """The mean F1 over the classes that occur in labels or predictions.

    >>> round(macro_f1(np.array([0, 0, 1]), np.array([0, 1, 1]), classes=3), 3)
    0.667
    """
    return float(weighted.macro_f1(labels_N, predicted_N, classes, _weights(weights_N, len(labels_N)))[0])


def _weights(weights_N: NDArray[Any] | None, n: int) -> Floats:
    return np.ones((1, n)) if weights_N is None else np.asarray(weights_N, dtype=np.float64)[None]


# ---- every metric of a model, and two models compared ---------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """Every metric of one model on one set of sequences.

    AUROC and AUPRC (average precision) are those of the positive class; with several classes, the mean of one against
    the rest over the classes that occur. Macro F1 is the mean over the classes that occur in the labels or the
    predictions. Brier is the squared error of the positive class's probability; with several classes, its sum over
    them. ECE compares the probability of the predicted class with how often it is right, in 15 bins.
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
    """Every metric of these predictions; `labels_N` and `predicted_N` are class numbers.

    The prediction is the most probable class unless `predicted_N` is given. With two classes, `positive` is the one
    that AUROC, AUPRC and Brier are computed for.

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
    chunks = [
        {name: metric(sample, counts_RN) for name, metric in METRICS.items()}
        for counts_RN in resample_counts(len(sample.labels_N), resamples, seed)
    ]
    intervals = {name: Interval.of(np.concatenate([chunk[name] for chunk in chunks])) for name in METRICS}
    return Scores(len(sample.labels_N), tuple(classes), **intervals)


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
    """How much higher a metric is for model a than for model b on the same sequences.

    Both are resampled together, so sequences that are hard for both do not widen the interval.
    """
    if metric not in METRICS:
        raise SettingsError("not a valid metric", value=metric, remedy=f"choose one of {', '.join(METRICS)}")
    a = _checked(a_probabilities_NQ, labels_N, a_predicted_N, positive)
    b = _checked(b_probabilities_NQ, labels_N, b_predicted_N, positive)
    compute = METRICS[metric]
    counts = resample_counts(len(labels_N), resamples, seed)
    return Interval.of(bootstrap(lambda counts_RN: compute(a, counts_RN) - compute(b, counts_RN), counts))


def mean_differences(
    metrics: Sequence[Metric],
    a: Sequence[Predicted],
    b: Sequence[Predicted],
    ids: Sequence[NDArray[Any]],
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[Metric, Interval]:
    """How much higher each metric is for a than for b, on average over several test parts, each with its own models.

    `ids` name the sequences of each part. A sequence that is in several parts is drawn for all of them together, so
    testing the same sequences again does not narrow the interval.

    >>> p_NQ = np.array([[0.9, 0.1], [0.4, 0.6]])
    >>> right, wrong = Predicted.of(p_NQ, np.array([0, 1])), Predicted.of(p_NQ[::-1], np.array([0, 1]))
    >>> print(mean_differences(["accuracy"], [right], [wrong], [np.array([7, 8])])["accuracy"])
    1.000 [1.000, 1.000]
    """
    everyone, places = np.unique(np.concatenate(ids), return_inverse=True)
    places_of = np.split(places, np.cumsum([len(part) for part in ids])[:-1])
    chunks: dict[Metric, list[Floats]] = {metric: [] for metric in metrics}
    for counts_RE in resample_counts(len(everyone), resamples, seed):
        for metric in metrics:
            compute = METRICS[metric]
            gains = [
                compute(ours, counts_RE[:, of_part]) - compute(theirs, counts_RE[:, of_part])
                for ours, theirs, of_part in zip(a, b, places_of, strict=True)
            ]
            chunks[metric].append(np.mean(gains, axis=0))
    return {metric: Interval.of(np.concatenate(values)) for metric, values in chunks.items()}


# ---- checking the input ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Predicted:
    """What a model predicts for labelled sequences."""

    probabilities_NQ: Floats
    labels_N: Numbers
    predicted_N: Numbers
    positive: int

    @classmethod
    def of(
        cls,
        probabilities_NQ: NDArray[Any],
        labels_N: NDArray[Any],
        predicted_N: NDArray[Any] | None = None,
        positive: int = 1,
    ) -> Predicted:
        """Checked: probabilities that add up to 1, and class numbers; the most probable class unless one is given."""
        return _checked(probabilities_NQ, labels_N, predicted_N, positive)


def _checked(
    probabilities_NQ: NDArray[Any], labels_N: NDArray[Any], predicted_N: NDArray[Any] | None, positive: int
) -> Predicted:
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
            f"{wrong_N.sum()} of {len(p_NQ)} rows (the first is row {first + 1}) are not valid probabilities: "
            "they are nan, below 0, or do not add up to 1",
            value=p_NQ[first].tolist(),
            remedy="turn logits into probabilities (Calibration.probabilities); nan means that training diverged",
        )
    labels = _class_numbers(labels_N, p_NQ.shape, "labels")
    predicted = p_NQ.argmax(axis=1) if predicted_N is None else _class_numbers(predicted_N, p_NQ.shape, "predictions")
    if positive not in range(p_NQ.shape[1]):
        raise SettingsError(
            "the positive class is not one of the classes",
            value=positive,
            remedy=f"choose a number from 0 to {p_NQ.shape[1] - 1}",
        )
    return Predicted(p_NQ, labels, predicted, positive)


def _class_numbers(numbers_N: NDArray[Any], shape: tuple[int, ...], name: str) -> Numbers:
    numbers_N = np.asarray(numbers_N)
    if numbers_N.shape != shape[:1]:
        raise InputError(
            f"there are {shape[0]} sequences, but {name} of the shape {numbers_N.shape}", remedy="give one per sequence"
        )
    if not np.issubdtype(numbers_N.dtype, np.integer) or numbers_N.min() < 0 or numbers_N.max() >= shape[1]:
        raise InputError(
            f"{name} must be class numbers from 0 to {shape[1] - 1}",
            value=sorted(set(numbers_N.tolist()))[:8],
            remedy="number the classes in alphabetical order and leave out sequences without a label",
        )
    return numbers_N.astype(np.int64)


#: Each metric of `score`: one value per row of counts.
METRICS: Mapping[Metric, Callable[[Predicted, Floats], Floats]] = {
    "auroc": lambda sample, counts_RN: weighted.macro(
        weighted.auroc, sample.probabilities_NQ, sample.labels_N, counts_RN, positive=sample.positive
    ),
    "auprc": lambda sample, counts_RN: weighted.macro(
        weighted.average_precision, sample.probabilities_NQ, sample.labels_N, counts_RN, positive=sample.positive
    ),
    "accuracy": lambda sample, counts_RN: weighted.mean(sample.predicted_N == sample.labels_N, counts_RN),
    "macro_f1": lambda sample, counts_RN: weighted.macro_f1(
        sample.labels_N, sample.predicted_N, sample.probabilities_NQ.shape[1], counts_RN
    ),
    "brier": lambda sample, counts_RN: weighted.brier(
        sample.probabilities_NQ, sample.labels_N, counts_RN, positive=sample.positive
    ),
    "ece": lambda sample, counts_RN: weighted.calibration_error(
        sample.probabilities_NQ, sample.labels_N, sample.predicted_N, counts_RN
    ),
}
