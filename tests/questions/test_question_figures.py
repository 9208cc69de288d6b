"""Pairs, calibration and figures, on answers that are known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tefm.language.prompts import Prompt
from tefm.questions.book import Book
from tefm.questions.catalogue import WordQuestion
from tefm.questions.config import QuestionsConfig
from tefm.questions.measure import (
    Scored,
    auroc_of,
    book_of,
    calibrated,
    figure_in_place,
    fit_scaling,
    mean_figure,
    score_questions,
    stand_ins,
    with_shares,
)
from tefm.questions.question_data import Histories, QuestionData, pairs_to_score, pairs_to_teach, pairs_to_validate
from tefm.tables.sequences import Sequences
from tefm.tabular.heads import Linear, Way
from tefm.tabular.question_teacher import QuestionTeacher

RNG = np.random.default_rng(0)
COUNT = 4_000
CONFIG = QuestionsConfig.of({"asked": [{"next": "dx"}], "scored": 600})


def histories(seed: int = 0) -> tuple[Histories, np.ndarray]:
    """Four questions: 0 and 2 depend on the same number, 1 on another one; 3 is rare. Some are not asked."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(COUNT, 2))
    logit = np.stack([2 * z[:, 0], 2 * z[:, 1], 2 * z[:, 0] - 1, z[:, 1] - 4], axis=1)
    answers = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(np.int8)
    answers[rng.random(answers.shape) < 0.1] = -1
    return Histories(Sequences(np.arange(COUNT), np.arange(COUNT + 1)), answers), logit


PART, LOGIT = histories()
DATA = QuestionData(
    CONFIG,
    tuple(WordQuestion(text=f"Question {number}?", kind="next", source="dx", value=str(number)) for number in range(4)),
    np.array([False, False, True, False]),
    PART,
    PART,
    pairs=400,
)


def asked(history_P: np.ndarray, question_P: np.ndarray) -> np.ndarray:
    """A model that is right but too sure of itself, and thinks that all questions are equally often yes."""
    return 3 * (LOGIT - LOGIT.mean(axis=0))[history_P, question_P]


class Planted:
    """Answers all questions, by a language model and by heads."""

    def __init__(self, model: Any = asked, heads: Any = asked) -> None:
        self.model, self.heads = model, heads
        self.ways = [Way(question.text) for question in DATA.questions]

    def by_model(self, history_P: np.ndarray, question_P: np.ndarray, *, title: str | None = None) -> np.ndarray:
        return self.model(history_P, question_P)

    def by_heads(self, history_P: np.ndarray, question_P: np.ndarray) -> np.ndarray:
        return self.heads(history_P, question_P)


def noise(history_P: np.ndarray, question_P: np.ndarray) -> np.ndarray:
    return 9 * np.random.default_rng(5).normal(size=len(history_P))


def scored_by(model: Any = asked, heads: Any = asked) -> Scored:
    return score_questions(PART, DATA, Planted(model, heads), seed=0)  # type: ignore[arg-type]


def book() -> Book:
    one = Linear(weights=(1.0,), bias=0.0)
    return book_of(DATA, Prompt(), QuestionTeacher(np.zeros((COUNT, 3), np.float32), (one,) * 3, (None,) * 3))


@pytest.mark.parametrize("most", [40, 400, 5_000, 100_000])
def test_what_is_taught_is_what_is_asked_and_no_held_out_question(most: int) -> None:
    pairs = pairs_to_teach(PART, DATA.trained, most, seed=0)
    assert 0.8 * min(most, 3 * COUNT) < len(pairs) <= most  # a tenth of the questions is not asked
    assert set(pairs.question_P.tolist()) == {0, 1, 3}
    assert (PART.answers_HQ[pairs.history_P, pairs.question_P] == pairs.answer_P).all() and pairs.answer_P.min() == 0
    assert len(np.unique(pairs.history_P * 4 + pairs.question_P)) == len(pairs)
    assert replace(DATA, pairs=most).examples == len(np.unique(pairs.history_P))


def test_as_many_yes_as_no_are_validated_and_held_out_questions_never() -> None:
    pairs = pairs_to_validate(PART, DATA.trained, 400, seed=0)
    assert set(pairs.question_P.tolist()) == {0, 1, 3}
    for question in (0, 1, 3):
        answers = pairs.answer_P[pairs.of(question)]
        assert 2 * answers.sum() == len(answers) <= 400 // 3 + 1
        assert (PART.answers_HQ[pairs.history_P[pairs.of(question)], question] == answers).all()


