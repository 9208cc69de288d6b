"""Every attribution method finds the deciding slot, on records where a single slot decides."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Explained
from numpy.typing import NDArray
from tefm_bench.attribution import (
    Scores,
    by_attention,
    by_greedy,
    by_integrated_gradients,
    by_kernel_shap,
    by_lrp,
    by_mutual_information,
    by_saliency,
    by_shap,
    by_tree_shap,
    random_scores,
)
from tefm_bench.attribution_models import fit_attention, fit_plain
from torch import Tensor

from tefm.base.errors import InputError, MissingExtraError
from tefm.rationale.masked_model import MaskedModel
from tefm.scoring.calibration import Calibration
from tefm.tables.layout import Layout, Slot
from tefm.tables.sequences import Sequences

pytestmark = pytest.mark.all

#: the value of this slot in the last record decides
PLANTED, WIDTH = 2, 8
LAYOUT = Layout(
    (
        Slot("age", "number", 4),
        Slot("ward", "category", 3),
        Slot("verdict", "category", 2),
        *(Slot("dx", "flag", 1, str(code)) for code in range(5)),
    )
)
#: log-odds of class 1 by the value of the planted slot, and by the first flag, which always speaks for class 1
WEIGHT, AGAINST = torch.tensor([0.0, -4.0, 4.0]), 1.0


def toy(sequences: int, seed: int) -> Sequences:
    """Sequences of 1 to 3 records with a few slots present, the planted one always."""
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(rng.integers(1, 4, size=sequences))])
    x_ND = rng.integers(0, LAYOUT.sizes_D + 1, size=(starts[-1], WIDTH))
    x_ND[:, PLANTED] = rng.integers(1, 3, size=starts[-1])
    return Sequences(x_ND.astype(np.uint8), starts)


def explainable(x_ND: Tensor, keep_ND: Tensor, starts: NDArray[Any]) -> Tensor:
    """The log-probabilities of two classes."""
    odds_N = WEIGHT[x_ND[:, PLANTED].long()] * keep_ND[:, PLANTED] + AGAINST * (x_ND[:, 3] > 0) * keep_ND[:, 3]
    odds_S = odds_N[torch.from_numpy(starts[1:] - 1)]
    return torch.nn.functional.logsigmoid(torch.stack([-odds_S, odds_S], dim=1))


def logits(codes: Sequences) -> NDArray[Any]:
    """The same for codes that are the slots themselves."""
    x_ND = torch.from_numpy(codes.codes_NK)
    return explainable(x_ND, torch.ones(x_ND.shape), codes.starts).numpy()


MODEL = MaskedModel(logits, Calibration())
TRAINING, TEST = toy(300, seed=1), toy(40, seed=2)
CHANCES = MODEL(TRAINING)
LABELS = CHANCES.argmax(axis=1)
LAST = TEST.starts[1:] - 1

RANKINGS: dict[str, Callable[[], Scores]] = {
    "mutual information": lambda: by_mutual_information(TRAINING, LABELS, TEST),
    "saliency": lambda: by_saliency(explainable, TEST),
    "integrated gradients": lambda: by_integrated_gradients(explainable, TEST),
    "lrp": lambda: by_lrp(fit_plain(TRAINING, CHANCES, LAYOUT), TEST),
    "attention": lambda: by_attention(fit_attention(TRAINING, CHANCES, LAYOUT), TEST),
    "tree shap": lambda: by_tree_shap(TRAINING, LABELS, TEST, LAYOUT),
    "shap": lambda: by_shap(explainable, TEST, samples=100),
    "kernel shap": lambda: by_kernel_shap(MODEL, TEST.select(np.arange(40)), samples=100),
    "greedy": lambda: by_greedy(MODEL, TEST, most=2),
}
#: methods with a sign; the SHAP values of trees have no "absent" to compare with
SIGNED = ("saliency", "integrated gradients", "lrp", "shap", "kernel shap")


@pytest.fixture(scope="module")
def ranked() -> dict[str, Scores]:
    return {name: rank() for name, rank in RANKINGS.items()}


def first_slot(scores_ND: Scores) -> NDArray[np.int64]:
    """The present slot that ranks first in each last record."""
    return np.where(TEST.x_ND > 0, scores_ND, -np.inf)[LAST].argmax(axis=1)


@pytest.mark.parametrize("name", RANKINGS)
def test_the_planted_slot_ranks_first(name: str, ranked: dict[str, Scores]) -> None:
    scores_ND = ranked[name]
    assert scores_ND.shape == TEST.x_ND.shape
    assert np.isfinite(scores_ND).all()
    assert (first_slot(scores_ND) == PLANTED).mean() > 0.95


def test_chance_does_not_know_the_planted_slot() -> None:
    scores_ND = random_scores(TEST)
    assert scores_ND.shape == TEST.x_ND.shape
    assert (first_slot(scores_ND) == PLANTED).mean() < 0.5


@pytest.mark.parametrize("name", SIGNED)
def test_a_slot_that_argues_against_the_prediction_ranks_below_one_that_says_nothing(
    name: str, ranked: dict[str, Scores]
) -> None:
    x_SD = TEST.x_ND[LAST]
    against = (x_SD[:, PLANTED] == 1) & (x_SD[:, 3] > 0)
    agrees = (x_SD[:, PLANTED] == 2) & (x_SD[:, 3] > 0)
    assert against.any()
    assert agrees.any()
    scores_S = ranked[name][LAST, 3]
    assert (scores_S[against] < 0).mean() > 0.9
    assert (scores_S[agrees] > 0).mean() > 0.9


@pytest.mark.parametrize("rank", [by_saliency, by_integrated_gradients, by_shap])
def test_the_label_to_explain_may_be_given(rank: Callable[..., Scores]) -> None:
    ones = np.ones(len(TEST), dtype=np.int64)
    towards, away = (rank(explainable, TEST, labels_S=labels)[LAST, PLANTED] for labels in (ones, 1 - ones))
    np.testing.assert_allclose(towards, -away, atol=1e-6)
    assert ((towards > 0) == (TEST.x_ND[LAST, PLANTED] == 2)).all()


def test_records_before_the_last_have_no_say_where_the_model_does_not_read_them() -> None:
    before = np.setdiff1d(np.arange(len(TEST.x_ND)), LAST)
    for scores_ND in (by_saliency(explainable, TEST), by_integrated_gradients(explainable, TEST)):
        assert not scores_ND[before].any()
    # a sample of subsets is enough to see that their values are zero
    np.testing.assert_allclose(by_shap(explainable, TEST, samples=200)[before], 0, atol=1e-6)


def test_shap_values_add_up_to_what_all_slots_change() -> None:
    scores_ND = by_shap(explainable, TEST, samples=200)
    log_SQ = explainable(torch.from_numpy(TEST.x_ND), torch.ones(TEST.x_ND.shape), TEST.starts).numpy()
    odds_S = np.abs(log_SQ[:, 1] - log_SQ[:, 0])
    np.testing.assert_allclose(np.add.reduceat(scores_ND.sum(axis=1), TEST.starts[:-1]), odds_S, atol=1e-4)


def test_long_inputs_in_batches_rank_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [by_saliency(explainable, TEST), by_integrated_gradients(explainable, TEST), by_shap(explainable, TEST)]
    monkeypatch.setattr("tefm_bench.attribution.RECORDS", 7)
    parts = [by_saliency(explainable, TEST), by_integrated_gradients(explainable, TEST), by_shap(explainable, TEST)]
    for expected, actual in zip(whole, parts, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize(
    "rank",
    [
        lambda seed: random_scores(TEST, seed),
        lambda seed: by_lrp(fit_plain(TRAINING, CHANCES, LAYOUT, seed=seed), TEST),
        lambda seed: by_attention(fit_attention(TRAINING, CHANCES, LAYOUT, seed=seed), TEST),
        lambda seed: by_tree_shap(TRAINING, LABELS, TEST, LAYOUT, seed=seed),
        lambda seed: by_shap(_bent, TEST, samples=80, seed=seed),
    ],
    ids=["chance", "lrp", "attention", "tree shap", "shap"],
)
def test_a_seed_decides(rank: Callable[[int], Scores]) -> None:
    np.random.seed(5)
    torch.manual_seed(5)
    expected = rank(0)
    after = np.random.random(), float(torch.rand(()))
    np.random.seed(5)
    torch.manual_seed(5)
    assert after == (np.random.random(), float(torch.rand(()))), "the global generators are left as they were"
    np.testing.assert_array_equal(rank(0), expected)
    assert (rank(1) != expected).any()


def _bent(x_ND: Tensor, keep_ND: Tensor, starts: NDArray[Any]) -> Tensor:
    """A model that is not a sum over slots: SHAP values from a sample of subsets differ from sample to sample."""
    odds_N = torch.tanh((x_ND * keep_ND).sum(dim=1) - 4) + keep_ND[:, :4].prod(dim=1)
    odds_S = torch.from_numpy(np.add.reduceat(odds_N.numpy(), starts[:-1]))
    return torch.nn.functional.logsigmoid(torch.stack([-odds_S, odds_S], dim=1))


# ---- greedy ---------------------------------------------------------------------------------------------------------


def test_greedy_gets_the_answer_from_one_slot() -> None:
    scores_ND = by_greedy(MODEL, TEST, most=1)
    chosen_ND = scores_ND >= 2
    assert (np.add.reduceat(chosen_ND.sum(axis=1), TEST.starts[:-1]) == 1).all()
    assert (MODEL.decide(MODEL(TEST, chosen_ND)) == MODEL.decide(MODEL(TEST))).all()


def test_greedy_ranks_the_rest_by_what_each_does_alone() -> None:
    x_ND = np.array([[1, 0, 2, 1, 1, 0, 0, 0]], dtype=np.uint8)
    scores_D = by_greedy(MODEL, Sequences(x_ND, np.array([0, 1])), most=1)[0]
    alone = 1 / (1 + np.exp(-AGAINST)) - 0.5
    np.testing.assert_allclose(scores_D, [0, 0, 2, alone, 0, 0, 0, 0], atol=1e-6)


def test_greedy_over_records_chooses_in_each() -> None:
    chosen_ND = by_greedy(MODEL, TEST, most=2, over="record") >= 2
    present_N = (TEST.x_ND > 0).sum(axis=1)
    np.testing.assert_array_equal(chosen_ND.sum(axis=1), np.minimum(present_N, 2))
    assert not chosen_ND[TEST.x_ND == 0].any()


def test_greedy_ends_when_nothing_is_left() -> None:
    x_ND = np.array([[0, 0, 2, 1, 0, 0, 0, 0], [0] * 8], dtype=np.uint8)
    scores_ND = by_greedy(MODEL, Sequences(x_ND, np.array([0, 1, 2])), most=5)
    np.testing.assert_array_equal(scores_ND, [[0, 0, 6, 5, 0, 0, 0, 0], [0] * 8])


# ---- edges ----------------------------------------------------------------------------------------------------------


def test_a_sequence_without_a_present_slot_is_ranked_too() -> None:
    empty = Sequences(np.zeros((2, WIDTH), dtype=np.uint8), np.array([0, 1, 2]))
    pool = fit_attention(TRAINING, CHANCES, LAYOUT)
    for scores_ND in (by_shap(explainable, empty), by_attention(pool, empty), by_greedy(MODEL, empty, most=2)):
        np.testing.assert_array_equal(scores_ND, np.zeros((2, WIDTH)))


def test_trees_of_several_classes_and_a_class_they_never_saw() -> None:
    labels = np.where(LABELS == 1, 4, np.where(TRAINING.x_ND[TRAINING.starts[1:] - 1, 0] > 2, 2, 1))
    scores_ND = by_tree_shap(TRAINING, labels, TEST, LAYOUT)
    ones = TEST.x_ND[LAST, PLANTED] == 2
    assert (first_slot(scores_ND)[ones] == PLANTED).mean() > 0.95
    unseen = np.full(len(TEST), 3)
    assert not by_tree_shap(TRAINING, labels, TEST, LAYOUT, labels_S=unseen).any()


def test_trees_need_two_labels(explained: Explained) -> None:
    same = np.ones(len(TRAINING), dtype=np.int64)
    explained(InputError, lambda: by_tree_shap(TRAINING, same, TEST, LAYOUT), "one label only", "value 1")


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("captum.attr", "saliency"),
        ("captum.attr", "lrp"),
        ("shap", "shap"),
        ("shap", "kernel shap"),
        ("lightgbm", "tree shap"),
    ],
)
def test_without_the_extra_it_says_what_to_install(
    library: str, name: str, monkeypatch: pytest.MonkeyPatch, explained: Explained
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    explained(MissingExtraError, RANKINGS[name], library.partition(".")[0], "pip install 'tefm[attribution]'")
