"""How good answers are: calibration and AUROC of each trained question, and the accuracy on new ones.

Shapes: P pairs of a history and a question, Q questions, H histories, R resamples, W shares, N records, D slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tefm.base.progress import progress
from tefm.language.prompts import Prompt
from tefm.questions.answering import Asker
from tefm.questions.book import Book, Entry, Figure, Scaling
from tefm.questions.question_data import Histories, Pairs, QuestionData, pairs_to_score
from tefm.scoring import weighted
from tefm.scoring.metrics import auroc
from tefm.tables.layout import Layout, Slots
from tefm.tabular.heads import Floats
from tefm.tabular.inputs import Features, RecordSlots, sequence_features
from tefm.tabular.learners import Examples, LearningTask, fit_lightgbm
from tefm.tabular.question_teacher import SHRINK, QuestionTeacher

#: With fewer histories of an answer than this, a question has no AUROC.
LEAST_SCORED = 5
#: Resamples behind an interval.
RESAMPLES = 300
#: The spread of the prior of a log-temperature: with few histories it stays near the common one.
SPREAD = 0.5

#: Trained questions, the most common ones, that may stand in for a held-out question, for comparison.
STAND_INS = 10
#: The shares of the language model that are tried.
SHARES = tuple(number / 10 for number in range(11))

#: Pairs of a history and a question (as their numbers) to the log-odds of yes.
Ask = Callable[[NDArray[np.int64], NDArray[np.int64]], Floats]


@dataclass(frozen=True, eq=False)
class Scored:
    """Pairs with the log-odds of the language model and of the heads, and the share of the former in each question."""

    pairs: Pairs
    #: None where the language model has no part in any answer
    model_P: Floats | None
    head_P: Floats
    share_Q: Floats

    @property
    def score_P(self) -> Floats:
        """The log-odds of the answers."""
        if self.model_P is None:
            return self.head_P
        share_P = self.share_Q[self.pairs.question_P]
        return share_P * self.model_P + (1 - share_P) * self.head_P

    def entry(self, entry: Entry, question: int) -> Entry:
        """A question with figures: its AUROC, the histories it was asked about, and those that answer yes."""
        own = self.pairs.of(question)
        yes_P = self.pairs.answer_P[own] == 1
        figure, by_model, by_fields = (
            Figure() if of_P is None else auroc_of(of_P[own], yes_P)
            for of_P in (self.score_P, self.model_P, self.head_P)
        )
        counts = {"asked": len(yes_P), "yes": int(yes_P.sum())}
        return entry.model_copy(
            update={"figure": figure, "by_model": by_model.auroc, "by_fields": by_fields.auroc, **counts}
        )


def score_questions(
    part: Histories, data: QuestionData, asker: Asker, *, seed: int, title: str | None = None
) -> Scored:
    """The model's answers to all questions, on histories of a part."""
    pairs = pairs_to_score(part, data.config, seed=seed)
    asked = pairs.history_P, pairs.question_P
    share_Q = np.array([way.model_share for way in asker.ways])
    model_P = asker.by_model(*asked, title=title) if share_Q.any() else None
    return Scored(pairs, model_P, asker.by_heads(*asked), share_Q)


# ---- figures ----------------------------------------------------------------------------------------------------


def auroc_of(score_P: Floats, yes_P: NDArray[np.bool_], *, seed: int = 0) -> Figure:
    """The AUROC with a bootstrap interval over histories; nothing where too few have one of the answers."""
    yes, no = np.flatnonzero(yes_P), np.flatnonzero(~yes_P)
    if min(len(yes), len(no)) < LEAST_SCORED:
        return Figure()
    rng = np.random.default_rng(seed)
    counts_RP = np.zeros((RESAMPLES, len(score_P)))
    for group in (yes, no):
        for row, drawn in zip(counts_RP, rng.choice(group, (RESAMPLES, len(group))), strict=True):
            row += np.bincount(drawn, minlength=len(score_P))
    low, high = np.quantile(weighted.auroc(score_P, yes_P, counts_RP), (0.025, 0.975))
    return Figure(auroc=auroc(score_P, yes_P), low=float(low), high=float(high))


def mean_figure(figures: list[Figure], *, seed: int = 0) -> tuple[Figure, int]:
    """The mean AUROC of several questions, with an interval over these questions, and how many have one."""
    values = np.array([figure.auroc for figure in figures if figure.auroc is not None])
    if not len(values):
        return Figure(), 0
    if len(values) == 1:
        return Figure(auroc=float(values[0])), 1
    resampled = np.random.default_rng(seed).choice(values, (2_000, len(values))).mean(axis=1)
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Figure(auroc=float(values.mean()), low=float(low), high=float(high)), len(values)


# ---- calibration ------------------------------------------------------------------------------------------------


