"""Text files, compressed or not: CSV and TSV, read in pieces with every column as text, and JSON lines, read whole.

Types of a CSV come from the schema later, so a file of mixed types never fails half way. The columns of JSON lines (one
object per line) are known only at the end.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import polars as pl
import pyarrow as pa
import pyarrow.csv
from polars.exceptions import PanicException, PolarsError

from tefm.base.errors import InputError
from tefm.tables.readers.arrow import from_arrow
from tefm.tables.readers.source import Table, explaining, from_frame, is_gzip, named, not_utf8, open_bytes

#: A row of a CSV must fit in one block; the reader keeps about thirty of them in memory.
CSV_BLOCK = 2 << 20
#: Anything longer cannot be a column name: a quote is not closed, or the delimiter is another one.
LONGEST_NAME = 10_000


@dataclass(frozen=True)
class _Header:
    names: list[str]
    delimiter: str
    #: records up to and including the header: blank ones may precede it
    skip: int
    has_rows: bool


def open_csv(path: Path, delimiters: str, column_names: Sequence[str] | None) -> Table:
    """A CSV with every column as text; the delimiter is the first of `delimiters` that splits the header."""
    with explaining(path, "CSV"):
        header = _find_header(path, delimiters)
    names = header.names
    if column_names is not None:
        if len(column_names) != len(names):
            raise InputError(
                f"`column_names` has {len(column_names)} names, but the file has {len(names)} columns",
                file=path,
                remedy=f"give one name per column; the header is: {', '.join(map(repr, names))}",
            )
        names = list(column_names)
    names = named(names, path)
    empty = pl.DataFrame(schema=dict.fromkeys(names, pl.String))
    return Table(str(path), empty, lambda columns, rows: _read_csv(path, header, names, columns))


def _find_header(path: Path, delimiters: str) -> _Header:
    in_one_piece: list[_Header] = []
    failure: csv.Error | None = None
    for delimiter in delimiters:
        try:
            header = _read_header(path, delimiter)
        except csv.Error as error:  # a wide header under a delimiter that does not split it, or an open quote
            failure = error
            continue
        if len(header.names) > 1:
            return header
        in_one_piece.append(header)
    if failure is not None:
        raise InputError(
            f"the header cannot be read: {failure}", file=path, remedy="look for a quote that is never closed"
        ) from failure
    return in_one_piece[0]


def _read_header(path: Path, delimiter: str) -> _Header:
    with open_bytes(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as lines:
        for skip, record in enumerate(csv.reader(lines, delimiter=delimiter), start=1):
            if record:
                if max(map(len, record)) > LONGEST_NAME:  # the limit of `csv` is the whole program's to change
                    raise csv.Error(f"a column name is longer than {LONGEST_NAME:,} characters")
                # in a table of one column, a blank line is a row with an empty cell
                has_rows = any(line.strip("\r\n") or len(record) == 1 for line in lines)
                return _Header([name.strip() for name in record], delimiter, skip, has_rows)
    raise InputError("the file has no header and no rows", file=path, remedy="write the table again, with a header")


def _read_csv(path: Path, header: _Header, names: list[str], columns: list[str]) -> Iterator[pl.DataFrame]:
    if not header.has_rows:
        return
    with explaining(path, "CSV"), pa.input_stream(str(path), compression="gzip" if is_gzip(path) else None) as stream:
        try:
            reader = pyarrow.csv.open_csv(
                stream,
                # one thread is as fast here, and only then do errors name the row
                pyarrow.csv.ReadOptions(
                    column_names=names, skip_rows_after_names=header.skip, block_size=CSV_BLOCK, use_threads=False
                ),
                pyarrow.csv.ParseOptions(
                    delimiter=header.delimiter, newlines_in_values=True, ignore_empty_lines=len(names) > 1
                ),
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
    row, expected, actual, cells = ragged.groups()
    raise InputError(
        f"row {row} has {actual} cells, but the header has {expected} (the header is row 1, blank lines excluded)",
        file=path,
        value=cells if len(cells) <= 80 else cells[:80] + "…",
        remedy=f"put quotes around cells that contain the delimiter {header.delimiter!r}, or fix the row",
    ) from error


def open_jsonl(path: Path) -> Table:
    """A file of JSON lines; missing keys are null."""
    with explaining(path, "JSON lines"):
        with open_bytes(path) as file:
            content = file.read().removeprefix(codecs.BOM_UTF8)
        if not content.strip():
            raise InputError("the file has no rows", file=path, remedy="write one JSON object per line")
        try:
            frame = pl.read_ndjson(content, infer_schema_length=None)
        except PolarsError:  # a bad line, or values of different types in one column
            frame = _read_line_by_line(content.decode("utf-8"), path)
    return from_frame(frame, str(path))


def _read_line_by_line(text: str, path: Path) -> pl.DataFrame:
    """Slower: names the line that is not an object, and turns columns of mixed types into text."""
    records: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # not JSON, or nested too deep
            record = None
        if not isinstance(record, dict):
            raise InputError(
                f"line {number} is not a valid JSON object, or its values are nested too deep",
                file=path,
                value=line.strip()[:80],
                remedy='write one object per line, as in {"age": 63, "drugs": ["insulin"]}',
            )
        records.append(record)
    names = dict.fromkeys(name for record in records for name in record)
    return pl.DataFrame([_series(name, [record.get(name) for record in records]) for name in names])


def _series(name: str, values: list[Any]) -> pl.Series:
    try:
        return pl.Series(name, values)
    except (TypeError, OverflowError, PolarsError, PanicException):
        texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
        return pl.Series(name, texts, dtype=pl.String)
