"""The teacher of questions: it finds what was planted, and never uses an entity's own answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from tefm.questions.question_data import UNASKED
from tefm.scoring.metrics import auroc
from tefm.tables.layout import Layout, Slot
from tefm.tables.sequences import Sequences
from tefm.tabular.inputs import Features, RecordSlots
from tefm.tabular.question_teacher import QuestionTeacher, history_features

RNG = np.random.default_rng(0)
LAYOUT = Layout((Slot("ward", "category", 4), Slot("age", "number", 5), Slot("dx", "flag", 1, "428")))


def planted(count: int = 3_000) -> tuple[np.ndarray, np.ndarray]:
    """Features, and answers to a frequent question, a rare one, and one that nothing is known about."""
    x_HF = RNG.normal(size=(count, 6)).astype(np.float32)
    logit = np.stack([3 * x_HF[:, 0], 2 * x_HF[:, 1] - 5, np.zeros(count)], axis=1)
    answers = (RNG.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(np.int8)
    answers[RNG.random(answers.shape) < 0.2] = UNASKED
    return x_HF, answers


def taught(*given: Any, **settings: Any) -> np.ndarray:
    """How probable yes is for each history and question."""
    return QuestionTeacher.fit(*given, **settings).yes_HQ


def test_features_are_the_last_record_and_the_mean_of_all() -> None:
    x_ND = np.array([[2, 5, 0], [4, 0, 1], [1, 1, 1]], dtype=np.uint8)
    features = history_features(RecordSlots(x_ND, LAYOUT, Sequences(np.array([0, 1, 2]), np.array([0, 2, 3]))))
    last, mean = features[0, :7].tolist(), features[0, 7:14].tolist()
    assert last == [0, 0, 0, 1, 0, 0, 1]  # the ward by value, the bucket of an age that is missing, the flag
    assert mean == [0, 0.5, 0, 0.5, 0.5, 0.5, 0.5]
    assert features[:, 14].tolist() == np.log(np.array([2, 1], dtype=np.float32)).tolist()
    assert features[1, :7].tolist() == features[1, 7:14].tolist()


def test_it_ranks_and_is_as_sure_as_it_should_be() -> None:
    x_HF, answers = planted()
    yes_HQ = taught(x_HF, answers, np.arange(len(x_HF)))
    assert ((yes_HQ > 0) & (yes_HQ < 1)).all()
    for question, least in ((0, 0.9), (1, 0.85)):
        asked = answers[:, question] != UNASKED
        assert auroc(yes_HQ[asked, question], answers[asked, question] == 1) > least
    # where yes and no are equally frequent, as many are above one half as below
    for question in (0, 1):
        yes, no = (yes_HQ[answers[:, question] == answer, question] for answer in (1, 0))
        assert abs((yes > 0.5).mean() + (no > 0.5).mean() - 1) < 0.2
    assert np.abs(yes_HQ[:, 2] - 0.5).mean() < 0.5 * np.abs(yes_HQ[:, 0] - 0.5).mean()


def test_it_never_uses_the_answers_of_the_same_entity() -> None:
    """Every entity has a feature of its own and the same answer ten times: only a leak could know it."""
    entities = np.repeat(np.arange(60), 10)
    x_HF = np.eye(60, dtype=np.float32)[entities]
    answers = RNG.integers(0, 2, 60)[entities][:, None].astype(np.int8)
    p = taught(x_HF, answers, entities)[:, 0]
    assert auroc(p, answers[:, 0] == 1) < 0.6
    alone = taught(x_HF, answers, np.arange(600))[:, 0]
    assert auroc(alone, answers[:, 0] == 1) > 0.95  # with histories as their own entities, it does leak


def test_trees_find_what_decides_together_and_rare_questions_stay_with_the_regression() -> None:
    rng = np.random.default_rng(1)
    x_HF = rng.integers(0, 2, (4_000, 6)).astype(np.float32)
    either = x_HF[:, 0] != x_HF[:, 1]  # an exclusive or: nothing that is linear finds it
    answers = np.stack([either, x_HF[:, 2] == 1, np.arange(4_000) % 100 == 0], axis=1).astype(np.int8)
    entities, features = np.arange(4_000), Features(x_HF, ("flag",) * 6)
    alone, both = (taught(x_HF, answers, entities, trees=of) for of in (None, features))
    assert auroc(alone[:, 0], either) < 0.6
    assert auroc(both[:, 0], either) > 0.95
    assert (both[:, 2] == alone[:, 2]).all()
    again = taught(x_HF, answers, entities, trees=features)
    assert (again == both).all()


def test_trees_never_use_the_answers_of_the_same_entity() -> None:
    entities = np.repeat(np.arange(60), 10)
    x_HF = entities[:, None].astype(np.float32)
    answers = np.random.default_rng(2).integers(0, 2, 60)[entities][:, None].astype(np.int8)
    apart, together = (
        taught(x_HF, answers, groups, trees=Features(x_HF, ("number",)))[:, 0] for groups in (entities, np.arange(600))
    )
    assert auroc(apart, answers[:, 0] == 1) < 0.65
    assert auroc(together, answers[:, 0] == 1) > 0.8  # with histories as their own entities, it does leak


def test_a_question_that_is_never_answered_with_yes_is_left_open() -> None:
    x_HF, answers = planted(200)
    answers[:, 0], answers[:, 1] = 0, UNASKED
    yes_HQ = taught(x_HF, answers, np.arange(200))
    assert np.isfinite(yes_HQ).all()


def test_what_it_keeps_answers_as_its_cross_fitted_models_do() -> None:
    """Regressions and trees are learned from all histories; their log-odds are on the same scale."""
    rng = np.random.default_rng(1)
    x_HF = rng.integers(0, 2, (4_000, 6)).astype(np.float32)
    answers = np.stack([x_HF[:, 0] != x_HF[:, 1], x_HF[:, 2] + rng.random(4_000) > 0.8], axis=1).astype(np.int8)
    teacher = QuestionTeacher.fit(x_HF, answers, np.arange(4_000), trees=Features(x_HF, ("flag",) * 6))
    assert [head is not None for head in teacher.trees] == [True, False]
    trees, regression = teacher.trees[0], teacher.regressions[1]
    assert trees is not None
    for question, score_H in enumerate((trees.score({"slots": x_HF}), regression.score(x_HF))):
        p_H = teacher.yes_HQ[:, question]
        assert np.corrcoef(score_H, np.log(p_H / (1 - p_H)))[0, 1] > 0.97
        assert np.abs(expit(score_H) - p_H).mean() < 0.05
