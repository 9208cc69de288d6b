"""Is a number in another unit? If so, one factor brings all values of the batch back to where they were.

Shapes: J buckets, M values.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tefm.records.mappers import NumberMapper
from tefm.watch.compare import Pair, pooled_effect
from tefm.watch.tally import Tally

#: Factors between usual units, the most usual ones first: powers of ten and of 1,024, time, length, weight, temperature
#: spans, and the clinical ones (mg/dL and mmol/L of glucose, cholesterol, creatinine).
FACTORS = (
    10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e9, 60.0, 24.0, 3600.0, 86400.0, 12.0, 7.0, 365.25, 30.4375,
    2.20462, 2.54, 1.60934, 3.28084, 1.8, 18.0182, 38.67, 88.42, 1024.0, 1024.0**2, 8.0,
)  # fmt: skip
#: A factor nearer to 1 is a shift, not a unit.
NEAREST = 1.5
#: A factor is believed if the batch then differs from the reference with no smaller p-value, and much less than before.
FITS, BETTER = 1e-3, 0.1
#: A difference of X² that one factor would make by chance (95%).
AS_WELL = 3.84
#: Values in the right unit are within the range of training, but for this share.
OUTSIDE = 0.02


def broken_unit(values_M: NDArray[np.float64], mapper: NumberMapper, batch: Tally, reference: Tally) -> float | None:
    """What the values were multiplied by, or None; `reference` are the known values of the same field.

    A batch of which only some records changed their unit is not found here: its values are new or shifted.
    """
    b_J = reference.counts_J.astype(np.float64)
    effect = pooled_effect(max(batch.effect, 1.0), len(values_M), reference.effect, b_J.sum())
    before, _ = _difference(values_M, 1.0, mapper, b_J, effect)
    for factors in ([*FACTORS, *(1 / factor for factor in FACTORS)], _by_medians(values_M, mapper, b_J)):
        tried = [(*_difference(values_M, factor, mapper, b_J, effect), factor) for factor in factors]
        fitting = [one for one in tried if one[1] >= FITS and one[0] < BETTER * before]
        if _is_whole(np.array(mapper.middle)):  # buckets of counts are wide: 0.6 of something would be one of it
            fitting = [one for one in fitting if _is_whole(values_M / one[2])] or fitting
        if fitting:  # the most usual of those that fit about as well
            return next(factor for statistic, _, factor in fitting if statistic <= min(fitting)[0] + AS_WELL)
    return None


def _is_whole(values: NDArray[np.float64]) -> bool:
    """Whether nearly all of some numbers are whole."""
    return bool((np.abs(values - values.round()) <= 1e-3 * np.maximum(1, np.abs(values))).mean() > 1 - OUTSIDE)


def _by_medians(values_M: NDArray[np.float64], mapper: NumberMapper, b_J: NDArray[np.float64]) -> list[float]:
    """The factor that brings the medians together, zeros left out, unless it is near 1."""
    middle_J = np.abs(mapper.middle)
    other = middle_J != 0
    if not values_M.any() or not b_J[other].sum():
        return []
    order = np.argsort(middle_J[other])
    below = np.cumsum(b_J[other][order])
    usual = middle_J[other][order][np.searchsorted(below, below[-1] / 2)]
    factor = float(np.median(np.abs(values_M[values_M != 0])) / usual)
    return [factor] if abs(math.log(factor)) >= math.log(NEAREST) else []


def _difference(
    values_M: NDArray[np.float64], factor: float, mapper: NumberMapper, b_J: NDArray[np.float64], effect: float
) -> tuple[float, float]:
    """X² of the values divided by a factor, and its p-value."""
    from scipy.stats import chi2

    scaled_M = values_M / factor
    # a factor such as 1/3 does not bring 0.1 back exactly
    slack = 1e-9 * max(abs(mapper.low[0]), abs(mapper.high[-1]), 1e-9)
    outside_M = (scaled_M < mapper.low[0] - slack) | (scaled_M > mapper.high[-1] + slack)
    edges = np.array(mapper.edges)
    bucket_M = np.searchsorted(edges + 1e-9 * np.abs(edges), scaled_M, side="left")
    if outside_M.mean() > OUTSIDE:
        return math.inf, 0.0
    a_J = np.bincount(bucket_M[~outside_M], minlength=len(b_J)).astype(np.float64)
    pair = Pair.merged(a_J, b_J, effect, ordered=True)
    if pair is None:
        return 0.0, 1.0
    return pair.statistic, float(chi2.sf(pair.statistic, len(pair.a_J) - 1))
