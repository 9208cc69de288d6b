"""`Table`, which every format's reader returns, and error messages for broken files.

Any error that a reading library raises about a bad file becomes an `InputError` that names the file and a remedy.
"""

from __future__ import annotations

import codecs
import gzip
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import polars as pl
import pyarrow as pa
from polars.exceptions import PanicException, PolarsError

from tefm.base.errors import InputError, SettingsError, did_you_mean, failing_as, first_line, listed
from tefm.base.progress import log
from tefm.tables.schema import MedsRecords

#: A batch has at most this many cells, so that thousands of columns mean fewer rows, not more memory.
BATCH_CELLS = 1 << 23


class Table:
    """A table that can be read in batches, as often as needed.

    `read(columns, rows)` yields frames of those columns, about `rows` rows at a time; `empty`, a frame without rows,
    shows the columns and their types. `meds` says how records are made of events, where the table is a MEDS folder.

    >>> from tefm import open_table
    >>> table = open_table(pl.DataFrame({"age": [63, 71, 58], "sex": ["f", "m", None]}))
    >>> table.columns
    ('age', 'sex')
    >>> [batch["age"].to_list() for batch in table.batches(["age"], rows=2)]
    [[63, 71], [58]]
    """

    def __init__(
        self,
        name: str,
        empty: pl.DataFrame,
        read: Callable[[list[str], int], Iterator[pl.DataFrame]],
        meds: MedsRecords | None = None,
    ) -> None:
        #: what error messages call the table
        self.name = name
        self.meds = meds
        #: the columns, without blanks around their names
        self.columns = tuple(named(empty.columns, name))
        if not self.columns:
            raise InputError("the table has no columns", file=name)
        self._read = read
        self._original = dict(zip(self.columns, empty.columns, strict=True))
        self._empty = self._tidy(empty, self.columns)

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
        """This table with further columns, in which every value is missing."""
        absent = [pl.lit(None, pl.String).alias(name) for name in names]
        return self.with_columns(names, (), lambda frame: frame.with_columns(absent))

    def with_columns(
        self, names: Sequence[str], needs: Sequence[str], add: Callable[[pl.DataFrame], pl.DataFrame]
    ) -> Table:
        """This table with further columns `names`, which `add` makes of the columns `needs` of each batch."""

        def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
            own = [name for name in columns if name not in names]
            for frame in self.batches([*own, *needs] or self.columns[:1], rows):
                yield add(frame)

        return Table(self.name, add(self._empty), read)

    def _batches(self, names: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        for frame in self._read([self._original[name] for name in names], rows):
            for part in frame.iter_slices(rows):
                if part.height:
                    yield self._tidy(part, names)

    def _tidy(self, frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
        """The named columns in that order, under their clean names, in types that a schema can read."""
        columns = []
        for name in names:
            problem = "the values cannot be turned into text: {reason}"
            remedy = "leave the column out of the table, or write it as text"
            # polars panics at bytes inside an object
            with failing_as((PolarsError, PanicException), problem, file=self.name, column=name, remedy=remedy):
                columns.append(_plain(unnamed(frame[self._original[name]])).alias(name))
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


# ---- files ----------------------------------------------------------------------------------------------------------


def local_path(source: str | os.PathLike[str]) -> Path:
    """The path of a file or folder; `~` is the user's own folder, `~ann` that of another user."""
    path, remedy = Path(source), "write the path of the folder in place of ~"
    with failing_as(RuntimeError, "there is no such user", file=path, value="".join(path.parts[:1]), remedy=remedy):
        return path.expanduser()


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


def named(names: Sequence[str], file: str | Path) -> list[str]:
    """The names of columns without blanks around them; an empty name becomes `column_` and the position.

    pandas writes its index under an empty name, and a delimiter at the end of every line makes an empty last column.
    Two columns with one name are refused: a schema could mean either.

    >>> named(["", "age ", " "], "visits.csv")
    ['column_1', 'age', 'column_3']
    """
    names = [name.strip() for name in names]
    if no_text := next((name for name in names if "\0" in name), None):
        problem, remedy = "the name of a column has a NUL character", "rename the column"
        raise InputError(problem, file=file, column=no_text, remedy=remedy)
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
    duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
    if duplicates:
        raise InputError(
            f"column names occur more than once: {', '.join(map(repr, duplicates))}",
            file=file,
            column=duplicates[0],
            remedy="rename them in the file, or open a CSV in Python: "
            f"open_table(path, column_names=[…]) with {len(names)} different names",
        )
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


def from_frame(frame: pl.DataFrame, name: str) -> Table:
    """The table of a frame in memory."""
    return Table(name, frame.clear(), lambda columns, rows: iter([selected(frame, columns)]))


def whole_runs(
    frames: Iterable[pl.DataFrame], rows: int, whole: Callable[[pl.DataFrame], int]
) -> Iterator[pl.DataFrame]:
    """The frames in pieces of at least `rows` rows; of each piece, `whole` says how many rows do not go on after it."""
    held: pl.DataFrame | None = None
    for frame in frames:
        held = frame if held is None else pl.concat([held, frame])
        if held.height >= rows and (complete := whole(held)):
            yield held[:complete]
            held = held[complete:]
    if held is not None and held.height:
        yield held


def before_last_run(column: pl.Series) -> int:
    """How many rows stand before the last run of equal values."""
    run = unnamed(column).rle_id()
    return int((run < run[-1]).sum())


def joined(tables: Sequence[Table], empty: pl.DataFrame, name: str) -> Table:
    """The rows of one table after another, with the columns and types of `empty`."""
    types = empty.schema

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        for table in tables:
            for frame in table.batches(columns, rows):
                yield pl.DataFrame([unnamed(frame[name]).cast(types[name]).alias(name) for name in columns])

    return Table(name, empty, read)