def fit_scaling(score_P: Floats, yes_P: NDArray[np.bool_], weight_P: Floats, *, around: float = 1.0) -> Scaling:
    """A temperature and a shift of yes with the smallest weighted log-loss; the temperature stays near `around`.

    With no yes or no no among the histories, only the shift is fitted, to half a history of the other answer.
    """
    from scipy.optimize import minimize

    weight_P = weight_P * len(weight_P) / max(float(weight_P.sum()), 1e-12)
    share = (float(weight_P[yes_P].sum()) + 0.5) / (len(weight_P) + 1)
    start = np.array([math.log(around), math.log(share / (1 - share))])
    if yes_P.all() or not yes_P.any():
        return Scaling(temperature=around, shift=float(start[1]))
    sign_P = np.where(yes_P, 1.0, -1.0)

    def loss(parameters: Floats) -> float:
        margin_P = sign_P * (score_P * math.exp(-parameters[0]) + parameters[1])
        prior = ((parameters[0] - start[0]) / SPREAD) ** 2 / 2
        return float((weight_P * np.logaddexp(0, -margin_P)).sum() + prior)

    fitted = minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-4}).x
    return Scaling(temperature=math.exp(float(np.clip(fitted[0], -3, 3))), shift=float(np.clip(fitted[1], -20, 20)))


# ---- shares -----------------------------------------------------------------------------------------------------


def with_shares(scored: Scored, held_out_Q: NDArray[np.bool_]) -> tuple[Scored, float]:
    """The language model's share in the answer to each question, and in those to new ones: what ranks best.

    A trained question with few histories that answer yes has about the share of all of them. A held-out question has
    the share that is best for the *other* held-out questions, so that its figure is that of a new question.
    """
    pairs, model_P = scored.pairs, scored.model_P
    if model_P is None:
        return replace(scored, share_Q=np.zeros(len(held_out_Q))), 0.0
    ranked_WQ = np.full((len(SHARES), len(held_out_Q)), np.nan)
    count_Q = np.zeros(len(held_out_Q))
    for question in np.flatnonzero([pairs.has_both(number) for number in range(len(held_out_Q))]).tolist():
        own = pairs.of(question)
        yes_P = pairs.answer_P[own] == 1
        count_Q[question] = yes_P.sum()
        for number, share in enumerate(SHARES):
            score_P = share * model_P[own] + (1 - share) * scored.head_P[own]
            ranked_WQ[number, question] = auroc(score_P, yes_P)
    known_Q = count_Q > 0
    trained_Q, held_Q = known_Q & ~held_out_Q, known_Q & held_out_Q

    def mean(of_Q: NDArray[np.bool_]) -> Floats:
        return ranked_WQ[:, of_Q].mean(axis=1) if of_Q.any() else np.zeros(len(SHARES))

    def best(ranked_W: Floats) -> float:
        return SHARES[int(np.argmax(ranked_W))]

    share_Q = np.full(len(held_out_Q), best(mean(trained_Q)))
    for question in np.flatnonzero(trained_Q).tolist():
        own = count_Q[question] / (count_Q[question] + SHRINK)
        share_Q[question] = best(own * ranked_WQ[:, question] + (1 - own) * mean(trained_Q))
    number_Q = np.arange(len(held_out_Q))
    for question in np.flatnonzero(held_out_Q).tolist():
        others_Q = held_Q & (number_Q != question)
        share_Q[question] = best(mean(others_Q if others_Q.any() else trained_Q))
    return replace(scored, share_Q=share_Q), best(mean(held_Q if held_Q.any() else trained_Q))


# ---- the book ---------------------------------------------------------------------------------------------------


def book_of(data: QuestionData, prompt: Prompt, teacher: QuestionTeacher) -> Book:
    """The questions of a task, with what the teacher has learned about the trained ones; nothing is measured yet."""
    share = 1.0 if data.pairs else 0.0
    learned = iter(zip(teacher.regressions, teacher.trees, strict=True))
    entries = []
    for question, held_out in zip(data.questions, data.held_out_Q.tolist(), strict=True):
        regression, trees = (None, None) if held_out else next(learned)
        entry = Entry(question=question, trained=not held_out, regression=regression, head=trees, share=share)
        entries.append(entry)
    return Book(entries=tuple(entries), prompt=prompt, share=share, rest=rest_of(data))


def rest_of(data: QuestionData) -> dict[str, float]:
    """Of each field with several questions, exactly one of whose values is next: how often it is none of theirs."""
    fields: dict[str, list[int]] = {}
    for number, question in enumerate(data.questions):
        if question.one_of:
            fields.setdefault(str(question.source), []).append(number)
    several = {name: data.training.answers_HQ[:, numbers] for name, numbers in fields.items() if len(numbers) > 1}
    return {name: 1 - float((of_HQ == 1).sum() / (of_HQ[:, 0] >= 0).sum()) for name, of_HQ in several.items()}


