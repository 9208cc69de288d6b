"""What was counted: shares with exact intervals, and how often a class was observed where a feature is present.

A model can use a feature that the data do not support, or that they contradict: the most valuable warning that an
explanation can give. The counts know nothing of the model. Nothing here needs torch or the libraries that read tables,
so that a stored explanation can be shown anywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Corroboration = Literal["supported", "contradicted", "unclear", "too few"]

#: Sequences with a feature, and without it, below which nothing can be said.
FEW = 20
#: Two-sided 95% of the normal distribution.
Z = 1.96


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


#: Nothing was counted.
NONE = Share(0, 0, 0.0, 1.0)


@lru_cache(maxsize=4096)  # scipy takes milliseconds, and the same counts come again
def exact_share(count: int, of: int, level: float = 0.95) -> Share:
    """A share with its exact interval at this level.

    >>> share = exact_share(190, 200)
    >>> round(share.low, 3), round(share.high, 3)
    (0.91, 0.976)
    >>> exact_share(0, 0)
    Share(count=0, of=0, low=0.0, high=1.0)
    """
    from scipy.stats import binomtest

    if not of:
        return NONE
    interval = binomtest(count, of).proportion_ci(level)
    return Share(count, of, float(interval.low), float(interval.high))


@dataclass(frozen=True)
class Observed:
    """How often a class was observed among sequences with something, and among those without it."""

    having: int
    having_class: int
    others: int
    others_class: int

    @property
    def share(self) -> float:
        return self.having_class / self.having if self.having else math.nan

    @property
    def other_share(self) -> float:
        return self.others_class / self.others if self.others else math.nan

    @property
    def relative_risk(self) -> tuple[float, float, float]:
        """The ratio of the two shares with its 95% interval (Katz et al. 1978; half a sequence is added to each count).

        >>> [round(value, 2) for value in Observed(100, 20, 1_000, 100).relative_risk]
        [2.02, 1.32, 3.1]
        """
        a, b = self.having_class + 0.5, self.others_class + 0.5
        n, m = self.having + 1, self.others + 1
        log_ratio, error = math.log(a / n * m / b), math.sqrt(1 / a - 1 / n + 1 / b - 1 / m)
        low, high = log_ratio - Z * error, log_ratio + Z * error
        return math.exp(log_ratio), math.exp(low), math.exp(high)

    def corroborates(self, raises: bool) -> Corroboration:
        """Whether the data support that something raises, or lowers, the probability of the class.

        >>> more = Observed(100, 20, 1_000, 100)
        >>> more.corroborates(True), more.corroborates(False), Observed(3, 3, 1_000, 1).corroborates(True)
        ('supported', 'contradicted', 'too few')
        """
        if min(self.having, self.others) < FEW:
            return "too few"
        _, low, high = self.relative_risk
        if low <= 1 <= high:
            return "unclear"
        return "supported" if (low > 1) == raises else "contradicted"
