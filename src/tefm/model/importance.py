"""How much answers depend on each field: its values change places among sequences, and the model answers again.

Shapes: S sequences, N records, D slots, Q classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.base.progress import progress
from tefm.pipeline.fitted import Fitted
from tefm.scoring.bootstrap import Interval, bootstrap, resample_counts
from tefm.tables.sequences import Sequences
from tefm.tables.vectorise import Vectoriser

RESAMPLES = 1_000


def importance(fitted: Fitted, vectoriser: Vectoriser, slots: Sequences, *, seed: int) -> pl.DataFrame:
    """One row per field, the most important first; intervals are those of a bootstrap over the sequences."""
    count = len(slots)
    if count < 2:
        problem = "values cannot change places in a single sequence"
        raise InputError(problem, file=slots.file, remedy="give a table of several, at least a hundred")
    answerer, rng, rows = fitted.answerer.remembering(), np.random.default_rng((seed, 21)), []
    parts = list(vectoriser.parts)

    def answers(x_ND: NDArray[Any]) -> NDArray[np.float64]:
        return fitted.calibration.probabilities(answerer.logits(slots.with_values(x_ND)))

    p_SQ = answers(slots.x_ND)
    answer_S = fitted.decide(p_SQ)
    with progress("asking without one field at a time", len(parts)) as advance:
        for field, _, own in parts:
            x_ND = slots.x_ND.copy()
            x_ND[:, own] = slots.x_ND[_places(slots, rng), own]
            changed_SQ = answers(x_ND)
            effects = np.abs(changed_SQ - p_SQ).sum(axis=1) / 2, fitted.decide(changed_SQ) != answer_S
            counts = resample_counts(count, RESAMPLES, seed)
            change = Interval.of(bootstrap(lambda counts_RN, of=effects[0]: counts_RN @ of / count, counts))  # type: ignore[misc]
            rows.append({"field": field.name, "change": change.value, "low": change.low, "high": change.high})
            rows[-1]["flips"] = float(effects[1].mean())
            advance(1)
    return pl.DataFrame(rows).sort("change", descending=True)


def _places(slots: Sequences, rng: np.random.Generator) -> NDArray[np.int64]:
    """For each record the one of another sequence whose value it gets: at the same position, or the last."""
    order, donor_S = rng.permutation(len(slots)), np.empty(len(slots), dtype=np.int64)
    donor_S[order] = np.roll(order, 1)
    donor_N = donor_S[slots.sequence_N]
    position_N = np.arange(len(slots.values)) - slots.starts[slots.sequence_N]
    places_N: NDArray[np.int64] = slots.starts[donor_N] + np.minimum(position_N, slots.lengths[donor_N] - 1)
    return places_N
