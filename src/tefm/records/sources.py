"""One function per file format: each opens a file and returns a `Source` of polars frames.

CSV, Parquet and Arrow files are read piece by piece, so that a file may be larger than the memory; JSON lines
are read whole, because their columns are known only at the end. Whatever a reading library says about
a bad file leaves this module as an `InputError` that names the file and what to do.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from polars.exceptions import PolarsError

from tefm.errors import InputError, MissingExtraError

#: A row of a CSV must fit in one block; the reader holds about thirty of them.
CSV_BLOCK = 2 << 20

#: Arrow types that polars does not have, alone or inside a list or struct; some make it panic.
_FOREIGN = re.compile(r"(^|: )((dense|sparse)_union|map|run_end_encoded|(large_)?list_view|\w+_interval)\b")


@dataclass(frozen=True)
class Source:
    """Something that gives frames: `read(columns, rows)` yields those columns, about `rows` rows at a time."""

    name: str
    #: a frame without rows that shows the columns and their types
    empty: pl.DataFrame
    read: Callable[[list[str], int], Iterator[pl.DataFrame]]


def is_gzip(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def open_bytes(path: Path) -> IO[bytes]:
    """The file's content, unpacked."""
    return cast(IO[bytes], gzip.open(path)) if is_gzip(path) else path.open("rb")


# ---- what is wrong with a file ------------------------------------------------------------------------------------


@contextmanager
def explaining(file: Path, format_: str) -> Iterator[None]:
    """Errors of the reading libraries become an `InputError` that names the file."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise not_utf8(file) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _bad_gzip(file, error) from error
    except (pa.ArrowException, PolarsError, OSError) as error:
        if is_gzip(file) and re.search("compressed stream|inflate", str(error)):
            raise _bad_gzip(file, error) from error
        raise InputError(
            f"this is no readable {format_} file: {first_line(error)}",
            file=file,
            remedy="check that it was copied or written completely, and that its ending says what it is",
        ) from error


def first_line(error: BaseException) -> str:
    """What the error says, without the context that only its library's developers need."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def not_utf8(file: Path) -> InputError:
    """The error for text in another encoding, with the first place where it shows."""
    where, piece, encoding = "", None, "latin1"
    with open_bytes(file) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                where, piece = f", first in line {number}", line[max(0, error.start - 12) : error.end + 12]
                if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    encoding = "utf-16"
                break
    convert = f"iconv -f {encoding} -t utf-8"
    name = file.name
    command = (
        f"zcat '{name}' | {convert} | gzip > 'utf8-{name}'" if is_gzip(file) else f"{convert} '{name}' > 'utf8-{name}'"
    )
    return InputError(
        f"the text is not UTF-8{where}", file=file, value=piece, remedy=f"if it is {encoding}, convert it: {command}"
    )


def _bad_gzip(file: Path, error: BaseException) -> InputError:
    return InputError(
        f"the gzip file is truncated or damaged: {first_line(error)}",
        file=file,
        remedy=f"copy it again; `gzip -t '{file.name}'` tells whether it is whole",
    )


def refuse_duplicates(names: Sequence[str], file: str | Path) -> None:
    """Stop where two columns have the same name: nobody could tell which one a schema means."""
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise InputError(
            f"column names occur more than once: {', '.join(map(repr, twice))}",
            file=file,
            column=twice[0],
            remedy=f"rename them in the file, or for a CSV give `column_names=` with {len(names)} different names",
        )


# ---- CSV ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Header:
    names: list[str]
    delimiter: str
    #: records up to and with the header: blank ones may stand before it
    skip: int
    has_rows: bool


