"""A column of dates as fields: days up to the record, month and weekday."""

from __future__ import annotations

from datetime import date

import polars as pl
import pytest
from conftest import Explained

from tefm.base.errors import InputError, SchemaError
from tefm.model.estimator import TEFM
from tefm.serve.describe import columns_of, example_rows
from tefm.serve.rows import RowReader
from tefm.tables.columns import completed
from tefm.tables.readers.table import open_table
from tefm.tables.records import Records
from tefm.tables.schema import Schema

VISITS = Schema.from_yaml("{record: visit, entity: who, time: seen, fields: {born: date, ward: category}}")
UNTIMED = Schema.from_yaml("{record: visit, entity: who, fields: {born: date, ward: category}}")
FRAME = pl.DataFrame(
    {
        "who": ["a", "b", "a"],
        "seen": ["2024-03-10 12:00:00", "2024-03-02 00:00:00", "2024-03-03 00:00:00"],
        "born": ["2024-03-01", None, "2024-02-29"],
        "ward": ["x", "y", "x"],
    }
)


def parts(frame: pl.DataFrame, schema: Schema = VISITS) -> dict[str, list[object]]:
    records = Records.of_frame(frame, schema)
    return records.frame.select("born_days", "born_month", "born_weekday").to_dict(as_series=False)


def test_days_up_to_the_record_month_and_weekday() -> None:
    assert parts(FRAME) == {
        "born_days": [9.5, None, 3.0],
        "born_month": ["March", None, "February"],
        "born_weekday": ["Friday", None, "Thursday"],
    }


@pytest.mark.parametrize("kind", [pl.Date, pl.Datetime("ms"), pl.Datetime("us")])
def test_dates_of_any_type(kind: pl.DataType) -> None:
    dates = pl.Series("born", [date(2024, 3, 1), None, date(2024, 2, 29)]).cast(kind)
    assert parts(FRAME.with_columns(dates)) == parts(FRAME)


def test_without_a_time_days_count_from_the_first_record() -> None:
    frame = pl.DataFrame({"who": ["a", "b", "a"], "born": ["2024-03-01", "2024-01-05", "2024-03-08"], "ward": "x"})
    assert parts(frame, UNTIMED)["born_days"] == [0.0, 0.0, 7.0]


def test_the_time_of_records_still_gives_its_own_fields() -> None:
    schema = Records.of_frame(FRAME, VISITS).timed().schema
    assert "hour" in {field.clock for field in schema.fields}


def test_a_date_is_short_for_three_fields_that_read_one_column() -> None:
    assert VISITS.columns == ("born", "ward") and Schema.from_yaml(VISITS.to_yaml()) == VISITS
    assert [field.display_name for field in VISITS.fields[:3]] == ["born (days)", "born (month)", "born (weekday)"]
    assert [field.name for field in VISITS.without(["born"]).fields] == ["ward"]
    vectoriser = Records.of_frame(FRAME, VISITS).vectoriser()
    assert vectoriser.transform(FRAME)[:, :3].tolist() == [[2, 2, 1], [0, 0, 0], [1, 1, 2]]


def test_a_request_has_the_date_and_not_what_comes_of_it() -> None:
    schema = VISITS.with_roles(label="died")
    rows = [(f"p{n}", "2024-03-10", f"2024-0{1 + n % 9}-15", "xy"[n % 2], "ny"[n % 3 == 0]) for n in range(60)]
    table = pl.DataFrame(rows, schema=["who", "seen", "born", "ward", "died"], orient="row")
    preparation = TEFM(schema).prepared(table).preparation
    assert [(column.name, column.role) for column in columns_of(preparation)] == [
        ("who", "entity"),
        ("seen", "time"),
        ("born", "date"),
        ("ward", "category"),
    ]
    example = example_rows(preparation, 2)
    assert {*example[0]} == {"who", "seen", "born", "ward"}
    asked = RowReader(preparation).of_records(example)
    records = preparation.to_predict(asked.frame)
    assert records.frame["born_days"].is_not_null().all() and records.frame["born_month"][0] == "January"


def test_a_table_without_the_date_is_refused_unless_it_may_be_absent(explained: Explained) -> None:
    table = open_table(FRAME.drop("born"))
    explained(InputError, lambda: completed(table, VISITS), "born  (in the schema, not in the table)")
    assert completed(table, VISITS, absent=True).frame()["born"].null_count() == 3


def test_dates_with_points_have_the_day_first() -> None:
    as_text = [day.strftime("%d.%m.%Y") if day else None for day in FRAME["born"].cast(pl.String).str.to_date()]
    assert parts(FRAME.with_columns(born=pl.Series(as_text))) == parts(FRAME)


def test_what_is_no_date_is_refused(explained: Explained) -> None:
    odd = FRAME.with_columns(born=pl.Series(["3/1/2024", None, None]))
    error = explained(InputError, lambda: parts(odd), "'3/1/2024'", "neither a number nor a date")
    assert "`time:`" not in error.remedy
    explained(InputError, lambda: parts(FRAME.with_columns(born=pl.Series([5, 6, 7]))), "numbers, not dates")
    explained(SchemaError, lambda: Schema.from_yaml("{fields: {x: {kind: number, part: days}}}"), "kind: date")
