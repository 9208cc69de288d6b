"""Groups cover every record once, and missing values and ties are counted as a person would."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tefm.tables.grouping import by_entity, by_window
from tefm.tables.overview import FEW_VALUES, groups_of, missing_shares, tied_records
from tefm.tables.schema import Schema

FIELDS = Schema.from_yaml("{fields: {age: number, ward: category, icu: flag, dx: {kind: set, delimiter: ;}}}")


def table(**columns: list[object]) -> pl.DataFrame:
    height = len(next(iter(columns.values())))
    full = {"age": [1.0] * height, "ward": ["a"] * height, "icu": ["1"] * height, "dx": ["x"] * height}
    return pl.DataFrame({**full, **columns}, strict=False)


@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6), st.integers(0, 3)), min_size=1, max_size=60))
def test_quartiles_cover_every_record_in_order(ages: list[float | None]) -> None:
    ages = [None if age is None else float(age) for age in ages]
    for groups in groups_of(table(age=ages), FIELDS):
        assert groups.field == "age" and len(groups.names) <= 5
        sizes = np.bincount(groups.group_N, minlength=len(groups.names))
        assert len(sizes) == len(groups.names) and (sizes > 0).all(), "no group is empty"
        assert (groups.names[-1] == "missing") == (None in ages)
        present = [(age, number) for age, number in zip(ages, groups.group_N, strict=True) if age is not None]
        numbers = [number for _, number in sorted(present)]
        assert numbers == sorted(numbers), "a larger number is in a later group"


def test_quartiles_of_different_numbers_are_of_equal_size() -> None:
    (groups,) = groups_of(table(age=[float(n) for n in range(100)]), FIELDS)
    assert groups.names == ("up to 24", "24 to 49", "49 to 74", "over 74")
    assert np.bincount(groups.group_N).tolist() == [25] * 4


def test_values_are_groups_where_there_are_few() -> None:
    few = groups_of(table(ward=["b", "a", "b", "?"], icu=["1", "0", "1", "0"]), FIELDS)
    assert [(groups.field, groups.names, groups.group_N.tolist()) for groups in few] == [
        ("ward", ("a", "b", "missing"), [1, 0, 1, 2]),
        ("icu", ("0", "1"), [1, 0, 1, 0]),
    ]
    many = [f"ward {n}" for n in range(FEW_VALUES + 1)]
    assert groups_of(table(ward=many), FIELDS) == []
    assert len(groups_of(table(ward=many[:-1]), FIELDS)) == 1


def test_values_have_their_names() -> None:
    schema = Schema.from_yaml("{fields: {sex: {kind: category, title: Sex, names: {f: female}}}}")
    (groups,) = groups_of(pl.DataFrame({"sex": ["f", "m"]}), schema)
    assert (groups.field, groups.names) == ("Sex", ("female", "m"))


def test_missing_values_of_every_kind_of_field() -> None:
    frame = table(age=[1, None, 3, 4], ward=["a", "?", None, "NA"], icu=["1", "0", "1", "0"], dx=["a;b", None, "c", ""])
    assert missing_shares(frame, FIELDS) == {"ward": 0.75, "dx": 0.5, "age": 0.25}
    assert list(missing_shares(frame, FIELDS)) == ["ward", "dx", "age"], "the largest first"


def test_ties_are_counted_within_a_sequence() -> None:
    schema = Schema.from_yaml("{entity: who, time: day, fields: {x: number}}")
    frame = pl.DataFrame({"who": [*"aaabbc"], "day": [1, 1, 1, 2, 1, 1], "x": [0] * 6})
    assert tied_records(frame, schema, by_entity(frame, schema)) == 2
    assert tied_records(frame, schema, by_window(frame, schema, 2)) == 2, "days 1 1, 1 1 and 1 2"
    untimed = schema.model_copy(update={"time": None})
    assert tied_records(frame, untimed, by_entity(frame, untimed)) is None
    single = schema.model_copy(update={"entity": None})
    assert tied_records(frame, single, by_entity(frame, single)) is None
