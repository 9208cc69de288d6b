"""A real local cluster of two workers gives what one machine gives, row by row, also if a worker is killed.

Starting workers takes most of the time of these tests: each of them loads a model in a new process.
"""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import refused, tefm
from conftest import stays
from polars.testing import assert_frame_equal

from tefm.base.errors import InputError, SettingsError
from tefm.base.files import write_json
from tefm.cluster.engine import Engine, running
from tefm.cluster.work import OnRay
from tefm.codes.tokenizer import encode_to_parquet
from tefm.model.estimator import TEFM

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

TWO = Engine(workers=2, object_store=100 << 20)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One cluster for all tests of this file; `running` finds it."""
    with running(TWO):
        yield


@pytest.fixture(scope="module")
def model(fitted: TEFM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted.save(tmp_path_factory.mktemp("ray") / "model")


def written(frame: pl.DataFrame, folder: Path, files: int = 3) -> Path:
    """The rows in files of different lengths, so that patients lie in two of them."""
    folder.mkdir()
    bounds = [0, *(frame.height * n // files + n for n in range(1, files)), frame.height]
    for number, (start, stop) in enumerate(pairwise(bounds)):
        frame[start:stop].write_parquet(folder / f"{number}.parquet", row_group_size=17)
    return folder


def scattered(frame: pl.DataFrame) -> pl.DataFrame:
    return frame[np.random.default_rng(0).permutation(frame.height)]


def same(frame: pl.DataFrame, other: pl.DataFrame) -> None:
    """Equal rows in the same order; probabilities up to the last digits, which depend on the neighbours in a batch."""
    assert_frame_equal(frame, other, check_exact=False, rel_tol=0, abs_tol=1e-6)


@pytest.mark.all
def test_codes_are_those_of_one_machine(fitted: TEFM, model: Path, tmp_path: Path) -> None:
    folder = written(stays(150), tmp_path / "table")
    stays(1).clear().write_parquet(folder / "none.parquet")
    local, ray = tmp_path / "local", tmp_path / "ray"
    count = encode_to_parquet(fitted.tokenizer_, folder, local)
    assert OnRay(TWO, model / "tokenizer", str(folder), rows=60).encode(ray) == count
    assert [path.name for path in sorted(ray.iterdir())] == ["0.parquet", "1.parquet", "2.parquet", "none.parquet"]
    for path in ray.iterdir():
        assert pl.read_parquet(path).equals(pl.read_parquet(local / path.name))


def test_predictions_are_those_of_one_machine_whatever_the_number_of_workers(
    fitted: TEFM, model: Path, tmp_path: Path
) -> None:
    """Of a glob, with patients that lie in two files; the parts are in two files too."""
    table = written(stays(150), tmp_path / "table") / "*.parquet"
    parts = list(OnRay(TWO, model, str(table), device="cpu", rows=30).predict())
    assert len(parts) > 4
    same(pl.concat(parts), fitted.predict_table(table))
    one = OnRay(Engine(workers=1), model, str(table), device="cpu", rows=30).predict()
    assert pl.concat(one).equals(pl.concat(parts))


@pytest.mark.all
def test_patients_whose_rows_are_scattered_stay_whole(fitted: TEFM, model: Path, tmp_path: Path) -> None:
    folder = written(scattered(stays(150)), tmp_path / "table")
    predictions = pl.concat(OnRay(TWO, model, str(folder), device="cpu", rows=60).predict())
    assert predictions.height == 150
    same(predictions, fitted.predict_table(folder))


@pytest.mark.all
def test_killed_workers_are_replaced_and_nothing_is_lost_or_doubled(
    fitted: TEFM, model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Explanations take long enough for workers to be killed at work: both, so that none can do all the rest."""
    folder = written(stays(16), tmp_path / "table", files=2)
    expected = fitted.explain(folder)
    from tefm.cluster import work

    run, killed = work.run, []

    def run_and_kill(*arguments: object, **more: object) -> Iterator[object]:
        for result in run(*arguments, **more):  # type: ignore[arg-type]
            if not killed:
                killed.extend(at_work())
                for worker in killed:
                    os.kill(worker, signal.SIGKILL)
            yield result

    monkeypatch.setattr(work, "run", run_and_kill)
    with caplog.at_level(logging.INFO, "tefm"):
        explanations = OnRay(TWO, model, str(folder), device="cpu", rows=3).explain()
    assert killed and not set(killed) & set(at_work())
    assert [one.sequence for one in explanations] == [f"p{number}" for number in range(16)]
    assert [one.verdict for one in explanations] == [one.verdict for one in expected]
    assert [one.settling.findings for one in explanations] == [one.settling.findings for one in expected]
    assert re.search("1 worker died and was replaced|2 workers died and were replaced", caplog.text), caplog.text


def at_work() -> list[int]:
    """The processes that work on parts: Ray names a process after what it does."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            name = path.read_bytes().decode("latin1")
        except OSError:  # it has ended
            continue
        if name.startswith("ray::") and "OnParts" in name:
            found.append(int(path.parent.name))
    return sorted(found)


@pytest.mark.all
def test_commands_on_scattered_patients(model: Path, tmp_path: Path) -> None:
    folder = written(scattered(stays(12)), tmp_path / "table", files=2)
    on_ray = ("--engine", "ray", "--workers", 2, "--device", "cpu")
    said = tefm("explain", model, folder, "--entity", "p5", "--entity", "p2", "--json", *on_ray)
    assert [one["sequence"] for one in said.json] == ["p5", "p2"]
    assert "explaining with Ray: 1 part of 28 rows, 1 worker" in said.stderr, "one part keeps one worker busy"


@pytest.mark.all
def test_an_error_in_a_worker_is_a_clear_one_and_leaves_nothing(model: Path, tmp_path: Path) -> None:
    frame = stays(40).with_columns(age=pl.lit("old"))
    folder, target = written(frame, tmp_path / "table"), tmp_path / "predictions.parquet"
    message = refused("predict", model, folder, "--out", target, "--engine", "ray", "--device", "cpu")
    assert "'age'" in message and "'old'" in message
    assert not target.exists() and [path.name for path in tmp_path.iterdir()] == ["table"]


def test_what_is_refused_before_anything_starts(model: Path, tmp_path: Path) -> None:
    folder = written(stays(10), tmp_path / "table")
    stays(10).write_csv(tmp_path / "table.csv")
    write_json(tmp_path / "file", {})
    codes = ("encode", model / "tokenizer", folder, "--out")
    assert "Parquet" in refused("predict", model, tmp_path / "table.csv", "--engine", "ray")
    assert "add --engine ray" in refused("predict", model, folder, "--workers", 2)
    assert "unknown engine" in refused(*codes, tmp_path / "x", "--engine", "dask")
    assert "go to a folder" in refused(*codes, tmp_path / "file", "--engine", "ray")
    assert "--query" in refused("predict", model, folder, "--query", "SELECT 1", "--engine", "ray")
    missing = written(stays(10).drop("ward"), tmp_path / "missing")
    assert "ward" in refused("predict", model, missing, "--engine", "ray")
    with pytest.raises(SettingsError, match="worker"):
        Engine(workers=0)
    with pytest.raises(InputError, match="no rows"):
        list(OnRay(TWO, model, str(written(stays(1).clear(), tmp_path / "empty", files=1))).predict())
