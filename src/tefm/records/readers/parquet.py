"""Parquet files and folders of them, read in pieces, so that a file may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from tefm.base.errors import InputError, listed
from tefm.records.readers.arrow import empty_frame, from_arrow
from tefm.records.readers.source import Source, explaining, named

ENDINGS = (".parquet", ".pq")


def open_parquet(path: Path) -> Source:
    """A Parquet file; only the requested columns are read, part of a row group at a time."""
    with explaining(path, "Parquet"):
        schema = pq.read_schema(path)
        names = named(schema.names, path)
        empty = empty_frame(schema, path, names)
    originals = dict(zip(names, schema.names, strict=True))

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        # these two together keep a row group of any size out of memory; either alone does not
        buffering = {"pre_buffer": False, "buffer_size": 1 << 20}
        with explaining(path, "Parquet"), pq.ParquetFile(path, **buffering) as file:
            wanted = [originals[column] for column in columns]
            for batch in file.iter_batches(batch_size=rows, columns=wanted):
                # asking for "a" also returns the column "a.b", which looks like a part of it
                yield from_arrow(batch.select(wanted), path, columns)

    return Source(str(path), empty, read)


def parquet_files(folder: Path) -> list[Path]:
    """All Parquet files below a folder, by name; hidden and unfinished ones (`.x`, `_x`) are left out."""
    paths = sorted(path for path in folder.rglob("*") if path.name.lower().endswith(ENDINGS))
    paths = [path for path in paths if path.is_file() and not _is_hidden(path.relative_to(folder))]
    if paths:
        return paths
    contents = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    raise InputError(
        f"the path is a folder without Parquet files; it contains {listed(contents) or 'nothing'}",
        file=folder,
        remedy="give the path of one file in it" if contents else "give the path of a file",
    )


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)
