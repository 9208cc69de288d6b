"""The command line inside the test process: what it prints, its exit status, and a table to run it on."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from tefm.base.errors import TefmWarning
from tefm.cli import main


class Finished(NamedTuple):
    """What a command left behind."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The output of `--json`; anything else on stdout makes it invalid."""
        return json.loads(self.stdout)


def run(*arguments: object) -> Finished:
    """Run `tefm` with these arguments, as `python -m tefm.cli` would."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        warnings.catch_warnings(),
        pytest.raises(SystemExit) as stop,
    ):
        warnings.simplefilter("default", TefmWarning)  # elsewhere in the tests it is an error
        patch.setattr("sys.argv", ["tefm", *map(str, arguments)])
        main()
    finished = Finished(int(stop.value.code or 0), stdout.getvalue(), stderr.getvalue())
    assert "Traceback" not in finished.stderr + finished.stdout, finished.stderr
    return finished


def tefm(*arguments: object) -> Finished:
    """Run a command that must succeed."""
    finished = run(*arguments)
    assert finished.status == 0, finished.stderr + finished.stdout
    return finished


def refused(*arguments: object) -> str:
    """Run a command that must fail with one clear message, and return that message."""
    finished = run(*arguments)
    assert finished.status != 0, finished.stdout
    assert "error" in finished.stderr.lower(), finished.stderr
    return finished.stderr


def write_patients(folder: Path) -> Path:
    """A table of 200 patients with three days each, as `table.csv`; the fourth kind of day is the deadly one."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 4, 600)
    table = pl.DataFrame(
        {
            "patient_id": [f"p{i // 3}" for i in range(600)],
            "day": np.arange(600),
            "score": kind * 10 + rng.normal(size=600).round(2),
            "ward": [["north", "south", "east", None][k] for k in kind],
            "codes": [";".join(np.array(["a", "b", "c", "d"])[: k + 1]) for k in kind],
            "died": np.where((kind == 3) ^ (rng.random(600) < 0.2), "yes", "no"),
        }
    )
    table.write_csv(folder / "table.csv")
    return folder / "table.csv"
