"""A table in frames of whole sequences, so that a table larger than memory can be predicted.

Where the rows of a sequence may lie anywhere in the table, the whole table is one frame.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tefm.records.readers.source import unnamed
from tefm.records.readers.table import Table
from tefm.records.schema import Schema

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
    scattered = schema.time is not None if window is not None else entity is not None and not _grouped(table, entity)
    if scattered:
        frame = table.frame()
        if frame.height:
            yield frame
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


def _whole_rows(frame: pl.DataFrame, entity: str | None, window: int | None) -> int:
    """The rows before the last sequence, which may go on in the next frame."""
    if window is not None:
        return frame.height // window * window
    if entity is None:
        return frame.height
    run = unnamed(frame[entity]).rle_id()
    return int((run < run[-1]).sum())


def _grouped(table: Table, entity: str) -> bool:
    """Whether all rows of an entity follow each other; reads this column only."""
    if entity not in table.columns:
        return False  # what is read next says so
    column = unnamed(table.frame([entity])[entity])
    return not len(column) or column.rle_id()[-1] + 1 == column.n_unique()
