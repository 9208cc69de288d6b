"""Events of whole subjects become records: one row per visit or per window of time.

An event without a time (static) belongs to every record of its subject. An event without a visit belongs to the visit
that began last; before the first visit, to none.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import polars as pl

from tefm.records.meds_settings import MedsRecords

#: The columns of records that are not vocabularies or codes. `days` is how long a record lasts, `days_since` the time
#: since the subject's previous one ended.
SUBJECT, TIME, LABEL = "subject_id", "time", "label"
FIXED = {SUBJECT: pl.Int64, TIME: pl.Datetime("us"), "events": pl.UInt32, "days": pl.Float64, "days_since": pl.Float64}
BIRTH = "MEDS_BIRTH"
DAY, YEAR = timedelta(days=1), timedelta(days=365.25)


def vocabulary(code: pl.Expr) -> pl.Expr:
    """What a code begins with: DIAGNOSIS of DIAGNOSIS//ICD10CM//I10."""
    return code.str.split("//").list.first()


def set_column(name: str) -> str:
    """The column of a vocabulary.

    >>> set_column("LAB"), set_column("time")
    ('LAB', 'time (codes)')
    """
    return f"{name} (codes)" if name in (*FIXED, LABEL, "age") else name


def begins_with(code: pl.Expr, prefixes: tuple[str, ...]) -> pl.Expr:
    """Whether a code is one of these, or of a vocabulary that is."""
    return pl.any_horizontal(*((code == prefix) | code.str.starts_with(f"{prefix}//") for prefix in prefixes))


def records_of(
    events: pl.DataFrame, how: MedsRecords, asked: pl.DataFrame | None = None, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """The records of subjects, in the order of the subjects and of time; only these columns, or all.

    `asked` has a row per subject: up to which `prediction_time` its events count, and the label.
    """
    code = pl.col("code")
    born = events.filter(begins_with(code, (BIRTH,))).group_by(SUBJECT).agg(pl.col(TIME).min().alias("born"))
    events = events.filter(~begins_with(code, (BIRTH,)))
    if asked is not None:
        events = events.join(asked, on=SUBJECT, how="inner", maintain_order="left")
        events = events.filter(pl.col(TIME).is_null() | (pl.col(TIME) <= pl.col("prediction_time")))
    order = events.select(pl.col(SUBJECT).unique(maintain_order=True)).with_row_index("order")
    static, timed = events.filter(pl.col(TIME).is_null()), events.filter(pl.col(TIME).is_not_null())
    timed = _with_record(timed.sort(TIME, maintain_order=True), how)
    sets, numbers = _fields(how, columns)
    fields = [*sets.values(), *numbers.values()]
    records = timed.group_by(SUBJECT, "record", maintain_order=True).agg(
        pl.col(TIME).min(), pl.col(TIME).max().alias("end"), pl.len().cast(pl.UInt32).alias("events"), *fields
    )
    records = records.join(order, on=SUBJECT, how="left").sort("order", TIME, "end", maintain_order=True)
    static = static.group_by(SUBJECT, maintain_order=True).agg(*fields)
    records = _with_static(records, static, list(sets), list(numbers))
    since = records.select(pl.col(TIME) - pl.col("end").shift(1).over(SUBJECT)).to_series()
    records = records.with_columns(
        _in(DAY, records["end"] - records[TIME]).alias("days"),
        _in(DAY, since).clip(lower_bound=0).alias("days_since"),
    )
    if how.age:
        records = records.join(born, on=SUBJECT, how="left", maintain_order="left")
        records = records.with_columns(_in(YEAR, records[TIME] - records["born"]).alias("age"))
    label = []
    if asked is not None and LABEL in asked.columns:
        records = records.join(asked.select(SUBJECT, LABEL), on=SUBJECT, how="left", maintain_order="left")
        label = [LABEL]
    return records.select(columns or [*FIXED, *(["age"] if how.age else []), *sets, *numbers, *label])


def _in(unit: timedelta, durations: pl.Series) -> pl.Series:
    """Durations in days or years; not divided by polars, where the last digit depends on the length of the frame."""
    microseconds = durations.dt.total_microseconds().cast(pl.Float64).to_numpy()
    return pl.Series(microseconds / (unit / timedelta(microseconds=1))).fill_nan(None)


def _with_record(timed: pl.DataFrame, how: MedsRecords) -> pl.DataFrame:
    """Timed events, sorted by time, with the record that each belongs to; those before the first visit are left out."""
    time = pl.col(TIME)
    if how.records == "window":
        return timed.with_columns((time.to_physical() // int(how.span / timedelta(microseconds=1))).alias("record"))
    if how.visit is None:
        assert how.starts is not None, "what begins a visit is known"
        starts = timed.filter(begins_with(pl.col("code"), how.starts)).select(SUBJECT, TIME, record=TIME).unique()
        named = timed.with_columns(pl.lit(None, pl.Datetime("us")).alias("record"))
    else:
        named = timed.with_columns(pl.col(how.visit).cast(pl.String).alias("record"))
        starts = named.drop_nulls("record").group_by(SUBJECT, "record").agg(time.min())
    latest = timed.select(SUBJECT, TIME).join_asof(
        starts.sort(TIME, "record"), on=TIME, by=SUBJECT, strategy="backward", check_sortedness=False
    )
    return named.with_columns(pl.col("record").fill_null(latest["record"])).drop_nulls("record")


def _fields(how: MedsRecords, columns: Sequence[str] | None) -> tuple[dict[str, pl.Expr], dict[str, pl.Expr]]:
    """A list of codes per vocabulary, and a value per code that is a number: such a code is in no list."""
    code, value = pl.col("code"), pl.col("numeric_value")
    others = ~code.is_in(how.numbers or ())
    sets = {
        set_column(name): code.filter((pl.col("vocabulary") == name) & others).unique().sort().alias(set_column(name))
        for name in how.sets or ()
    }
    numbers = {
        name: getattr(value.filter((code == name) & value.is_not_null()).cast(pl.Float64), how.value)().alias(name)
        for name in how.numbers or ()
    }
    wanted = {*sets, *numbers} if columns is None else set(columns)
    return (
        {name: field for name, field in sets.items() if name in wanted},
        {name: field for name, field in numbers.items() if name in wanted},
    )


def _with_static(
    records: pl.DataFrame, static: pl.DataFrame, sets: Sequence[str], numbers: Sequence[str]
) -> pl.DataFrame:
    """Records with the static codes and values of their subjects."""
    records = records.join(static, on=SUBJECT, how="left", suffix=" (static)", maintain_order="left")
    both = [
        pl.concat_list(pl.col(name), pl.col(f"{name} (static)").fill_null([])).list.unique().list.sort()
        for name in sets
    ]
    return records.with_columns(*both, *(pl.col(name).fill_null(pl.col(f"{name} (static)")) for name in numbers))
