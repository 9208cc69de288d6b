"""Fields that come from a column of dates: how many days ago it was, its month and its weekday.

`admitted: {kind: date}` in a schema is short for these fields. The days are those until the time of the record, or,
without a time, those since the date of the first record of the sequence.

Shapes: N records.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from tefm.base.errors import InputError
from tefm.tables.clock import WEEKDAYS
from tefm.tables.grouping import moments_of
from tefm.tables.schema import Field, Schema
from tefm.tables.sequences import Sequences

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
#: Microseconds of a day.
DAY = 86_400_000_000


def date_columns(frame: pl.DataFrame, schema: Schema, sequences: Sequences) -> list[pl.Series]:
    """A column for each field that comes from a date; a missing date is missing in all of them."""
    fields = [field for field in schema.fields if field.part and field.source[0] in frame.columns]
    days = {name: _days(frame, name, schema, sequences.file) for name in {field.source[0] for field in fields}}
    since = None
    if schema.time is not None and schema.time in frame.columns and any(field.part == "days" for field in fields):
        times, seconds = moments_of(frame, schema.time, "time", schema, sequences.file)
        since = None if seconds is None else times.cast(pl.Float64) * (seconds * 1e6 / DAY)
    return [_column(field, days[field.source[0]], since, sequences) for field in fields]


def _days(frame: pl.DataFrame, name: str, schema: Schema, file: str | None) -> pl.Series:
    """The dates of a column as days since 1970."""
    dates, seconds = moments_of(frame, name, "date", schema, file)
    if seconds is None and dates.is_not_null().any():
        raise InputError(
            "the column contains numbers and no dates",
            file=file,
            column=name,
            value=dates.drop_nulls()[0],
            remedy="make it a `number` in the schema, or write dates like 2024-01-31",
        )
    return dates.cast(pl.Float64) * ((seconds or 0.0) * 1e6 / DAY)


def _column(field: Field, days: pl.Series, since: pl.Series | None, sequences: Sequences) -> pl.Series:
    if field.part == "days":
        if since is not None:
            return (since - days).alias(field.name)
        rows, days_N = sequences.rows, days.to_numpy()
        passed_N = np.full(len(days_N), np.nan)
        passed_N[rows] = days_N[rows] - days_N[np.repeat(rows[sequences.starts[:-1]], sequences.lengths)]
        return pl.Series(field.name, passed_N, nan_to_null=True)
    dates = (days * DAY).cast(pl.Int64).cast(pl.Datetime("us"))
    number, words = (dates.dt.month(), MONTHS) if field.part == "month" else (dates.dt.weekday(), WEEKDAYS)
    return pl.Series(words).gather(number.cast(pl.Int64) - 1).alias(field.name)
