"""Censored times until an event: Kaplan–Meier, completed times, concordance.

A *censored* time is known from below only: the event had not happened by then. All stages of a model see completed
times: in place of a censored one, an event time after it, drawn from the Kaplan–Meier curve of the training sequences
(Efron's redistribution to the right). A censored sequence so counts for every later time as much as it should.

Shapes: S sequences, T times of events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Setting
from pydantic import model_validator

from tefm.base.settings import Settings
from tefm.scoring.weighted import Floats, Interval, resample_counts

#: Times of a stored curve, at most.
STORED = 400
#: Sequences that are compared in pairs, at most: as many as fit the memory of any machine.
PAIRED = 2_000


@dataclass(frozen=True, eq=False)
class Followed:
    """How long each sequence was followed, and whether the event then happened."""

    times_S: Floats
    observed_S: NDArray[np.bool_]


class Survival(Settings):
    """A Kaplan–Meier curve: the share of sequences without the event after each time at which it happened.

    >>> curve = Survival.of(Followed(np.array([1.0, 2.0, 2.0, 4.0]), np.array([True, True, False, False])))
    >>> curve.times, curve.shares, curve.end
    ((1.0, 2.0), (0.75, 0.5), 4.0)
    >>> curve.after(np.array([0.5, 1.0, 9.0])).tolist()
    [1.0, 0.75, 0.5]
    """

    times: tuple[float, ...]
    shares: tuple[float, ...]
    #: how long the longest sequence was followed
    end: float = Setting(allow_inf_nan=False)

    @model_validator(mode="after")
    def _is_curve(self) -> Self:
        steps = np.diff([*self.times, np.inf]), -np.diff([1.0, *self.shares])
        if len(self.times) != len(self.shares) or not (steps[0] > 0).all() or not (steps[1] >= 0).all():
            raise ValueError("the Kaplan–Meier curve of the label does not fall → save the model again")
        return self

    @classmethod
    def of(cls, followed: Followed) -> Survival:
        """The curve of some sequences; missing times are left out."""
        known_S = ~np.isnan(followed.times_S)
        times_S, observed_S = followed.times_S[known_S], followed.observed_S[known_S]
        times_T, events_T = np.unique(times_S[observed_S], return_counts=True)
        at_risk_T = len(times_S) - np.searchsorted(np.sort(times_S), times_T)
        shares_T = np.cumprod(1 - events_T / at_risk_T)
        kept = np.unique(np.linspace(0, len(times_T) - 1, min(STORED, len(times_T))).round().astype(np.int64))
        return cls(
            times=tuple(times_T[kept].tolist()),
            shares=tuple(shares_T[kept].clip(0, 1).tolist()),
            end=float(times_S.max(initial=0.0)),
        )

    def after(self, times_S: Floats) -> Floats:
        """The share without the event after each of these times."""
        return np.array([1.0, *self.shares])[np.searchsorted(self.times, times_S, side="right")]

    def completed(self, followed: Followed) -> Floats:
        """The times, with a later one drawn in place of each censored one: at most the end, where the curve ends."""
        drawn_S = np.random.default_rng(0).random(len(followed.times_S)) * self.after(followed.times_S)
        # the first time after which too few are left
        place_S = np.searchsorted(-np.array(self.shares), -drawn_S, side="left")
        later_S = np.maximum(np.array([*self.times, self.end])[place_S], followed.times_S)
        return np.where(followed.observed_S | np.isnan(followed.times_S), followed.times_S, later_S)


def concordance(predicted_S: Floats, followed: Followed, *, resamples: int = 1_000) -> Interval:
    """Of two sequences whose order is known, how often the earlier one is predicted to be earlier (Harrell's C).

    The order is known where the event of the earlier one was observed. With a 95% bootstrap interval; of many
    sequences, some are drawn.
    """
    chosen = np.random.default_rng(0).permutation(len(predicted_S))[:PAIRED]
    times_S, observed_S, predicted_S = followed.times_S[chosen], followed.observed_S[chosen], predicted_S[chosen]
    later_SS = times_S[:, None] < times_S[None, :]
    later_SS |= (times_S[:, None] == times_S[None, :]) & ~observed_S[None, :]
    known_SS = (later_SS & observed_S[:, None]).astype(np.float32)
    right_SS = known_SS * (0.5 + 0.5 * np.sign(predicted_S[None, :] - predicted_S[:, None]).astype(np.float32))
    values = []
    for counts_RS in resample_counts(len(chosen), resamples, 0):
        right_R, known_R = (((counts_RS @ of_SS) * counts_RS).sum(axis=1) for of_SS in (right_SS, known_SS))
        values.append(np.divide(right_R, known_R, out=np.full(len(known_R), np.nan), where=known_R > 0))
    return Interval.of(np.concatenate(values))
