"""Fields that come from the time of a record, or from another date of it.

From its time: how long after the previous and the first record, which weekday and hour. With a `time:`, a fit adds
those that vary to the schema; `time_fields: none` leaves them out.

From a date (`admitted: {kind: date}`): its month, its weekday, and the days until the time of the record, or, without a
time, since the date of the first record of the sequence.

Shapes: N records.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.tables.grouping import moments_of, times_of
from tefm.tables.schema import Clock, Field, Schema
from tefm.tables.sequences import Sequences

#: Units of times between records, and their seconds: months and years have no fixed length.
LENGTHS = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400}
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
#: Microseconds of a day.
DAY = 86_400_000_000
#: Buckets of a time between records: fewer than of a measured number, because its scale is what matters.
BUCKETS = 16


def timed(frame: pl.DataFrame, schema: Schema, sequences: Sequences) -> Schema:
    """The schema with the fields that the time of these records gives."""
    if schema.time is None or schema.time_fields == "none" or any(field.clock for field in schema.fields):
        return schema
    times, unit_seconds = times_of(frame, schema.time, schema, sequences.file)
    clocks: list[tuple[Clock, dict[str, Any]]] = []
    gaps: dict[Clock, NDArray[np.float64]] = {
        clock: _finite(_since(times, sequences, clock)) for clock in ("previous", "first")
    }
    # equally spaced records say nothing by their time, and neither do running numbers (whole, and no two the same)
    is_running = unit_seconds is None and times.dtype.is_integer() and times.n_unique() == len(times)
    if len(np.unique(gaps["previous"])) > 1 and not is_running:
        for clock, known in gaps.items():
            unit = None
            if unit_seconds is not None:
                usual = float(np.median(known)) * unit_seconds
                unit = ["seconds", *(name for name in LENGTHS if usual >= 2 * LENGTHS[name])][-1]
            title = f"Time since the {clock} {schema.record}"
            clocks.append((clock, {"kind": "number", "buckets": BUCKETS, "unit": unit, "title": title}))
    if unit_seconds is not None:
        seconds_N = np.unique(times.to_numpy() * unit_seconds)
        if len(np.unique(seconds_N // 86_400)) > 7:
            clocks.append(("weekday", {"kind": "category", "title": "Weekday"}))
        if (seconds_N % 86_400).any():
            clocks.append(("hour", {"kind": "number", "buckets": 24, "title": "Hour of the day"}))
    taken = {*frame.columns, *(field.name for field in schema.fields)}
    fields = []
    for clock, settings in clocks:
        name = {"previous": "since_previous", "first": "since_first"}.get(clock, clock)
        while name in taken:
            name += "_of_time"
        fields.append(Field.checked({"name": name, "clock": clock, **settings}))
    return Schema.checked({**dict(schema), "fields": (*schema.fields, *fields)})


def clock_columns(frame: pl.DataFrame, schema: Schema, sequences: Sequences) -> list[pl.Series]:
    """A column for each field that comes from the time; rows in no sequence have no value."""
    fields = [field for field in schema.fields if field.clock]
    if not fields or schema.time is None:
        return []
    times, unit_seconds = times_of(frame, schema.time, schema, sequences.file)
    return [_column(field, times, unit_seconds, sequences) for field in fields]


def _column(field: Field, times: pl.Series, unit_seconds: float | None, sequences: Sequences) -> pl.Series:
    if field.clock in ("previous", "first"):
        gap_N = _since(times, sequences, field.clock)
        if field.unit is not None and unit_seconds is not None:
            gap_N = np.round(gap_N * (unit_seconds / LENGTHS[field.unit]), 9)  # 0.1, not 0.09999999999999999
        return pl.Series(field.name, gap_N, nan_to_null=True)
    if unit_seconds is None:  # plain numbers, in a table that had dates at fit time
        return pl.Series(field.name, [None] * len(times), dtype=pl.Float64)
    seconds_N = times.to_numpy() * unit_seconds
    if field.clock == "hour":
        return pl.Series(field.name, seconds_N % 86_400 // 3_600)
    day_N = ((seconds_N // 86_400).astype(np.int64) + 3) % 7  # the first day of 1970 was a Thursday
    return pl.Series(field.name, np.array(WEEKDAYS)[day_N])


def _finite(values_N: NDArray[np.float64]) -> NDArray[np.float64]:
    return values_N[np.isfinite(values_N)]


def _since(times: pl.Series, sequences: Sequences, clock: Clock) -> NDArray[np.float64]:
    """The time since the previous or the first record of the sequence; NaN for the first one, and in no sequence."""
    time_N, rows, starts = times.to_numpy(), sequences.rows, sequences.starts[:-1]
    since_N = np.full(len(time_N), np.nan)
    before = np.roll(rows, 1) if clock == "previous" else np.repeat(rows[starts], sequences.lengths)
    since_N[rows] = time_N[rows] - time_N[before]
    since_N[rows[starts]] = np.nan
    return since_N


# ---- fields of a date ----------------------------------------------------------------------------------------------


def date_columns(frame: pl.DataFrame, schema: Schema, sequences: Sequences) -> list[pl.Series]:
    """A column for each field that comes from a date; a missing date is missing in all of them."""
    fields = [field for field in schema.fields if field.part and field.source[0] in frame.columns]
    days = {name: _days(frame, name, schema, sequences.file) for name in {field.source[0] for field in fields}}
    since = None
    if schema.time is not None and schema.time in frame.columns and any(field.part == "days" for field in fields):
        times, seconds = moments_of(frame, schema.time, "time", schema, sequences.file)
        since = None if seconds is None else times.cast(pl.Float64) * (seconds * 1e6 / DAY)
    return [_part(field, days[field.source[0]], since, sequences) for field in fields]


def _days(frame: pl.DataFrame, name: str, schema: Schema, file: str | None) -> pl.Series:
    """The dates of a column as days since 1970."""
    dates, seconds = moments_of(frame, name, "date", schema, file)
    if seconds is None and dates.is_not_null().any():
        raise InputError(
            "the column contains numbers, not dates",
            file=file,
            column=name,
            value=dates.drop_nulls()[0],
            remedy="make it a `number` in the schema, or write dates like 2024-01-31",
        )
    return dates.cast(pl.Float64) * ((seconds or 0.0) * 1e6 / DAY)


def _part(field: Field, days: pl.Series, since: pl.Series | None, sequences: Sequences) -> pl.Series:
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
