"""Features by hand, how validation chooses, and LightGBM and logistic regression on planted data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import Explained
from hypothesis import given
from hypothesis import strategies as st
from support import planted
from support.planted import LAYOUT, Fit, records, wards

from tefm.base.errors import InputError, SettingsError
from tefm.tabular import learners
from tefm.tabular.inputs import RecordSlots, sequence_features
from tefm.tabular.learners import Candidate, Chosen, Examples, LearningTask, choose, fit_lightgbm, fit_logistic

# ---- inputs ---------------------------------------------------------------------------------------------------------


def test_features_by_hand() -> None:
    x = np.array([[5, 10, 1], [1, 2, 0], [3, 4, 0]], dtype=np.uint8)
    sequences = records(x, [2, 1], rows=[2, 0, 1])  # records 2 then 0, and record 1
    assert sequence_features(sequences, "last").x_NF.tolist() == [[5, 10, 1], [1, 2, 0]]
    history = sequence_features(sequences, "history")
    np.testing.assert_allclose(history.x_NF, [[5, 10, 1, 0.8, 0.7, 0.5, 2], [1, 2, 0, 0.2, 0.2, 0, 1]], rtol=1e-6)
    assert history.kinds == ("category", "number", "flag", *["number"] * 4)
    flat = sequence_features(sequences, "flat")
    assert flat.x_NF.tolist() == [[3, 4, 0, 5, 10, 1], [0, 0, 0, 1, 2, 0]]
    assert flat.kinds == ("category", "number", "flag") * 2
    assert flat.of_kind("category") == [0, 3]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
def test_features_are_those_of_each_sequence_alone(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, LAYOUT.sizes_D + 1, size=(sum(lengths) + 3, 3)).astype(np.uint8)
    sequences = records(x, lengths, rows=rng.permutation(len(x))[: sum(lengths)])
    last, history, flat = (sequence_features(sequences, kind).x_NF for kind in ("last", "history", "flat"))
    for i in range(len(sequences)):
        alone = sequences[np.array([i])]
        x_alone = x[sequences.sequences[i]]
        np.testing.assert_array_equal(alone.x_ND, x_alone)
        np.testing.assert_array_equal(alone.from_end, np.arange(len(x_alone))[::-1])
        np.testing.assert_array_equal(last[i], x_alone[-1])
        np.testing.assert_allclose(history[i, 3:6], (x_alone / LAYOUT.sizes_D).mean(axis=0), rtol=1e-5)
        assert history[i, -1] == len(x_alone)
        padding, slots = np.split(flat[i], [(max(lengths) - len(x_alone)) * 3])
        assert not padding.any()
        np.testing.assert_array_equal(slots.reshape(-1, 3), x_alone)


def test_inputs_that_do_not_fit(explained: Explained) -> None:
    x, _ = wards(4)
    explained(InputError, lambda: RecordSlots(x[:, :2], LAYOUT, records(x, [4]).sequences), "2 slots, not 3")
    wrong: Any = "lasst"
    explained(SettingsError, lambda: sequence_features(records(x, [4]), wrong), "'lasst'", "history")


# ---- the choice -----------------------------------------------------------------------------------------------------


def constant(which: str, *p: float) -> Candidate:
    """A model with these probabilities of the positive class."""
    return lambda inputs: np.column_stack([1 - np.array(p), p]), {"which": which}


def test_two_classes_are_chosen_by_auroc_and_more_by_log_loss() -> None:
    validation = Examples([""] * 3, np.array([0, 1, 1]))
    ranks, sure = constant("ranks", 0.1, 0.2, 0.3), constant("sure", 0.6, 0.5, 0.99)

    def chosen_of(candidates: list[Candidate], validation: Examples[Any], task: LearningTask) -> Chosen:
        return choose(candidates, np.array([0, 1]), validation, task)

    assert chosen_of([sure, ranks], validation, LearningTask(2)).settings == {"which": "ranks"}
    assert chosen_of([sure, ranks], validation, LearningTask(2, positive=0)).settings == {"which": "ranks"}
    chosen = chosen_of([ranks, sure], validation, LearningTask(3))
    assert chosen.settings == {"which": "sure"}
    assert [tried["which"] for tried in chosen.tried] == ["ranks", "sure"]
    one_class = Examples([""] * 3, np.array([1, 1, 1]))
    chosen = chosen_of([sure, ranks], one_class, LearningTask(2))
    assert chosen.settings == {"which": "sure"}
    assert chosen.tried[0]["auroc"] is None


# ---- the models -----------------------------------------------------------------------------------------------------

MODELS = {"logistic": Fit(fit_logistic), "lightgbm": Fit(fit_lightgbm)}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two settings for LightGBM."""
    monkeypatch.setattr(learners, "RATES", (0.1,))
    monkeypatch.setattr(learners, "LEAVES", (15, 7))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_what_was_planted(name: str) -> None:
    planted.check_learns_what_was_planted(MODELS[name])


@pytest.mark.parametrize("name", MODELS)
def test_a_class_that_training_lacks_has_no_probability(name: str) -> None:
    planted.check_a_class_that_training_lacks_has_no_probability(MODELS[name])


def test_trees_stop_when_validation_says_so() -> None:
    planted.check_trees_stop_when_validation_says_so(MODELS["lightgbm"])


def test_categories_matter() -> None:
    planted.check_categories_matter(MODELS["logistic"], loss_share=0.7)


def test_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.check_package_is_named(monkeypatch, MODELS["lightgbm"], "lightgbm", "baselines")
