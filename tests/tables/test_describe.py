"""A record in words: every statement rests on slots, and what is absent says nothing."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from tefm import Schema, Vectoriser
from tefm.tables.phrases import Statement, describe, statements

SCHEMA = Schema.from_yaml(
    """
    record: admission
    fields:
      stay: {kind: number, title: Length of stay, unit: days, buckets: 2, group: Stay}
      lab_tests: {kind: number, buckets: 1}
      ward: {kind: category, top: 2, names: {A: Acute care}}
      icu: {kind: flag, title: ICU stay}
      dx: {kind: set, delimiter: ;, top: 2, title: Diagnoses, group: Diagnoses, names: {428: Heart failure}}
    """
)
TABLE = pl.DataFrame(
    {
        "stay": [1, 2, 3, 9, None],
        "lab_tests": [5, 7, 6, 5, None],
        "ward": ["A", "B", "A", "Z", None],
        "icu": [1, 0, 0, 1, 0],
        "dx": ["428", "428;250", "250;777;401", "901", None],
    }
)
# slots: stay, lab_tests, ward, icu, number of dx, dx=250, dx=428
VECTORISER = Vectoriser.fit(TABLE, SCHEMA)
SLOTS = VECTORISER.transform(TABLE)


def test_a_full_description_says_every_present_field() -> None:
    assert [describe(VECTORISER, row) for row in SLOTS] == [
        "This admission: Length of stay: ≤ 2 days. lab tests: 5–7. ward: Acute care. ICU stay."
        " Diagnoses: Heart failure (428).",
        "This admission: Length of stay: ≤ 2 days. lab tests: 5–7. ward: B. Diagnoses: 250, Heart failure (428).",
        "This admission: Length of stay: ≥ 3 days. lab tests: 5–7. ward: Acute care. Diagnoses: 250 (3 in all).",
        "This admission: Length of stay: ≥ 3 days. lab tests: 5–7. ward: other. ICU stay. Diagnoses: 1 in all.",
        "This admission: nothing recorded.",
    ]


def test_a_statement_knows_the_slots_it_rests_on() -> None:
    assert statements(VECTORISER, SLOTS[1]) == [
        Statement("stay", "Stay", "Length of stay: ≤ 2 days", (0,)),
        Statement("lab_tests", None, "lab tests: 5–7", (1,)),
        Statement("ward", None, "ward: B", (2,)),
        Statement("dx", "Diagnoses", "Diagnoses: 250, Heart failure (428)", (4, 5, 6)),
    ]


@pytest.mark.parametrize("row", range(len(SLOTS)))
def test_the_statements_cover_the_present_slots_and_no_others(row: int) -> None:
    resting = [slot for statement in statements(VECTORISER, SLOTS[row]) for slot in statement.slots]
    assert resting == np.flatnonzero(SLOTS[row]).tolist()


@pytest.mark.parametrize("slot", np.flatnonzero(SLOTS[0]).tolist())
def test_a_masked_slot_takes_its_words_with_it(slot: int) -> None:
    masked = SLOTS[0].copy()
    masked[slot] = 0
    resting = {slot for statement in statements(VECTORISER, masked) for slot in statement.slots}
    assert resting == set(np.flatnonzero(SLOTS[0]).tolist()) - {slot}


def test_a_set_is_said_by_what_is_left_of_it() -> None:
    def said(count: int, *members: int) -> list[str]:
        return [statement.words for statement in statements(VECTORISER, np.array([0, 0, 0, 0, count, *members]))]

    assert said(0, 1, 0) == ["Diagnoses: 250"]  # the count is masked
    assert said(2, 1, 0) == ["Diagnoses: 250 (2 in all)"]
    assert said(2, 1, 1) == ["Diagnoses: 250, Heart failure (428)"]
    assert said(3, 0, 0) == ["Diagnoses: 3 in all"]  # the others are rare, or masked
    assert said(0, 0, 0) == []


def test_a_record_without_anything_says_so() -> None:
    assert describe(VECTORISER, SLOTS[4]) == "This admission: nothing recorded."
