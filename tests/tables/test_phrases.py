"""The words of every slot value: those that `describe` says, and the same after a round trip through JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tefm import Schema, Vectoriser
from tefm.tables.phrases import Phrases, phrases_of, statements

SCHEMA = Schema.from_yaml(
    """
    record: admission
    fields:
      stay: {kind: number, title: Length of stay, unit: days, buckets: 3}
      ward: {kind: category, top: 2, names: {A: Acute care}}
      dx: {kind: set, delimiter: ;, top: 3, title: Diagnoses, names: {428: Heart failure}}
      icu: {kind: flag, title: ICU stay}
      drugs: {kind: set, delimiter: ;}
    """
)
TABLE = pl.DataFrame(
    {
        "stay": [1, 2, 3, 9, 14, None],
        "ward": ["A", "B", "A", "Z", "B", None],
        "dx": ["428", "428;250", "250;777;401", "401", None, "428;401"],
        "icu": [1, 0, 0, 1, 0, None],
        "drugs": ["insulin", "insulin;statin", "statin", None, "heparin;insulin", "heparin"],
    }
)
VECTORISER = Vectoriser.fit(TABLE, SCHEMA)
PHRASES = phrases_of(VECTORISER)
SIZES = VECTORISER.layout.sizes_D.tolist()


def test_a_round_trip_through_json() -> None:
    assert TypeAdapter(Phrases).validate_python(json.loads(json.dumps(asdict(PHRASES)))) == PHRASES


def test_fields_and_slots() -> None:
    assert PHRASES.record == "admission"
    assert [field.title for field in PHRASES.fields] == ["Length of stay", "ward", "Diagnoses", "ICU stay", "drugs"]
    assert [field.several for field in PHRASES.fields] == [False, False, True, False, True]
    assert PHRASES.fields[1].values == (("Acute care", "B", "other"),)
    assert PHRASES.fields[3].values == (("yes",),)
    # all slots but 2 and 7, the counts of sets
    assert [field.slots for field in PHRASES.fields] == [(0,), (1,), (3, 4, 5), (6,), (8, 9, 10)]
    assert len(SIZES) == 11


def test_every_value_of_a_slot_has_words() -> None:
    for field in PHRASES.fields:
        assert [len(words) for words in field.values] == [SIZES[slot] for slot in field.slots]
        assert all(words.strip() for values in field.values for words in values)


@given(st.tuples(*(st.integers(0, size) for size in SIZES)))
def test_the_words_are_those_of_describe(slots: tuple[int, ...]) -> None:
    x_D = np.array(slots)
    expected = {statement.slots: statement.words for statement in statements(VECTORISER, x_D)}
    for field in PHRASES.fields:
        present = [values[x_D[slot] - 1] for slot, values in zip(field.slots, field.values, strict=True) if x_D[slot]]
        if not present:
            continue
        words = next(words for positions, words in expected.items() if set(positions) & set(field.slots))
        if field.title == "ICU stay":
            assert (words, present) == ("ICU stay", ["yes"])  # `describe` writes the name of a flag, `Phrases` a yes
        else:
            assert words.startswith(f"{field.title}: {', '.join(present)}")
