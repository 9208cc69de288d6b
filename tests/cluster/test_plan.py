"""Parts of a table: no sequence is torn apart, and the workers' results are those of the whole table."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import ONLY_PREDICTS, STAYS, quick, stays
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tefm.base.errors import InputError, SettingsError
from tefm.cluster.engine import BUCKET, ROW, explaining, plan_rows, plan_sequences, telling, to_buckets
from tefm.cluster.work import predict_part
from tefm.model.estimator import TEFM
from tefm.tables.chunks import is_grouped
from tefm.tables.readers import arrow
from tefm.tables.readers.arrow import open_rows
from tefm.tables.readers.table import Table, open_table
from tefm.tables.schema import Schema


def written(frame: pl.DataFrame, folder: Path, bounds: list[int]) -> Path:
    folder.mkdir(parents=True)
    for number, (start, stop) in enumerate(pairwise([0, *bounds, frame.height])):
        frame[start:stop].write_parquet(folder / f"{number}.parquet", row_group_size=7)
    return folder


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.data())
def test_pieces_are_exactly_the_rows(counts: list[int], data: st.DataObject) -> None:
    rows = [(str(file), row) for file, count in enumerate(counts) for row in range(count)]
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    pieces: list[tuple[str, int]] = []

    def opened(file: Path, first: int, last: int) -> Table:
        pieces.extend((file.name, row) for row in range(first, last))
        return open_table(pl.DataFrame({"x": [0]}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "open_parquet", opened)
        if start < stop:
            open_rows([(str(file), count) for file, count in enumerate(counts)], start, stop)
    assert pieces == rows[start:stop]


@pytest.mark.parametrize(("start", "stop"), [(0, 40), (0, 1), (6, 8), (7, 14), (33, 40), (13, 30)])
def test_a_piece_is_read_alone(tmp_path: Path, start: int, stop: int) -> None:
    frame = pl.DataFrame({" x ": range(40), "y": [f"{i}" for i in range(40)]})
    path = written(frame, tmp_path / "table", []) / "0.parquet"
    table = open_rows([(str(path), 40)], start, stop)
    assert table.columns == ("x", "y")
    assert table.frame(["x"])["x"].to_list() == list(range(start, stop))
    assert sum(batch.height for batch in table.batches(rows=3)) == stop - start


def test_pieces_have_the_types_of_the_whole_table(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    pl.DataFrame({"x": [1, 2]}).write_parquet(folder / "0.parquet")
    pl.DataFrame({"x": [1.5]}).write_parquet(folder / "1.parquet")
    plan = plan_rows(folder, 1)
    frames = [open_rows(plan.files, *part, plan.table.head(0)).frame() for part in plan.parts]
    assert pl.concat(frames).equals(open_table(folder).frame())


@pytest.mark.parametrize("rows", [1, 5, 20, 1000])
def test_no_patient_is_in_two_parts(tmp_path: Path, rows: int) -> None:
    folder = written(stays(30), tmp_path / "table", [10, 11, 40])
    plan = plan_sequences(folder, STAYS, window=None, rows=rows)
    patients = [set(open_rows(plan.files, *part).frame()["patient"]) for part in plan.parts]
    assert sum(map(len, patients)) == len(set.union(*patients)) == 30
    assert plan.buckets == 0 and plan.rows == stays(30).height
    assert pl.concat(open_rows(plan.files, *part).frame() for part in plan.parts).equals(open_table(folder).frame())


def test_scattered_patients_go_to_buckets(tmp_path: Path) -> None:
    frame = stays(30).reverse().sort("day", maintain_order=True)
    plan = plan_sequences(written(frame, tmp_path / "table", [20]), STAYS, window=None, rows=10)
    assert plan.buckets == len(plan.parts) == -(-frame.height // 10)
    shuffle = {"files": plan.files, "like": frame.clear(), "entity": "patient", "buckets": 5}
    rows = pl.concat(
        pl.DataFrame(to_buckets({"start": [start], "stop": [stop]}, **shuffle)) for start, stop in plan.parts
    )
    assert rows[ROW].to_list() == list(range(frame.height))
    assert rows.group_by("patient").agg(pl.col(BUCKET).n_unique())[BUCKET].max() == 1
    assert rows[BUCKET].n_unique() > 1


@given(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=12), st.integers(1, 4))
def test_grouped_is_grouped(values: list[str | None], rows: int) -> None:
    table = open_table(pl.DataFrame({"who": values}, {"who": pl.String}))
    batches = table.batches
    table.batches = lambda columns: batches(columns, rows)  # type: ignore[assignment, method-assign, misc]
    runs = [value for number, value in enumerate(values) if not number or values[number - 1] != value]
    assert is_grouped(table, "who") == (len(runs) == len(set(runs)))


@pytest.mark.slow
def test_rows_and_windows_are_numbered_as_in_the_whole_table(backbones: dict[str, Path], tmp_path: Path) -> None:
    frame = stays(60).sort("day")
    fields = "{label: died, time: day, ignore: [patient, note], fields: {age: number, ward: category}}"
    folder = written(frame, tmp_path / "table", [25, 60])
    for window in (None, 7):
        schema = Schema.from_yaml(fields)
        model = quick(backbones["llama"], schema, window=window, **ONLY_PREDICTS, seed=1).fit(frame)
        loaded = TEFM.load(model.save(tmp_path / f"model-{window}"), device="cpu")
        plan = plan_sequences(folder, schema, window=window, rows=25)
        assert len(plan.parts) > 3
        tables = [open_rows(plan.files, *part, plan.table.head(0)) for part in plan.parts]
        parts = [
            predict_part(loaded, False, *of) for of in zip((start for start, _ in plan.parts), tables, strict=True)
        ]
        assert_frame_equal(pl.concat(parts), model.predict_table(folder), rel_tol=0, abs_tol=1e-6)
    backwards = written(frame.reverse(), tmp_path / "backwards", [25])
    with pytest.raises(InputError, match="order of time"):
        plan_sequences(backwards, Schema.from_yaml(fields), window=7, rows=25)


def test_only_parquet_can_be_cut(tmp_path: Path) -> None:
    stays(3).write_csv(tmp_path / "stays.csv")
    with pytest.raises(SettingsError, match="reads Parquet"):
        plan_rows(tmp_path / "stays.csv", 10)
    with pytest.raises(InputError, match="no such file"):
        plan_rows(tmp_path / "nothing", 10)
    assert np.isfinite(plan_rows(written(stays(3), tmp_path / "t", []), 2).rows)


def test_an_error_in_a_worker_is_found_in_its_text() -> None:
    error = InputError("no entity", file="stays.parquet", column="patient", value=7, remedy="fill it in")
    with pytest.raises(RuntimeError) as caught, telling():
        raise error
    with pytest.raises(InputError) as found, explaining():
        raise RuntimeError(f"a long\ntraceback: {caught.value}\n")
    assert type(found.value) is InputError and str(found.value) == str(error)
    with pytest.raises(RuntimeError, match="another error"), explaining():
        raise RuntimeError("another error")
