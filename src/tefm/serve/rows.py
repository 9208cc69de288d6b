"""The records of one request: JSON rows or a CSV body become columns of text, as a CSV file would have them.

As text, the rows of several requests fit into one table, whatever types each client gave them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tefm.base.errors import InputError, TefmError, listed
from tefm.pipeline.prepare import Preparation
from tefm.tables.columns import Columns
from tefm.tables.layout import Slots
from tefm.tables.mappers import CategoryMapper, NumberMapper
from tefm.tables.readers.table import open_table
from tefm.tables.readers.text_files import open_csv
from tefm.tables.vectorise import Vectoriser

#: What error messages call the table of a request.
REQUEST = "the request"
#: What to do about missing columns.
COMPLETE = "add the columns, or read missing fields as absent: `absent: true`, on the page “missing columns are absent”"
#: Delimiters of a CSV, the first that splits the header.
DELIMITERS = ",;\t"

Scalar = str | int | float | bool | None


@dataclass(frozen=True, eq=False)
class Rows:
    """The records of one request: in each column, the cells are all text or all lists of texts."""

    frame: pl.DataFrame
    #: the entity of each row as the request has it, where the model knows entities
    entities: list[Any] | None = None

    @property
    def height(self) -> int:
        return self.frame.height


class RowReader:
    """Reads the rows of requests for one model."""

    def __init__(self, preparation: Preparation) -> None:
        self.preparation = preparation
        schema, fields = preparation.schema, preparation.vectoriser.table_schema.fields
        roles = [name for name in (preparation.entity, schema.time) if name is not None]
        #: the columns that a request needs, in an order that is the same for all
        self.needed = list(dict.fromkeys([*roles, *(name for f in fields for name in f.source), *schema.text]))
        self._numbers = {name for f in fields if f.kind == "number" for name in f.source}
        self._delimiters = {name: f.delimiter for f in fields if f.kind == "set" for name in (f.name, *f.source)}

    def of_records(self, records: Sequence[Mapping[str, Any]], *, absent: bool = False) -> Rows:
        """JSON rows; a key that a row lacks is missing there."""
        names = column_names(dict.fromkeys(name for record in records for name in record))
        values = {clean: [record.get(name) for record in records] for clean, name in names.items()}
        return self._rows(values, len(records), absent)

    def of_csv(self, body: bytes, *, absent: bool = False) -> Rows:
        """A CSV with a header."""
        frame = csv_frame(body)
        return self._rows(frame.to_dict(as_series=False), frame.height, absent)

    def _rows(self, values: dict[str, list[Any]], height: int, absent: bool) -> Rows:
        if not height:
            raise InputError("the request has no rows", file=REQUEST, remedy="give at least one record")
        if not values:
            raise InputError("the rows have no columns", file=REQUEST, remedy=f"give {listed(self.needed)}")
        complete = all(name in values for name in self.needed)
        frame = pl.DataFrame([self._column(name, values[name]) for name in (self.needed if complete else values)])
        if not complete:  # raises the error that lists what is missing, or adds what may be absent
            try:
                frame = self.preparation.readable(open_table(frame, name=REQUEST), absent=absent).frame()
            except InputError as error:
                raise InputError(error.problem, file=REQUEST, column=error.column, remedy=COMPLETE) from None
        entity = self.preparation.entity
        return Rows(frame, None if entity is None else values.get(entity))

    def _column(self, name: str, values: Sequence[Any]) -> pl.Series:
        is_number = name in self._numbers
        if not any(isinstance(value, list) for value in values):
            return pl.Series(name, [as_text(value, is_number) for value in values], pl.String)
        delimiter = self._delimiters.get(name)
        cells: list[list[str | None]] = []
        for value in values:
            if isinstance(value, list):
                cells.append([as_text(item, is_number) for item in value])
            else:
                text = as_text(value, is_number)
                cells.append([] if text is None else [*text.split(delimiter)] if delimiter else [text])
        return pl.Series(name, cells, pl.List(pl.String))


def with_row(error: TefmError, rows: Rows) -> TefmError:
    """An error about a value, with the first row that has it."""
    if error.value is None or error.column not in rows.frame.columns:
        return error
    cells = [cell if isinstance(cell, list) else [cell] for cell in rows.frame[error.column].to_list()]
    row = next((number for number, cell in enumerate(cells, start=1) if error.value in cell), None)
    if row is None:
        return error
    problem = f"row {row}: {error.problem}"
    return InputError(problem, file=error.file, column=error.column, value=error.value, remedy=error.remedy)


def notices(vectoriser: Vectoriser, frame: pl.DataFrame, x_ND: Slots) -> dict[int, list[str]]:
    """What the model does not read as it is, by row: unknown categories, numbers outside the range of training."""
    found: dict[int, list[str]] = {}
    columns = Columns.of(frame, vectoriser.table_schema, REQUEST)
    for f, mapper, own in vectoriser.parts:
        value_N, title = x_ND[:, own.start], f.display_name
        if isinstance(mapper, CategoryMapper) and (value_N > len(mapper.values)).any():
            ids_N, words = columns.word_ids(f)
            text = "{}: {!r} is not among the values that the model tells apart; it is read as “other”"
            odd = {row: text.format(title, words[ids_N[row]]) for row in np.flatnonzero(value_N > len(mapper.values))}
        elif isinstance(mapper, NumberMapper) and not f.derived and np.isin(value_N, (1, len(mapper.middle))).any():
            number_N, low, high = columns.numbers(f), mapper.low[0], mapper.high[-1]
            text = "{}: {:.9g} is outside the range of training, {:.6g} to {:.6g}"
            outside = np.flatnonzero((number_N < low) | (number_N > high))
            odd = {row: text.format(title, number_N[row], low, high) for row in outside}
        else:
            continue
        for row, notice in odd.items():
            found.setdefault(int(row), []).append(notice)
    return found


def as_text(value: Scalar, is_number: bool = False) -> str | None:
    """A JSON value as a CSV file would have it.

    >>> [as_text(value) for value in (1.0, 2.5, True, None, "a", float("nan"))], as_text(True, is_number=True)
    (['1', '2.5', 'True', None, 'a', None], '1')
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(int(value)) if is_number else str(value)
    if isinstance(value, float):
        if value != value:
            return None
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def column_names(names: Iterable[str]) -> dict[str, str]:
    """Names without the blanks around them, each with the name as it came; two that are then equal are refused."""
    columns: dict[str, str] = {}
    for name in names:
        clean = name.strip()
        if clean in columns:
            raise InputError(
                f"the columns {columns[clean]!r} and {name!r} have the same name",
                file=REQUEST,
                column=clean,
                remedy="give every column its own name; blanks around a name do not count",
            )
        columns[clean] = name
    return columns


def csv_frame(body: bytes) -> pl.DataFrame:
    """A CSV body as a frame of texts; messages speak of the request.

    The CSV reader wants a file: in memory where the system can, so that no record reaches a disk.
    """
    if not body.strip():
        raise InputError("the request is empty", file=REQUEST, remedy="send a CSV with a header, or JSON rows")
    in_memory = hasattr(os, "memfd_create")
    with os.fdopen(os.memfd_create("request"), "wb") if in_memory else tempfile.NamedTemporaryFile() as file:
        file.write(body)
        file.flush()
        path = Path(f"/proc/self/fd/{file.fileno()}" if in_memory else file.name)
        try:
            return open_csv(path, DELIMITERS, None).frame()
        except TefmError as error:
            remedy = error.remedy and error.remedy.replace(str(path), "FILE").replace(path.name, "FILE")
            raise InputError(
                error.problem, file=REQUEST, column=error.column, value=error.value, remedy=remedy
            ) from None
