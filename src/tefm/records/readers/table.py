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
from polars.exceptions import PanicException, PolarsError

from tefm.base.errors import InputError, SettingsError, did_you_mean, listed
from tefm.records.meds_settings import MedsRecords
from tefm.records.readers import arrow, delimited, duckdb, json_lines, parquet
from tefm.records.readers.meds import is_meds, open_meds
from tefm.records.readers.memory import MEMORY, open_memory
from tefm.records.readers.parquet import parquet_files
from tefm.records.readers.postgresql import is_postgresql, open_postgresql
from tefm.records.readers.source import Source, explaining, first_line, refuse_duplicates, selected, unnamed

__all__ = ["BATCH_CELLS", "FORMATS", "Table", "open_table", "parquet_files"]

#: A batch has at most this many cells, so that thousands of columns mean fewer rows, not more memory.
BATCH_CELLS = 1 << 23

FORMATS = {
    "CSV": delimited.CSV_ENDINGS,
    "TSV": delimited.TSV_ENDINGS,
    "Parquet": parquet.ENDINGS,
    "Arrow IPC": arrow.ENDINGS,
    "JSON lines": json_lines.ENDINGS,
    "DuckDB": duckdb.ENDINGS,
}


class Table:
    """A table that can be read in batches, as often as needed.

    >>> table = open_table(pl.DataFrame({"age": [63, 71, 58], "sex": ["f", "m", None]}))
    >>> table.columns
    ('age', 'sex')
    >>> [batch["age"].to_list() for batch in table.batches(["age"], rows=2)]
    [[63, 71], [58]]
    """

    #: what error messages call the table
    name: str
    #: the columns, without blanks around their names
    columns: tuple[str, ...]
    #: how records are made of events, where the table is a MEDS folder
    meds: MedsRecords | None

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.meds = source.meds
        self.columns = tuple(name.strip() for name in source.empty.columns)
        if not self.columns:
            raise InputError("the table has no columns", file=self.name)
        refuse_duplicates(self.columns, self.name)
        self._source = source
        self._original = dict(zip(self.columns, source.empty.columns, strict=True))
        self._empty = self._tidy(source.empty, self.columns)

    def __repr__(self) -> str:
        return f"<Table {self.name}: {len(self.columns)} columns>"

    def batches(self, columns: Sequence[str] | None = None, rows: int = 65_536) -> Iterator[pl.DataFrame]:
        """The table in frames of at most `rows` rows, none of them empty, in the table's order."""
        names = self._names_of(columns)
        if rows < 1:
            raise SettingsError("a batch needs at least one row", value=rows)
        return self._batches(names, min(rows, max(1, BATCH_CELLS // len(names))))

    def frame(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The whole table in memory."""
        return pl.concat([selected(self._empty, self._names_of(columns)), *self.batches(columns)])

    def head(self, rows: int) -> pl.DataFrame:
        """The first rows; `head(0)` shows the types without reading anything."""
        frames, missing = [self._empty], rows
        for batch in self.batches(rows=rows) if rows > 0 else ():
            frames.append(batch.head(missing))
            missing -= batch.height
            if missing <= 0:
                break
        return pl.concat(frames)

    def with_absent(self, names: Sequence[str]) -> Table:
        """The same table with further columns, in which every value is missing."""
        absent = [pl.lit(None, pl.String).alias(name) for name in names]

        def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
            own = [name for name in columns if name not in names]
            for frame in self.batches(own or self.columns[:1], rows):
                yield frame.with_columns(absent)

        return Table(Source(self.name, self._empty.with_columns(absent), read))

    def _batches(self, names: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        for frame in self._source.read([self._original[name] for name in names], rows):
            for part in frame.iter_slices(rows):
                if part.height:
                    yield self._tidy(part, names)

    def _tidy(self, frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
        """The named columns in that order, under their clean names, in types that a schema can read."""
        columns = []
        for name in names:
            try:
                columns.append(_plain(unnamed(frame[self._original[name]])).alias(name))
            except (PolarsError, PanicException) as error:  # polars panics at bytes inside an object
                raise InputError(
                    f"the values cannot be turned into text: {first_line(error)}",
                    file=self.name,
                    column=name,
                    remedy="leave the column out of the table, or write it as text",
                ) from error
        return pl.DataFrame(columns)

    def _names_of(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        """The requested columns, each once (all of them for None); refuses names that the table does not have."""
        names = self.columns if columns is None else tuple(dict.fromkeys(columns))
        if not names:
            raise SettingsError("no columns are requested", remedy="name at least one, or leave `columns` out")
        missing = [name for name in names if name not in self._original]
        if missing:
            hints = {name: did_you_mean(name, self.columns) for name in missing[:6]}
            near = [f"{name!r}: {hint}" for name, hint in hints.items() if hint.startswith("did you mean")]
            raise InputError(
                f"{len(missing)} of {len(names)} columns are missing: {listed(missing)};"
                f" the table has {listed(self.columns)}",
                file=self.name,
                column=missing[0],
                remedy="\n    ".join(near) or "list the columns with: tefm inspect TABLE",
            )
        return names


def _plain(column: pl.Series) -> pl.Series:
    """Categories, bytes and nested objects as text (JSON), arrays as lists; other types are unchanged.

    Integers of 128 bits become text too: Arrow, which Parquet is written with, does not have them.
    """
    dtype, texts = column.dtype, (pl.Categorical, pl.Enum, pl.Binary, pl.Int128, pl.UInt128)
    if dtype in texts:
        return column.cast(pl.String)
    if isinstance(dtype, pl.Struct):
        return column.struct.json_encode().set(column.is_null(), None)  # not the text "null"
    if isinstance(dtype, pl.Array):
        return _plain(column.arr.to_list())
    if isinstance(dtype, pl.List) and dtype.inner in texts:
        return column.cast(pl.List(pl.String))
    if isinstance(dtype, pl.List) and isinstance(dtype.inner, pl.Struct):
        item = pl.element()
        return column.list.eval(pl.when(item.is_not_null()).then(item.struct.json_encode()))
    return column


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
            source = delimited.open_csv(path, ",;\t", column_names)
        case "TSV":
            source = delimited.open_csv(path, "\t", column_names)
        case "Parquet":
            source = parquet.open_parquet(path)
        case "Arrow IPC":
            source = arrow.open_ipc(path)
        case "JSON lines":
            source = json_lines.open_jsonl(path)
        case _:
            source = duckdb.open_duckdb(path, query)
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
