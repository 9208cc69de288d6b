"""What every format gives, a `Source` of polars frames, and what is said when a file is broken.

Whatever a reading library says about a bad file leaves as an `InputError` that names the file and what to do.
"""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import polars as pl
import pyarrow as pa
from polars.exceptions import PolarsError

from tefm.base.errors import InputError


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
            remedy="rename them in the file, or open a CSV in Python: "
            f"open_table(path, column_names=[…]) with {len(names)} different names",
        )


def from_frame(frame: pl.DataFrame, name: str) -> Source:
    """A frame in memory."""
    return Source(name, frame.clear(), lambda columns, rows: iter([frame[columns]]))


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
