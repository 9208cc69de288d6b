"""2,000 fuzzed tables in five formats: an error is one of ours, and no row is lost, added or moved."""

from __future__ import annotations

import logging
from pathlib import Path

import polars as pl
import pytest
from support.fuzzing import FORMATS, ROW, Fuzzed, fuzzed

from tefm.base.errors import TefmError
from tefm.tables.chunks import whole_sequences
from tefm.tables.grouping import by_entity
from tefm.tables.infer import schema_of
from tefm.tables.readers.table import Table, open_table
from tefm.tables.vectorise import Vectoriser

TABLES = 2_000
PARTS = 10
ROLES = ("entity", "label", "time")


@pytest.mark.slow
@pytest.mark.parametrize("part", [*range(2), *(pytest.param(part, marks=pytest.mark.all) for part in range(2, PARTS))])
def test_fuzzed_tables_give_rows_or_one_of_our_errors(part: int, tmp_path: Path) -> None:
    logging.getLogger("tefm").setLevel(logging.ERROR)
    try:
        ends = [_read(fuzzed(seed, tmp_path)) for seed in range(part, TABLES, PARTS)]
    finally:
        logging.getLogger("tefm").setLevel(logging.NOTSET)
    # most are readable: a reader that refuses everything would pass otherwise
    assert ends.count("slots") > len(ends) / 2, {end: ends.count(end) for end in set(ends)}


def test_every_format_is_among_them(tmp_path: Path) -> None:
    assert {fuzzed(seed, tmp_path).path.suffix[1:] for seed in range(10)} == set(FORMATS)


def _read(table: Fuzzed) -> str:
    """How far a table gets: opened, inspected, or turned into slots and sequences."""
    try:
        opened = open_table(table.path)
        frame = opened.frame()
    except TefmError as error:
        assert table.path.name in str(error), f"the error names another file: {error}"
        return "refused"
    _check_rows(table, opened, frame)
    role = table.role if table.role in opened.columns else opened.columns[0]
    for roles in ({ROLES[len(frame.columns) % 3]: role}, {}):
        try:
            schema, _ = schema_of(opened, **roles)
            sequences = by_entity(frame, schema)
            vectoriser = Vectoriser.fit(opened, schema)
            slots_ND = vectoriser.transform(opened)
            break
        except TefmError:
            continue
    else:
        return "opened"
    assert sorted(sequences.rows.tolist()) == list(range(frame.height)), table.path
    parts = list(whole_sequences(opened, schema, rows=9))
    assert sum(part.height for part in parts) == frame.height, table.path
    if schema.entity is not None:
        assert [name for part in parts for name in by_entity(part, schema).ids] == sequences.ids.tolist(), table.path
    assert len(slots_ND) == frame.height, table.path
    assert vectoriser.inverse(slots_ND).height == frame.height
    return "slots"


def _check_rows(table: Fuzzed, opened: Table, frame: pl.DataFrame) -> None:
    """The rows that were written are there, in their order, also where they are read in parts."""
    parts = list(opened.batches(rows=11))
    assert pl.concat([opened.head(0), *parts]).equals(frame), table.path
    if table.rows is None:
        return
    assert frame.height == table.rows, table.path
    if table.counted:
        assert frame[ROW].cast(pl.Int64).to_list() == list(range(table.rows)), table.path
    for name, cells in table.texts.items():
        if frame[name].dtype == pl.String:
            assert [cell or None for cell in frame[name].to_list()] == [cell or None for cell in cells], table.path
