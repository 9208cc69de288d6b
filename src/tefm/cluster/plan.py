"""Which rows go to a worker together: parts of a table that no sequence crosses, whatever the number of workers.

- Without entities, and for windows of rows in order, a part is so many rows.
- Where the rows of an entity follow each other, a part ends between two entities. It may lie in two files.
- Where they do not, rows go to buckets by a hash of their entity: a shuffle (`engine.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from tefm.base.errors import InputError, SettingsError
from tefm.tables.chunks import is_grouped, whole_sequences
from tefm.tables.grouping import times_of
from tefm.tables.readers.arrow import PARQUET_ENDINGS, rows_in
from tefm.tables.readers.table import Table, open_table, table_files
from tefm.tables.schema import Schema


@dataclass(frozen=True)
class Plan:
    """All parts of a table."""

    table: Table
    #: its files with their numbers of rows
    files: list[tuple[str, int]]
    #: of each part, which one worker reads: its first row in the whole table, and the first one after it
    parts: list[tuple[int, int]]
    rows: int
    #: how many buckets the rows go to, and by which column, where entities are scattered; 0 otherwise
    buckets: int = 0
    entity: str = ""


def parquet_table(source: str | Path) -> tuple[Table, list[tuple[str, int]]]:
    """A Parquet file, folder or glob, and its files with their numbers of rows; nothing else can be cut into parts."""
    files = table_files(source)
    if not all(path.name.lower().endswith(PARQUET_ENDINGS) for path in files):
        raise SettingsError(
            "the Ray engine reads Parquet: a file, a folder or a glob",
            value=str(source),
            remedy="write the table as Parquet, or leave --engine ray out",
        )
    counts = [(str(path.absolute()), rows_in(path)) for path in files]
    return open_table(source), counts


def plan_rows(source: str | Path, rows: int) -> Plan:
    """Parts with at most `rows` rows, each from one file: for what is done record by record."""
    table, files = parquet_table(source)
    bounds = [0]
    for _, count in files:
        first, end = bounds[-1], bounds[-1] + count
        bounds += [*range(first + rows, end, rows), end] if count else []
    return Plan(table, files, list(pairwise(bounds)), bounds[-1])


def plan_sequences(source: str | Path, schema: Schema, *, window: int | None, rows: int) -> Plan:
    """Parts of about so many rows that no sequence crosses."""
    table, files = parquet_table(source)
    total = sum(count for _, count in files)
    if not total:
        raise InputError("the table has no rows", file=table.name, remedy="give a table with records")
    entity = schema.entity if window is None else None
    is_scattered = entity is not None and not is_grouped(table, entity)
    if entity is not None and not is_scattered:
        ends = np.cumsum([frame.height for frame in whole_sequences(_column(table, entity), schema, rows=rows)])
        return Plan(table, files, list(pairwise([0, *ends.tolist()])), total)
    if window is not None and schema.time is not None:
        _refuse_disorder(table, schema)
    size = rows if window is None else max(1, rows // window) * window
    parts = list(pairwise([*range(0, total, size), total]))
    return Plan(table, files, parts, total, buckets=len(parts) if is_scattered else 0, entity=entity or "")


def _column(table: Table, name: str) -> Table:
    """The table with one column only."""
    return Table(table.name, table.head(0).select(name), table.batches)


def _refuse_disorder(table: Table, schema: Schema) -> None:
    """Windows are made in the order of time: the files must have it already, a part knows only its own rows."""
    assert schema.time is not None
    before: pl.Series | None = None
    for frame in table.batches([schema.time]):
        times = times_of(frame, schema.time, schema, table.name)[0]
        joined = times if before is None else pl.concat([before, times])
        if not joined.is_sorted():
            raise InputError(
                "windows are made in the order of time, and the rows are not in this order",
                file=table.name,
                column=schema.time,
                remedy="sort the files by time, or leave --engine ray out",
            )
        before = times.tail(1)
