"""A number as ordered classes, and the way back: quantile buckets, predicted numbers with an interval, their scores.

A numeric label is cut into buckets with about as many training labels each, which are the classes of all stages. Their
probabilities are a distribution over numbers: its median, its mean, and an interval that is widened on validation
sequences until it covers the stated share of them (conformalised quantiles, Romano, Patterson and Candès 2019).

Shapes: S sequences, Q buckets, P points of a bucket.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Setting
from pydantic import model_validator

from tefm.base.errors import SettingsError
from tefm.base.settings import Settings
from tefm.scoring.metrics import Verdict
from tefm.scoring.survival import Followed, Survival, concordance
from tefm.scoring.weighted import Interval, resample_counts

Floats = NDArray[np.float64]

#: Values of a bucket that are remembered: its training labels at this number of evenly spaced shares.
POINTS = 21
#: What a score of a number is called; the first says which of two models is better.
NUMBER_METRICS = {
    "mae": "mean absolute error",
    "rmse": "root mean squared error",
    "pinball": "pinball loss",
    "coverage": "coverage of the interval",
    "width": "mean width of the interval",
}
#: What comes first where the number is a time until an event.
CONCORDANCE = {"concordance": "concordance"}


def metrics_in(scores: Collection[str]) -> dict[str, str]:
    """What the scores of a number are called, of a time until an event its concordance too."""
    return CONCORDANCE | NUMBER_METRICS if "concordance" in scores else NUMBER_METRICS


def levels_of(interval: float) -> tuple[float, float, float]:
    """The shares of a distribution below an interval with this share of it, below its median, and below its end."""
    return (1 - interval) / 2, 0.5, (1 + interval) / 2


class Cuts(Settings):
    """Where a number is cut into classes, from low to high; a number at a cut belongs to the lower class.

    >>> cuts = Cuts(names=("at most 4", "more than 4"), upper=(4.0,))
    >>> cuts.names_of(np.array([4.0, 4.5, np.nan])).tolist()
    ['at most 4', 'more than 4', None]
    """

    names: tuple[str, ...] = Setting(min_length=2)
    #: the highest number of each class but the last
    upper: tuple[float, ...]
    #: where the number is a time until an event: how censored times are completed
    survival: Survival | None = None

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if len(self.upper) != len(self.names) - 1 or not _rises(self.upper, strictly=True):
            raise ValueError("the cuts of a number must rise, one between two classes → save the model again")
        return self

    def class_of(self, values_S: Floats) -> NDArray[np.int64]:
        """The class number of each number; −1 where it is missing."""
        return np.where(np.isnan(values_S), -1, np.searchsorted(self.upper, values_S)).astype(np.int64)

    def names_of(self, values_S: Floats) -> NDArray[Any]:
        """The class of each number; None where it is missing."""
        return np.array([*self.names, None], dtype=object)[self.class_of(values_S)]


class Buckets(Cuts):
    """The buckets of a number, and how their probabilities become numbers again.

    >>> buckets = Buckets.of(np.array([1.0, 2, 3, 3, 8, 9]), np.array([2.0, 3.0]))
    >>> buckets.names, buckets.median
    (('≤ 2', '3', '≥ 8'), 3.0)
    >>> predicted = buckets.predicted(np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]))
    >>> predicted.median_S.tolist(), predicted.mean_S.tolist(), predicted.high_S.round(1).tolist()
    ([3.0, 2.0], [3.0, 5.0], [5.2, 8.8])
    """

    #: the training labels of each bucket, at evenly spaced shares from the lowest to the highest, and their mean
    points: tuple[tuple[float, ...], ...]
    means: tuple[float, ...]
    #: of the training labels
    median: float = Setting(allow_inf_nan=False)
    #: the share of sequences whose number the interval is to hold
    interval: float = Setting(default=0.8, gt=0, lt=1)
    #: what is added to both ends of the interval, from validation sequences; None: they are too few for a promise
    margin: float | None = Setting(default=None, allow_inf_nan=False)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        whole = len(self.points) == len(self.means) == len(self.names) and {*map(len, self.points)} == {POINTS}
        if not whole or not _rises(self.means) or not _rises(sum(self.points, ())):
            raise ValueError("the values of the buckets do not rise → save the model again")
        return self

    @classmethod
    def of(cls, values_S: Floats, edges: Floats, interval: float = 0.8) -> Buckets:
        """The buckets of these training labels; `edges` are the highest of each bucket but the last."""
        ordered_S, shares = np.sort(values_S), np.linspace(0, 1, POINTS)
        groups = np.split(ordered_S, np.searchsorted(ordered_S, edges, side="right"))
        return cls(
            names=_named([(float(own[0]), float(own[-1])) for own in groups]),
            upper=tuple(_between(own[-1], after[0]) for own, after in pairwise(groups)),
            points=tuple(tuple(np.quantile(own, shares).tolist()) for own in groups),
            means=tuple(float(own.mean()) for own in groups),
            median=float(np.median(values_S)),
            interval=interval,
        )

    def quantile(self, p_SQ: Floats, level: float, *, smooth: bool = False) -> Floats:
        """The number that so much of each distribution is below; within a bucket, as its training labels lie.

        `smooth`: equal labels are spread half-way to their neighbours.
        """
        upper_SQ, rows = p_SQ.cumsum(axis=1), np.arange(len(p_SQ))
        bucket_S = (upper_SQ < level * upper_SQ[:, -1:]).sum(axis=1)
        own_S = p_SQ[rows, bucket_S]
        share_S = np.clip(1 + (level - upper_SQ[rows, bucket_S]) / np.maximum(own_S, 1e-12), 0, 1)
        points_QP = _spread(np.array(self.points)) if smooth else np.array(self.points)
        place_S = share_S * (POINTS - 1)
        first_S = place_S.astype(np.int64).clip(max=POINTS - 2)
        low_S, high_S = points_QP[bucket_S, first_S], points_QP[bucket_S, first_S + 1]
        values_S: Floats = low_S + (place_S - first_S) * (high_S - low_S)
        return values_S

    def predicted(self, p_SQ: Floats) -> PredictedNumbers:
        """The numbers that these probabilities of the buckets stand for."""
        low, middle, high = levels_of(self.interval)
        low_S, high_S = (self.quantile(p_SQ, level, smooth=True) for level in (low, high))
        raw = PredictedNumbers(self.quantile(p_SQ, middle), p_SQ @ np.array(self.means), low_S, high_S)
        wide = raw.widened(self.margin or 0.0)
        is_amount = self.points[0][0] >= 0
        return replace(wide, low_S=wide.low_S.clip(min=0)) if is_amount else wide

    def conformal(self, p_SQ: Floats, values_S: Floats) -> Buckets:
        """The buckets with an interval that holds its share of new sequences, from those of validation."""
        raw = self.model_copy(update={"margin": None})
        return raw.model_copy(update={"margin": margin_of(raw.predicted(p_SQ), values_S, self.interval)})

    def above(self, threshold: float | None = None) -> Cuts:
        """Two classes: up to a number and above it, at the cut that is nearest (by default, to the median).

        In alphabetical order, as all classes are.
        """
        wanted = self.median if threshold is None else threshold
        if not math.isfinite(wanted):
            raise SettingsError("a threshold is a number", value=wanted, remedy="give one in the label's unit")
        cut = min(self.upper, key=lambda edge: abs(edge - wanted))
        words = _text(cut, 17)
        return Cuts(names=(f"at most {words}", f"more than {words}"), upper=(cut,), survival=self.survival)

    def groups(self, cuts: Cuts) -> tuple[int, ...]:
        """The class of coarser cuts that each bucket belongs to."""
        return tuple(cuts.class_of(np.array([*self.upper, np.inf])).tolist())


@dataclass(frozen=True, eq=False)
class PredictedNumbers:
    """Numbers that a model predicts, with an interval."""

    median_S: Floats
    mean_S: Floats
    low_S: Floats
    high_S: Floats

    def widened(self, margin: float) -> PredictedNumbers:
        """With an interval that is wider at both ends, or narrower; the median stays inside."""
        low_S, high_S = np.minimum(self.low_S - margin, self.median_S), np.maximum(self.high_S + margin, self.median_S)
        return replace(self, low_S=low_S, high_S=high_S)

    @property
    def columns(self) -> dict[str, Floats]:
        """The numbers as columns of a table."""
        return {"prediction": self.median_S, "mean": self.mean_S, "low": self.low_S, "high": self.high_S}


def margin_of(predicted: PredictedNumbers, values_S: Floats, share: float) -> float | None:
    """What has to be added to the ends of intervals so that they hold this share of new sequences.

    None where even the widest of so few sequences cannot promise that.
    """
    rank = math.ceil((len(values_S) + 1) * share)
    if rank > len(values_S):
        return None
    beyond_S = np.maximum(predicted.low_S - values_S, values_S - predicted.high_S)
    return float(np.partition(beyond_S, rank - 1)[rank - 1])


@dataclass(frozen=True)
class NumberScores:
    """How good predicted numbers are, in the label's unit.

    The absolute error is that of the median, the squared error that of the mean; the pinball loss is the mean over the
    median and both ends of the interval.
    """

    n: int
    #: the share that the interval is to hold
    interval: float
    metrics: Mapping[str, Interval]

    @classmethod
    def of(
        cls,
        predicted: PredictedNumbers,
        values_S: Floats,
        interval: float,
        *,
        resamples: int = 1_000,
        followed: Followed | None = None,
    ) -> NumberScores:
        """Every score with a 95% bootstrap interval over sequences; of times until an event, concordance too."""
        held_S = (predicted.low_S <= values_S) & (values_S <= predicted.high_S)
        quantiles = predicted.low_S, predicted.median_S, predicted.high_S
        each_MS = np.stack(
            [
                np.abs(values_S - predicted.median_S),
                (values_S - predicted.mean_S) ** 2,
                pinball(values_S, quantiles, interval),
                held_S,
                predicted.high_S - predicted.low_S,
            ]
        )
        means_RM = np.concatenate([counts_RS @ each_MS.T for counts_RS in resample_counts(len(values_S), resamples, 0)])
        means_RM /= len(values_S)
        means_RM[:, 1] = np.sqrt(means_RM[:, 1])
        metrics = {name: Interval.of(means_RM[:, number]) for number, name in enumerate(NUMBER_METRICS)}
        if followed is not None:
            metrics["concordance"] = concordance(predicted.mean_S, followed, resamples=resamples)
        return cls(len(values_S), interval, metrics)

    def to_dict(self) -> dict[str, Any]:
        return {"n": self.n, "interval": self.interval, **{name: of.to_dict() for name, of in self.metrics.items()}}


def pinball(values_S: Floats, quantiles: Iterable[Floats], interval: float) -> Floats:
    """The mean loss of the low end of an interval, of the median and of its high end.

    That of a quantile is least on average where it has its share of the numbers below it.

    >>> pinball(np.array([3.0, 1.0]), [np.array([2.0, 2.0])] * 3, 0.8).round(3).tolist()
    [0.5, 0.5]
    """
    above = [(values_S - of_S, level) for of_S, level in zip(quantiles, levels_of(interval), strict=True)]
    loss_S: Floats = np.mean([np.maximum(level * of, (level - 1) * of) for of, level in above], axis=0)
    return loss_S


def compare_numbers(models: Mapping[str, PredictedNumbers], values_S: Floats, resamples: int = 1_000) -> Verdict:
    """Two models on the same sequences by their mean absolute errors, by a paired bootstrap."""
    error_of = {name: np.abs(values_S - of.median_S) for name, of in models.items()}
    first, second = sorted(error_of, key=lambda name: float(error_of[name].mean()))
    more_S, counts = error_of[second] - error_of[first], resample_counts(len(values_S), resamples, 0)
    difference = Interval.of(np.concatenate([counts_RS @ more_S for counts_RS in counts]) / len(values_S))
    errors = float(error_of[first].mean()), float(error_of[second].mean())
    return Verdict((first, second), NUMBER_METRICS["mae"], errors, difference)


# ---- names ----------------------------------------------------------------------------------------------------------


def in_order(classes: Iterable[str]) -> tuple[str, ...]:
    """Classes in alphabetical order, but buckets of a number from low to high.

    >>> in_order(["b", "a"]), in_order(["≥ 15", "5–14", "≤ 2", "3–4"])
    (('a', 'b'), ('≤ 2', '3–4', '5–14', '≥ 15'))
    """
    names = sorted(classes)
    numbers = [re.search(r"-?[\d.]*\d", name) for name in names]
    if not any(name.startswith(("≤ ", "≥ ")) for name in names) or None in numbers:
        return tuple(names)
    side = {"≤": -1, "≥": 1}
    return tuple(sorted(names, key=lambda name: (side.get(name[0], 0), float(re.search(r"-?[\d.]*\d", name)[0]))))  # type: ignore[index]


def _named(ends: Sequence[tuple[float, float]]) -> tuple[str, ...]:
    """What buckets with these lowest and highest numbers are called: `≤ 2`, `3–4`, `≥ 5`."""
    joint = " to " if ends[0][0] < 0 else "–"
    for digits in range(3, 18):
        words = [[_text(end, digits) for end in pair] for pair in ends]
        low, high = ([pair[side] for pair in words] for side in (0, 1))
        if len({*low}) == len({*high}) == len(ends) and all(map(str.__ne__, high, low[1:])):
            break
    inner = [a if a == b else f"{a}{joint}{b}" for a, b in words[1:-1]]
    return (f"≤ {words[0][1]}", *inner, f"≥ {words[-1][0]}")


def _text(number: float, digits: int) -> str:
    """A number with this number of digits, a whole one with all of its own."""
    if float(number).is_integer() and abs(number) < 1e15:
        return str(int(number))
    return np.format_float_positional(number, precision=digits, fractional=False, trim="-")


def _spread(points_QP: Floats) -> Floats:
    """The points of all buckets with equal ones spread half-way to their neighbours.

    The interval of whole numbers could otherwise only hold far more of them than it is to hold.

    >>> _spread(np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 4.0]])).tolist()
    [[0.5, 1.0, 1.5], [1.5, 3.0, 4.0]]
    """
    values, counts = np.unique(points_QP, return_counts=True)
    middle = (values[1:] + values[:-1]) / 2
    low, high = np.append(2 * values[0] - middle[:1], middle), np.append(middle, 2 * values[-1] - middle[-1:])
    ramps = [
        np.linspace(a, b, count) if count > 1 else [value]
        for value, a, b, count in zip(values, low, high, counts.tolist(), strict=True)
    ]
    return np.concatenate(ramps).reshape(points_QP.shape)


def _between(high: float, low: float) -> float:
    """The number with the fewest digits from `high` on, below `low`."""
    for digits in range(1, 17):
        for start in (high, (high + low) / 2):
            if high <= (rounded := float(f"{start:.{digits}g}")) < low:
                return rounded
    return float(high)


def _rises(values: Sequence[float], *, strictly: bool = False) -> bool:
    steps = np.diff(np.array(values))
    return bool(np.isfinite(values).all() and ((steps > 0) if strictly else (steps >= 0)).all())
