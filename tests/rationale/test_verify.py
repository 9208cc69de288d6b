"""Verification: verdicts on planted rules, growth, faithfulness, and masks that encode the answer themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tefm_bench.faithfulness import (
    faithfulness,
    paired_gain,
    predict_shuffled,
)

from tefm.rationale import verify as check
from tefm.rationale.masked_model import Keep, MaskedModel, order_over, top_k
from tefm.rationale.verify import Verification, until_sufficient
from tefm.scoring.calibration import Calibration
from tefm.tables.sequences import Sequences

D = 6


def model_of(score: Callable[[NDArray[Any]], float], calibration: Calibration | None = None) -> MaskedModel:
    """A model whose codes are the slots; `score` of a sequence's records is the logit of class 1."""

    def logits(codes: Sequences) -> NDArray[Any]:
        return np.array([[0.0, score(codes.codes_NK[a:b])] for a, b in pairwise(codes.starts)])

    return MaskedModel(logits, calibration or Calibration())


def counting(model: MaskedModel) -> tuple[MaskedModel, list[int]]:
    """The same model, and a list that collects the number of sequences of each call."""
    calls: list[int] = []

    def logits(codes: Sequences) -> NDArray[Any]:
        calls.append(len(codes))
        return model.logits(codes)

    return replace(model, logits=logits), calls


def planted(x_LD: NDArray[Any]) -> float:
    """Class 1 where slot 0 of the last record is 2; class 0 where it is 1, and, less surely, where it is absent."""
    return {0: -0.5, 1: -3.0, 2: 3.0}[int(x_LD[-1, 0])]


def single(records: list[list[int]]) -> Sequences:
    """Sequences of one record each."""
    return Sequences(np.array(records, dtype=np.uint8), np.arange(len(records) + 1))


def drawn(sequences: int, seed: int = 0) -> tuple[Sequences, NDArray[np.int64]]:
    """Sequences of one to three records, slots 0 and 1 always there; slot 0 of the last record decides the truth."""
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(rng.integers(1, 4, sequences))])
    x_ND = rng.integers(0, 3, (starts[-1], D)).astype(np.uint8)
    x_ND[:, :2] = rng.integers(1, 3, (len(x_ND), 2))
    return Sequences(x_ND, starts), (x_ND[starts[1:] - 1, 0] == 2).astype(np.int64)


def keeping(sequences: Sequences, *slots: int) -> Keep:
    keep_ND = np.zeros(sequences.x_ND.shape, dtype=bool)
    keep_ND[:, list(slots)] = True
    return keep_ND


def verify(
    model: MaskedModel, sequences: Sequences, keep_ND: Keep, classes: tuple[str, ...] = ("0", "1")
) -> list[Verification]:
    """The check; classes are called by their numbers."""
    return check.verify(model, sequences, keep_ND, classes)


def same(verification: Verification) -> bool:
    """Whether the rationale alone gets the same answer."""
    return verification.alone.says == verification.full.says


def evidence(verification: Verification) -> float:
    """How much more probable the answer is with all features than with empty records."""
    return verification.full.p - verification.nothing.probabilities[verification.full.says]


# ---- verdicts -------------------------------------------------------------------------------------------------------


def test_the_deciding_slot_is_sufficient_and_comprehensive() -> None:
    sequences, truth = drawn(40)
    verifications = verify(model_of(planted), sequences, keeping(sequences, 0))
    assert [int(v.full.says) for v in verifications] == truth.tolist()
    for v in verifications:
        assert v.verdict == "sufficient"
        assert v.passed
        assert same(v)
        assert v.sufficiency == 0
        assert v.comprehensiveness == evidence(v) > 0.2
        assert v.without == v.nothing
        assert v.without.says == v.nothing.says == "0"


def test_the_other_slots_are_not() -> None:
    """Also where they get the same answer: an empty record gets it too."""
    sequences, _ = drawn(40)
    verifications = verify(model_of(planted), sequences, keeping(sequences, 1, 2, 3, 4, 5))
    assert {v.verdict for v in verifications} == {"insufficient"}
    assert any(same(v) for v in verifications)
    for v in verifications:
        assert v.comprehensiveness == 0
        assert v.sufficiency == evidence(v)


