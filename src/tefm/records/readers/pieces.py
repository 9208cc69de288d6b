"""Rows of Parquet files: a part of a table larger than one machine, read where it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from tefm.records.readers.arrow import empty_frame, from_arrow
from tefm.records.readers.source import Source, explaining
from tefm.records.readers.table import Table


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a Parquet file."""

    file: str
    start: int
    stop: int


def rows_in(file: Path) -> int:
    """How many rows a Parquet file has; only its end is read."""
    with explaining(file, "Parquet"):
        return int(pq.read_metadata(file).num_rows)


def pieces_of(counts: Sequence[tuple[str, int]], start: int, stop: int) -> tuple[Piece, ...]:
    """The pieces of files with so many rows each that are the rows `start` to `stop` of all of them together.

    >>> pieces_of([("a", 5), ("b", 5)], 3, 7)
    (Piece(file='a', start=3, stop=5), Piece(file='b', start=0, stop=2))
    """
    pieces, before = [], 0
    for file, rows in counts:
        first, last = max(start - before, 0), min(stop - before, rows)
        if first < last:
            pieces.append(Piece(file, first, last))
        before += rows
    return tuple(pieces)


def open_pieces(pieces: Sequence[Piece], like: pl.DataFrame | None = None) -> Table:
    """Pieces as one table, with the columns and types of `like`, a frame without rows; of one piece, with its own."""
    tables = [Table(_open_piece(piece)) for piece in pieces]
    empty = tables[0].head(0) if like is None else like
    types = empty.schema

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        for table in tables:
            for frame in table.batches(columns, rows):
                yield frame.cast({column: types[column] for column in columns})

    return Table(Source(pieces[0].file, empty, read))


def _open_piece(piece: Piece) -> Source:
    path = Path(piece.file)
    with explaining(path, "Parquet"):
        empty = empty_frame(pq.read_schema(path), path)

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        with explaining(path, "Parquet"), pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            groups, skipped, before = [], 0, 0
            for group, size in enumerate(sizes):
                if before < piece.stop and before + size > piece.start:
                    groups.append(group)
                elif not groups:
                    skipped += size
                before += size
            at = skipped
            for batch in file.iter_batches(batch_size=rows, row_groups=groups, columns=columns):
                first, last = max(piece.start - at, 0), min(piece.stop - at, batch.num_rows)
                at += batch.num_rows
                if first < last:
                    yield from_arrow(batch.select(columns).slice(first, last - first), path)

    return Source(piece.file, empty, read)
