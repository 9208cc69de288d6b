"""The two comparisons of every fitted model: LightGBM and logistic regression on the raw slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.baselines.compare import TABULAR, BaselineData, evaluate_baselines
from tefm.baselines.inputs import Kind, Ordered
from tefm.records.layout import Layout


def evaluate_tabular(
    slots_ND: NDArray[Any],
    layout: Layout,
    sequences: Ordered,
    labels: NDArray[Any],
    parts: NDArray[np.str_],
    kinds: Sequence[Kind] = ("last", "history"),
    *,
    models: Sequence[str] = tuple(TABULAR),
    positive: int = 1,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """`evaluate_baselines` of LightGBM and logistic regression, from plain arrays."""
    data = BaselineData(slots_ND, layout, sequences, labels, parts)
    return evaluate_baselines(data, models=models, kinds=kinds, positive=positive, resamples=resamples, seed=seed)