def calibrated(book: Book, data: QuestionData, scored: Scored) -> Book:
    """With shares and calibration from validation answers: each trained question has its own, new ones common ones."""
    scored, share = with_shares(scored, data.held_out_Q)
    pairs, score_P = scored.pairs, scored.score_P
    yes_P, weight_P = pairs.answer_P == 1, pairs.weight_P
    of_held_P = data.held_out_Q[pairs.question_P]

    def pooled(of_P: NDArray[np.bool_]) -> Scaling:
        return fit_scaling(score_P[of_P], yes_P[of_P], weight_P[of_P]) if of_P.any() else Scaling()

    whole = pooled(~of_held_P)
    common = pooled(of_held_P) if of_held_P.any() else whole
    entries = []
    for number, entry in enumerate(book.entries):
        scaling, own = common, pairs.of(number)
        if entry.trained and own.any():
            scaling = fit_scaling(score_P[own], yes_P[own], weight_P[own], around=whole.temperature)
        entries.append(entry.model_copy(update={"share": float(scored.share_Q[number]), "scaling": scaling}))
    book = book.model_copy(update={"entries": tuple(entries), "common": common, "share": share})
    return measured(book, scored, "validation")


def measured(book: Book, scored: Scored, part: str, *, in_place: Figure | None = None) -> Book:
    """The book with the figures of these answers."""
    entries = tuple(scored.entry(entry, number) for number, entry in enumerate(book.entries))
    new, count = mean_figure([entry.figure for entry in entries if not entry.trained])
    update = {"entries": entries, "new": new, "held_out": count, "measured_on": part}
    return book.model_copy(update={**update, "in_place": in_place or Figure()})


# ---- a trained question in place of a held-out one ----------------------------------------------------------------


def stand_ins(data: QuestionData, pairs: Pairs, ask: Ask) -> dict[int, int]:
    """For each held-out question the trained one whose answers rank its histories best, on validation."""
    yes_Q = (data.training.answers_HQ == 1).sum(axis=0)
    candidates = sorted(data.trained.tolist(), key=lambda number: -int(yes_Q[number]))[:STAND_INS]
    helds = [held for held in np.flatnonzero(data.held_out_Q).tolist() if pairs.has_both(held)]
    if not candidates or not helds:
        return {}
    # asked all at once, since most questions are asked about the same histories
    of_held_P = np.isin(pairs.question_P, helds)
    history_P, held_P, yes_P = (of[of_held_P] for of in (pairs.history_P, pairs.question_P, pairs.answer_P == 1))
    score_P = ask(np.tile(history_P, len(candidates)), np.repeat(np.array(candidates), len(history_P)))
    chosen = {}
    for held in helds:
        own_CP = score_P.reshape(len(candidates), -1)[:, held_P == held]
        chosen[held] = candidates[int(np.argmax([auroc(own_P, yes_P[held_P == held]) for own_P in own_CP]))]
    return chosen


def figure_in_place(scored: Scored, chosen: dict[int, int], ask: Ask) -> Figure:
    """The mean AUROC of held-out questions when trained ones answer in their place."""
    figures = []
    for held, other in chosen.items():
        own = scored.pairs.of(held)
        score_P = ask(scored.pairs.history_P[own], np.full(own.sum(), other))
        figures.append(auroc_of(score_P, scored.pairs.answer_P[own] == 1))
    return mean_figure(figures)[0]


# ---- one LightGBM per question, for comparison ----


def lightgbm_per_question(
    data: QuestionData,
    layout: Layout,
    slots: tuple[Slots, Slots, Slots],
    tested: Histories,
    pairs: Pairs,
    *,
    seed: int = 0,
) -> dict[int, float]:
    """The test AUROC of a LightGBM for each trained question, by its number; it sees every training label of it.

    That is what a user would fit who knows the questions beforehand. `slots` are those of the training, validation and
    test records; `pairs` are the test pairs that our model answers.
    """
    features = [
        sequence_features(RecordSlots(x_ND, layout, part.histories), "history")
        for x_ND, part in zip(slots, (data.training, data.validation, tested), strict=True)
    ]
    figures = {}
    with progress("fitting one LightGBM per question", len(data.trained)) as advance:
        for question in data.trained.tolist():
            train = _examples(data.training, features[0], question)
            validation = _examples(data.validation, features[1], question)
            if len(np.unique(train.labels_N)) == len(np.unique(validation.labels_N)) == 2:
                chosen, own = fit_lightgbm(train, validation, LearningTask(2, seed=seed, tries=1)), pairs.of(question)
                p_P2 = chosen.predict_proba(features[2][pairs.history_P[own]])
                if (value := auroc_of(p_P2[:, 1], pairs.answer_P[own] == 1).auroc) is not None:
                    figures[question] = value
            advance(1)
    return figures


def _examples(part: Histories, features: Features, question: int) -> Examples[Features]:
    asked = np.flatnonzero(part.answers_HQ[:, question] >= 0)
    return Examples(features[asked], part.answers_HQ[asked, question].astype(np.int64))
