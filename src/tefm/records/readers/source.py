"""`Source`, which every format's reader returns, and error messages for broken files.

Any error that a reading library raises about a bad file becomes an `InputError` that names the file and a remedy.
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
from polars.exceptions import PanicException, PolarsError

from tefm.base.errors import InputError
from tefm.base.progress import log
from tefm.records.meds_settings import MedsRecords


@dataclass(frozen=True)
class Source:
    """An open table: `read(columns, rows)` yields frames of those columns, about `rows` rows at a time."""

    name: str
    #: a frame without rows that shows the columns and their types
    empty: pl.DataFrame
    read: Callable[[list[str], int], Iterator[pl.DataFrame]]
    #: how records are made of events, where the table is a MEDS folder
    meds: MedsRecords | None = None


def is_gzip(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def open_bytes(path: Path) -> IO[bytes]:
    """The file's content, decompressed."""
    return cast(IO[bytes], gzip.open(path)) if is_gzip(path) else path.open("rb")


# ---- errors ---------------------------------------------------------------------------------------------------------


@contextmanager
def explaining(file: Path, format_: str) -> Iterator[None]:
    """Turn the errors of reading libraries into an `InputError` that names the file."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise not_utf8(file) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _bad_gzip(file, error) from error
    except (pa.ArrowException, PolarsError, PanicException, OSError) as error:
        if is_gzip(file) and re.search("compressed stream|inflate", str(error)):
            raise _bad_gzip(file, error) from error
        raise InputError(
            f"not a readable {format_} file: {first_line(error)}",
            file=file,
            remedy="check that it was copied or written completely, and that its ending matches its format",
        ) from error


def first_line(error: BaseException) -> str:
    """The error's message, without the context that only its library's developers need."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def not_utf8(file: Path) -> InputError:
    """The error for text in another encoding, with the first line and bytes that are not UTF-8."""
    where, bytes_around, encoding = "", None, "latin1"
    with open_bytes(file) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                where, bytes_around = f", first in line {number}", line[max(0, error.start - 12) : error.end + 12]
                if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    encoding = "utf-16"
                break
    convert = f"iconv -f {encoding} -t utf-8"
    name = file.name
    command = (
        f"zcat '{name}' | {convert} | gzip > 'utf8-{name}'" if is_gzip(file) else f"{convert} '{name}' > 'utf8-{name}'"
    )
    return InputError(
        f"the text is not UTF-8{where}",
        file=file,
        value=bytes_around,
        remedy=f"if it is {encoding}, convert it: {command}",
    )


def _bad_gzip(file: Path, error: BaseException) -> InputError:
    return InputError(
        f"the gzip file is truncated or damaged: {first_line(error)}",
        file=file,
        remedy=f"copy it again; `gzip -t '{file.name}'` checks whether it is complete",
    )


def refuse_duplicates(names: Sequence[str], file: str | Path) -> None:
    """Refuse two columns with the same name: a schema could mean either."""
    duplicates = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if duplicates:
        raise InputError(
            f"column names occur more than once: {', '.join(map(repr, duplicates))}",
            file=file,
            column=duplicates[0],
            remedy="rename them in the file, or open a CSV in Python: "
            f"open_table(path, column_names=[…]) with {len(names)} different names",
        )


def named(names: Sequence[str], file: str | Path) -> list[str]:
    """The names of columns without blanks around them; one that has none is called after its position.

    pandas writes its index under an empty name, and a delimiter at the end of every line makes an empty last column.

    >>> named(["", "age ", " "], "visits.csv")
    ['column_1', 'age', 'column_3']
    """
    names = [name.strip() for name in names]
    taken, generated = set(names), []
    for position, name in enumerate(names):
        if not name:
            new = f"column_{position + 1}"
            while new in taken:
                new += "_"
            taken.add(new)
            generated.append(new)
            names[position] = new
    if generated:
        count = (
            "a column has no name and is" if len(generated) == 1 else f"{len(generated)} columns have no name and are"
        )
        log.warning(f"{count} read as {', '.join(map(repr, generated))} [file {file}]")
    return names


def unnamed(series: pl.Series) -> pl.Series:
    """The series without its name: polars takes a name such as `^a$` for a pattern, in methods of a series too."""
    return series.alias("values")


def selected(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The columns with exactly these names, in this order; without any, a frame of as many rows.

    >>> frame = pl.DataFrame({"*": [1, 2], "^a$": [3, 4]})
    >>> selected(frame, ["^a$"]).columns, selected(frame, []).shape
    (['^a$'], (2, 0))
    """
    # `select` takes such names for patterns, and an empty list in brackets selects rows
    return frame[list(names)] if names else frame.drop(frame.columns)


def from_frame(frame: pl.DataFrame, name: str) -> Source:
    """The source of a frame in memory."""
    if not all(map(str.strip, frame.columns)):
        frame = frame.clone()
        frame.columns = named(frame.columns, name)
    return Source(name, frame.clear(), lambda columns, rows: iter([selected(frame, columns)]))
