"""Features of sequences: what became of each slot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tefm.tables.layout import Layout, Slot
from tefm.tables.sequences import Sequences
from tefm.tabular.inputs import RecordSlots, empty_record, sequence_features

ORDERED = Layout((Slot("event", "category", 3), Slot("heat", "number", 8), Slot("alarm", "flag", 1)))


def in_order(*records: list[tuple[int, int, int]]) -> list[list[float]]:
    values = np.array([record for sequence in records for record in sequence], dtype=np.uint8)
    starts = np.cumsum([0, *map(len, records)])
    rows = RecordSlots(values, ORDERED, Sequences(np.arange(len(values)), starts))
    x_SF: NDArray[Any] = sequence_features(rows, "order").x_NF
    return x_SF.astype(np.float64).round(3).tolist()


def test_order_says_what_became_of_each_slot() -> None:
    (features,) = in_order([(1, 5, 1), (2, 0, 0), (1, 3, 0), (3, 8, 0)])
    often_and_recently = [0.5, 0.5, 0.25, 0.333, 0.25, 1.0]
    assert features[:9] == [3, 1, 1, *often_and_recently], "the last, the one before, the first; then its values"
    last, first, least, greatest, mean, change, there = features[9:16]
    assert (last, first, least, greatest, change, there) == (8, 5, 3, 8, 3, 0.75)
    assert mean == pytest.approx(16 / 3, abs=0.001), "what is absent does not count"
    assert features[16:] == [0, 0.25, 0.25, 4], "off in the last, once, in the first of four records"


def test_a_value_that_never_occurs_is_nothing_and_a_short_sequence_has_as_many_features() -> None:
    short, long = in_order([(1, 0, 0)], [(1, 2, 0), (2, 2, 1)])
    assert len(short) == len(long) == sequence_features(empty_record(ORDERED), "order").x_NF.shape[1]
    assert short[9:16] == [0.0] * 7


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=4))
def test_features_of_a_sequence_do_not_depend_on_its_neighbours(events: list[list[int]]) -> None:
    sequences = [[(event, event, event > 1) for event in sequence] for sequence in events]
    assert in_order(*sequences) == [in_order(sequence)[0] for sequence in sequences]


def test_of_two_events_the_later_one_is_the_more_recent() -> None:
    earlier, later = in_order([(1, 0, 0), (2, 0, 0), (3, 0, 0)], [(2, 0, 0), (1, 0, 0), (3, 0, 0)])
    recent = slice(4, 8, 2)  # of the first value and of the second
    assert earlier[recent] == [0.333, 0.5] and later[recent] == [0.5, 0.333]
