"""Two models compared on average over several test parts, which may share sequences.

Shapes: N sequences, Q classes, R resamples (rows of counts), P fits, E sequences of all parts, each once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.scoring.metrics import METRICS, Floats, Metric, Predicted
from tefm.scoring.weighted import Interval, resample_counts


def mean_differences(
    metrics: Sequence[Metric],
    a: Sequence[Predicted],
    b: Sequence[Predicted],
    ids: Sequence[NDArray[Any]],
    *,
    resamples: int = 1000,
    seed: int = 0,
    refitted: bool = False,
) -> dict[Metric, Interval]:
    """How much higher each metric is for a than for b, on average over several test parts, each with its own models.

    `ids` name the sequences of each part. A sequence that is in several parts is drawn for all of them together, so
    testing the same sequences again does not narrow the interval. With `refitted`, the fits are drawn too (a nested
    bootstrap): the interval then holds what another fit would have given.

    >>> p_NQ = np.array([[0.9, 0.1], [0.4, 0.6]])
    >>> right, wrong = Predicted.of(p_NQ, np.array([0, 1])), Predicted.of(p_NQ[::-1], np.array([0, 1]))
    >>> print(mean_differences(["accuracy"], [right], [wrong], [np.array([7, 8])])["accuracy"])
    1.000 [1.000, 1.000]
    """
    fits_RP = np.tile(np.arange(len(a)), (resamples + 1, 1))
    if refitted:  # the first row stays the sample itself
        fits_RP[1:] = np.random.default_rng((seed, 1)).integers(0, len(a), (resamples, len(a)))
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
            chunks[metric].append(np.array(gains))
    found = {}
    for metric, parts in chunks.items():
        gains_RP = np.concatenate(parts, axis=1).T
        found[metric] = Interval.of(np.take_along_axis(gains_RP, fits_RP, axis=1).mean(axis=1))
    return found
