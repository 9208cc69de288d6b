"""Fields that say when the value of a category was last seen."""

from __future__ import annotations

import polars as pl
import pytest
from conftest import Explained
from hypothesis import given
from hypothesis import strategies as st

from tefm.base.errors import SchemaError
from tefm.tables.records import Records
from tefm.tables.repeats import repeat_fields
from tefm.tables.schema import Schema

AGAIN = "ward_last_seen: {kind: category, repeats: ward}"
VISITS = f"{{record: visit, entity: who, time: day, time_fields: none, fields: {{ward: category, {AGAIN}}}}}"


def seen(frame: pl.DataFrame) -> list[str | None]:
    return Records.of_frame(frame, Schema.from_yaml(VISITS)).frame["ward_last_seen"].to_list()


def test_just_before_earlier_or_never_in_the_order_of_the_time() -> None:
    frame = pl.DataFrame(
        {
            "who": ["a", "b", "a", "a", "b", "a"],
            "day": [4, 1, 1, 2, 2, 3],
            "ward": ["x", "x", "x", "x ", "y", "y"],
        }
    )
    assert seen(frame) == ["earlier", "never", "never", "previous", "never", "never"]


def test_a_missing_value_was_not_seen_and_repeats_nothing() -> None:
    frame = pl.DataFrame({"who": ["a"] * 4, "day": [1, 2, 3, 4], "ward": ["x", None, "?", "x"]})
    assert seen(frame) == ["never", None, None, "earlier"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y", "z", ""])), min_size=1, max_size=12))
def test_as_one_would_look_it_up(rows: list[tuple[str, str]]) -> None:
    frame = pl.DataFrame(
        {"who": [who for who, _ in rows], "day": list(range(len(rows))), "ward": [ward for _, ward in rows]}
    )
    for place, (found, (who, ward)) in enumerate(zip(seen(frame), rows, strict=True)):
        before = [other for entity, other in rows[:place] if entity == who]
        if not ward:
            assert found is None
        elif before[-1:] == [ward]:
            assert found == "previous"
        else:
            assert found == ("earlier" if ward in before else "never")


def test_which_fields_may_repeat() -> None:
    text = "{record: visit, entity: who, static: [sex], fields: {sex: category, ward: category, age: number, x: flag}}"
    (field,) = repeat_fields(Schema.from_yaml(text), taken=["ward_last_seen"])
    assert (field.name, field.repeats) == ("ward_last_seen_again", "ward"), "a column of this name stays"
    assert f"{field.display_name}: {field.names['previous']}" == "ward last seen: in the previous visit"
    assert not repeat_fields(Schema.from_yaml(text.replace("entity", "repeat_fields: none, entity")), [])
    assert not repeat_fields(Schema.from_yaml("{fields: {ward: category}}"), []), "single records"


def test_a_table_by_itself_has_the_field_and_needs_no_column_for_it() -> None:
    frame = pl.DataFrame({"who": ["a", "a", "b"], "day": [1, 2, 1], "ward": ["x", "x", "x"]})
    schema = Schema.from_yaml(VISITS)
    assert schema.columns == ("ward",) and Schema.from_yaml(schema.to_yaml()) == schema
    records = Records.of_frame(frame, schema)
    vectoriser = records.vectoriser()
    assert vectoriser.transform(frame).tolist() == records.slots(vectoriser).tolist()
    assert vectoriser.inverse(vectoriser.transform(frame))["ward_last_seen"].to_list() == ["never", "previous", "never"]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("again: {kind: category, repeats: wart}", ["'wart'", "did you mean 'ward'?"]),
        ("again: {kind: category, repeats: age}", ["'age'", "not a category"]),
        ("again: {kind: flag, repeats: ward}", ["kind: category, repeats: FIELD"]),
    ],
)
def test_what_a_schema_may_not_say(field: str, words: list[str], explained: Explained) -> None:
    text = f"{{entity: who, fields: {{ward: category, age: number, {field}}}}}"
    explained(SchemaError, lambda: Schema.from_yaml(text), *words)
