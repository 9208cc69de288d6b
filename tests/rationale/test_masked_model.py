"""The judge: masked slots are coded again, and what reads the same is asked about once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tefm.rationale.masked_model import MaskedModel
from tefm.records.sequences import Sequences
from tefm.scoring.calibration import Calibration

X_ND = np.array([[1, 2, 0], [3, 0, 1], [1, 2, 0], [0, 0, 0]], dtype=np.uint8)


def sequences(**said: Any) -> Sequences:
    """Three sequences: records 0 and 1, then 2, then 3."""
    return Sequences(X_ND, np.array([0, 2, 3, 4]), **said)


class Asked:
    """Logits that say how much a sequence holds, and remember what was asked."""

    def __init__(self) -> None:
        self.calls: list[Sequences] = []

    def __call__(self, found: Sequences) -> NDArray[Any]:
        self.calls.append(found)
        total_S = [found.codes_NK[a:b].sum() for a, b in pairwise(found.starts)]
        return np.stack([np.zeros(len(found)), np.array(total_S, dtype=np.float64)], axis=1)


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def judge(asked: Asked) -> MaskedModel:
    return MaskedModel(lambda x_ND: x_ND, asked, Calibration())


def test_sequences_know_their_records() -> None:
    found = sequences()
    assert len(found) == 3
    assert found.lengths.tolist() == [2, 1, 1]
    assert found.sequence_N.tolist() == [0, 0, 1, 2]
    assert found.places(np.array([2, 0])).tolist() == [3, 0, 1]
    assert found.places(np.array([], dtype=np.int64)).tolist() == []


def test_select_takes_the_words_along() -> None:
    found = sequences(texts=["a", "b", "c"], gaps=["0", "1", "2", "3"]).select(np.array([1, 0, 1]))
    assert found.starts.tolist() == [0, 1, 3, 4]
    assert found.x_ND.tolist() == X_ND[[2, 0, 1, 2]].tolist()
    assert found.texts == ["b", "a", "b"]
    assert found.gaps == ["2", "0", "1", "2"]


def test_what_is_not_kept_is_absent() -> None:
    found = sequences(texts=["a", "b", "c"])
    keep_ND = np.zeros(X_ND.shape, dtype=bool)
    keep_ND[:, 0] = True
    masked = found.masked(keep_ND)
    assert masked.x_ND.tolist() == [[1, 0, 0], [3, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert masked.x_ND.dtype == X_ND.dtype
    assert masked.texts == found.texts
    assert found.x_ND.tolist() == X_ND.tolist()


def test_the_masked_record_is_what_is_coded(asked: Asked) -> None:
    coded: list[NDArray[Any]] = []

    def encode(x_ND: NDArray[Any]) -> NDArray[Any]:
        coded.append(x_ND)
        return x_ND

    keep_ND = np.tile([False, True, True], (4, 1))
    p_SQ = MaskedModel(encode, asked, Calibration())(sequences(), keep_ND)
    assert coded[0].tolist() == [[0, 2, 0], [0, 0, 1], [0, 2, 0], [0, 0, 0]]
    np.testing.assert_allclose(p_SQ[:, 1], 1 / (1 + np.exp(-np.array([3.0, 2.0, 0.0]))))


def test_what_reads_the_same_is_asked_once(judge: MaskedModel, asked: Asked) -> None:
    whole = sequences().select(np.array([0, 1, 0, 1, 2, 0]))
    p_SQ = judge(whole)
    assert len(asked.calls) == 1
    assert len(asked.calls[0]) == 3
    np.testing.assert_allclose(p_SQ[:, 1], 1 / (1 + np.exp(-np.array([7.0, 3.0, 7.0, 3.0, 0.0, 7.0]))))


@pytest.mark.parametrize("said", [{"texts": ["a", "b"]}, {"gaps": ["soon", "late"]}])
def test_other_words_are_another_question(judge: MaskedModel, asked: Asked, said: dict[str, Any]) -> None:
    judge(Sequences(X_ND[[0, 2]], np.array([0, 1, 2]), **said))
    assert len(asked.calls[0]) == 2


def test_equal_records_in_other_bounds_are_another_question(judge: MaskedModel, asked: Asked) -> None:
    """Two sequences of one record each do not read like one of two."""
    judge(Sequences(X_ND[[0, 0, 0]], np.array([0, 1, 3])))
    assert len(asked.calls[0]) == 2


def test_the_calibration_decides(asked: Asked) -> None:
    judge = MaskedModel(lambda x_ND: x_ND, asked, Calibration(temperature=2.0, threshold=0.9))
    p_SQ = judge(sequences())
    np.testing.assert_allclose(p_SQ[:, 1], 1 / (1 + np.exp(-np.array([3.5, 1.5, 0.0]))))
    assert judge.decide(p_SQ).tolist() == [1, 0, 0]
