"""Reading tables: `open_table` turns whatever the user has into a `Table` of polars frames.

It takes a path (CSV, TSV, Parquet, Arrow IPC, JSON lines, DuckDB), a folder or glob of Parquet files, the address of a
PostgreSQL database, a MEDS folder, or a table in memory (polars, pandas, Arrow). Files are read in batches, and only
the requested columns.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from tefm.base.errors import InputError, did_you_mean, failing_as, listed
from tefm.tables.readers import arrow, databases, text_files
from tefm.tables.readers.arrow import MEMORY, open_memory, parquet_files
from tefm.tables.readers.databases import is_postgresql, open_postgresql
from tefm.tables.readers.meds import is_meds, open_meds
from tefm.tables.readers.source import Table, explaining, joined, local_path, selected
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
        return open_postgresql(source, query)
    if isinstance(source, str | os.PathLike):
        path = local_path(source)
        with explaining(path, "table"):
            if is_meds(path):
                return open_meds(path, query, meds)
            files = table_files(path)
            if files == [path]:
                return _open_file(path, query, column_names)
            return _open_many(path, files, query, column_names)
    if query is not None or column_names is not None:
        raise InputError("`query` and `column_names` are for files", file=MEMORY, remedy="leave them out")
    if isinstance(source, Table):
        return source
    return open_memory(source, name or MEMORY)


def table_files(source: str | os.PathLike[str]) -> list[Path]:
    """The files of a table in the order in which they are read: one, those of a folder, or those of a glob."""
    path = local_path(source)
    if is_postgresql(source) or is_meds(path):
        return [path]
    if path.is_dir():
        return parquet_files(path)
    if path.exists():
        return [path]
    if glob.has_magic(str(path)):
        # not Path.glob, whose * also matches hidden files
        matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207
        if files := [match for match in matches if match.is_file()]:
            return files
        raise InputError("no file matches this pattern", file=path, remedy=_similar_names(path))
    if re.match(r"[a-z0-9]{2,}:/", str(path)):
        raise InputError("URLs cannot be read", file=path, remedy="download the file, or pass polars.scan_parquet(…)")
    raise InputError("no such file or folder", file=path, remedy=_similar_names(path))


# ---- paths --------------------------------------------------------------------------------------------------------


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
    openers: dict[str, Callable[[], Table]] = {
        "CSV": lambda: text_files.open_csv(path, ",;\t", column_names),
        "TSV": lambda: text_files.open_csv(path, "\t", column_names),
        "Parquet": lambda: arrow.open_parquet(path),
        "Arrow IPC": lambda: arrow.open_ipc(path),
        "JSON lines": lambda: text_files.open_jsonl(path),
        "DuckDB": lambda: databases.open_duckdb(path, query),
    }
    return openers[format_]()


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
    problem = "the files have columns of different types: {reason}"
    with failing_as(PolarsError, problem, file=location, remedy="write the column with the same type in all files"):
        # a column that is all null in one file, or integers in one and fractions in another, gets the wider type
        empty = pl.concat(empties, how="vertical_relaxed")
    return joined(tables, empty, str(location))


def _difference(table: Table, other: Table) -> str:
    only = [column for column in table.columns if column not in other.columns]
    return f"  only in {table.name}: {listed(only) or 'none'}"


def _similar_names(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"the folder {folder} does not exist"
    names = sorted(child.name for child in folder.iterdir())
    return did_you_mean(path.name, names) if names else f"the folder {folder} is empty"
