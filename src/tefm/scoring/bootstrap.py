"""The bootstrap: a metric's uncertainty from resampling the sequences it was computed on.

A resample is a row of counts (how often each sequence was drawn), so whatever needs sorting or binning is sorted and
binned once, and a thousand resamples take a few matrix products. The first row is always the sample itself.

Shapes: N sequences, R resamples (rows of counts).
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
        raise SettingsError("the number of resamples is below 0", value=resamples, remedy="1,000 is usual")
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
