"""What was counted: shares with exact intervals, and how often a class was observed where a feature is present.

A model can use a feature that the data do not support, or that they contradict: the most valuable warning that an
explanation can give. The counts know nothing of the model. Nothing here needs torch or the libraries that read tables,
so that a stored explanation can be shown anywhere.

Shapes: S sequences, N records, D slots, V values of all slots (0, absent, among them), Q classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tefm.tables.layout import Layout
    from tefm.tables.sequences import Sequences

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


@dataclass(frozen=True, eq=False)
class Counts:
    """Training sequences of each class with each value of each slot, in their last record or in an earlier one."""

    last_VQ: NDArray[np.int64]
    earlier_VQ: NDArray[np.int64]
    #: sequences of each class, and those with an earlier record
    total_Q: NDArray[np.int64]
    longer_Q: NDArray[np.int64]
    #: where the values of each slot begin
    start_D: NDArray[np.int64]

    @classmethod
    def of(cls, slots: Sequences, labels_S: NDArray[np.int64], layout: Layout, classes: int) -> Counts:
        """Count sequences of slots; those without a label (−1) are left out."""
        labelled = np.flatnonzero(labels_S >= 0)
        slots, labels_S = slots.select(labelled), labels_S[labelled]
        start_D = np.concatenate([[0], np.cumsum(layout.sizes_D + 1)]).astype(np.int64)
        last_VQ, earlier_VQ = np.zeros((2, start_D[-1], classes), dtype=np.int64)
        before_N = np.ones(len(slots.x_ND), dtype=bool)
        before_N[slots.starts[1:] - 1] = False
        sequence_N = slots.sequence_N[before_N]
        for slot, start in enumerate(start_D[:-1].tolist()):
            size = int(layout.sizes_D[slot]) + 1
            at = slice(start, start + size)
            last_VQ[at] = _counted(slots.last[:, slot], labels_S, size, classes)
            # a value that several earlier records have counts once
            pairs = np.unique(np.stack([sequence_N, slots.x_ND[before_N, slot].astype(np.int64)]), axis=1)
            earlier_VQ[at] = _counted(pairs[1], labels_S[pairs[0]], size, classes)
        total_Q = np.bincount(labels_S, minlength=classes)
        longer_Q = np.bincount(labels_S[slots.lengths > 1], minlength=classes)
        return cls(last_VQ, earlier_VQ, total_Q, longer_Q, start_D)

    def observed(self, slot: int, value: int, of_class: int, *, last: bool) -> Observed:
        """Sequences with a value of a slot in their last record, or in an earlier one, and those without it."""
        counts_VQ, all_Q = (self.last_VQ, self.total_Q) if last else (self.earlier_VQ, self.longer_Q)
        return _observed(counts_VQ[self.start_D[slot] + value], all_Q, of_class)

    def in_last(self, slot: int, values: Sequence[int], of_class: int) -> Observed:
        """Sequences with one of several values of a slot in their last record, and those without."""
        return _observed(self.last_VQ[self.start_D[slot] + np.array(values)].sum(axis=0), self.total_Q, of_class)


def _observed(having_Q: NDArray[np.int64], all_Q: NDArray[np.int64], of_class: int) -> Observed:
    rest_Q = all_Q - having_Q
    return Observed(int(having_Q.sum()), int(having_Q[of_class]), int(rest_Q.sum()), int(rest_Q[of_class]))


def _counted(values: NDArray[np.integer[Any]], labels: NDArray[np.int64], size: int, classes: int) -> NDArray[np.int64]:
    return np.bincount(values.astype(np.int64) * classes + labels, minlength=size * classes).reshape(size, classes)
