"""The masked model: masked records are encoded again, and identical inputs are predicted once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tefm.rationale.masked_model import MaskedModel
from tefm.scoring.calibration import Calibration
from tefm.tables.sequences import Sequences

X_ND = np.array([[1, 2, 0], [3, 0, 1], [1, 2, 0], [0, 0, 0]], dtype=np.uint8)


def sequences(**context: Any) -> Sequences:
    """Three sequences: records 0 and 1, then 2, then 3."""
    return Sequences(X_ND, np.array([0, 2, 3, 4]), **context)


class Recorder:
    """Logits that are the sum of a sequence's codes, and a list of the calls."""

    def __init__(self) -> None:
        self.calls: list[Sequences] = []

    def __call__(self, codes: Sequences) -> NDArray[Any]:
        self.calls.append(codes)
        total_S = [codes.codes_NK[a:b].sum() for a, b in pairwise(codes.starts)]
        return np.stack([np.zeros(len(codes)), np.array(total_S, dtype=np.float64)], axis=1)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def model(recorder: Recorder) -> MaskedModel:
    return MaskedModel(recorder, Calibration())


def test_sequences_know_their_records() -> None:
    whole = sequences()
    assert len(whole) == 3
    assert whole.lengths.tolist() == [2, 1, 1]
    assert whole.sequence_N.tolist() == [0, 0, 1, 2]
    assert whole.places(np.array([2, 0])).tolist() == [3, 0, 1]
    assert whole.places(np.array([], dtype=np.int64)).tolist() == []


def test_select_keeps_texts() -> None:
    selected = sequences(texts=["a", "b", "c"]).select(np.array([1, 0, 1]))
    assert selected.starts.tolist() == [0, 1, 3, 4]
    assert selected.x_ND.tolist() == X_ND[[2, 0, 1, 2]].tolist()
    assert selected.texts == ["b", "a", "b"]


def test_masked_slots_are_absent() -> None:
    whole = sequences(texts=["a", "b", "c"])
    keep_ND = np.zeros(X_ND.shape, dtype=bool)
    keep_ND[:, 0] = True
    masked = whole.masked(keep_ND)
    assert masked.x_ND.tolist() == [[1, 0, 0], [3, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert masked.x_ND.dtype == X_ND.dtype
    assert masked.texts == whole.texts
    assert whole.x_ND.tolist() == X_ND.tolist()


def test_the_masked_record_is_answered(model: MaskedModel, recorder: Recorder) -> None:
    keep_ND = np.tile([False, True, True], (4, 1))
    p_SQ = model(sequences(), keep_ND)
    (asked,) = recorder.calls
    assert sorted(asked.x_ND.tolist()) == [[0, 0, 0], [0, 0, 1], [0, 2, 0], [0, 2, 0]]
    np.testing.assert_allclose(p_SQ[:, 1], 1 / (1 + np.exp(-np.array([3.0, 2.0, 0.0]))))


def test_identical_inputs_are_predicted_once(model: MaskedModel, recorder: Recorder) -> None:
    whole = sequences().select(np.array([0, 1, 0, 1, 2, 0]))
    p_SQ = model(whole)
    assert len(recorder.calls) == 1
    assert len(recorder.calls[0]) == 3
    np.testing.assert_allclose(p_SQ[:, 1], 1 / (1 + np.exp(-np.array([7.0, 3.0, 7.0, 3.0, 0.0, 7.0]))))


def test_other_texts_are_another_input(model: MaskedModel, recorder: Recorder) -> None:
    model(Sequences(X_ND[[0, 2]], np.array([0, 1, 2]), texts=["a", "b"]))
    assert len(recorder.calls[0]) == 2


def test_equal_records_in_other_sequences_are_another_input(model: MaskedModel, recorder: Recorder) -> None:
    """Two sequences of one record each differ from one sequence of two records."""
    model(Sequences(X_ND[[0, 0, 0]], np.array([0, 1, 3])))
    assert len(recorder.calls[0]) == 2


def test_the_calibration_decides(recorder: Recorder) -> None:
    model = MaskedModel(recorder, Calibration(temperature=2.0, threshold=0.9))
    p_SQ = model(sequences())
    np.testing.assert_allclose(p_SQ[:, 1], 1 / (1 + np.exp(-np.array([3.5, 1.5, 0.0]))))
    assert model.decide(p_SQ).tolist() == [1, 0, 0]