def test_where_the_label_sits_in_no_field_nothing_passes() -> None:
    """The answer is always the same, whatever is kept: a default, even with everything kept."""
    sequences, _ = drawn(40)
    indifferent = model_of(lambda x_LD: 1.0 + 0.01 * int(x_LD[-1, 3]))
    for keep_ND in (keeping(sequences, 0), keeping(sequences, *range(D)), keeping(sequences)):
        verifications = verify(indifferent, sequences, keep_ND)
        assert all(same(v) and v.verdict == "default" and not v.passed for v in verifications)


def test_half_of_the_evidence_is_enough() -> None:
    """Each present slot adds to the probability; half of what all of them add must be there."""
    model = model_of(lambda x_LD: float(np.log((0.5 + 0.05 * x_LD.sum()) / (0.5 - 0.05 * x_LD.sum()))))
    sequences = single([[1] * D] * 3)
    keep_ND = np.zeros((3, D), dtype=bool)
    for row, kept in enumerate((2, 3, 4)):
        keep_ND[row, :kept] = True
    verifications = verify(model, sequences, keep_ND)
    assert [evidence(v) for v in verifications] == pytest.approx([0.3] * 3)
    assert [v.sufficiency for v in verifications] == pytest.approx([0.2, 0.15, 0.1])
    assert all(same(v) for v in verifications)
    assert verifications[0].verdict == "insufficient"
    assert verifications[2].verdict == "sufficient"


def test_a_decision_that_hangs_on_the_threshold() -> None:
    """The evidence is small and yet the empty record gets another answer: nothing can be shown to carry so little."""
    model = model_of(lambda x_LD: 0.1 * int(x_LD[-1, 0] > 0), Calibration(threshold=0.51))
    sequences = single([[1, 1, 1, 0, 0, 0]])
    (deciding,) = verify(model, sequences, keeping(sequences, 0))
    (other,) = verify(model, sequences, keeping(sequences, 1))
    assert evidence(deciding) < 0.05
    assert (deciding.full.says, deciding.nothing.says) == ("1", "0")
    assert same(deciding) and not same(other)
    assert deciding.verdict == other.verdict == "insufficient"


def test_another_answer_is_insufficient_however_close() -> None:
    model = model_of(lambda x_LD: 0.4 * int(x_LD[-1, 0] > 0) - 0.1 * int(x_LD[-1, 1] == 0), Calibration(threshold=0.58))
    sequences = single([[1, 1, 0, 0, 0, 0]])
    (verification,) = verify(model, sequences, keeping(sequences, 0))
    assert verification.alone.probabilities["1"] - verification.nothing.probabilities["1"] > 0.5 * evidence(
        verification
    )
    assert not same(verification)
    assert verification.verdict == "insufficient"


def test_nothing_is_as_long_as_the_sequence() -> None:
    """A model that counts records: empty records of the same number say the same."""
    sequences, _ = drawn(30)
    verifications = verify(model_of(lambda x_LD: float(len(x_LD))), sequences, keeping(sequences, 0))
    assert all(evidence(v) == 0 and v.verdict == "default" for v in verifications)
    assert len({v.nothing.p for v in verifications}) == 3


def test_one_call_for_all_forms() -> None:
    model, calls = counting(model_of(planted))
    sequences = single([[2, 0, 0, 0, 0, 0], [2, 1, 0, 0, 0, 0]])
    verify(model, sequences, keeping(sequences, 0))
    assert calls == [4]  # [2], [2, 1], [0, 1] and nothing


def test_several_classes() -> None:
    model = MaskedModel(
        lambda codes: np.eye(3)[codes.codes_NK[codes.starts[1:] - 1, 0]] * 4,
        Calibration(),
    )
    sequences = single([[1, 1, 0, 0, 0, 0], [2, 1, 0, 0, 0, 0]])
    verifications = verify(model, sequences, keeping(sequences, 0), ("0", "1", "2"))
    assert [(v.full.says, v.nothing.says, v.verdict) for v in verifications] == [
        ("1", "0", "sufficient"),
        ("2", "0", "sufficient"),
    ]
    assert [len(v.full.probabilities) for v in verifications] == [3, 3]


def test_json() -> None:
    sequences, _ = drawn(3)
    first: Verification = verify(model_of(planted), sequences, keeping(sequences, 0))[0]
    assert type(first.verdict) is str
    body = json.loads(json.dumps(asdict(first)))
    assert body["verdict"] == "sufficient"
    assert body["full"] == asdict(first.full)
    assert first.passed is True


# ---- growth ---------------------------------------------------------------------------------------------------------


