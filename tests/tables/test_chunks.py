"""Frames of whole sequences, distinct rows, and tables written part by part."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tefm.tables.chunks import whole_sequences, write_frames
from tefm.tables.grouping import by_entity, by_window
from tefm.tables.readers.table import open_table
from tefm.tables.schema import Schema
from tefm.tables.sequences import Sequences, distinct_rows

ENTITIES = st.lists(st.sampled_from("abcde"), min_size=1, max_size=30)


@given(who=ENTITIES, rows=st.integers(1, 8), window=st.none() | st.integers(1, 5), time=st.booleans())
def test_no_sequence_is_cut(who: list[str], rows: int, window: int | None, time: bool) -> None:
    frame = pl.DataFrame({"who": who, "day": range(len(who)), "x": range(len(who))})
    schema = Schema.from_yaml(f"{{entity: who, {'time: day, ' if time else ''}fields: {{x: number}}}}")
    parts = list(whole_sequences(open_table(frame), schema, window=window, rows=rows))
    assert_frame_equal(pl.concat(parts).sort("x"), frame)
    together = by_entity(frame, schema) if window is None else by_window(frame, schema, window, drop_last=False)
    apart = [
        by_entity(part, schema) if window is None else by_window(part, schema, window, drop_last=False)
        for part in parts
    ]
    # the same sequences in the same order, each with the same records in the same order
    x_of = [part["x"].to_numpy()[sequences.rows] for part, sequences in zip(parts, apart, strict=True)]
    assert np.concatenate(x_of).tolist() == together.rows.tolist()
    assert np.concatenate([sequences.lengths for sequences in apart]).tolist() == together.lengths.tolist()
    assert all(part.height for part in parts)
    if window is None:
        owners = [set(part["who"]) for part in parts]
        assert sum(map(len, owners)) == len(set(who))
        assert [name for sequences in apart for name in sequences.ids] == together.ids.tolist()
        if max(who.count(name) for name in who) == 1 and len(who) > 2 * rows:
            assert len(parts) > 1
    elif not time:
        assert all(part.height % window == 0 for part in parts[:-1])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=40), st.booleans())
def test_distinct_rows(rows: list[tuple[int, int, int]], small: bool) -> None:
    x_ND = np.array(rows, dtype=np.uint8 if small else np.int64).reshape(-1, 3)
    first, number_N = distinct_rows(x_ND)
    assert len(first) == len(set(rows))
    assert np.array_equal(x_ND[first][number_N], x_ND)


def test_rows_with_the_same_hash_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tefm.tables.sequences._hashes", lambda x_ND: np.zeros(len(x_ND), dtype=np.uint64))
    x_ND = np.array([[1, 2], [3, 4], [1, 2]])
    first, number_N = distinct_rows(x_ND)
    assert len(first) == 2 and np.array_equal(x_ND[first][number_N], x_ND)


@given(st.lists(st.lists(st.integers(0, 1), max_size=3), min_size=1, max_size=20), st.integers(1, 3))
def test_distinct_sequences(records: list[list[int]], texts: int) -> None:
    values = np.array([value for record in records for value in record], dtype=np.uint16).reshape(-1, 1)
    starts = np.cumsum([0, *map(len, records)])
    words = [str(i % texts) for i in range(len(records))]
    sequences = Sequences(values, starts, texts=words)
    contents = [(tuple(record), words[i]) for i, record in enumerate(records)]
    first, number_S = sequences.distinct()
    assert len(first) == len(set(contents))
    assert [contents[first[number]] for number in number_S] == contents


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_parts_become_one_file(tmp_path: Path, name: str) -> None:
    frame = pl.DataFrame({"id": ["a", "b,c", None], "p": [0.25, 1.0, 0.5]})
    assert write_frames(frame.iter_slices(2), tmp_path / name) == 3
    assert_frame_equal(open_table(tmp_path / name).frame().cast({"p": pl.Float64}), frame)


def test_a_csv_holds_no_formulas(tmp_path: Path) -> None:
    texts = ["=HYPERLINK(1)", "+1+cmd|x", "-5", "+1.5e3", "@x", "\tx", "'quoted", "plain", None, "＝1"]
    frame = pl.DataFrame({"=who": texts, "p": [0.5] * len(texts)})
    write_frames(iter([frame]), tmp_path / "out.csv")
    written = open_table(tmp_path / "out.csv").frame()
    assert written.columns == ["'=who", "p"]
    cells = written["'=who"].to_list()
    assert cells[2:4] == ["-5", "+1.5e3"]  # plain numbers
    assert all(cell is None or cell in ("-5", "+1.5e3") or cell[0] not in "=+-@\t＝" for cell in cells)
    assert [cell and cell.removeprefix("'") for cell in cells] == texts  # one apostrophe less gives them back
    write_frames(iter([frame]), tmp_path / "out.parquet")
    assert_frame_equal(pl.read_parquet(tmp_path / "out.parquet"), frame)


def test_durations_are_written_to_csv(tmp_path: Path) -> None:
    """polars itself writes none; a name may be anything."""
    waited = pl.DataFrame({"^a$": [timedelta(days=1, hours=2), None], "n": [1, 2]})
    assert write_frames([waited, waited], tmp_path / "waited.csv") == 4
    assert (tmp_path / "waited.csv").read_text() == "^a$,n\n" + 2 * "P1DT2H,1\n,2\n"
