"""What a fit with questions is made from: the questions, which of them are held out, and the histories of each part.

Questions with too few answers are left out. Those that are kept become pairs of a history and a question: to learn
from, to stop early on, and to measure answers on.

Shapes: N records, D slots, H histories, Q questions, P pairs of a history and a question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.base.progress import note
from tefm.language.tuning import read_together
from tefm.questions.answers import UNASKED, Histories, histories_of
from tefm.questions.catalogue import WordQuestion, catalogue, held_out_of
from tefm.questions.config import QuestionsConfig
from tefm.tables.layout import Slots
from tefm.tables.schema import Schema
from tefm.tables.sequences import Sequences
from tefm.tables.vectorise import Vectoriser

Numbers = NDArray[np.int64]
#: A table, its sequences as row numbers, and the slots of their records in the order of the table.
Tabled = tuple[pl.DataFrame, Sequences, Slots]

#: Questions about one history, where not all can be asked of all histories: the model reads it once for all of them.
EACH = 8


@dataclass(frozen=True, eq=False)
class QuestionData:
    """The questions of a task and their answers. Histories are row numbers into the slots of their part."""

    config: QuestionsConfig
    questions: tuple[WordQuestion, ...]
    #: which questions no training sees
    held_out_Q: NDArray[np.bool_]
    training: Histories
    validation: Histories
    #: pairs of a history and a question that the language model learns from, at most; 0: it learns none
    pairs: int

    @property
    def trained(self) -> Numbers:
        return np.flatnonzero(~self.held_out_Q)

    @cached_property
    def examples(self) -> int:
        """How many examples are learned from; each holds several questions about one history."""
        return len(read_together(pairs_to_teach(self.training, self.trained, self.pairs, seed=0).history_P))


# ---- from tables ----


@dataclass(frozen=True)
class Asking:
    """What is asked, and how tables are seen."""

    config: QuestionsConfig
    vectoriser: Vectoriser
    schema: Schema
    #: adds the texts that go into prompts to sequences of row numbers
    context: Callable[[pl.DataFrame, Sequences], Sequences]


def question_data(asking: Asking, training: Tabled, validation: Tabled, seed: int) -> QuestionData:
    """The questions of a task, and the histories that answer them; questions with too few answers are left out."""
    settings = asking.config
    frame, everything, _ = training
    if everything.lengths.max(initial=0) < 2 and any(asked.column is None for asked in settings.asked):
        raise InputError(
            "questions about what comes next need sequences of several records, and every sequence here has one",
            file=everything.file,
            remedy="name the column of the entity, `entity: COLUMN`, or ask about a `column`",
        )
    questions = catalogue(settings, asking.vectoriser, asking.schema, frame, file=everything.file)
    parts = [histories_in(asking, questions, tabled, seed) for tabled in (training, validation)]
    counts_2Q = np.stack([(parts[0].answers_HQ == answer).sum(axis=0) for answer in (0, 1)])
    enough = np.flatnonzero(counts_2Q.min(axis=0) >= settings.least)
    if not len(enough):
        raise InputError(
            f"no question has {settings.least} training histories that answer yes and as many that answer no",
            file=everything.file,
            remedy="ask about more common values, give more records, or set `least` under `questions:`",
        )
    if len(enough) < len(questions):
        dropped = np.setdiff1d(np.arange(len(questions)), enough)
        rare = ", ".join(f"“{questions[number].text}”" for number in dropped[:3])
        few = f"fewer than {settings.least} training histories answer yes, or no"
        more = " …" if len(dropped) > 3 else ""
        note(f"{len(dropped):,} of {len(questions):,} questions are left out, since {few}: {rare}{more}")
    kept = tuple(questions[number] for number in enough)
    held_out_Q = held_out_of([question.entry for question in kept], settings.hold_out, seed)
    pairs = settings.pairs_for(gpu=torch.cuda.is_available(), texts=bool(asking.schema.text))
    learned, held = (part.only(enough) for part in parts)
    return QuestionData(settings, kept, held_out_Q, learned, held, pairs)


def histories_in(asking: Asking, questions: Sequence[WordQuestion], tabled: Tabled, seed: int) -> Histories:
    """The histories of a table as row numbers into its slots, with the texts of their prompts, and their answers."""
    frame, everything, x_ND = tabled
    rows = np.sort(everything.rows)
    found = histories_of(
        questions,
        asking.vectoriser,
        asking.schema,
        frame,
        everything,
        x_ND[np.searchsorted(rows, everything.rows)],
        most=asking.config.histories,
        seed=seed,
    )
    histories = asking.context(frame, found.histories)
    return Histories(histories.with_values(np.searchsorted(rows, histories.rows)), found.answers_HQ)


# ---- pairs ----


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of a history and a question, with their answers."""

    history_P: Numbers
    question_P: Numbers
    answer_P: Numbers
    #: how many pairs of the table each one stands for, where some were drawn
    weight_P: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.history_P)

    def of(self, question: int) -> NDArray[np.bool_]:
        """Which pairs are of a question."""
        is_question_P: NDArray[np.bool_] = self.question_P == question
        return is_question_P

    def has_both(self, question: int) -> bool:
        """Whether some histories answer yes to a question, and some no."""
        return len(np.unique(self.answer_P[self.of(question)])) == 2


