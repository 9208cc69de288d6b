"""Fields of the entity: how they are found, and what a schema may say about them."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import Explained

from tefm.base.errors import SchemaError
from tefm.tables.infer import schema_of
from tefm.tables.readers.table import open_table
from tefm.tables.records import Records
from tefm.tables.schema import Schema
from tefm.tabular.inputs import RecordSlots, sequence_features

PATIENTS, STAYS = 200, 4


def stays(**columns: list[Any]) -> pl.DataFrame:
    """Four stays of each of 200 patients, and columns with a value per stay."""
    rng = np.random.default_rng(0)
    patients = [f"p{patient}" for patient in range(PATIENTS) for _ in range(STAYS)]
    pulse = rng.normal(80, 10, len(patients)).round(1).tolist()
    return pl.DataFrame({"patient": patients, "pulse": pulse, **columns})


def of_patients(values: list[Any]) -> list[Any]:
    return [value for value in values for _ in range(STAYS)]


def found(frame: pl.DataFrame) -> tuple[tuple[str, ...], dict[str, str]]:
    schema, guesses = schema_of(open_table(frame))
    return schema.static, {guess.column: guess.why for guess in guesses}


def test_what_never_changes_is_static() -> None:
    drugs = [["aspirin"], ["aspirin", "insulin"], [], ["heparin"]] * 50
    frame = stays(born=of_patients(list(range(1900, 2000)) * 2), sex=of_patients(["f", "m", None, "m"] * 50))
    static, why = found(frame.with_columns(history=pl.Series(of_patients(drugs))))
    assert static == ("born", "sex", "history")
    assert why["sex"].endswith("; the same in all records of each patient") and "same" not in why["pulse"]


def test_a_few_exceptions_are_shown_and_more_refused() -> None:
    sex = of_patients(["f", "m"] * 100)
    sex[5 * STAYS] = "f"
    static, why = found(stays(sex=sex))
    assert static == ("sex",) and "but 1 of 200, such as 'p5'" in why["sex"]
    for patient in (7, 9):
        sex[patient * STAYS] = "f"
    assert found(stays(sex=sex))[0] == (), "3 of 200 are more than one in a hundred"


def test_a_rare_event_is_not_static() -> None:
    """Constant in 199 of 200 patients, and in none of those who had it."""
    event = ["none"] * (PATIENTS * STAYS)
    event[13] = "transplant"
    assert found(stays(event=event))[0] == ()


def test_single_records_say_nothing() -> None:
    frame = stays(sex=of_patients(["f", "m"] * 100))
    few = pl.concat([frame.filter(pl.col("patient") == name).head(1) for name in frame["patient"].unique()[:150]])
    assert found(pl.concat([few, frame.filter(pl.col("patient").is_in(["p0", "p1"]))]).unique())[0] == ()


@pytest.mark.parametrize(
    "schema, words",
    [
        ("{entity: who, static: [agee], fields: {age: number, x: number}}", ["'agee'", "did you mean 'age'?"]),
        ("{static: [age], fields: {age: number, x: number}}", ["entity: COLUMN"]),
        ("{entity: who, static: [age], fields: {age: number}}", ["all fields are `static`"]),
        (
            "{entity: who, time: at, static: [gap], fields: {gap: {kind: number, clock: previous}, x: number}}",
            ["'gap'", "computed for every record"],
        ),
    ],
)
def test_what_a_schema_may_not_say(schema: str, words: list[str], explained: Explained) -> None:
    explained(SchemaError, lambda: Schema.from_yaml(schema), *words)


def test_a_schema_keeps_what_stays() -> None:
    schema = Schema.from_yaml("{entity: who, static: [age, sex], fields: {age: number, sex: category, x: number}}")
    assert Schema.from_yaml(schema.to_yaml()) == schema
    assert schema.without(["age"]).static == ("sex",)


def test_trees_read_a_field_of_the_entity_once_and_windows_know_none() -> None:
    frame = stays(sex=of_patients(["f", "m"] * 100))
    schema = schema_of(open_table(frame))[0]
    records = Records.of_frame(frame, schema)
    vectoriser = records.vectoriser()
    slots = RecordSlots.of(records.as_slots(vectoriser), vectoriser.layout)
    assert vectoriser.layout.static_D.tolist() == [False, True]
    assert sequence_features(slots, "history").x_NF.shape[1] == 2 + 1 + 1, "the last slots, one mean, the length"
    assert sequence_features(slots, "order").x_NF.shape[1] == 7 + 1 + 1, "a course, the sex, the length"
    assert Records.of_frame(frame, schema, window=10).schema.static == ()
