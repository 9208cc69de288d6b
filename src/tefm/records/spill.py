"""Rows of a table regrouped on disk: parts of rows that lie anywhere in it, one part in memory at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tefm.base.targets import explained_writing, remove_left_over, temporary_name
from tefm.records.readers.table import Table

#: Parts at most: every one is an open file while the table is read.
PARTS = 200


def regrouped(table: Table, part_N: NDArray[np.int64], rows: int) -> Iterator[pl.DataFrame]:
    """The rows of each part, in the table's order; `part_N` is the part of each row, from 0 on.

    >>> from tefm.records.readers.table import open_table
    >>> table = open_table(pl.DataFrame({"x": [1, 2, 3, 4]}))
    >>> [frame["x"].to_list() for frame in regrouped(table, np.array([0, 1, 0, 1]), rows=3)]
    [[1, 3], [2, 4]]
    """
    place = Path(tempfile.gettempdir()) / "tefm-rows"
    remove_left_over(place)  # of killed runs
    folder = temporary_name(place)
    folder.mkdir()
    try:
        with explained_writing(folder):
            _spill(table, part_N, rows, folder)
        for part in range(int(part_N.max(initial=-1)) + 1):
            yield pl.concat([table.head(0), *_read(folder / f"{part}.parquet", table)])
            (folder / f"{part}.parquet").unlink()
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def _spill(table: Table, part_N: NDArray[np.int64], rows: int, folder: Path) -> None:
    writers: dict[int, Any] = {}
    start = 0
    try:
        for frame in table.batches(rows=rows):
            batch_N = part_N[start : start + frame.height]
            start += frame.height
            for part in np.unique(batch_N).tolist():
                chosen = frame.filter(pl.Series(batch_N == part)).to_arrow()
                if part not in writers:
                    writers[part] = pq.ParquetWriter(folder / f"{part}.parquet", chosen.schema)
                writers[part].write_table(chosen.cast(writers[part].schema))
    finally:
        for writer in writers.values():
            writer.close()


def _read(path: Path, table: Table) -> list[pl.DataFrame]:
    schema = table.head(0).schema
    frame = pl.read_parquet(path)
    return [pl.DataFrame([frame.to_series(i).cast(dtype) for i, dtype in enumerate(schema.values())])]
