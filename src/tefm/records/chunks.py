"""A table in frames of whole sequences, so that a table larger than memory can be predicted.

Where the rows of a sequence may lie anywhere in the table, they are brought together on disk first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.records.readers.source import unnamed
from tefm.records.readers.table import Table
from tefm.records.roles import entities, time_ranks
from tefm.records.schema import Schema
from tefm.records.spill import PARTS, regrouped

#: Rows of a frame, about.
ROWS = 1 << 16


def whole_sequences(
    table: Table, schema: Schema, *, window: int | None = None, rows: int = ROWS
) -> Iterator[pl.DataFrame]:
    """The table in its order, in frames that no sequence crosses.

    >>> from tefm.records.readers.table import open_table
    >>> table = open_table(pl.DataFrame({"who": ["a", "b", "b", "b", "c"], "x": [1, 2, 3, 4, 5]}))
    >>> schema = Schema.from_yaml("{entity: who, fields: {x: number}}")
    >>> [frame["x"].to_list() for frame in whole_sequences(table, schema, rows=2)]
    [[1], [2, 3, 4], [5]]
    """
    entity = schema.entity if window is None else None
    scattered = schema.time is not None if window is not None else entity is not None and not is_grouped(table, entity)
    if scattered:
        parts = _parts(table, schema, window, rows)
        if parts is None:
            frame = table.frame()
            if frame.height:
                yield frame
        else:
            yield from regrouped(table, parts, rows)
        return
    held = table.head(0)
    for frame in table.batches(rows=rows):
        held = pl.concat([held, frame])
        if held.height >= rows:
            whole = _whole_rows(held, entity, window)
            if whole:
                yield held[:whole]
            held = held[whole:]
    if held.height:
        yield held


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
    names = entities(column, role, schema, table.name).alias("entity").to_frame().with_row_index("row")
    first_N = names.select(pl.col("row").min().over("entity")).to_series().to_numpy().astype(np.int64)
    _, entity_N, count_E = np.unique(first_N, return_inverse=True, return_counts=True)
    before_E = np.cumsum(count_E) - count_E
    number_E = np.unique(before_E // at_least, return_inverse=True)[1]
    return np.asarray(number_E[entity_N], dtype=np.int64)


def _whole_rows(frame: pl.DataFrame, entity: str | None, window: int | None) -> int:
    """The rows before the last sequence, which may go on in the next frame."""
    if window is not None:
        return frame.height // window * window
    if entity is None:
        return frame.height
    run = unnamed(frame[entity]).rle_id()
    return int((run < run[-1]).sum())


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
