"""`Sequences`: selecting, replacing values, masking."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.visits import PATIENTS, records, table

from tefm.tables.grouping import by_entity
from tefm.tables.sequences import Sequences

SLOTS = Sequences(
    np.array([[1, 0], [2, 3], [1, 1], [4, 0]], dtype=np.uint8),
    np.array([0, 2, 3, 4]),
    labels=np.array(["a", None, "b"], dtype=object),
    ends=np.array([5, 1, 2]),
    texts=["first", "second", "third"],
)


@given(records.filter(len), st.data())
def test_select_gives_the_same_sequences(rows, data):
    sequences = by_entity(table([row[0] for row in rows], [row[1] for row in rows]), PATIENTS)
    chosen = data.draw(st.lists(st.integers(0, len(sequences) - 1)))
    selected = sequences.select(np.array(chosen, dtype=int))
    assert [selected[i].tolist() for i in range(len(selected))] == [sequences[i].tolist() for i in chosen]
    assert selected.ids.tolist() == sequences.ids[chosen].tolist()
    mask = np.isin(np.arange(len(sequences)), chosen)
    assert sequences.select(mask).ids.tolist() == sequences.ids[mask].tolist()


def test_everything_is_selected_together() -> None:
    selected = SLOTS.select([2, 0, 0])
    assert selected.values.tolist() == [[4, 0], [1, 0], [2, 3], [1, 0], [2, 3]]
    assert selected.starts.tolist() == [0, 1, 3, 5]
    assert selected.labels is not None and selected.labels.tolist() == ["b", "a", "a"]
    assert selected.ends is not None and selected.ends.tolist() == [2, 5, 5]
    assert selected.texts == ["third", "first", "first"]
    assert selected.x_ND.dtype == np.uint8


def test_positions_and_sequence_numbers_agree() -> None:
    assert SLOTS.places(np.array([2, 0])).tolist() == [3, 0, 1]
    assert SLOTS.sequence_N.tolist() == [0, 0, 1, 2]
    assert SLOTS.lengths.tolist() == [2, 1, 1]
    assert SLOTS.last.tolist() == [[2, 3], [1, 1], [4, 0]]
    assert SLOTS.labelled.tolist() == [True, False, True]
    assert SLOTS.names.tolist() == ["0", "1", "2"]
    with pytest.raises(IndexError):
        SLOTS[3]


def test_other_values_for_the_same_sequences() -> None:
    codes = SLOTS.with_values(np.array([[7], [8], [7], [9]]))
    assert [codes[i].tolist() for i in range(3)] == [[[7], [8]], [[7]], [[9]]]
    assert codes.texts is SLOTS.texts
    with pytest.raises(AssertionError, match="one value per record"):
        SLOTS.with_values(np.zeros((3, 1)))


def test_a_masked_slot_is_absent() -> None:
    keep = np.array([[True, True], [False, True], [True, False], [False, False]])
    masked = SLOTS.masked(keep)
    assert masked.x_ND.tolist() == [[1, 0], [0, 3], [1, 0], [0, 0]]
    assert masked.x_ND.dtype == SLOTS.x_ND.dtype
    assert SLOTS.x_ND[1].tolist() == [2, 3], "the original is unchanged"
