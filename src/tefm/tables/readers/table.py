"""Reading tables: `open_table` turns whatever the user has into a `Table` of polars frames.

It takes a path (CSV, TSV, Parquet, Arrow IPC, JSON lines, DuckDB), a folder or glob of Parquet files, the address of a
PostgreSQL database, a MEDS folder, or a table in memory (polars, pandas, Arrow). Files are read in batches, and only
the requested columns.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from tefm.base.errors import InputError, did_you_mean, listed
from tefm.tables.readers import arrow, databases, text_files
from tefm.tables.readers.arrow import parquet_files
from tefm.tables.readers.databases import is_postgresql, open_postgresql
from tefm.tables.readers.meds import is_meds, open_meds
from tefm.tables.readers.memory import MEMORY, open_memory
from tefm.tables.readers.source import Source, Table, explaining, first_line, selected, unnamed
from tefm.tables.schema import MedsRecords

__all__ = ["FORMATS", "Table", "open_table", "parquet_files", "table_files"]

FORMATS = {
    "CSV": (".csv", ".csv.gz"),
    "TSV": (".tsv", ".tsv.gz"),
    "Parquet": arrow.PARQUET_ENDINGS,
    "Arrow IPC": (".arrow", ".feather", ".ipc"),
    "JSON lines": (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz"),
    "DuckDB": (".duckdb", ".db"),
}


def open_table(
    source: Any,
    *,
    query: str | None = None,
    column_names: Sequence[str] | None = None,
    name: str | None = None,
    meds: MedsRecords | None = None,
) -> Table:
    """Open a table: a path, a folder or glob of Parquet files, an address, or a table in memory.

    `query` is the SQL for a DuckDB file, SQL or a table's name for PostgreSQL, and the label file for a MEDS folder,
    whose records are made as `meds` says. `column_names` replaces the header of a CSV. `name` is what error messages
    call a table in memory, for example the file that its rows come from.
    """
    if is_postgresql(source):
        return Table(open_postgresql(source, query))
    if isinstance(source, str | os.PathLike):
        return _open_path(Path(source).expanduser(), query, column_names, meds)
    if query is not None or column_names is not None:
        raise InputError("`query` and `column_names` are for files", file=MEMORY, remedy="leave them out")
    if isinstance(source, Table):
        return source
    data = open_memory(source)
    return Table(data if name is None else replace(data, name=name))


def table_files(source: str | os.PathLike[str]) -> list[Path]:
    """The files of a table in the order in which they are read: one, those of a folder, or those of a glob."""
    path = Path(source).expanduser()
    if is_postgresql(source) or is_meds(path):
        return [path]
    if path.is_dir():
        return parquet_files(path)
    if path.exists():
        return [path]
    if glob.has_magic(str(path)):
        return _matches(path)
    raise _missing(path)


# ---- paths --------------------------------------------------------------------------------------------------------


def _open_path(
    path: Path, query: str | None, column_names: Sequence[str] | None, meds: MedsRecords | None = None
) -> Table:
    with explaining(path, "table"):
        if is_meds(path):
            return Table(open_meds(path, query, meds))
        if path.is_dir():
            return _open_many(path, parquet_files(path), query, column_names)
        if path.exists():
            return _open_file(path, query, column_names)
        if glob.has_magic(str(path)):
            return _open_many(path, _matches(path), query, column_names)
    raise _missing(path)


def _open_file(path: Path, query: str | None, column_names: Sequence[str] | None) -> Table:
    name = path.name.lower()
    format_ = next((format_ for format_, endings in FORMATS.items() if name.endswith(endings)), None)
    if format_ is None:
        supported = "; ".join(f"{format_} ({', '.join(endings)})" for format_, endings in FORMATS.items())
        raise InputError(
            f"files ending in {path.suffix!r} cannot be read", file=path, remedy=f"supported formats: {supported}"
        )
    if query is not None and format_ != "DuckDB":
        raise InputError(f"`query` is for DuckDB files, and this is {format_}", file=path, remedy="leave `query` out")
    if column_names is not None and format_ not in ("CSV", "TSV"):
        raise InputError(f"`column_names` is for CSV files, and this is {format_}", file=path, remedy="leave it out")
    if path.stat().st_size == 0:
        raise InputError("the file is empty (0 bytes)", file=path, remedy="write or copy it again")
    match format_:
        case "CSV":
            source = text_files.open_csv(path, ",;\t", column_names)
        case "TSV":
            source = text_files.open_csv(path, "\t", column_names)
        case "Parquet":
            source = arrow.open_parquet(path)
        case "Arrow IPC":
            source = arrow.open_ipc(path)
        case "JSON lines":
            source = text_files.open_jsonl(path)
        case _:
            source = databases.open_duckdb(path, query)
    return Table(source)


def _open_many(location: Path, paths: Sequence[Path], query: str | None, column_names: Sequence[str] | None) -> Table:
    """Files with the same columns as one table, in the order of `paths`."""
    tables = [_open_file(path, query, column_names) for path in paths]
    first = tables[0]
    for table in tables[1:]:
        if set(table.columns) != set(first.columns):
            raise InputError(
                f"the files have different columns:\n{_difference(first, table)}\n{_difference(table, first)}\n ",
                file=location,
                remedy="write them with the same columns, or read them one by one",
            )
    empties = [selected(table.head(0), first.columns) for table in tables]
    try:
        # a column that is all null in one file, or integers in one and fractions in another, gets the wider type
        empty = pl.concat(empties, how="vertical_relaxed")
    except PolarsError as error:
        raise InputError(
            f"the files have columns of different types: {first_line(error)}",
            file=location,
            remedy="write the column with the same type in all files",
        ) from error

    schema = empty.schema

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        for table in tables:
            for frame in table.batches(columns, rows):
                yield pl.DataFrame([unnamed(frame[column]).cast(schema[column]).alias(column) for column in columns])

    return Table(Source(str(location), empty, read))


def _difference(table: Table, other: Table) -> str:
    only = [column for column in table.columns if column not in other.columns]
    return f"  only in {table.name}: {listed(only) or 'none'}"


def _matches(pattern: Path) -> list[Path]:
    # not Path.glob, whose * also matches hidden files
    paths = [path for match in sorted(glob.glob(str(pattern), recursive=True)) if (path := Path(match)).is_file()]  # noqa: PTH207
    if not paths:
        raise InputError("no file matches this pattern", file=pattern, remedy=_similar_names(pattern))
    return paths


def _missing(path: Path) -> InputError:
    if re.match(r"[a-z0-9]{2,}:/", os.fspath(path)):
        return InputError("URLs cannot be read", file=path, remedy="download the file, or pass polars.scan_parquet(…)")
    return InputError("no such file or folder", file=path, remedy=_similar_names(path))


def _similar_names(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"the folder {folder} does not exist"
    names = sorted(child.name for child in folder.iterdir())
    return did_you_mean(path.name, names) if names else f"the folder {folder} is empty"
