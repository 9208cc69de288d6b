"""The records of one request: JSON rows or a CSV body become columns of text, as a CSV file would have them.

As text, the rows of several requests fit into one table, whatever types each client gave them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from tefm.base.errors import InputError, TefmError, listed
from tefm.pipeline.prepare import Preparation
from tefm.tables.readers.table import Table, open_table
from tefm.tables.readers.text_files import open_csv

#: What error messages call the table of a request.
REQUEST = "the request"
#: Delimiters of a CSV, the first that splits the header.
DELIMITERS = ",;\t"

Scalar = str | int | float | bool | None
Cell = str | None | list[str | None]


@dataclass(frozen=True, eq=False)
class Rows:
    """The records of one request, column by column; the cells of a column are all text or all lists of texts."""

    columns: dict[str, list[Cell]]
    height: int
    #: the entity of each row as the request has it, where the model knows entities
    entities: list[Any] | None = None

    @property
    def kind(self) -> tuple[tuple[str, bool], ...]:
        """Rows of the same kind fit into one table: they have the same columns, and lists in the same ones."""
        return tuple((name, _has_lists(cells)) for name, cells in self.columns.items())


def stacked(tables: Sequence[Rows]) -> pl.DataFrame:
    """The rows of several requests of the same kind, one after another."""
    return pl.DataFrame(
        [
            pl.Series(
                name,
                list(chain.from_iterable(rows.columns[name] for rows in tables)),
                pl.List(pl.String) if lists else pl.String,
            )
            for name, lists in tables[0].kind
        ]
    )


class RowReader:
    """Reads the rows of requests for one model."""

    def __init__(self, preparation: Preparation) -> None:
        self.preparation = preparation
        schema, fields = preparation.schema, preparation.vectoriser.table_schema.fields
        entity = None if preparation.config.window else schema.entity
        roles = [name for name in (entity, schema.time) if name is not None]
        #: the columns that a request needs, in an order that is the same for all
        self.needed = list(dict.fromkeys([*roles, *(name for f in fields for name in f.source), *schema.text]))
        self._entity = entity
        self._numbers = {name for f in fields if f.kind == "number" for name in f.source}
        self._delimiters = {name: f.delimiter for f in fields if f.kind == "set" for name in (f.name, *f.source)}

    def of_records(self, records: Sequence[Mapping[str, Any]], *, absent: bool = False) -> Rows:
        """JSON rows; a key that a row lacks is missing there."""
        names = {name: name.strip() for name in dict.fromkeys(name for record in records for name in record)}
        values = {clean: [record.get(name) for record in records] for name, clean in names.items()}
        return self._rows(values, len(records), absent)

    def of_split(self, columns: Sequence[str], data: Sequence[Sequence[Any]], *, absent: bool = False) -> Rows:
        """Column names and rows of values, as pandas' `to_dict(orient="split")` has them."""
        if len(set(columns)) < len(columns):
            raise InputError("column names occur more than once", file=REQUEST, remedy="give every column its own name")
        for number, row in enumerate(data):
            if len(row) != len(columns):
                raise InputError(
                    f"row {number} has {len(row)} values, but there are {len(columns)} columns",
                    file=REQUEST,
                    remedy="give one value per column, null where there is none",
                )
        values = {name.strip(): [row[i] for row in data] for i, name in enumerate(columns)}
        return self._rows(values, len(data), absent)

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
        columns = {name: self._cells(name, values[name]) for name in (self.needed if complete else values)}
        rows = Rows(columns, height, values.get(self._entity) if self._entity else None)
        if complete:
            return rows
        # raises the error that lists what is missing, or adds what may be absent
        table = self.preparation.readable(open_table(stacked([rows]), name=REQUEST), absent=absent)
        return Rows(_cells_of(table), height, rows.entities)

    def _cells(self, name: str, values: Sequence[Any]) -> list[Cell]:
        is_number = name in self._numbers
        if not any(isinstance(value, list) for value in values):
            return [as_text(value, is_number) for value in values]
        delimiter = self._delimiters.get(name)
        cells: list[Cell] = []
        for value in values:
            if isinstance(value, list):
                cells.append([as_text(item, is_number) for item in value])
            else:
                text = as_text(value, is_number)
                cells.append([] if text is None else [*text.split(delimiter)] if delimiter else [text])
        return cells


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


def _has_lists(cells: Sequence[Cell]) -> bool:
    # all cells of a column are of one kind, but None may stand in front
    return any(isinstance(cell, list) for cell in cells)


def _cells_of(table: Table) -> dict[str, list[Cell]]:
    return table.frame().to_dict(as_series=False)


# ---- CSV --------------------------------------------------------------------------------------------------------


def csv_frame(body: bytes) -> pl.DataFrame:
    """A CSV body as a frame of texts; messages speak of the request."""
    if not body.strip():
        raise InputError("the request is empty", file=REQUEST, remedy="send a CSV with a header, or JSON rows")
    with _as_file(body) as path:
        try:
            return Table(open_csv(path, DELIMITERS, None)).frame()
        except TefmError as error:
            remedy = error.remedy and error.remedy.replace(str(path), "FILE").replace(path.name, "FILE")
            raise InputError(
                error.problem, file=REQUEST, column=error.column, value=error.value, remedy=remedy
            ) from None


@contextmanager
def _as_file(body: bytes) -> Iterator[Path]:
    """The body as a file for the CSV reader: in memory where the system can, so that no record reaches a disk."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("request"), "wb") as file:
            file.write(body)
            file.flush()
            yield Path(f"/proc/self/fd/{file.fileno()}")
    else:
        with tempfile.NamedTemporaryFile() as named:
            named.write(body)
            named.flush()
            yield Path(named.name)