def needing(least: int) -> MaskedModel:
    """Class 1 from so many present slots on, class 0 below."""
    return model_of(lambda x_LD: 3.0 if (x_LD > 0).sum() >= least else -3.0)


@pytest.mark.parametrize("least", range(1, 31))
def test_growth_ends_at_the_smallest_that_passes(least: int) -> None:
    """Whatever size is needed, on the coarse grid or between; the slots are those that rank first."""
    rng = np.random.default_rng(least)
    sequences = Sequences(np.ones((6, 10), dtype=np.uint8), np.array([0, 3, 6]))
    scores_ND = rng.random((6, 10))
    keep_ND = until_sufficient(needing(least), scores_ND, sequences)
    for rows in (slice(0, 3), slice(3, 6)):
        assert keep_ND[rows].sum() == least
        assert scores_ND[rows][keep_ND[rows]].min() >= scores_ND[rows][~keep_ND[rows]].max(initial=-np.inf)
    assert all(v.passed for v in verify(needing(least), sequences, keep_ND))


def test_growth_agrees_with_a_search_of_every_size() -> None:
    """On sequences of all lengths: the deciding slot has a random place in the ranking."""
    sequences, _ = drawn(60, seed=3)
    scores_ND = np.random.default_rng(0).random(sequences.x_ND.shape)
    model = model_of(planted)
    keep_ND = until_sufficient(model, scores_ND, sequences, prune=False)
    order_ND = order_over(scores_ND, sequences, "sequence")
    last_S = sequences.starts[1:] - 1
    sizes_S = np.bincount(sequences.sequence_N, keep_ND.sum(axis=1))
    assert sizes_S.tolist() == (order_ND[last_S, 0] + 1).tolist()
    pruned_ND = until_sufficient(model, scores_ND, sequences)
    assert not (pruned_ND & ~keep_ND).any()
    assert np.bincount(sequences.sequence_N, pruned_ND.sum(axis=1)).tolist() == [1] * len(sequences)
    assert pruned_ND[last_S, 0].all(), "only the deciding slot is left"
    assert max(sizes_S) > 6
    assert all(v.passed for v in verify(model, sequences, keep_ND))


def test_growth_takes_the_smallest_above_the_last_coarse_failure() -> None:
    """5 passes, 6 and 8 fail, 10 and more pass: sizes 9 to 11 are tried, 5 is not searched for."""
    model = model_of(lambda x_LD: 3.0 if (x_LD > 0).sum() == 5 or (x_LD > 0).sum() >= 10 else -3.0)
    sequences = single([[1] * 20])
    scores_ND = -np.arange(20.0)[None]
    assert until_sufficient(model, scores_ND, sequences).sum() == 10


def test_growth_over_records_keeps_as_many_of_each() -> None:
    model = model_of(lambda x_LD: 3.0 if (x_LD > 0).sum(axis=1).min() >= 3 else -3.0)
    sequences = Sequences(np.ones((2, 8), dtype=np.uint8), np.array([0, 2]))
    keep_ND = until_sufficient(model, np.random.default_rng(0).random((2, 8)), sequences, over="record")
    assert keep_ND.sum(axis=1).tolist() == [3, 3]


def test_where_nothing_argues_for_the_answer_nothing_is_kept() -> None:
    """And no selection is tried: the first call shows that no feature supports the answer."""
    sequences, _ = drawn(20)
    model, calls = counting(model_of(lambda x_LD: 1.0))
    keep_ND = until_sufficient(model, np.random.default_rng(0).random(sequences.x_ND.shape), sequences)
    assert len(calls) == 1
    assert not keep_ND.any()
    assert {v.verdict for v in verify(model, sequences, keep_ND)} == {"default"}


def test_an_empty_record_needs_no_growth() -> None:
    sequences = single([[0] * D, [2, 0, 0, 0, 0, 0]])
    keep_ND = until_sufficient(model_of(planted), np.zeros((2, D)), sequences)
    assert keep_ND.sum(axis=1).tolist() == [0, 1]


# ---- the population -------------------------------------------------------------------------------------------------


def rankings(sequences: Sequences) -> dict[str, NDArray[Any]]:
    right_ND = np.zeros(sequences.x_ND.shape)
    right_ND[:, 0] = 1
    return {"right": right_ND, "wrong": -right_ND}