def pairs_to_validate(part: Histories, trained: Numbers, pairs: int, *, seed: int) -> Pairs:
    """For each trained question as many histories that answer yes as no, and at most its share of all pairs."""
    rng, most = np.random.default_rng((seed, 17)), max(1, pairs // (2 * max(1, len(trained))))
    drawn: list[tuple[int, int, Numbers]] = []
    for question in trained.tolist():
        answers_H = part.answers_HQ[:, question]
        both = [np.flatnonzero(answers_H == answer) for answer in (0, 1)]
        count = min(most, *(len(of_answer) for of_answer in both))
        drawn += [(question, answer, rng.permutation(both[answer])[:count]) for answer in (0, 1)]
    return _pairs(drawn)


def pairs_to_teach(part: Histories, trained: Numbers, pairs: int, *, seed: int) -> Pairs:
    """Trained questions about each history, drawn at random among those that are asked of it.

    They are at most `pairs`. Histories are left out before there are fewer than `EACH` questions about each.
    """
    rng, each = np.random.default_rng((seed, 20)), min(len(trained), EACH)
    chosen = np.sort(rng.permutation(len(part))[: max(1, pairs // max(1, each))])
    each = min(len(trained), pairs // max(1, len(chosen)))
    asked_HT = part.answers_HQ[np.ix_(chosen, trained)] != UNASKED
    order_HT = np.argsort(np.where(asked_HT, rng.random(asked_HT.shape), np.inf), axis=1)[:, :each]
    row_P, column_P = np.nonzero(np.take_along_axis(asked_HT, order_HT, axis=1))
    history_P, question_P = chosen[row_P], trained[order_HT[row_P, column_P]]
    return Pairs(
        history_P, question_P, part.answers_HQ[history_P, question_P].astype(np.int64), np.ones(len(history_P))
    )


def pairs_to_score(part: Histories, questions: Numbers, config: QuestionsConfig, *, seed: int) -> Pairs:
    """All questions on the same random histories, and on further ones that answer yes, since most are rare.

    The weights undo the drawing, for calibration; an AUROC does not need them.
    """
    rng, drawn, weights = np.random.default_rng((seed, 18)), [], []
    order = rng.permutation(len(part))
    common, others = order[: config.scored], order[config.scored :]
    for question in questions.tolist():
        answers_H = part.answers_HQ[:, question]
        more = others[answers_H[others] == 1][: config.scored_yes]
        for answer in (0, 1):
            chosen = common[answers_H[common] == answer]
            chosen = np.concatenate([chosen, more]) if answer else chosen
            everyone = int((answers_H == answer).sum())
            drawn.append((question, answer, chosen))
            weights.append(np.full(len(chosen), everyone / max(1, len(chosen))))
    return _pairs(drawn, weights)


def _pairs(drawn: Sequence[tuple[int, int, Numbers]], weights: Sequence[NDArray[np.float64]] = ()) -> Pairs:
    nothing = np.zeros(0, dtype=np.int64)
    sizes = [len(histories) for *_, histories in drawn]
    return Pairs(
        np.concatenate([nothing, *(histories for *_, histories in drawn)]),
        np.repeat(np.array([question for question, *_ in drawn], dtype=np.int64), sizes),
        np.repeat(np.array([answer for _, answer, _ in drawn], dtype=np.int64), sizes),
        np.concatenate([np.zeros(0), *weights]) if weights else np.ones(sum(sizes)),
    )
