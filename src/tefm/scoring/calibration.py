"""From logits to calibrated probabilities, and from probabilities to decisions.

Fitted on the validation sequences: a temperature that divides the logits; a bias per class, where the model was trained
on other class shares than the population has (with few sequences, the one that the shares imply); and how to decide
(`decision.py`). Neither temperature nor bias changes the ranking of sequences by one of two classes.

Shapes: N sequences, Q classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import ArtefactError, InputError, SettingsError
from tefm.scoring.decision import ACCURACY, Decision, Rule

Floats = NDArray[np.float64]

#: With fewer validation sequences, temperature and bias are not fitted.
TEMPERATURE_NEEDS = 20
#: The range of temperatures that is searched.
COLDEST, HOTTEST = 0.05, 20.0
#: How far the fitted bias of a class may be from the one that the class shares imply: the standard deviation of a
#: normal prior, in nats. It weighs as much as four sequences of the class: with fewer, the shares decide.
BIAS_SPREAD = 0.5


@dataclass(frozen=True)
class Calibration:
    """Temperature, class biases and decision of a model.

    >>> calibration = Calibration(temperature=2.0, threshold=0.7)
    >>> probabilities = calibration.probabilities(np.array([[0.0, 2 * np.log(3.0)]]))
    >>> probabilities.round(3).tolist(), calibration.predict(probabilities).tolist()
    ([[0.25, 0.75]], [1])
    """

    temperature: float = 1.0
    #: with two classes, the probability from which the positive one is predicted; None predicts the most probable class
    threshold: float | None = None
    #: the class that the threshold applies to
    positive: int = 1
    #: added to the logits after the temperature, per class; empty where training had the population's class shares
    bias: tuple[float, ...] = ()
    #: with more than two classes, the largest weighted probability decides; empty: the most probable class
    weights: tuple[float, ...] = ()
    #: what the decision was made for
    rule: Rule = "accuracy"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise SettingsError("a temperature must be above 0", value=self.temperature, remedy="1.0 has no effect")
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise SettingsError(
                "a threshold must be a probability", value=self.threshold, remedy="give 0 to 1, or None"
            )

    @classmethod
    def fit(
        cls,
        logits_NQ: NDArray[Any],
        labels_N: NDArray[Any],
        *,
        positive: int = 1,
        decision: Decision = ACCURACY,
        shift: tuple[float, ...] = (),
    ) -> Calibration:
        """Fit on validation sequences of the population; `labels_N` are class numbers.

        `shift` is the bias that the class shares imply (`prior_shift`). Logits may be logarithms of probabilities.
        """
        logits_NQ, labels_N = _finite(logits_NQ), np.asarray(labels_N)
        if len(logits_NQ) != len(labels_N):
            raise InputError(
                f"there are logits for {len(logits_NQ)} sequences, but {len(labels_N)} labels",
                remedy="give the logits and the labels of the same sequences",
            )
        calibration = cls(positive=positive, bias=shift, rule=decision.rule)
        if len(np.unique(labels_N)) > 1 and len(labels_N) >= TEMPERATURE_NEEDS:
            right_N = calibration.probabilities(logits_NQ).argmax(axis=1) == labels_N
            if not right_N.all():  # otherwise ever lower temperatures would fit better
                temperature, bias = _temperature_and_bias(logits_NQ, labels_N, shift)
                calibration = replace(calibration, temperature=temperature, bias=bias)
        p_NQ = calibration.probabilities(logits_NQ)
        if p_NQ.shape[1] == 2:
            threshold = decision.threshold(p_NQ[:, positive], labels_N == positive, positive)
            return replace(calibration, threshold=threshold)
        return replace(calibration, weights=decision.weights(p_NQ, labels_N))

    def probabilities(self, logits_NQ: NDArray[Any]) -> Floats:
        scaled_NQ = _finite(logits_NQ) / self.temperature
        return np.exp(log_softmax(scaled_NQ + np.array(self.bias) if self.bias else scaled_NQ))

    def fold(self, p_NQ: NDArray[Any]) -> NDArray[Any]:
        """Probabilities of the model's classes as those of the answer; the same, unless classes were grouped."""
        return p_NQ

    def predict(self, probabilities_NQ: NDArray[Any]) -> NDArray[np.int64]:
        """Class numbers."""
        if self.threshold is None:
            weighted_NQ = probabilities_NQ * np.array(self.weights) if self.weights else probabilities_NQ
            predicted_N: NDArray[np.int64] = weighted_NQ.argmax(axis=1)
            return predicted_N
        if probabilities_NQ.shape[1] != 2:
            raise InputError(
                f"this threshold is for two classes, not {probabilities_NQ.shape[1]}",
                remedy="use the calibration that was fitted with this model",
            )
        is_positive_N = probabilities_NQ[:, self.positive] >= self.threshold
        return np.where(is_positive_N, self.positive, 1 - self.positive).astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "bias": list(self.bias), "weights": list(self.weights)}

    @classmethod
    def from_dict(cls, body: dict[str, Any]) -> Calibration:
        if set(body) != set(cls.__dataclass_fields__):
            raise ArtefactError(
                f"a calibration consists of {', '.join(cls.__dataclass_fields__)}",
                value=sorted(body),
                remedy="fit the model again: this file is from another version, or was edited",
            )
        return cls(**{**body, **{name: tuple(body[name]) for name in ("bias", "weights")}})


