"""Heads of questions: stored as numbers, they say what the models say that they were made from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from tefm.questions.measure import auroc_of
from tefm.scoring.metrics import auroc
from tefm.tabular import few_labels
from tefm.tabular.heads import Head, HeadPart, Linear, Trees, bounded, log_odds, of_boosted


def planted(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Small whole numbers, two of which decide together."""
    x_SF = np.random.default_rng(seed).integers(0, 4, (count, 8)).astype(np.float32)
    return x_SF, (x_SF[:, 0] > 1) != (x_SF[:, 3] > 1)


def test_trees_answer_as_those_of_scikit_learn() -> None:
    (x_SF, yes_S), (later_SF, _) = planted(80, 0), planted(9_000, 1)  # more than are followed at once
    forest = ExtraTreesClassifier(few_labels.RANDOM, min_samples_leaf=3, max_features=0.3, random_state=4).fit(
        x_SF, yes_S
    )
    ours = few_labels._random(x_SF, yes_S, 3, 4)
    assert np.allclose(ours.score(later_SF), log_odds(forest.predict_proba(later_SF)[:, 1]), atol=1e-9)
    boosted = [
        GradientBoostingClassifier(
            n_estimators=few_labels.BOOSTED, learning_rate=0.05, max_leaf_nodes=4,
            min_samples_leaf=few_labels.LEAST_LEAF, subsample=0.8, max_features=0.3,
            random_state=4 * few_labels.BAGS + bag,
        ).fit(x_SF, yes_S)
        for bag in range(few_labels.BAGS)
    ]  # fmt: skip
    mean_S = np.mean([model.decision_function(later_SF) for model in boosted], axis=0)
    assert np.allclose(few_labels._boosted(x_SF, yes_S, 4, 4).score(later_SF), mean_S, atol=1e-9)
    assert ours.fits(8) and not ours.fits(3)


def boosted(x_SF: np.ndarray, yes_S: np.ndarray, unordered: list[bool]) -> Any:
    model = HistGradientBoostingClassifier(max_iter=30, categorical_features=unordered, early_stopping=False)
    return model.fit(x_SF, yes_S)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.booleans(), min_size=4, max_size=4), st.integers(0, 99))
