"""The benchmark of encoding runs and tells what it should; how fast it was is not tested here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_encode(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {
        "bytes": rng.integers(0, 1000, 500),
        "rate": rng.random(500),
        "service": rng.choice(["http", "smtp"], 500),
        "label": rng.choice(["normal", "attack"], 500),
    }
    pl.DataFrame(table).write_parquet(tmp_path / "table.parquet")
    command = [
        sys.executable,
        "benchmarks/encode.py",
        "--kdd",
        str(tmp_path / "table.parquet"),
        "--rows",
        "400",
        "1200",
    ]
    command += ["--steps", "20", "--repeats", "1", "--chunks", "1", "--json", str(tmp_path / "out.json")]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert "scikit-learn" in done.stdout
    result = json.loads((tmp_path / "out.json").read_text())
    assert set(result) == {"machine", "settings", "end_to_end", "vectorise", "neural", "memory", "figures"}
    assert [peak["rows"] for peak in result["memory"]] == [400, 1200]
    assert result["settings"]["fields"] == 3
    ratios = [value for part in ("vectorise", "neural") for name, value in result[part].items() if "ratio" in name]
    assert len(ratios) == 7 and min(ratios) > 0
    assert all(figure["value"] > 0 for figure in result["figures"])
    assert sum(figure["bar"] is not None for figure in result["figures"]) == 4
