"""A real local cluster of two workers gives what one machine gives, row by row, also if a worker is killed."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import refused, tefm
from conftest import ONLY_PREDICTS, STAYS, quick, stays
from polars.testing import assert_frame_equal

from tefm.base.errors import InputError, SettingsError
from tefm.cluster.engine import Engine, running
from tefm.cluster.work import encode_on_ray, explain_on_ray, predict_on_ray
from tefm.codes.stream import encode_to_parquet
from tefm.model import TEFM
from tefm.records.schema import Schema

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

TWO = Engine(workers=2, object_store=100 << 20)
ROWS = 60


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
    for number, (start, stop) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        frame[start:stop].write_parquet(folder / f"{number}.parquet", row_group_size=17)
    return folder


def predictions(model: Path, table: Path | str, workers: int = 2, rows: int = ROWS) -> pl.DataFrame:
    return pl.concat(predict_on_ray(Engine(workers=workers), model, str(table), device="cpu", rows=rows))


def same(frame: pl.DataFrame, other: pl.DataFrame) -> None:
    """Equal rows in the same order; probabilities to the last digits, which depend on the neighbours in a batch."""
    assert_frame_equal(frame, other, check_exact=False, abs_tol=1e-6)


# ---- encode ---------------------------------------------------------------------------------------------------------


def test_codes_are_those_of_one_machine(fitted: TEFM, model: Path, tmp_path: Path) -> None:
    folder = written(stays(150), tmp_path / "table")
    stays(1).clear().write_parquet(folder / "none.parquet")
    for out, source in (("folder", folder), ("glob.parquet", folder / "[0-2].parquet")):
        count = encode_to_parquet(fitted.tokenizer_, source, tmp_path / f"local-{out}")
        assert encode_on_ray(TWO, model / "tokenizer", str(source), tmp_path / f"ray-{out}", rows=ROWS) == count
    local, ray = tmp_path / "local-folder", tmp_path / "ray-folder"
    assert [path.name for path in sorted(ray.iterdir())] == ["0.parquet", "1.parquet", "2.parquet", "none.parquet"]
    for path in ray.iterdir():
        assert pl.read_parquet(path).equals(pl.read_parquet(local / path.name))
    assert pl.read_parquet(tmp_path / "local-glob.parquet").equals(pl.read_parquet(tmp_path / "ray-glob.parquet"))


# ---- predict --------------------------------------------------------------------------------------------------------


def test_predictions_are_those_of_one_machine_whatever_the_number_of_workers(
    fitted: TEFM, model: Path, tmp_path: Path
) -> None:
    folder = written(stays(150), tmp_path / "table")
    two = predictions(model, folder)
    same(two, fitted.predict_table(folder))
    assert predictions(model, folder, workers=1).equals(two)


def test_entities_that_are_scattered_over_files_stay_whole(fitted: TEFM, model: Path, tmp_path: Path) -> None:
    frame = stays(150)
    mixed = frame[np.random.default_rng(0).permutation(frame.height)]
    folder = written(mixed, tmp_path / "table")
    two = predictions(model, folder)
    same(two, fitted.predict_table(folder))
    assert two.height == 150
    assert predictions(model, folder, workers=1).equals(two)


def test_a_killed_worker_is_replaced_and_nothing_is_lost_or_doubled(
    fitted: TEFM, model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = written(stays(400), tmp_path / "table")
    parts, killed = [], 0
    with caplog.at_level(logging.INFO, "tefm"):
        for part in predict_on_ray(TWO, model, str(folder), device="cpu", rows=10):
            parts.append(part)
            if len(parts) == 2:
                killed = workers_of_ray()[0]
                os.kill(killed, signal.SIGKILL)
    assert killed and killed not in workers_of_ray()
    same(pl.concat(parts), fitted.predict_table(folder))
    assert "died and was replaced" in caplog.text


def workers_of_ray() -> list[int]:
    """The processes that hold a model: Ray names a process after what it does."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            name = path.read_bytes().decode("latin1")
        except OSError:  # it has ended
            continue
        if name.startswith("ray::") and "OnParts" in name:
            found.append(int(path.parent.name))
    return sorted(found)


