"""Tables part by part: read in frames of whole sequences, and written frame by frame.

So a table larger than memory can be predicted.

Where the rows of a sequence may lie anywhere in the table, they are brought together on disk first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tefm.base.files import explained_writing, remove_left_over, replacing, temporary_name
from tefm.tables.grouping import entities_of, first_rows, time_ranks
from tefm.tables.readers.source import before_last_run, unnamed, whole_runs
from tefm.tables.readers.table import Table
from tefm.tables.schema import Schema

#: Rows of a frame, about.
ROWS = 1 << 16


def whole_sequences(
    table: Table, schema: Schema, *, window: int | None = None, rows: int = ROWS
) -> Iterator[pl.DataFrame]:
    """The table in its order, in frames that no sequence crosses.

    >>> from tefm.tables.readers.table import open_table
    >>> table = open_table(pl.DataFrame({"who": ["a", "b", "b", "b", "c"], "x": [1, 2, 3, 4, 5]}))
    >>> schema = Schema.from_yaml("{entity: who, fields: {x: number}}")
    >>> [frame["x"].to_list() for frame in whole_sequences(table, schema, rows=2)]
    [[1], [2, 3, 4], [5]]
    """
    entity = schema.entity if window is None else None
    scattered = schema.time is not None if window is not None else entity is not None and not is_grouped(table, entity)
    if not scattered:
        yield from whole_runs(table.batches(rows=rows), rows, lambda frame: _whole_rows(frame, entity, window))
    elif (part_N := _parts(table, schema, window, rows)) is not None:
        yield from regrouped(table, part_N, rows)
    elif (frame := table.frame()).height:
        yield frame


def _parts(table: Table, schema: Schema, window: int | None, rows: int) -> NDArray[np.int64] | None:
    """The part of each row, so that the rows of a sequence are in the same one; None where a single part holds all.

    Parts are in the order of the sequences' first rows, as predictions are. Reads the column of the role only.
    """
    role = schema.time if window is not None else schema.entity
    if role is None or role not in table.columns:
        return None  # what is read next says so
    column = table.frame([role])
    if column.height <= rows:
        return None
    at_least = max(rows, -(-column.height // PARTS))
    if window is not None:
        order = np.argsort(time_ranks(column, schema, table.name), kind="stable")
        part_N = np.empty(column.height, dtype=np.int64)
        part_N[order] = np.arange(column.height) // (-(-at_least // window) * window)
        return part_N
    first_N = first_rows(entities_of(column, role, schema, table.name))
    _, entity_N, count_E = np.unique(first_N, return_inverse=True, return_counts=True)
    before_E = np.cumsum(count_E) - count_E
    number_E = np.unique(before_E // at_least, return_inverse=True)[1]
    return np.asarray(number_E[entity_N], dtype=np.int64)


def _whole_rows(frame: pl.DataFrame, entity: str | None, window: int | None) -> int:
    """The rows before the last sequence, which may go on in the next frame."""
    if window is not None:
        return frame.height // window * window
    return frame.height if entity is None else before_last_run(frame[entity])


def is_grouped(table: Table, entity: str) -> bool:
    """Whether all rows of an entity follow each other; reads this column only, batch by batch.

    Entities are compared by hash. If two had the same, the table would be taken for one that is not grouped.
    """
    if entity not in table.columns:
        return False  # what is read next says so
    runs: list[NDArray[np.uint64]] = []
    last = pl.Series([], dtype=table.head(0)[entity].dtype)
    for frame in table.batches([entity]):
        column = unnamed(frame[entity])
        hashes = column.rle().struct.field("value").hash().to_numpy()
        goes_on = len(last) > 0 and last.eq_missing(column.head(1))[0]
        runs.append(hashes[int(goes_on) :])
        last = column.tail(1)
    all_runs = np.concatenate(runs) if runs else np.zeros(0, dtype=np.uint64)
    return len(np.unique(all_runs)) == len(all_runs)


#: Parts at most: every one is an open file while the table is read.
PARTS = 200


def regrouped(table: Table, part_N: NDArray[np.int64], rows: int) -> Iterator[pl.DataFrame]:
    """The rows of each part, in the table's order; `part_N` is the part of each row, from 0 on.

    >>> from tefm.tables.readers.table import open_table
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
            frame = pl.read_parquet(folder / f"{part}.parquet")
            types = zip(table.columns, table.head(0).dtypes, strict=True)
            yield pl.DataFrame([frame.to_series(i).cast(dtype).alias(name) for i, (name, dtype) in enumerate(types)])
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


#: Text that a spreadsheet would run as a formula, and text that begins with the mark itself; a plain number is neither.
_FORMULA = r"^[=+\-@\t\r\n＝＋－＠']"
_NUMBER = r"^[+-]?\d+([.,]\d+)*([eE][+-]?\d+)?$"


def without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame whose texts a spreadsheet shows as they are: what would be a formula begins with an apostrophe.

    One apostrophe less at the beginning gives every text back, since those that begin with one get another. Durations,
    for which CSV has no type, become text as in ISO 8601.

    >>> without_formulas(pl.DataFrame({"who": ["=1+1", "-5", "'x", "Ann"]}))["who"].to_list()
    ["'=1+1", '-5', "''x", 'Ann']
    """
    columns = []
    for column in frame.iter_columns():
        if isinstance(column.dtype, pl.Duration):
            column = column.alias("text").dt.to_string("iso").alias(column.name)
        if column.dtype == pl.String:
            text = pl.col("text")
            is_formula = text.str.contains(_FORMULA) & ~text.str.contains(_NUMBER)
            marked = pl.when(is_formula).then(pl.lit("'") + text).otherwise(text)
            column = column.alias("text").to_frame().select(marked).to_series().alias(column.name)
        columns.append(column)
    return pl.DataFrame(columns)


def write_frames(frames: Iterable[pl.DataFrame], target: Path) -> int:
    """Write frames of the same columns as one file; returns the number of rows. At least one frame is needed."""
    if target.suffix != ".csv":
        return write_parquet(frames, target)
    frames = iter(frames)
    first = next(frames)
    written = 0
    with replacing(target) as temporary, temporary.open("wb") as file:
        names = without_formulas(pl.Series(first.columns).to_frame()).to_series()
        without_formulas(first.clear()).rename(dict(zip(first.columns, names, strict=True))).write_csv(file)
        for frame in chain([first], frames):
            without_formulas(frame).write_csv(file, include_header=False)
            written += frame.height
    return written


def write_parquet(frames: Iterable[pl.DataFrame], target: Path) -> int:
    """Write frames of the same columns as one Parquet file, whatever it is called."""
    frames = iter(frames)
    first = next(frames)
    schema, written = first.to_arrow().schema, 0
    with replacing(target) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for frame in chain([first], frames):
            writer.write_table(frame.to_arrow().cast(schema))
            written += frame.height
    return written
