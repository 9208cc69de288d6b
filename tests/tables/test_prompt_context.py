"""What a prompt contains besides the codes: the free text of the last record, and the time since the previous one."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from conftest import Explained

from tefm import Schema
from tefm.base.errors import InputError
from tefm.tables.grouping import by_entity, gap_words, texts_of

SCHEMA = Schema.from_yaml("{entity: who, time: day, text: [note, plan], fields: {x: number}}")
DAYS = [date(2024, 1, 31), date(2024, 1, 1), date(2024, 1, 1), date(2024, 2, 1)]
EXPECTED = ["", " 30 days later: ", " 1 day later: ", ""]  # a: rows 1, 0 and 3; b: row 2


def table(days: list[Any], **columns: list[Any]) -> pl.DataFrame:
    return pl.DataFrame({"who": ["a", "a", "b", "a"][: len(days)], "day": days, "x": range(len(days)), **columns})


def gaps(days: list[Any]) -> list[str]:
    frame = table(days)
    return gap_words(frame, SCHEMA, by_entity(frame, SCHEMA))


# ---- gaps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "days",
    [
        DAYS,
        [datetime(day.year, day.month, day.day, 8, 30) for day in DAYS],
        [str(day) for day in DAYS],
        [f"{day}T08:30:00" for day in DAYS],
        [f"{day} 08:30:00" for day in DAYS],
        [f"{day}T08:30:00Z" for day in DAYS],
    ],
    ids=["dates", "datetimes", "ISO dates", "ISO times", "ISO times with a blank", "ISO times in UTC"],
)
def test_gaps_follow_the_order_of_time(days: list[Any]) -> None:
    assert gaps(days) == EXPECTED


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_gaps_do_not_depend_on_the_unit_of_the_column(unit: Any) -> None:
    frame = table(DAYS).with_columns(pl.col("day").cast(pl.Datetime(unit)))
    assert gap_words(frame, SCHEMA, by_entity(frame, SCHEMA)) == EXPECTED


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (timedelta(seconds=0), "0 seconds"),
        (timedelta(seconds=1), "1 second"),
        (timedelta(seconds=59), "59 seconds"),
        (timedelta(minutes=1), "1 minute"),
        (timedelta(minutes=90), "2 hours"),
        (timedelta(hours=23), "23 hours"),
        (timedelta(days=1), "1 day"),
        (timedelta(days=59), "59 days"),
        (timedelta(days=60), "2 months"),
        (timedelta(days=700), "23 months"),
        (timedelta(days=730), "2 years"),
        (timedelta(days=4_000), "11 years"),
    ],
)
def test_a_gap_is_written_in_the_right_unit(gap: timedelta, words: str) -> None:
    start = datetime(2020, 2, 28, 23, 0)
    assert gaps([start, start + gap]) == ["", f" {words} later: "]


@pytest.mark.parametrize("days", [[1, 2, 3, 4], [0.5, 1.5, 2.5, 3.5], ["1", "2", "3", "4"]])
def test_numbers_are_not_dates(days: list[Any], explained: Explained) -> None:
    explained(InputError, lambda: gaps(days), "'day'", "plain numbers", "dates")


def test_gaps_need_a_time(explained: Explained) -> None:
    timeless = Schema.from_yaml("{entity: who, fields: {x: number}}")
    frame = table(DAYS)
    sequences = by_entity(frame, timeless, file="t.csv")
    explained(InputError, lambda: gap_words(frame, timeless, sequences), "t.csv", "`time: COLUMN`")


# ---- text -----------------------------------------------------------------------------------------------------------


def test_texts_of_the_last_record_are_joined() -> None:
    frame = table(
        DAYS, note=["no", "no", None, "went home"], plan=["no", "no", "stay", "walk more"]
    )  # the last ones are rows 3 and 2
    assert texts_of(frame, SCHEMA, by_entity(frame, SCHEMA)) == ["went home\nwalk more", "stay"]


@pytest.mark.parametrize("nothing", [None, "", "n/a"])
def test_a_missing_text_is_empty(nothing: str | None) -> None:
    frame = table(DAYS, note=[nothing] * 4, plan=["a", "b", nothing, nothing])
    assert texts_of(frame, SCHEMA, by_entity(frame, SCHEMA)) == ["", ""]


def test_a_schema_without_text() -> None:
    frame, wordless = table(DAYS), SCHEMA.model_copy(update={"text": ()})
    assert texts_of(frame, wordless, by_entity(frame, wordless)) is None


def test_a_text_column_that_is_not_there(explained: Explained) -> None:
    frame = table(DAYS, note=["a"] * 4, plans=["b"] * 4)
    sequences = by_entity(frame, SCHEMA, file="t.csv")
    explained(InputError, lambda: texts_of(frame, SCHEMA, sequences), "t.csv", "'plan'", "'plans'")


def test_the_notes_of_every_record_where_they_have_budgets() -> None:
    frame = table(DAYS, note=["a", "b", None, "d"], plan=["e", "f", "g", "?"])
    schema = SCHEMA.with_text({"note": 20, "plan": {"tokens": 30}})
    sequences = by_entity(frame, schema)
    notes = texts_of(frame, schema, sequences)
    cells = [(note or "", "" if plan == "?" else plan) for note, plan in frame.select("note", "plan").rows()]
    expected = [tuple(cells[row] for row in sequences[i].tolist()) for i in range(len(sequences))]
    assert notes == expected