def test_rows_and_windows_are_numbered_as_in_the_whole_table(backbones: dict[str, Path], tmp_path: Path) -> None:
    frame = stays(90).sort("day")
    schema = Schema.from_yaml("{label: died, ignore: [patient, day, note], fields: {age: number, ward: category}}")
    folder = written(frame, tmp_path / "table")
    for window in (None, 7):
        model = quick(backbones["llama"], schema, window=window, **ONLY_PREDICTS).fit(frame)
        saved = model.save(tmp_path / f"model-{window}")
        two = predictions(saved, folder, rows=25)
        same(two, model.predict_table(folder))
        assert two[:, 0].to_list() == list(range(two.height))
    timed = schema.model_copy(update={"time": "day", "ignore": ("patient", "note")})
    saved = quick(backbones["llama"], timed, window=7, **ONLY_PREDICTS).fit(frame).save(tmp_path / "timed")
    assert predictions(saved, folder, rows=25).height == two.height
    shuffled = written(frame.reverse(), tmp_path / "shuffled")
    with pytest.raises(InputError, match="order of time"):
        predictions(saved, shuffled)


# ---- explain --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scattered", [False, True])
def test_explanations_are_those_of_one_machine(fitted: TEFM, model: Path, tmp_path: Path, scattered: bool) -> None:
    frame = stays(8)
    frame = frame[np.random.default_rng(0).permutation(frame.height)] if scattered else frame
    folder = written(frame, tmp_path / "table", files=2)
    expected = fitted.explain(folder)
    explanations = explain_on_ray(TWO, model, str(folder), device="cpu", rows=5)
    assert [one.sequence for one in explanations] == [one.sequence for one in expected]
    assert [one.verdict for one in explanations] == [one.verdict for one in expected]
    assert [one.settling.findings for one in explanations] == [one.settling.findings for one in expected]
    some = explain_on_ray(TWO, model, str(folder), entities=["p5", "p2"], device="cpu", rows=5)
    assert [one.sequence for one in some] == ["p5", "p2"]


# ---- the command line, and what is refused --------------------------------------------------------------------------


def test_commands(fitted: TEFM, model: Path, tmp_path: Path) -> None:
    folder = written(stays(40), tmp_path / "table")
    on_ray = ("--engine", "ray", "--workers", 2)
    tefm("encode", model / "tokenizer", folder, "--out", tmp_path / "codes", *on_ray)
    assert len(list((tmp_path / "codes").iterdir())) == 3
    said = tefm("predict", model, folder, "--out", tmp_path / "p.parquet", "--device", "cpu", *on_ray)
    assert "predicting with Ray" in said.stderr and "40 predictions" in said.stderr
    same(pl.read_parquet(tmp_path / "p.parquet"), fitted.predict_table(folder))
    said = tefm("explain", model, folder, "--entity", "p3", "--json", "--device", "cpu", *on_ray)
    assert [one["sequence"] for one in said.json] == ["p3"]


def test_what_is_refused(model: Path, tmp_path: Path) -> None:
    folder = written(stays(10), tmp_path / "table")
    stays(10).write_csv(tmp_path / "table.csv")
    assert "Parquet" in refused("predict", model, tmp_path / "table.csv", "--engine", "ray")
    assert "add --engine ray" in refused("predict", model, folder, "--workers", 2)
    assert "no such engine" in refused(
        "encode", model / "tokenizer", folder, "--out", tmp_path / "x", "--engine", "dask"
    )
    missing = written(stays(10).drop("ward"), tmp_path / "missing")
    assert "ward" in refused("predict", model, missing, "--engine", "ray")
    assert "no such patient" in refused("explain", model, folder, "--entity", "nobody", "--engine", "ray")
    with pytest.raises(SettingsError, match="worker"):
        Engine(workers=0)


def test_an_error_of_a_worker_is_ours(model: Path, tmp_path: Path) -> None:
    """A row that only a worker reads has no patient."""
    frame = stays(40)
    folder = written(
        frame.with_columns(pl.when(pl.int_range(pl.len()) == 50).then(None).otherwise("patient").alias("patient")),
        tmp_path / "table",
    )
    with pytest.raises(InputError, match="entity"):
        predictions(model, folder, rows=20)
    assert STAYS.entity == "patient"
