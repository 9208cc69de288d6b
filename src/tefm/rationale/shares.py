"""Shares of sequences with exact intervals. It needs no torch, so that a stored explanation can be shown anywhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """How many of some sequences, with the exact interval of the share (Clopper and Pearson)."""

    count: int
    of: int
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.count / self.of if self.of else float("nan")


def exact_share(count: int, of: int, level: float = 0.95) -> Share:
    """A share with its exact interval.

    >>> share = exact_share(190, 200)
    >>> round(share.low, 3), round(share.high, 3)
    (0.91, 0.976)
    >>> exact_share(0, 0)
    Share(count=0, of=0, low=0.0, high=1.0)
    """
    from scipy.stats import beta

    tail = (1 - level) / 2
    low = float(beta.ppf(tail, count, of - count + 1)) if count else 0.0
    high = float(beta.ppf(1 - tail, count + 1, of - count)) if count < of else 1.0
    return Share(count, of, low, high)
