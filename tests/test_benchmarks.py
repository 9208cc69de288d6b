"""The benchmark of encoding runs and reports every figure; how fast it was is not tested here."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import polars as pl
import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "encode.py"


@pytest.mark.slow
def test_encode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    table = {
        "bytes": rng.integers(0, 1000, 500),
        "rate": rng.random(500),
        "service": rng.choice(["http", "smtp"], 500),
        "label": rng.choice(["normal", "attack"], 500),
    }
    pl.DataFrame(table).write_parquet(tmp_path / "table.parquet")
    files = ["--kdd", str(tmp_path / "table.parquet"), "--json", str(tmp_path / "out.json")]
    sizes = ["--rows", "400", "1200", "--steps", "20", "--repeats", "1", "--chunks", "1"]
    monkeypatch.setattr("sys.argv", [str(SCRIPT), *files, *sizes])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert "scikit-learn" in capsys.readouterr().out
    result = json.loads((tmp_path / "out.json").read_text())
    assert set(result) == {"machine", "settings", "end_to_end", "vectorise", "neural", "memory", "figures"}
    assert [peak["rows"] for peak in result["memory"]] == [400, 1200]
    assert result["settings"]["fields"] == 3
    ratios = [value for part in ("vectorise", "neural") for name, value in result[part].items() if "ratio" in name]
    assert len(ratios) == 7 and min(ratios) > 0
    assert all(figure["value"] > 0 for figure in result["figures"])
    assert sum(figure["bar"] is not None for figure in result["figures"]) == 4