def test_rare_answers_are_measured_on_more_histories_and_weights_undo_it() -> None:
    pairs = pairs_to_score(PART, CONFIG, seed=0)
    for question in range(4):
        own = pairs.of(question)
        answers, weights = pairs.answer_P[own], pairs.weight_P[own]
        everyone = PART.answers_HQ[:, question]
        assert weights[answers == 1].sum() == pytest.approx((everyone == 1).sum())
        assert weights[answers == 0].sum() == pytest.approx((everyone == 0).sum())
        assert len(np.unique(pairs.history_P[own])) == own.sum()
        assert (everyone[pairs.history_P[own]] == answers).all()
    assert pairs.answer_P[pairs.of(3)].sum() > 55


def test_calibration_finds_temperature_and_share() -> None:
    known = calibrated(book(), DATA, scored_by())
    for number in (0, 1):
        scaling = known.entries[number].scaling
        assert scaling.temperature == pytest.approx(3, rel=0.3)
        assert scaling.shift == pytest.approx(0, abs=0.35)
    rare = known.entries[3].scaling
    p = rare.probability(asked(np.arange(COUNT), np.full(COUNT, 3)))
    assert p.mean() == pytest.approx((PART.answers_HQ[:, 3] == 1).mean() / 0.9, rel=0.4)
    assert known.scaling("A new question?") == known.common
    assert known.common.shift == pytest.approx(-1, abs=0.5)  # that of the one held-out question


@pytest.mark.parametrize(("model", "heads", "share"), [(asked, noise, 1.0), (noise, asked, 0.0)])
def test_who_answers_better_has_the_larger_share(model: Any, heads: Any, share: float) -> None:
    known = calibrated(book(), DATA, scored_by(model, heads))
    for entry in known.trained[:2]:
        assert abs(entry.share - share) <= 0.2
        good, bad = (entry.by_model, entry.by_fields) if share else (entry.by_fields, entry.by_model)
        assert good is not None and bad is not None and entry.figure.auroc is not None
        assert good > 0.8 and abs(bad - 0.5) < 0.1 and entry.figure.auroc > good - 0.02


def test_the_share_of_a_held_out_question_is_that_of_the_others() -> None:
    """The language model knows question 2, and the heads know the other ones: a new question cannot tell."""
    held_out_Q = np.array([False, False, True, True])

    def knows(which: tuple[int, ...]) -> Any:
        return lambda h, q: np.where(np.isin(q, which), asked(h, q), noise(h, q))

    scored, new = with_shares(scored_by(knows((2,)), knows((0, 1, 3))), held_out_Q)
    assert scored.share_Q[:2].max() <= 0.2  # both trained questions are known to the heads
    assert scored.share_Q[2] <= 0.3 and scored.share_Q[3] >= 0.7  # each has what is best for the other one
    assert 0 <= new <= 1


def test_one_answer_only_moves_the_share() -> None:
    scaling = fit_scaling(np.zeros(99), np.zeros(99, dtype=bool), np.ones(99), around=1.5)
    assert scaling.temperature == 1.5
    assert scaling.probability(np.zeros(1))[0] == pytest.approx(0.5 / 100)


def test_figures() -> None:
    yes = np.arange(100) < 50
    figure = auroc_of(np.where(yes, 1.0, 0.0), yes)
    assert figure.auroc == figure.low == figure.high == 1
    assert auroc_of(np.zeros(100), np.arange(100) < 4).auroc is None
    mean, count = mean_figure([figure, auroc_of(np.zeros(100), yes), auroc_of(np.zeros(3), yes[:3])])
    assert (mean.auroc, count) == (0.75, 2)
    assert mean.low == 0.5 and mean.high == 1
    assert mean_figure([])[0].auroc is None


def test_the_best_trained_question_stands_in_for_a_held_out_one() -> None:
    scored = scored_by()
    chosen = stand_ins(DATA, scored.pairs, asked)
    assert chosen == {2: 0}
    own, other = scored.entry(book().entries[2], 2).figure.auroc, figure_in_place(scored, chosen, asked).auroc
    assert own is not None and other is not None
    assert math.isclose(own, other, abs_tol=1e-9)  # both rank by the same number
    assert stand_ins(DATA, scored.pairs, lambda h, q: np.zeros(len(h)))[2] == 0
