"""Open-ended numbers such as > 89: they keep their place in the order and never turn a column of numbers into words."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tefm import Field, Schema, Vectoriser, infer_schema
from tefm.tables.grouping import by_entity
from tefm.tables.infer import schema_of
from tefm.tables.readers.table import open_table
from tefm.tables.serialise import FORMATS, serialise
from tefm.tables.words import as_numbers, is_open_ended

FINITE = st.floats(allow_nan=False, allow_infinity=False)
#: how a bound is written, and where it lies: below its number, at it, or above it
WRITTEN = {"<{}": -1, "< {}": -1, "<={}": 0, "≤ {}": 0, "{}": 0, ">={}": 0, "≥{}": 0, "{}+": 0, ">{}": 1, "> {}": 1}


@given(st.lists(st.tuples(FINITE, st.sampled_from([*WRITTEN])), min_size=2, max_size=20))
def test_the_order_is_kept(values: list[tuple[float, str]]) -> None:
    """Sorted by their number and, for the same number, by the side they lie on."""
    numbers = as_numbers(pl.Series([form.format(repr(number)) for number, form in values])).to_list()
    ranks = [(number + 0.0, WRITTEN[form]) for number, form in values]  # + 0.0: minus zero is zero
    for i, first in enumerate(ranks):
        for j, second in enumerate(ranks):
            nothing_between = (first[1], second[1]) == (1, -1) and math.nextafter(first[0], math.inf) == second[0]
            if first < second and not nothing_between:
                assert numbers[i] <= numbers[j]
            if first == second:
                assert numbers[i] == numbers[j]
        if first[1]:
            assert (numbers[i] > first[0]) == (first[1] > 0)


@given(st.lists(st.integers(0, 89), min_size=1, max_size=50), st.integers(1, 12))
def test_an_open_end_goes_to_the_end_bucket(ages: list[int], buckets: int) -> None:
    """Above everything up to its bound, seen in training or not; the last bucket where nothing lies above."""
    schema = Schema(fields=(Field(name="age", kind="number", buckets=buckets),))
    words = pl.DataFrame({"age": [*map(str, ages), "> 89", "89", "-5", "<0"]})
    for training in (words, pl.DataFrame({"age": ages})):
        vectoriser = Vectoriser.fit(training, schema)
        slots = vectoriser.transform(words)[:, 0].tolist()
        above, bound, below = slots[len(ages)], slots[len(ages) + 1], slots[-1]
        assert above == vectoriser.layout.slots[0].size and above >= bound >= 1
        assert all(below <= slot <= above for slot in slots[: len(ages)])
        assert np.array_equal(vectoriser.transform(vectoriser.inverse(vectoriser.transform(words)))[:, 0], slots)


@pytest.mark.parametrize(
    "word", ["a > b", ">", "> ", "> x", "[70-80)", "70-80", "+", "A+", "> 12,5", "5 > 3", "<5>", ">>5"]
)
def test_other_text_is_no_number(word: str) -> None:
    assert as_numbers(pl.Series([word])).to_list() == [None]
    assert not is_open_ended(pl.Series([word]))[0]


@pytest.mark.parametrize(
    ("word", "number", "read"),
    [
        ("> 89", 89.00000000000001, "'> 89' is just above 89"),
        (">1,000", math.nextafter(1000, math.inf), "'>1,000' is just above 1,000"),
        ("<0.01", math.nextafter(0.01, 0), "'<0.01' is just below 0.01"),
        ("90+", 90.0, "'90+' is 90"),
        ("≥ 90", 90.0, "'≥ 90' is 90"),
        ("<=5", 5.0, "'<=5' is 5"),
    ],
)
def test_a_column_of_numbers_stays_one_and_inspect_says_how_it_is_read(word: str, number: float, read: str) -> None:
    table = pl.DataFrame({"x": [*map(str, range(20, 40)), *[word] * 30], "ward": ["A", "B"] * 25})
    schema, guesses = schema_of(open_table(table))
    assert schema.fields[0] == Field(name="x", kind="number")
    assert f"open-ended: {read}" in guesses[0].why
    assert as_numbers(pl.Series([word])).to_list() == [number]


def test_a_column_of_ranges_stays_a_category() -> None:
    table = pl.DataFrame(
        {"glucose": ["Norm", ">200", ">300"] * 9, "ratio": ["<1", "1", ">1"] * 9, "a": ["[70-80)", "80+", "90"] * 9}
    )
    assert [field.kind for field in infer_schema(table).fields] == ["category"] * 3


def test_an_open_end_outside_the_sample_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tefm.tables.infer.SPREAD", 39)
    table = pl.DataFrame({"age": [*map(str, range(39)), "> 89"], "ward": ["A", "B"] * 20})
    schema, guesses = schema_of(open_table(table))
    assert schema.fields[0] == Field(name="age", kind="number")
    assert guesses[0].why == "numbers; open-ended: '> 89' is just above 89"


def test_a_schema_may_still_call_it_absent() -> None:
    schema = Schema.from_yaml("fields: {age: {kind: number, absent: ['> 89']}}")
    table = pl.DataFrame({"age": ["70", "80", "> 89", ">89"]})
    assert Vectoriser.fit(table.head(2), schema).transform(table)[:, 0].tolist() == [1, 2, 0, 2]


def test_a_bucket_of_open_ends_has_its_own_words() -> None:
    table = pl.DataFrame({"x": ["<0.01", "0.01", "5", "89", "> 89", ">0"]})
    (mapper,) = Vectoriser.fit(table, Schema(fields=(Field(name="x", kind="number", unit="years"),))).mappers
    words = [mapper.in_words(slot) for slot in range(1, 7)]
    assert words == ["> 0 years", "< 0.01 years", "0.01 years", "5 years", "89 years", "> 89 years"]
    wide = Vectoriser.fit(
        pl.DataFrame({"x": ["> 3", "7", "9", "1", "< 0", "-4"]}),
        Schema.from_yaml("fields: {x: {kind: number, buckets: 2}}"),
    )
    assert [wide.mappers[0].in_words(slot) for slot in (1, 2)] == ["≤ 1", "> 3"]


@pytest.mark.parametrize("form", FORMATS)
def test_in_texts_it_is_as_written(form: str) -> None:
    frame = pl.DataFrame({"age": ["70", " > 89"]})
    schema = Schema.from_yaml("fields: {age: number}")
    texts = serialise(frame, schema, by_entity(frame, schema), form)  # type: ignore[arg-type]
    assert "> 89" in texts[1] and "89.0" not in texts[1]
    if form == "json":
        assert [json.loads(text)[0]["age"] for text in texts] == [70, "> 89"]
