"""Columns with a role: the entity, the label and the time of each row, from columns of any type.

Entities and labels become text, times become ranks. Values that cannot be read raise an error that names them.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError, did_you_mean
from tefm.records.readers.source import unnamed
from tefm.records.schema import Schema
from tefm.records.sequences import Texts
from tefm.records.words import text_of

#: Times as text: ISO 8601, with "T" replaced by a blank and "Z" by +00:00.
_ISO_FORMATS = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d", "%Y-%m-%d %H:%M:%S%.f%z", "%Y-%m-%d %H:%M%z")


def entities(frame: pl.DataFrame, name: str, schema: Schema, file: str | None = None) -> pl.Series:
    """The entity of each row; every row must have one."""
    column = text_of(role_column(frame, name, "entity", file), schema.missing_words)
    _refuse_nulls(column, "entity", "drop these rows, or fill in their entity", file)
    return column


def labels(frame: pl.DataFrame, schema: Schema, file: str | None = None) -> Texts | None:
    """The label of each row, None where it is missing; None as a whole if the schema has no label column."""
    if schema.label is None:
        return None
    column = role_column(frame, schema.label, "label", file)
    return np.array(text_of(column, schema.missing_words).to_list(), dtype=object)


def time_ranks(frame: pl.DataFrame, schema: Schema, file: str | None = None) -> NDArray[np.int64]:
    """The rank of each row in time, equal for equal times; the row number if the schema has no time column."""
    if schema.time is None:
        return np.arange(frame.height)
    return unnamed(times(frame, schema.time, schema, file)[0]).rank("dense").to_numpy().astype(np.int64)


def times(frame: pl.DataFrame, name: str, schema: Schema, file: str | None = None) -> tuple[pl.Series, float | None]:
    """The time of each row as a number, and its unit in seconds; None if the column contains plain numbers."""
    column = unnamed(role_column(frame, name, "time", file))
    unit_seconds: float | None = None
    if column.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Object):
        column, unit_seconds = _parsed(text_of(column, schema.missing_words), name, file)
    elif column.dtype.is_float():
        column = column.fill_nan(None)
    elif column.dtype == pl.Date:
        unit_seconds = 86_400.0
    elif isinstance(column.dtype, pl.Datetime | pl.Duration):
        unit_seconds = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}[column.dtype.time_unit or "us"]
    # a record without a time cannot be ordered, and the last record of a sequence decides its label
    _refuse_nulls(
        column.alias(name),
        "time",
        "drop these rows, fill in their time, or remove `time:` to keep the file's order",
        file,
    )
    return column.to_physical().alias(name), unit_seconds


def role_column(frame: pl.DataFrame, name: str, role: str, file: str | None = None) -> pl.Series:
    """The column of a role, which has one plain value per row."""
    if name not in frame.columns:
        raise InputError(
            f"the {role} column is not in the table", file=file, column=name, remedy=did_you_mean(name, frame.columns)
        )
    column = frame[name]
    if column.dtype.is_nested() or column.dtype == pl.Binary:
        raise InputError(
            f"the {role} column contains {column.dtype} values", file=file, column=name, remedy="give one value per row"
        )
    return column


def _refuse_nulls(column: pl.Series, role: str, remedy: str, file: str | None) -> None:
    if column.null_count():
        first = int(unnamed(column).is_null().arg_true()[0]) + 1
        problem = f"{column.null_count()} of {len(column)} rows have no {role}, the first is row {first}"
        raise InputError(problem, file=file, column=column.name, remedy=remedy)


def _parsed(text: pl.Series, name: str, file: str | None) -> tuple[pl.Series, float | None]:
    """Text as integers, as floats or as ISO times (in microseconds), whichever fits every value."""
    iso = text.str.replace("T", " ").str.replace("Z$", "+00:00")
    times = [iso.str.to_datetime(pattern, time_unit="us", strict=False).to_physical() for pattern in _ISO_FORMATS]
    candidates = [
        text.cast(pl.Int64, strict=False),
        text.cast(pl.Float64, strict=False),
        pl.select(pl.coalesce(times)).to_series(),
    ]
    best = min(candidates, key=lambda candidate: candidate.null_count())
    unread = best.is_null() & text.is_not_null()
    if unread.any():
        raise InputError(
            f"{unread.sum()} of {len(text)} rows have a time that is neither a number nor an ISO date",
            file=file,
            column=name,
            value=text.filter(unread)[0],
            remedy="write times like 2024-01-31 or 2024-01-31 23:59:59; or remove `time:` to keep the file's order",
        )
    return best, 1e-6 if best is candidates[2] else None