def open_csv(path: Path, delimiters: str, column_names: Sequence[str] | None) -> Source:
    """A CSV, every column as text: types come from the schema, so mixed values never stop the stream.

    Of the `delimiters` the first that splits the header is taken.
    """
    with explaining(path, "CSV"):
        headers = [_read_header(path, delimiter) for delimiter in delimiters]
    header = next((header for header in headers if len(header.names) > 1), headers[0])
    names = header.names
    if column_names is not None:
        if len(column_names) != len(names):
            raise InputError(
                f"`column_names` has {len(column_names)} names, the file has {len(names)} columns",
                file=path,
                remedy=f"give one name per column; the header says: {', '.join(map(repr, names))}",
            )
        names = [name.strip() for name in column_names]
    refuse_duplicates(names, path)
    return Source(
        name=str(path),
        empty=pl.DataFrame(schema=dict.fromkeys(names, pl.String)),
        read=lambda columns, rows: _read_csv(path, header, names, columns),
    )


def _read_header(path: Path, delimiter: str) -> _Header:
    with open_bytes(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as lines:
        try:
            for skip, record in enumerate(csv.reader(lines, delimiter=delimiter), start=1):
                if record:
                    has_rows = any(line.strip("\r\n") for line in lines)
                    return _Header([name.strip() for name in record], delimiter, skip, has_rows)
        except csv.Error as error:
            raise InputError(
                f"the header cannot be read: {error}", file=path, remedy="look for a quote that is never closed"
            ) from error
    raise InputError("the file has no header and no rows", file=path, remedy="write the table again, with a header")


def _read_csv(path: Path, header: _Header, names: list[str], columns: list[str]) -> Iterator[pl.DataFrame]:
    if not header.has_rows:
        return
    with explaining(path, "CSV"), pa.input_stream(str(path), compression="gzip" if is_gzip(path) else None) as stream:
        try:
            reader = pyarrow.csv.open_csv(
                stream,
                # One thread: it is as fast here, and only then do errors know the row.
                pyarrow.csv.ReadOptions(
                    column_names=names, skip_rows_after_names=header.skip, block_size=CSV_BLOCK, use_threads=False
                ),
                pyarrow.csv.ParseOptions(delimiter=header.delimiter, newlines_in_values=True),
                pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    include_columns=columns,
                    strings_can_be_null=True,
                    null_values=[""],
                ),
            )
            for batch in reader:
                yield from_arrow(batch, path)
        except pa.ArrowInvalid as error:
            _explain_csv(error, path, header)


def _explain_csv(error: pa.ArrowInvalid, path: Path, header: _Header) -> NoReturn:
    text = str(error)
    if "invalid UTF8" in text:
        raise not_utf8(path) from error
    if "straddling" in text:
        raise InputError(
            f"a row is longer than {CSV_BLOCK >> 20} MiB", file=path, remedy="look for a quote that is never closed"
        ) from error
    ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", text, re.DOTALL)
    if ragged is None:
        raise error
    row, expected, found, cells = ragged.groups()
    raise InputError(
        f"row {row} has {found} cells where the header has {expected} (the header is row 1, blank lines not counted)",
        file=path,
        value=cells if len(cells) <= 80 else cells[:80] + "…",
        remedy=f"put quotes around cells that contain the delimiter {header.delimiter!r}, or mend the row",
    ) from error


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


def from_arrow(data: pa.Table | pa.RecordBatch, file: str | Path) -> pl.DataFrame:
    """Arrow data as a polars frame; bytes of a fixed width are identifiers and become hexadecimal text."""
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    for position, field in enumerate(table.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            storage = pa.chunked_array([chunk.storage for chunk in table[position].chunks], field.type.storage_type)
            table = table.set_column(position, field.name, storage)
    hexed = [field.name for field in table.schema if pa.types.is_fixed_size_binary(field.type)]
    try:
        return cast(pl.DataFrame, pl.from_arrow(table)).with_columns(pl.col(hexed).bin.encode("hex"))
    except PolarsError as error:
        raise InputError(f"the table cannot be converted: {first_line(error)}", file=file) from error


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


def from_frame(frame: pl.DataFrame, name: str) -> Source:
    """A frame in memory."""
    return Source(name, frame.clear(), lambda columns, rows: iter([frame[columns]]))


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
