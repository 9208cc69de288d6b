"""What a prompt contains besides the codes: the free text of the last record, or the notes of every record."""

from __future__ import annotations

from datetime import date
from typing import Any

import polars as pl
import pytest
from conftest import Explained

from tefm import Schema
from tefm.base.errors import InputError
from tefm.tables.grouping import by_entity, texts_of

SCHEMA = Schema.from_yaml("{entity: who, time: day, text: [note, plan], fields: {x: number}}")
DAYS = [date(2024, 1, 31), date(2024, 1, 1), date(2024, 1, 1), date(2024, 2, 1)]


def table(days: list[Any], **columns: list[Any]) -> pl.DataFrame:
    return pl.DataFrame({"who": ["a", "a", "b", "a"][: len(days)], "day": days, "x": range(len(days)), **columns})


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
