"""Tables: a saved table is the same when it is loaded, and its cells show what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tefm_bench.table import Column, Figure, Row, Table

from tefm.base.errors import InputError

finite = st.floats(-1e6, 1e6)
figures = st.dictionaries(st.sampled_from(["a", "b"]), st.lists(finite, min_size=1).map(lambda v: Figure(tuple(v))))
rows = st.builds(Row, st.just({"data": "x"}), figures, st.dictionaries(st.sampled_from(["a", "b"]), finite))


@given(st.lists(rows, max_size=4))
def test_a_saved_table_is_the_same(tmp_path_factory: pytest.TempPathFactory, lines: list[Row]) -> None:
    columns = (Column("a", "A", 2, "up"), Column("b", "B"))
    table = Table("t", "T", "about", ("data",), columns, tuple(lines), "elsewhere", {"seeds": [1]})
    path = tmp_path_factory.mktemp("tables") / "t.json"
    table.save(path)
    assert Table.load(path) == table
    header, lines = table.cells()
    assert all(len(line) == len(header) for line in lines)


def test_a_published_figure_has_its_own_column_and_ours_is_never_in_it() -> None:
    ours = Row({"data": "x"}, {"a": Figure((0.5, 0.7))})
    theirs = Row({"data": "y"}, {}, {"a": 0.9})
    table = Table("t", "T", "", ("data",), (Column("a", "A", 2), Column("b", "B")), (ours, theirs))
    assert table.cells() == (
        ["data", "splits", "A", "A, paper"],
        [["x", "2", "0.60 ± 0.14", "–"], ["y", "–", "–", "0.90"]],
    )


def test_a_file_that_is_not_a_table(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"name": "t"}')
    with pytest.raises(InputError, match=r"(?s)t\.json.*write it again"):
        Table.load(tmp_path / "t.json")
