"""Parquet, Arrow IPC, JSON lines and DuckDB: one function per format, each opens a file and returns a `Source`.

Parquet and Arrow files are read piece by piece, so that a file may be larger than the memory; JSON lines are
read whole, because their columns are known only at the end.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from polars.exceptions import PolarsError

from tefm.base.errors import InputError, MissingExtraError
from tefm.records.readers.source import (
    Source,
    explaining,
    first_line,
    from_arrow,
    from_frame,
    open_bytes,
    refuse_duplicates,
)

#: Arrow types that polars does not have, alone or inside a list or struct; some make it panic.
_FOREIGN = re.compile(r"(^|: )((dense|sparse)_union|map|run_end_encoded|(large_)?list_view|\w+_interval)\b")


# ---- Parquet and Arrow --------------------------------------------------------------------------------------------


def open_parquet(path: Path) -> Source:
    """A Parquet file; only the asked columns are read, a part of a row group at a time."""
    with explaining(path, "Parquet"):
        schema = pq.read_schema(path)
        empty = _without_rows(schema, path)

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        # these two together keep a row group of any size out of memory; either alone does not
        buffering = {"pre_buffer": False, "buffer_size": 1 << 20}
        with explaining(path, "Parquet"), pq.ParquetFile(path, **buffering) as file:
            for batch in file.iter_batches(batch_size=rows, columns=columns):
                # "a" also brings the column "a.b", which looks like a part of it
                yield from_arrow(batch.select(columns), path)

    return Source(str(path), empty, read)


def open_ipc(path: Path) -> Source:
    """An Arrow IPC file (Feather version 2) or stream."""
    with explaining(path, "Arrow IPC"), pa.OSFile(str(path)) as file:
        schema = _ipc_reader(file).schema
        empty = _without_rows(schema, path)

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        fields = [schema.get_field_index(column) for column in columns]
        with explaining(path, "Arrow IPC"), pa.OSFile(str(path)) as file:
            for batch in _ipc_batches(_ipc_reader(file, included_fields=fields)):
                yield from_arrow(batch, path)

    return Source(str(path), empty, read)


def _ipc_reader(file: pa.NativeFile, **options: Any) -> Any:
    is_file = file.read(6) == b"ARROW1"
    file.seek(0)
    open_ = pa.ipc.open_file if is_file else pa.ipc.open_stream
    return open_(file, options=pa.ipc.IpcReadOptions(**options))


def _ipc_batches(reader: Any) -> Iterable[pa.RecordBatch]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        return (reader.get_batch(i) for i in range(reader.num_record_batches))
    return cast(Iterable[pa.RecordBatch], reader)


def refuse_types(schema: pa.Schema, file: str | Path) -> None:
    """Stop at a column of a type that polars does not have."""
    for field in schema:
        if _FOREIGN.search(str(field.type)):
            raise InputError(
                f"columns of the Arrow type {field.type} cannot be read",
                file=file,
                column=field.name,
                remedy="cast the column to text, a number or a list, or leave it out of the table",
            )


def _without_rows(schema: pa.Schema, file: str | Path) -> pl.DataFrame:
    refuse_duplicates(schema.names, file)
    refuse_types(schema, file)
    return from_arrow(schema.empty_table(), file)


# ---- JSON lines ---------------------------------------------------------------------------------------------------


def open_jsonl(path: Path) -> Source:
    """JSON lines: one object per line, missing keys are null."""
    with explaining(path, "JSON lines"):
        with open_bytes(path) as file:
            content = file.read().removeprefix(codecs.BOM_UTF8)
        if not content.strip():
            raise InputError("the file has no rows", file=path, remedy="write one JSON object per line")
        try:
            frame = pl.read_ndjson(content, infer_schema_length=None)
        except PolarsError:  # a bad line, or values of different types in one column
            frame = _patient_jsonl(content.decode("utf-8"), path)
    return from_frame(frame, str(path))


def _patient_jsonl(text: str, path: Path) -> pl.DataFrame:
    """Line by line: knows where a bad line stands, and turns columns of mixed types into text."""
    records: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise _bad_json_line(number, line, path) from error
        if not isinstance(record, dict):
            raise _bad_json_line(number, line, path)
        records.append(record)
    names = dict.fromkeys(name for record in records for name in record)
    return pl.DataFrame([_series(name, [record.get(name) for record in records]) for name in names])


def _series(name: str, values: list[Any]) -> pl.Series:
    try:
        return pl.Series(name, values)
    except (TypeError, OverflowError, PolarsError):
        texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
        return pl.Series(name, texts, dtype=pl.String)


def _bad_json_line(number: int, line: str, path: Path) -> InputError:
    return InputError(
        f"line {number} is no JSON object",
        file=path,
        value=line.strip()[:80],
        remedy='write one object per line, as in {"age": 63, "drugs": ["insulin"]}',
    )


# ---- DuckDB -------------------------------------------------------------------------------------------------------


def open_duckdb(path: Path, query: str | None) -> Source:
    """The rows that a SQL query finds in a DuckDB file, which is never written to."""
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError(
            "a DuckDB file needs the package duckdb", file=path, remedy="pip install 'tefm[duckdb]'"
        ) from error

    @contextmanager
    def asking() -> Iterator[Any]:
        """The query's relation, while the file is open."""
        try:
            connection = duckdb.connect(str(path), read_only=True)
        except duckdb.Error as error:
            raise InputError(
                f"this DuckDB file cannot be opened: {first_line(error)}",
                file=path,
                remedy="check that it is a DuckDB file and that no other program holds it open for writing",
            ) from error
        with connection:
            tables = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
            holds = f"the file holds the tables: {', '.join(map(repr, tables)) or 'none'}"
            if query is None:
                example = f'"SELECT * FROM {tables[0] if tables else "…"}"'
                raise InputError("a DuckDB file needs a query", file=path, remedy=f"give query={example}; {holds}")
            try:
                relation = connection.sql(query)
                if relation is None:
                    raise InputError("the query gives no table", file=path, value=query, remedy="give a SELECT")
                yield relation
            # What fails while rows are fetched comes through Arrow.
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                problem = " ".join(str(error).split())
                raise InputError(f"the query fails: {problem}", file=path, value=query, remedy=holds) from error

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        with asking() as relation:
            quoted = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
            for batch in relation.project(quoted).to_arrow_reader(rows):
                yield from_arrow(batch, path)

    with asking() as relation:
        empty = _without_rows(relation.limit(0).to_arrow_table().schema, path)
    return Source(str(path), empty, read)
