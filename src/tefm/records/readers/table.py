"""Prediction tables: whatever the user has becomes a `Table` of polars frames.

`open_table` takes a path (CSV, TSV, Parquet, Arrow IPC, JSON lines, DuckDB), a folder or glob of Parquet files,
or a table in memory (polars, pandas, Arrow). Files are read in batches, only the columns that are asked for.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from polars.exceptions import PanicException, PolarsError

from tefm.base.errors import InputError, SettingsError, did_you_mean
from tefm.records.readers.delimited import open_csv
from tefm.records.readers.formats import open_duckdb, open_ipc, open_jsonl, open_parquet, refuse_types
from tefm.records.readers.source import Source, explaining, first_line, from_arrow, from_frame, refuse_duplicates

MEMORY = "table in memory"

#: A batch holds at most this many cells, so that thousands of columns mean fewer rows, not more memory.
BATCH_CELLS = 1 << 23

FORMATS = {
    "CSV": (".csv", ".csv.gz"),
    "TSV": (".tsv", ".tsv.gz"),
    "Parquet": (".parquet", ".pq"),
    "Arrow IPC": (".arrow", ".feather", ".ipc"),
    "JSON lines": (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz"),
    "DuckDB": (".duckdb", ".db"),
}


class Table:
    """A table that can be read in batches, as often as needed.

    >>> table = open_table(pl.DataFrame({"age": [63, 71, 58], "sex": ["f", "m", None]}))
    >>> table.columns
    ('age', 'sex')
    >>> [batch["age"].to_list() for batch in table.batches(["age"], rows=2)]
    [[63, 71], [58]]
    """

    #: what error messages call it
    name: str
    #: the columns, without blanks around their names
    columns: tuple[str, ...]

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.columns = tuple(name.strip() for name in source.empty.columns)
        if not self.columns:
            raise InputError("the table has no columns", file=self.name)
        refuse_duplicates(self.columns, self.name)
        self._source = source
        self._names = dict(zip(self.columns, source.empty.columns, strict=True))
        self._empty = self._tidy(source.empty, self.columns)

    def __repr__(self) -> str:
        return f"<Table {self.name}: {len(self.columns)} columns>"

    def batches(self, columns: Sequence[str] | None = None, rows: int = 65_536) -> Iterator[pl.DataFrame]:
        """The table in frames of at most `rows` rows, none of them empty, in the table's order."""
        wanted = self._wanted(columns)
        if rows < 1:
            raise SettingsError("a batch needs at least one row", value=rows)
        return self._batches(wanted, min(rows, max(1, BATCH_CELLS // len(wanted))))

    def frame(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The whole table in memory."""
        return pl.concat([self._empty[list(self._wanted(columns))], *self.batches(columns)])

    def head(self, rows: int) -> pl.DataFrame:
        """The first rows; `head(0)` shows the types without reading anything."""
        frames, missing = [self._empty], rows
        for batch in self.batches(rows=rows) if rows > 0 else ():
            frames.append(batch.head(missing))
            missing -= batch.height
            if missing <= 0:
                break
        return pl.concat(frames)

    def _batches(self, wanted: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        for frame in self._source.read([self._names[name] for name in wanted], rows):
            for part in frame.iter_slices(rows):
                if part.height:
                    yield self._tidy(part, wanted)

    def _tidy(self, frame: pl.DataFrame, wanted: Sequence[str]) -> pl.DataFrame:
        """Asked columns in the asked order, under clean names, in types that a schema can read."""
        columns = []
        for name in wanted:
            try:
                columns.append(_plain(frame[self._names[name]]).alias(name))
            except (PolarsError, PanicException) as error:  # polars panics at bytes inside an object
                raise InputError(
                    f"the values cannot be turned into text: {first_line(error)}",
                    file=self.name,
                    column=name,
                    remedy="leave the column out of the table, or write it as text",
                ) from error
        return pl.DataFrame(columns)

    def _wanted(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        """The asked columns, each once; what is not there is shown beside what is."""
        wanted = self.columns if columns is None else tuple(dict.fromkeys(columns))
        if not wanted:
            raise SettingsError("no columns are asked for", remedy="name at least one, or leave `columns` out")
        missing = [name for name in wanted if name not in self._names]
        if missing:
            hints = {name: did_you_mean(name, self.columns) for name in missing[:6]}
            near = [f"{name!r}: {hint}" for name, hint in hints.items() if hint.startswith("did you mean")]
            raise InputError(
                f"{len(missing)} of {len(wanted)} columns asked for are not there: {_listed(missing)};"
                f" the table has {_listed(self.columns)}",
                file=self.name,
                column=missing[0],
                remedy="\n    ".join(near) or "see what the table holds with: tefm inspect TABLE",
            )
        return wanted


def _plain(column: pl.Series) -> pl.Series:
    """Categories, bytes and nested objects as text (JSON), arrays as lists; all else stays as it is."""
    kind, texts = column.dtype, (pl.Categorical, pl.Enum, pl.Binary)
    if kind in texts:
        return column.cast(pl.String)
    if isinstance(kind, pl.Struct):
        return column.struct.json_encode().set(column.is_null(), None)  # not the text "null"
    if isinstance(kind, pl.Array):
        return _plain(column.arr.to_list())
    if isinstance(kind, pl.List) and kind.inner in texts:
        return column.cast(pl.List(pl.String))
    if isinstance(kind, pl.List) and isinstance(kind.inner, pl.Struct):
        item = pl.element()
        return column.list.eval(pl.when(item.is_not_null()).then(item.struct.json_encode()))
    return column


def open_table(
    source: Any, *, query: str | None = None, column_names: Sequence[str] | None = None, name: str | None = None
) -> Table:
    """Open a table: a path, a folder or glob of Parquet files, or a table in memory.

    `query` is the SQL for a DuckDB file; `column_names` replaces the header of a CSV. `name` is what messages call
    a table in memory: the file that its rows were read from.
    """
    if isinstance(source, str | os.PathLike):
        return _open_path(Path(source).expanduser(), query, column_names)
    if query is not None or column_names is not None:
        raise InputError("`query` and `column_names` are for files", file=MEMORY, remedy="leave them out")
    if isinstance(source, Table):
        return source
    opened = _open_memory(source)
    return Table(opened if name is None else replace(opened, name=name))


# ---- tables in memory ---------------------------------------------------------------------------------------------


def _open_memory(source: Any) -> Source:
    if isinstance(source, pl.DataFrame):
        for column, kind in source.schema.items():
            if kind == pl.Object:
                raise InputError(
                    "a column of Python objects cannot be read", file=MEMORY, column=column, remedy="cast it to text"
                )
        return from_frame(source, MEMORY)
    if isinstance(source, pl.LazyFrame):
        return _open_lazy(source)
    if isinstance(source, pa.Table | pa.RecordBatch):
        refuse_duplicates(source.schema.names, MEMORY)
        refuse_types(source.schema, MEMORY)
        return from_frame(from_arrow(source, MEMORY), MEMORY)
    # pandas is not ours to import: who has such a frame has imported it
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(source, pandas.DataFrame):
        return from_frame(_from_pandas(source), MEMORY)
    raise InputError(
        f"a {type(source).__name__} is no table",
        remedy="give a path, a folder or glob of Parquet files, or a polars, pandas or Arrow table",
    )


def _open_lazy(lazy: pl.LazyFrame) -> Source:
    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        try:
            yield lazy.select(columns).collect()
        except (PolarsError, OSError) as error:
            raise _bad_lazy(error) from error

    try:
        return Source(MEMORY, lazy.collect_schema().to_frame(), read)
    except (PolarsError, OSError) as error:
        raise _bad_lazy(error) from error


def _bad_lazy(error: Exception) -> InputError:
    return InputError(f"the lazy frame cannot be computed: {first_line(error)}", file=MEMORY)


def _from_pandas(frame: Any) -> pl.DataFrame:
    """The columns of a pandas frame, without its index."""
    names = [str(name) for name in frame.columns]
    refuse_duplicates(names, MEMORY)
    columns = [_arrow_column(frame.iloc[:, position]) for position in range(len(names))]
    return from_arrow(pa.table(columns, names=names), MEMORY)


def _arrow_column(series: Any) -> pa.Array | pa.ChunkedArray:
    """A pandas column for Arrow; what Arrow has no type for (mixed values, periods) becomes text."""
    try:
        column = pa.array(series, from_pandas=True)
        if not isinstance(column.type, pa.BaseExtensionType):
            return column
    except (pa.ArrowException, OverflowError, TypeError):
        pass
    known = series.notna()
    return pa.array([str(value) if here else None for value, here in zip(series, known, strict=True)], pa.string())


# ---- paths --------------------------------------------------------------------------------------------------------


def _open_path(path: Path, query: str | None, column_names: Sequence[str] | None) -> Table:
    with explaining(path, "table"):
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
        known = "; ".join(f"{format_} ({', '.join(endings)})" for format_, endings in FORMATS.items())
        raise InputError(f"files ending in {path.suffix!r} are not known", file=path, remedy=f"known are {known}")
    if query is not None and format_ != "DuckDB":
        raise InputError(f"a query is for DuckDB files, this is {format_}", file=path, remedy="leave `query` out")
    if column_names is not None and format_ not in ("CSV", "TSV"):
        raise InputError(f"`column_names` is for CSV files, this is {format_}", file=path, remedy="leave it out")
    if path.stat().st_size == 0:
        raise InputError("the file is empty (0 bytes)", file=path, remedy="write or copy it again")
    match format_:
        case "CSV":
            source = open_csv(path, ",;\t", column_names)
        case "TSV":
            source = open_csv(path, "\t", column_names)
        case "Parquet":
            source = open_parquet(path)
        case "Arrow IPC":
            source = open_ipc(path)
        case "JSON lines":
            source = open_jsonl(path)
        case _:
            source = open_duckdb(path, query)
    return Table(source)


def _open_many(place: Path, paths: Sequence[Path], query: str | None, column_names: Sequence[str] | None) -> Table:
    """Files with the same columns as one table, in the order of `paths`."""
    tables = [_open_file(path, query, column_names) for path in paths]
    first = tables[0]
    for table in tables[1:]:
        if set(table.columns) != set(first.columns):
            raise InputError(
                f"the files have different columns:\n{_difference(first, table)}\n{_difference(table, first)}\n ",
                file=place,
                remedy="write them with the same columns, or read them one by one",
            )
    empties = [table.head(0)[list(first.columns)] for table in tables]
    try:
        # a column that is all null in one file, or counts in one and fractions in another, gets the wider type
        empty = pl.concat(empties, how="vertical_relaxed")
    except PolarsError as error:
        raise InputError(
            f"the files have columns of different types: {first_line(error)}",
            file=place,
            remedy="write the column with one type in all files",
        ) from error

    schema = empty.schema

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        types = {column: schema[column] for column in columns}
        for table in tables:
            for frame in table.batches(columns, rows):
                yield frame.cast(types)  # type: ignore[arg-type]

    return Table(Source(str(place), empty, read))


def _difference(table: Table, other: Table) -> str:
    only = [column for column in table.columns if column not in other.columns]
    return f"  only in {table.name}: {_listed(only) or 'none'}"


def parquet_files(folder: Path) -> list[Path]:
    """All Parquet files below a folder, by name; hidden and unfinished ones (`.x`, `_x`) are no part of it."""
    paths = sorted(path for path in folder.rglob("*") if path.name.lower().endswith(FORMATS["Parquet"]))
    paths = [path for path in paths if path.is_file() and not _is_hidden(path.relative_to(folder))]
    if paths:
        return paths
    found = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    raise InputError(
        f"the path is a folder without Parquet files; it holds {_listed(found) or 'nothing'}",
        file=folder,
        remedy="give the path of one file in it" if found else "give the path of a file",
    )


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _matches(pattern: Path) -> list[Path]:
    # not Path.glob, whose * also finds hidden files
    paths = [path for match in sorted(glob.glob(str(pattern), recursive=True)) if (path := Path(match)).is_file()]  # noqa: PTH207
    if not paths:
        raise InputError("no file matches this pattern", file=pattern, remedy=_what_is_near(pattern))
    return paths


def _missing(path: Path) -> InputError:
    if re.match(r"[a-z0-9]{2,}:/", os.fspath(path)):
        return InputError(
            "addresses are not read", file=path, remedy="download the file, or pass polars.scan_parquet(…)"
        )
    return InputError("there is no such file or folder", file=path, remedy=_what_is_near(path))


def _what_is_near(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"the folder {folder} does not exist"
    names = sorted(child.name for child in folder.iterdir())
    return did_you_mean(path.name, names) if names else f"the folder {folder} is empty"


def _listed(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(map(repr, names[:most])) + (f" … ({len(names)} in all)" if len(names) > most else "")