def test_faithfulness_tells_rankings_apart() -> None:
    sequences, truth = drawn(200)
    flipped = truth.copy()
    flipped[:20] = 1 - flipped[:20]  # the model is wrong on a tenth
    rows = faithfulness(model_of(planted), sequences, flipped, rankings(sequences), [0.5, 1 / D], proof=True)
    assert [(row.strategy, row.retention) for row in rows] == [
        ("everything", 1.0),
        ("nothing", 0.0),
        ("right", 0.5),
        ("right", 1 / D),
        ("wrong", 0.5),
        ("wrong", 1 / D),
    ]
    everything, nothing, _, right, _, wrong = rows
    assert everything.accuracy == right.accuracy == 0.9
    assert everything.agreement == right.agreement == right.passed == everything.passed == 1
    assert right.kept == 1
    assert everything.kept == (sequences.x_ND > 0).sum(axis=1).mean()
    assert everything.sufficiency == right.sufficiency == 0
    assert nothing.kept == nothing.passed == wrong.passed == 0
    assert nothing.agreement == wrong.agreement == (truth == 0).mean()
    assert nothing.predicted_S.tolist() == [0] * 200
    assert nothing.comprehensiveness == wrong.comprehensiveness == 0
    assert everything.comprehensiveness == right.comprehensiveness == pytest.approx(nothing.sufficiency)
    assert nothing.sufficiency > 0.2
    gain = paired_gain(right.predicted_S == flipped, wrong.predicted_S == flipped)
    assert gain.low > 0.2
    assert gain.value == pytest.approx(right.accuracy - wrong.accuracy)


def test_the_f1_of_each_class() -> None:
    sklearn_metrics = pytest.importorskip("sklearn.metrics")
    sequences, truth = drawn(50)
    labels = np.random.default_rng(1).integers(0, 2, 50)
    everything, nothing = faithfulness(model_of(planted), sequences, labels, {}, [])
    assert everything.f1 == pytest.approx(sklearn_metrics.f1_score(labels, truth, average=None))
    assert everything.macro_f1 == pytest.approx(sklearn_metrics.f1_score(labels, truth, average="macro"))
    assert nothing.f1[1] == 0
    assert nothing.comprehensiveness is None
    assert "predicted_S" not in json.loads(json.dumps(nothing.to_dict()))


def test_faithfulness_of_present_slots() -> None:
    sequences, truth = drawn(30)
    *_, right = faithfulness(model_of(planted), sequences, truth, rankings(sequences), [0.05], of="present")[:3]
    assert (right.of, right.kept, right.accuracy) == ("present", 1.0, 1.0)


def test_no_gain_without_a_difference() -> None:
    correct_S = np.random.default_rng(0).random(100) < 0.8
    gain = paired_gain(correct_S, correct_S)
    assert (gain.value, gain.low, gain.high) == (0, 0, 0)


# ---- masks that encode the answer -----------------------------------------------------------------------------------


def test_a_mask_that_points_at_values_is_useless_without_them() -> None:
    sequences, truth = drawn(600)
    keep_ND = keeping(sequences, 0)
    model = model_of(planted)
    assert (model.decide(model(sequences, keep_ND)) == truth).all()
    assert abs((predict_shuffled(model, sequences, keep_ND) == truth).mean() - 0.5) < 0.1


def test_a_mask_that_encodes_the_answer_gets_no_credit() -> None:
    """Slot 4 is kept where the answer is 1 and slot 5 where it is 0; neither has to do with it."""
    sequences, truth = drawn(600)
    sequences.x_ND[:, 4:] = 1
    scores_ND = np.zeros(sequences.x_ND.shape)
    at_N = 5 - truth[sequences.sequence_N]
    scores_ND[np.arange(len(at_N)), at_N] = 1
    keep_ND = top_k(scores_ND, sequences, 1 / D)

    model = model_of(planted)  # reads values, so the mask tells it nothing
    assert (model.decide(model(sequences, keep_ND)) == truth).mean() < 0.6
    assert not any(v.passed for v in verify(model, sequences, keep_ND))

    def gullible(x_LD: NDArray[Any]) -> float:
        """Right on whole records, but where slot 0 is missing it reacts to which slots are present."""
        return planted(x_LD) if x_LD[-1, 0] else 3.0 * int(x_LD[-1, 4]) - 3.0 * int(x_LD[-1, 5])

    model = model_of(gullible)
    assert (model.decide(model(sequences, keep_ND)) == truth).all()
    assert (predict_shuffled(model, sequences, keep_ND) == truth).all()  # right without the values: the mask says it
