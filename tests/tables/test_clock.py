"""Fields that come from the time of records."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tefm.tables.mappers import NumberMapper
from tefm.tables.records import Records
from tefm.tables.schema import Schema
from tefm.tables.serialise import serialise

VISITS = "{record: visit, entity: who, time: at, fields: {x: number}}"
#: A Friday.
START = datetime(2024, 3, 1, 22)


def visits(hours: dict[str, list[float]]) -> pl.DataFrame:
    rows = [(who, START + timedelta(hours=hour), 1) for who, of in hours.items() for hour in of]
    return pl.DataFrame(rows, schema=["who", "at", "x"], orient="row")


def timed(frame: pl.DataFrame, schema: str = VISITS) -> Records:
    return Records.of_frame(frame, Schema.from_yaml(schema)).timed()


def fields(records: Records) -> dict[str, Any]:
    return {field.name: (field.clock, field.unit) for field in records.schema.fields if field.clock}


def test_a_fit_adds_gaps_in_a_readable_unit_and_the_calendar_of_dates() -> None:
    records = timed(visits({"a": [0, 3, 30, 24 * 9], "b": [5, 10]}))
    assert fields(records) == {
        "since_previous": ("previous", "hours"),
        "since_first": ("first", "hours"),
        "hour": ("hour", None),
    }, "six visits on four days say nothing about weekdays"
    assert records.schema.field("since_previous").display_name == "Time since the previous visit"
    assert records.frame["since_previous"].to_list() == [None, 3, 27, 186, None, 5]
    assert records.frame["since_first"].to_list() == [None, 3, 30, 216, None, 5]
    assert records.frame["hour"].to_list() == [22, 1, 4, 22, 3, 8]


def test_each_gap_has_its_own_unit_and_no_digits_of_the_arithmetic() -> None:
    events = visits({"a": [0, 0.001, 18.1475, 18.148, 18.149], "b": [5, 5.001, 40.3], "c": [6, 6.002]})
    records = timed(events)
    assert fields(records)["since_previous"][1] == "seconds" and fields(records)["since_first"][1] == "hours"
    since = records.vectoriser().mappers[2]
    assert isinstance(since, NumberMapper) and since.field == "since_first"
    words = [since.in_words(value) for value in range(1, len(since.middle) + 1)]
    assert not any("<" in word or ">" in word or "e+" in word for word in words), words
    assert records.vectoriser().mappers[1].in_words(5) == "127076 seconds"


def test_rows_may_come_in_any_order() -> None:
    frame = visits({"a": [0, 3, 30], "b": [5, 10]})
    order = [3, 2, 4, 0, 1]
    assert timed(frame[order]).frame.equals(timed(frame).frame[order])


DAYS = [date(2024, 1, 31), date(2024, 1, 1), date(2024, 1, 1), date(2024, 2, 1)]
TIMES = [datetime(day.year, day.month, day.day, 8, 30) for day in DAYS]


@pytest.mark.parametrize(
    "times",
    [
        pl.Series(DAYS),
        *(pl.Series(TIMES, dtype=pl.Datetime(unit)) for unit in ("ms", "us", "ns")),
        pl.Series([str(day) for day in DAYS]),
        *(pl.Series([time.strftime(form) for time in TIMES]) for form in ("%FT%T", "%F %T", "%FT%TZ", "%F %H:%M")),
    ],
)
def test_dates_and_times_in_any_form(times: pl.Series) -> None:
    frame = pl.DataFrame({"who": ["a", "a", "b", "a"], "at": times, "x": range(4)})
    assert timed(frame).frame["since_previous"].fill_null(-1).to_list() == pytest.approx([30, -1, -1, 1])


def test_weekdays() -> None:
    frame = timed(visits({"a": [24.0 * day for day in (0, 1, 3, 5, 8, 9, 20, 25)]})).frame
    week = ["Friday", "Saturday", "Monday", "Wednesday", "Saturday", "Sunday", "Thursday", "Tuesday"]
    assert frame["weekday"].to_list() == week
    assert "hour" in frame.columns, "they are all at ten in the evening"


def test_plain_numbers_have_gaps_without_a_unit_and_no_calendar() -> None:
    frame = pl.DataFrame({"who": ["a", "a", "a", "b"], "at": [3, 5, 10, 5], "x": [1, 1, 1, 1]})
    records = timed(frame)
    assert fields(records) == {"since_previous": ("previous", None), "since_first": ("first", None)}
    assert records.frame["since_previous"].to_list() == [None, 2, 5, None]


def test_running_numbers_are_an_order_and_no_time() -> None:
    frame = pl.DataFrame({"who": ["a", "a", "a", "b"], "at": [101, 104, 120, 105], "x": [1, 1, 1, 1]})
    assert not fields(timed(frame))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (VISITS.replace("fields:", "time_fields: none, fields:"), "switched off"),
        (VISITS.replace(" time: at,", " ignore: [at],"), "no time"),
    ],
)
def test_without_a_time_or_when_switched_off_there_are_none(schema: str, why: str) -> None:
    assert not fields(timed(visits({"a": [0, 3, 30]}), schema)), why


def test_equally_spaced_records_have_no_gaps() -> None:
    assert "since_previous" not in fields(timed(visits({"a": [0, 1, 2, 3], "b": [0, 1]})))


def test_a_column_of_the_same_name_stays() -> None:
    frame = visits({"a": [0, 3, 30]}).with_columns(hour=pl.Series([7, 8, 9]))
    records = timed(frame, VISITS.replace("x: number", "x: number, hour: number"))
    assert records.frame["hour"].to_list() == [7, 8, 9] and records.frame["hour_of_time"].to_list() == [22, 1, 4]


def test_a_table_to_predict_has_the_same_fields_and_needs_no_column_for_them() -> None:
    schema = timed(visits({"a": [0, 3, 30], "b": [5, 10]})).schema
    assert "since_previous" not in schema.columns
    again = Schema.from_yaml(schema.to_yaml())
    assert again == schema
    minutes = Records.of_frame(visits({"c": [0, 0.5]}), again)
    assert minutes.frame["since_previous"].to_list() == [None, 0.5], "in the unit of the fit"
    vectoriser = Records.of_frame(visits({"a": [0, 3, 30], "b": [5, 10]}), again).vectoriser()
    alone = vectoriser.transform(visits({"a": [0, 3]}))
    assert alone[:, 1].tolist() == [0, vectoriser.mappers[1].forward(np.array([3.0]))[0]], "a table by itself"
    assert not vectoriser.transform(visits({"a": [0, 3]}).drop("who"))[:, 1:].any(), "without its entities"


def test_the_same_records_as_text_have_the_columns_of_the_table_alone() -> None:
    plain, records = visits({"a": [0, 3, 30]}), timed(visits({"a": [0, 3, 30]}))
    assert serialise(records.frame, records.schema, records.sequences) == serialise(
        plain, Schema.from_yaml(VISITS), records.sequences
    )


@given(st.lists(st.lists(st.integers(0, 10_000), min_size=1, max_size=6), min_size=1, max_size=5))
def test_gaps_add_up_to_the_time_since_the_first_record(times: list[list[int]]) -> None:
    rows = [(f"e{entity}", time, 1) for entity, of in enumerate(times) for time in of]
    records = timed(pl.DataFrame(rows, schema=["who", "at", "x"], orient="row"))
    if "since_previous" not in records.frame.columns:
        return
    gaps, ages = (records.frame[name].fill_null(0).to_numpy() for name in ("since_previous", "since_first"))
    for i in range(len(records)):
        assert np.allclose(np.cumsum(gaps[records.sequences[i]]), ages[records.sequences[i]])