@dataclass(frozen=True)
class Folded(Calibration):
    """Probabilities of groups of classes: a number's buckets as up to a threshold and above it. It is never stored.

    >>> Folded(group_Q=(0, 1, 1)).probabilities(np.zeros((1, 3))).round(3).tolist()
    [[0.333, 0.667]]
    """

    #: the group of each class
    group_Q: tuple[int, ...] = ()

    def fold(self, p_NQ: NDArray[Any]) -> NDArray[Any]:
        folded_NG: NDArray[Any] = p_NQ @ np.eye(max(self.group_Q) + 1, dtype=p_NQ.dtype)[list(self.group_Q)]
        return folded_NG

    def probabilities(self, logits_NQ: NDArray[Any]) -> Floats:
        return self.fold(super().probabilities(logits_NQ))


def prior_shift(trained: Sequence[float], population: Sequence[float]) -> tuple[float, ...]:
    """The bias of each class that turns answers learned at the shares `trained` into those of a population.

    Empty where the shares are the same. A class that either lacks is not moved.

    >>> [round(bias, 3) for bias in prior_shift((0.5, 0.5), (0.8, 0.2))]
    [0.47, -0.916]
    >>> prior_shift((0.5, 0.5), (0.5, 0.5))
    ()
    """
    trained_Q, population_Q = (np.asarray(shares, dtype=np.float64) for shares in (trained, population))
    if np.allclose(trained_Q, population_Q):
        return ()
    known_Q = (trained_Q > 0) & (population_Q > 0)
    ratio_Q = np.divide(population_Q, trained_Q, out=np.ones(len(trained_Q)), where=known_Q)
    return tuple(np.log(ratio_Q).tolist())


def _finite(logits_NQ: NDArray[Any]) -> Floats:
    logits_NQ = np.asarray(logits_NQ, dtype=np.float64)
    if logits_NQ.ndim != 2 or logits_NQ.shape[1] < 2:
        raise InputError(
            f"logits cannot have the shape {logits_NQ.shape}", remedy="give one row per sequence, one column per class"
        )
    if not np.isfinite(logits_NQ).all():
        invalid = int((~np.isfinite(logits_NQ)).any(axis=1).sum())
        raise InputError(
            f"{invalid} of {len(logits_NQ)} sequences have logits that are nan or infinite",
            remedy="training diverged: lower the learning rate",
        )
    return logits_NQ


def log_softmax(logits_NQ: Floats) -> Floats:
    """Log-probabilities that add up to one over the classes, which are the last axis."""
    shifted_NQ = logits_NQ - logits_NQ.max(axis=-1, keepdims=True)
    log_NQ: Floats = shifted_NQ - np.log(np.exp(shifted_NQ).sum(axis=-1, keepdims=True))
    return log_NQ


def _temperature_and_bias(
    logits_NQ: Floats, labels_N: NDArray[Any], shift: tuple[float, ...]
) -> tuple[float, tuple[float, ...]]:
    """The temperature with the smallest negative log-likelihood; with a shift, a bias near it too.

    The loss has one minimum. With a shift, the bias has a normal prior around it.
    """
    from scipy.optimize import minimize, minimize_scalar

    bounds = (math.log(COLDEST), math.log(HOTTEST))
    if not shift:

        def loss(log_temperature: float) -> float:
            log_NQ = log_softmax(logits_NQ / math.exp(log_temperature))
            return -float(log_NQ[np.arange(len(labels_N)), labels_N].mean())

        return math.exp(float(minimize_scalar(loss, bounds=bounds, method="bounded").x)), ()

    label_NQ = labels_N[:, None] == np.arange(logits_NQ.shape[1])

    def loss_and_slope(parameters: Floats) -> tuple[float, Floats]:
        scaled_NQ, bias_Q = logits_NQ / math.exp(parameters[0]), parameters[1:]
        log_NQ = log_softmax(scaled_NQ + bias_Q)
        surplus_NQ, beyond_Q = np.exp(log_NQ) - label_NQ, (bias_Q - shift) / BIAS_SPREAD
        slopes = np.append(-(surplus_NQ * scaled_NQ).sum(), surplus_NQ.sum(axis=0) + beyond_Q / BIAS_SPREAD)
        return -float(log_NQ[label_NQ].sum()) + float((beyond_Q**2).sum() / 2), slopes

    start = np.array([0.0, *shift])
    fitted = minimize(loss_and_slope, start, jac=True, method="L-BFGS-B", bounds=[bounds, *[(None, None)] * len(shift)])
    return math.exp(float(fitted.x[0])), tuple(fitted.x[1:].tolist())
