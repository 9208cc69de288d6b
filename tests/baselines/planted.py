"""Small sequences with planted rules, which the tests of the baselines share."""

from __future__ import annotations

from typing import Any

import numpy as np

from tefm.baselines.compare import BaselineData
from tefm.baselines.inputs import Records
from tefm.records.layout import Layout, Slot
from tefm.records.sequences import Sequences

LAYOUT = Layout((Slot("ward", "category", 5), Slot("age", "number", 10), Slot("dx", "flag", 1, "428")))


def records(x_ND: Any, lengths: Any, rows: Any = None) -> Records:
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Records(x_ND, LAYOUT, np.arange(starts[-1]) if rows is None else np.asarray(rows), starts)


def wards(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Records whose wards 2 and 5 are the dangerous ones: an order of the wards says little."""
    rng = np.random.default_rng(seed)
    x = rng.integers(1, LAYOUT.sizes_D + 1, size=(n, 3)).astype(np.uint8)
    risk = np.where(np.isin(x[:, 0], (2, 5)), 3.0, -3.0) + 0.2 * (x[:, 1] - 5)
    return x, (rng.uniform(size=n) < 1 / (1 + np.exp(-risk))).astype(np.int64)


def words(x_ND: Any) -> Any:
    """The records as text."""
    return np.array([f"ward={ward}; age={age}" + "; dx=428" * int(dx) for ward, age, dx in x_ND], dtype=object)


def visits(n: int = 600, seed: int = 0) -> BaselineData:
    """Sequences of three records whose label is decided by the *first* one: the last record knows nothing."""
    rng = np.random.default_rng(seed)
    x = rng.integers(1, LAYOUT.sizes_D + 1, size=(3 * n, 3)).astype(np.uint8)
    x[:, 2] -= 1
    x[::3, 2] = rng.integers(0, 2, n)
    labels = np.where(x[::3, 2] == 1, "died", "alive").astype(object)
    parts = np.array(["train", "train", "train", "validation", "test"] * (n // 5))
    starts, ids = np.arange(n + 1) * 3, np.array([f"s{i}" for i in range(n)], dtype=object)
    texts = [
        "; ".join(f"{place} {words(x[[row]])[0]}" for place, row in enumerate(range(s, s + 3))) for s in starts[:-1]
    ]
    return BaselineData(x, LAYOUT, Sequences(np.arange(3 * n), starts, ids, labels, starts[1:]), labels, parts, texts)
