"""Records as text: the same values in every format, nothing that is not a field, and quotes where they are needed."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import polars as pl
import pytest
from conftest import Explained

from tefm import Field, Schema
from tefm.base.errors import InputError, SettingsError
from tefm.tables.grouping import by_entity
from tefm.tables.schema import Lookup, Side
from tefm.tables.serialise import FORMATS, Format, serialise

FRAME = pl.DataFrame(
    {
        "who": ["patient-b", "patient-a", "patient-b"],
        "moment": ["2031-03-04", "2031-03-01", "2031-03-02"],
        "died": ["label-yes", "label-no", "label-no"],
        "secret": ["hidden-1", "hidden-2", "hidden-3"],
        "note": ["told-1", "told-2", "told-3"],
        "stay": [5.0, None, 2.5],
        "kind": ["1", "?", "7"],
        "icu": ["yes", "no", None],
        "dx1": ["428", None, "250"],
        "dx2": ["250", None, "250"],
    }
)
SCHEMA = Schema(
    record="admission",
    entity="who",
    time="moment",
    label="died",
    ignore=("secret",),
    text=("note",),
    fields=(
        Field(name="stay", kind="number", title="Length of stay", unit="days"),
        Field(name="kind", kind="category", title="Admission type", names={"1": "Emergency"}),
        Field(name="icu", kind="flag", title="ICU stay"),
        Field(name="dx", kind="set", columns=("dx1", "dx2"), title="Diagnoses", names={"428": "heart failure, any"}),
    ),
)
SEQUENCES = by_entity(FRAME, SCHEMA)


def one(schema: Schema, columns: dict[str, list[object]], format: Format) -> str:  # noqa: A002
    """All rows of a small table as the text of one sequence."""
    frame = pl.DataFrame({"who": ["x"] * len(next(iter(columns.values()))), **columns})
    schema = schema.model_copy(update={"entity": "who"})
    (text,) = serialise(frame, schema, by_entity(frame, schema), format)
    return text


def category(value: str, format: Format) -> str:  # noqa: A002
    return one(Schema(fields=(Field(name="a", kind="category"),)), {"a": [value]}, format)


def test_prose_numbers_the_records_in_order_and_leaves_out_what_is_missing() -> None:
    assert serialise(FRAME, SCHEMA, SEQUENCES, "prose") == [
        "Admission 1: Length of stay: 2.5 days. Admission type: 7. Diagnoses: 250.\n"
        "Admission 2: Length of stay: 5 days. Admission type: Emergency. ICU stay. "
        "Diagnoses: heart failure, any (428), 250.",
        "Admission 1: nothing recorded.",
    ]


def test_compact() -> None:
    assert serialise(FRAME, SCHEMA, SEQUENCES, "compact") == [
        "Length of stay=2.5; Admission type=7; Diagnoses=250\n"
        "Length of stay=5; Admission type=Emergency; ICU stay=yes; Diagnoses=heart failure, any, 250",
        "",
    ]


def test_csv_is_read_back() -> None:
    texts = serialise(FRAME, SCHEMA, SEQUENCES, "csv")
    header = ["Length of stay", "Admission type", "ICU stay", "Diagnoses"]
    assert [list(csv.reader(io.StringIO(text))) for text in texts] == [
        [header, ["2.5", "7", "", "250"], ["5", "Emergency", "yes", "heart failure, any;250"]],
        [header, ["", "", "", ""]],
    ]


def test_json_is_read_back_and_has_no_blanks() -> None:
    texts = serialise(FRAME, SCHEMA, SEQUENCES, "json")
    assert [json.loads(text) for text in texts] == [
        [
            {"Length of stay": 2.5, "Admission type": "7", "Diagnoses": ["250"]},
            {
                "Length of stay": 5,
                "Admission type": "Emergency",
                "ICU stay": True,
                "Diagnoses": ["heart failure, any", "250"],
            },
        ],
        [{}],
    ]
    assert texts == [json.dumps(json.loads(text), separators=(",", ":")) for text in texts]


def test_toon() -> None:
    assert serialise(FRAME, SCHEMA, SEQUENCES, "toon") == [
        'records[2]{"Length of stay","Admission type","ICU stay",Diagnoses}:\n'
        '  2.5,"7",null,"250"\n'
        '  5,Emergency,true,"heart failure, any;250"',
        'records[1]{"Length of stay","Admission type","ICU stay",Diagnoses}:\n  null,null,null,null',
    ]


@pytest.mark.parametrize("format_", FORMATS)
def test_only_fields_are_written(format_: Format) -> None:
    text = "\n".join(serialise(FRAME, SCHEMA, SEQUENCES, format_))
    assert "Emergency" in text
    roles = ("who", "moment", "died", "secret", "note")
    hidden = {str(value) for column in roles for value in FRAME[column]} | {*roles}
    assert [word for word in hidden if word in text] == []


@pytest.mark.parametrize("format_", FORMATS)
def test_texts_follow_the_sequences_that_are_asked_for(format_: Format) -> None:
    first, second = serialise(FRAME, SCHEMA, SEQUENCES, format_)
    assert serialise(FRAME, SCHEMA, SEQUENCES.select([1, 0]), format_) == [second, first]
    assert serialise(FRAME, SCHEMA, SEQUENCES.select([]), format_) == []


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("Ada Lovelace", "Ada Lovelace"),
        ("3 days", "3 days"),
        ("grün", "grün"),
        ("true", '"true"'),
        ("42", '"42"'),
        ("007", '"007"'),
        ("-1e5", '"-1e5"'),
        ("- a", '"- a"'),
        ("#a", '"#a"'),
        ("a:b", '"a:b"'),
        ("a,b", '"a,b"'),
        ("[50-60)", '"[50-60)"'),
        ('say "a"', r'"say \"a\""'),
        ("a\\b", r'"a\\b"'),
        ("a\nb", r'"a\nb"'),
        ("a\x08b", r'"a\u0008b"'),
    ],
)
def test_toon_quotes_what_would_read_as_something_else(value: str, written: str) -> None:
    assert category(value, "toon") == f"records[1]{{a}}:\n  {written}"


def test_a_line_break_in_a_value_does_not_make_a_record() -> None:
    assert category("a\n b", "prose") == "Record 1: a: a b."
    assert category("a\n b", "compact") == "a=a b"
    assert list(csv.reader(io.StringIO(category("a\n b", "csv")))) == [["a"], ["a\n b"]]


@pytest.mark.parametrize(
    ("values", "written"),
    [
        (pl.Series([0.1], dtype=pl.Float32), "0.1"),
        (pl.Series([123456792.0], dtype=pl.Float32), "123456792"),
        (pl.Series([1433962.2641509436]), "1433962.2641509436"),
        (pl.Series([1e-7]), "0.0000001"),
        (pl.Series([2.5e16]), "25000000000000000"),
        (pl.Series([-0.0]), "0"),
        (pl.Series([" 12.50 "]), "12.5"),
        (pl.Series([float("inf")]), None),
        (pl.Series([float("nan")]), None),
        (pl.Series([999]), None),
    ],
)
def test_numbers_keep_their_digits(values: pl.Series, written: str | None) -> None:
    schema = Schema(fields=(Field(name="a", kind="number", absent=("999",)),))
    frame = values.alias("a").to_frame()
    assert serialise(frame, schema, by_entity(frame, schema), "compact") == [f"a={written}" if written else ""]


def test_two_fields_of_one_title_stay_apart() -> None:
    schema = Schema(fields=tuple(Field(name=name, kind="number", title="Size") for name in ("a", "b")))
    assert one(schema, {"a": [1], "b": [2]}, "json") == '[{"a":1,"b":2}]'


def test_side_tables_and_lookups(tmp_path: Path) -> None:
    pl.DataFrame({"id": [1, 1, 2], "code": ["x", "y", "z"]}).write_csv(tmp_path / "side.csv")
    pl.DataFrame({"code": ["x"], "title": ["Xylitol"]}).write_csv(tmp_path / "names.csv")
    side = Side(table=str(tmp_path / "side.csv"), key="id", value="code")
    lookup = Lookup(table=str(tmp_path / "names.csv"), key="code", name="title")
    schema = Schema(fields=(Field(name="drugs", kind="set", side=side, lookup=lookup),))
    assert one(schema, {"id": [2, 1]}, "prose") == "Record 1: drugs: z.\nRecord 2: drugs: Xylitol (x), y."


def test_an_unknown_format_and_a_wrong_table_are_explained(explained: Explained) -> None:
    explained(SettingsError, lambda: serialise(FRAME, SCHEMA, SEQUENCES, "xml"), "xml", "toon")  # type: ignore[arg-type]
    explained(InputError, lambda: serialise(FRAME.head(2), SCHEMA, SEQUENCES), "row 2", "2 rows")
