"""Flows to measure on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tefm.datasets.cicids2017 import FIELDS


@pytest.fixture(scope="session")
def flows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 segments of ten flows each, a third of them of each kind; attacks are faster."""
    rng = np.random.default_rng(0)
    label = np.repeat(rng.permutation(np.repeat(["BENIGN", "DDoS", "PortScan"], 30)), 10)
    fast = 1 + 3 * (label != "BENIGN")
    table = {field.name: rng.integers(0, 50, len(label)) * fast for field in FIELDS}
    path = tmp_path_factory.mktemp("flows") / "flows.parquet"
    pl.DataFrame({**table, "Label": label}).write_parquet(path)
    return path
