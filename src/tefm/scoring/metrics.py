"""How good predictions are: ranking, decisions and calibration, each with its uncertainty.

`auroc` is a single number. `score` gives every metric of a model with a 95% percentile
bootstrap over sequences, and `compare` says which of two models is better on the same sequences.

Shapes: N sequences, Q classes, R resamples (rows of counts).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.scoring import weighted
from tefm.scoring.weighted import Interval, bootstrap, resample_counts

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Metric = Literal["auroc", "auprc", "accuracy", "macro_f1", "brier", "ece"]

#: How far the probabilities of a sequence may be from adding up to 1; half precision is good to about 1e-3.
TOLERANCE = 2e-3


def auroc(scores_N: NDArray[Any], positive_N: NDArray[Any], weights_N: NDArray[Any] | None = None) -> float:
    """The chance that a positive scores higher than a negative, a tie counting half; nan where either is missing.

    A weight is how often a sequence counts.

    >>> auroc(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]))
    0.875
    """
    weights_N = np.ones(len(scores_N)) if weights_N is None else np.asarray(weights_N, dtype=np.float64)
    return float(weighted.auroc(scores_N, np.asarray(positive_N, dtype=bool), weights_N[None])[0])


# ---- what a model predicts ------------------------------------------------------------------------------------------


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
        predicted = p_NQ.argmax(axis=1)
        if predicted_N is not None:
            predicted = _class_numbers(predicted_N, p_NQ.shape, "predictions")
        if positive not in range(p_NQ.shape[1]):
            raise SettingsError(
                "the positive class is not one of the classes",
                value=positive,
                remedy=f"choose a number from 0 to {p_NQ.shape[1] - 1}",
            )
        return cls(p_NQ, labels, predicted, positive)


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


# ---- every metric of a model ----------------------------------------------------------------------------------------


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
        body: dict[str, Any] = {"n": self.n, "classes": list(self.classes)}
        return body | {name: getattr(self, name).to_dict() for name in METRICS}


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
    sample = Predicted.of(probabilities_NQ, labels_N, predicted_N, positive)
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


def score_with_unknown(
    p_NQ: Floats, labels_N: Numbers, classes: tuple[str, ...], *, predicted_N: Numbers, resamples: int, **settings: int
) -> Scores:
    """Every metric where labels may be of classes without a probability, which are numbered after the others.

    Accuracy and macro F1 count them as errors, the others leave them out.
    """
    known, every = np.flatnonzero(labels_N < len(classes)), int(labels_N.max()) + 1
    scores = score(
        p_NQ[known], labels_N[known], classes, predicted_N=predicted_N[known], resamples=resamples, **settings
    )
    if len(known) == len(labels_N):
        return scores

    def interval(metric: Callable[[Floats], Floats]) -> Interval:
        return Interval.of(bootstrap(metric, resample_counts(len(labels_N), resamples, seed=0)))

    accuracy = interval(lambda counts_RN: weighted.mean(predicted_N == labels_N, counts_RN))
    macro_f1 = interval(lambda counts_RN: weighted.macro_f1(labels_N, predicted_N, every, counts_RN))
    return replace(scores, n=len(labels_N), accuracy=accuracy, macro_f1=macro_f1)


# ---- two models on the same sequences --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """Two models compared, the one with the higher score first.

    >>> print(Verdict(("LightGBM", "TEFM"), "AUROC", (0.885, 0.875), Interval(0.010, 0.002, 0.019)).sentence)
    LightGBM is better here: AUROC 0.885 against 0.875 of TEFM, difference 0.010 [0.002, 0.019]
    >>> print(Verdict(("LightGBM", "TEFM"), "AUROC", (0.885, 0.875), Interval(0.010, -0.004, 0.024)).sentence)
    No significant difference in AUROC: LightGBM 0.885, TEFM 0.875, difference 0.010 [-0.004, 0.024]
    """

    models: tuple[str, str]
    #: AUROC with two classes, accuracy with more
    metric: str
    values: tuple[float, float]
    #: the first minus the second, with its 95% interval
    difference: Interval

    @property
    def better(self) -> str | None:
        """The better model; None where the interval of the difference includes 0."""
        return self.models[0] if self.difference.low > 0 else None

    @property
    def sentence(self) -> str:
        (first, second), (high, low) = self.models, self.values
        outcome = f"No significant difference in {self.metric}: {first} {high:.3f}, {second} {low:.3f}"
        if self.better is not None:
            outcome = f"{first} is better here: {self.metric} {high:.3f} against {low:.3f} of {second}"
        return f"{outcome}, difference {self.difference}"

    def to_dict(self) -> dict[str, Any]:
        in_words = {"better": self.better, "sentence": self.sentence}
        lists = {"models": list(self.models), "values": list(self.values)}
        return {**vars(self), **lists, "difference": self.difference.to_dict(), **in_words}


def paired_difference(metric: Metric, a: Predicted, b: Predicted, *, resamples: int = 1000, seed: int = 0) -> Interval:
    """How much higher a metric is for model a than for model b on the same sequences.

    Both are resampled together, so sequences that are hard for both do not widen the interval.
    """
    if metric not in METRICS:
        raise SettingsError("not a valid metric", value=metric, remedy=f"choose one of {', '.join(METRICS)}")
    compute = METRICS[metric]
    counts = resample_counts(len(a.labels_N), resamples, seed)
    return Interval.of(bootstrap(lambda counts_RN: compute(a, counts_RN) - compute(b, counts_RN), counts))


def compare(models: Mapping[str, Predicted], *, resamples: int = 1000) -> Verdict | None:
    """Two models on the same labelled sequences, by a paired bootstrap; None where the metric is not defined."""
    classes = next(iter(models.values())).probabilities_NQ.shape[1]
    metric: Metric = "auroc" if classes == 2 else "accuracy"
    values = {
        name: float(METRICS[metric](model, np.ones((1, len(model.labels_N))))[0]) for name, model in models.items()
    }
    if any(map(math.isnan, values.values())):
        return None
    first, second = sorted(values, key=lambda name: -values[name])
    difference = paired_difference(metric, models[first], models[second], resamples=resamples)
    title = "AUROC" if metric == "auroc" else metric
    return Verdict((first, second), title, (values[first], values[second]), difference)