def test_boosted_trees_with_categories_answer_as_those_of_scikit_learn(unordered: list[bool], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x_SF = rng.integers(0, 9, (600, 4)).astype(np.float32)
    x_SF[:, 3] += rng.random(600).astype(np.float32) * (not unordered[3])
    yes_S = np.isin(x_SF[:, 0], (1, 4, 6)) ^ (x_SF[:, 1] > 4)
    model = boosted(x_SF, yes_S, unordered)
    later_SF = x_SF.copy()
    later_SF[:, 0] = rng.integers(0, 16, 600)  # some values were not seen
    stored = of_boosted(model, x_SF)
    assert stored is not None
    (trees,) = stored
    assert trees.fits(4) and not trees.fits(1)
    assert np.allclose(trees.score(later_SF), model.decision_function(later_SF), atol=1e-9)
    assert Trees.model_validate_json(trees.model_dump_json()) == trees


def test_boosted_trees_of_several_classes_have_a_score_for_each() -> None:
    x_SF, _ = planted(600, 0)
    model = boosted(x_SF, 1 * (x_SF[:, 0] > 1) + (x_SF[:, 3] > 2), [True] + [False] * 7)
    stored = of_boosted(model, x_SF)
    assert stored is not None and len(stored) == 3
    later_SF, _ = planted(300, 1)
    score_S3 = np.stack([trees.score(later_SF) for trees in stored], axis=1)
    assert np.allclose(score_S3, model.decision_function(later_SF), atol=1e-9)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_sure_answers_keep_their_order_and_ordinary_ones_their_value(scores: list[float]) -> None:
    score_S = np.sort(np.array(scores))
    ours_S = bounded(score_S)
    assert (np.diff(ours_S) >= 0).all() and (np.abs(ours_S) < 20).all()
    ordinary_S = np.abs(score_S) <= 5
    assert np.array_equal(ours_S[ordinary_S], score_S[ordinary_S])
    assert ((np.diff(ours_S) > 0) == (np.diff(score_S) > 0))[np.diff(score_S) > 1e-6].all()


def test_trees_that_answer_otherwise_are_not_taken() -> None:
    x_SF, yes_S = planted(300, 0)
    model = boosted(x_SF, yes_S, [True] * 8)
    assert of_boosted(model, x_SF) is not None
    model._baseline_prediction = model._baseline_prediction + 1e-3
    trees = of_boosted(model, x_SF)
    assert trees is not None  # this one is taken along
    assert np.allclose(trees[0].score(x_SF), model.decision_function(x_SF), atol=1e-9)
    model._predictors[0][0].nodes["value"] += 1.0
    model.decision_function = lambda of: np.zeros(len(of))
    assert of_boosted(model, x_SF) is None
    del model._predictors
    assert of_boosted(model, x_SF) is None


def test_a_regression_answers_as_that_of_scikit_learn() -> None:
    x_SF, yes_S = planted(80, 0)
    spread_F = x_SF.std(axis=0, dtype=np.float64)
    model = LogisticRegression(C=0.1, max_iter=2_000).fit((x_SF - x_SF.mean(axis=0)) / spread_F, yes_S)
    expected_S = model.decision_function((x_SF - x_SF.mean(axis=0)) / spread_F)
    assert np.allclose(few_labels._linear(x_SF, yes_S, 0.1, 0).score(x_SF), expected_S, atol=1e-3)


def test_the_blend_prefers_what_answers() -> None:
    rng = np.random.default_rng(0)
    yes_S = rng.random(200) < 0.5
    good_S, noise_S = np.where(yes_S, 3.0, -3.0) + rng.normal(size=200), rng.normal(size=200) * 3
    share_M = few_labels._shares(np.stack([noise_S, good_S]), yes_S)
    assert share_M.sum() == pytest.approx(1) and share_M[1] > 0.8


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(4, 40), st.integers(0, 99))
def test_no_blend_is_worse_than_the_mean_of_all(models: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    score_MS, yes_S = rng.normal(size=(models, count)), rng.random(count) < 0.5
    share_M = few_labels._shares(score_MS, yes_S)
    assert (share_M > 0).all() and share_M.sum() == pytest.approx(1)
    assert few_labels._loss(share_M @ score_MS, yes_S) <= few_labels._loss(score_MS.mean(axis=0), yes_S) + 1e-12


def test_fields_answer_what_codes_have_lost() -> None:
    """The codes are noise here, as they are for a field that the tokenizer did not keep."""
    rng = np.random.default_rng(0)
    (x_SF, yes_S), (later_SF, later_S) = planted(120, 0), planted(500, 1)
    features, later = ({"codes": rng.normal(size=(len(of), 6)), "fields": of, "slots": of} for of in (x_SF, later_SF))
    head, score_S = few_labels.learn(features, yes_S, share=None, seed=0)
    figure = auroc_of(score_S, yes_S)
    assert auroc(head.score(later), later_S) > 0.85
    assert figure.auroc is not None and figure.auroc > 0.8
    again, score_again_S = few_labels.learn(features, yes_S, share=None, seed=0)
    assert again == head and np.array_equal(score_again_S, score_S)
    assert Head.model_validate_json(head.model_dump_json()) == head


def test_the_figure_is_about_sequences_that_were_not_seen() -> None:
    values = []
    for seed in range(6):
        x_SF, yes_S = planted(60, seed)
        yes_S = np.random.default_rng(seed).permutation(yes_S)
        _, score_S = few_labels.learn({"codes": x_SF}, yes_S, share=None, seed=seed)
        values.append(auroc_of(score_S, yes_S, seed=seed).auroc)
    assert abs(np.mean(values) - 0.5) < 0.1, values


def test_a_population_may_have_very_few_yes() -> None:
    x_SF, yes_S = planted(60, 0)
    own, rare = (few_labels.learn({"codes": x_SF}, yes_S, share=share, seed=0)[0] for share in (None, 1e-6))
    assert rare.parts == own.parts and own.shift == 0
    assert rare.shift == pytest.approx(np.log(1e-6) - np.log(yes_S.mean() / (1 - yes_S.mean())), abs=1e-5)


def test_a_part_that_reads_nothing_known_does_not_fit() -> None:
    head = Head(parts=(HeadPart(reads="state", share=1.0, model=Linear(weights=(1.0, 2.0), bias=0.0)),))
    assert head.fits({"state": 2}) and not head.fits({"state": 3}) and not head.fits({"codes": 2})
    leaf = Trees(roots=(0,), feature=(-1,), threshold=(0.0,), left=(-1,), right=(-1,), value=(0.25,), shares=True)
    assert not leaf.model_copy(update={"among": (1, 2)}).fits(1) and not leaf.model_copy(update={"among": (-5,)}).fits(
        1
    )
    assert leaf.fits(1) and leaf.score(np.zeros((2, 1))) == pytest.approx(np.log(1 / 3))
