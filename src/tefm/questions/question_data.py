"""What a fit with questions is made from: the questions, which of them are held out, and the histories of each part.

A history is a prefix of a sequence. What follows it answers questions about the next record or a time ahead;
the others, about whole sequences, are answered by a column of the last record.

Questions with too few answers are left out. The others become pairs of a history and a question.

Shapes: N records, D slots, H histories, Q questions, P pairs of a history and a question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.base.progress import note
from tefm.language.classifier import Classifier
from tefm.language.prompts import Prompt, QuestionWriter
from tefm.language.tuning import Questions, ToLearn, read_together
from tefm.questions.answering import writer_of
from tefm.questions.catalogue import WordQuestion, catalogue, held_out_of, slot_of
from tefm.questions.config import QuestionsConfig
from tefm.tables.columns import Columns
from tefm.tables.grouping import dates_of, role_column
from tefm.tables.layout import Layout, Slots
from tefm.tables.records import Records
from tefm.tables.sequences import Sequences
from tefm.tables.vectorise import Vectoriser
from tefm.tables.words import text_of
from tefm.tabular.inputs import RecordSlots, sequence_features
from tefm.tabular.question_teacher import QuestionTeacher, history_features

#: Questions about one history, where not all can be asked of all histories: the model reads it once for all of them.
EACH = 8
#: Further histories with the answer yes that a question is measured on, at least.
LEAST_YES = 5
#: The share of questions that are held out, where nothing else is said.
HOLD_OUT = 0.2
#: Validation pairs for early stopping, as a share of those that are learned from, and at most.
VALIDATED, MOST_VALIDATED = 0.15, 9_000
#: The answer where a question cannot be asked: it is unknown, or the value was recorded before.
UNASKED = -1

Answers = NDArray[np.int8]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


# ---- histories and their answers ----


@dataclass(frozen=True, eq=False)
class Histories:
    """Histories as row numbers, and the answers to all questions: 1 yes, 0 no, −1 not asked."""

    histories: Sequences
    answers_HQ: Answers

    def __len__(self) -> int:
        return len(self.histories)


@dataclass(frozen=True)
class Asking:
    """What is asked, and how tables are seen."""

    config: QuestionsConfig
    vectoriser: Vectoriser
    #: of what is drawn at random
    seed: int = 0


def histories_in(asking: Asking, questions: Sequence[WordQuestion], records: Records) -> Histories:
    """The histories of a table as row numbers, with the texts of their prompts, and their answers.

    There are at most as many as the config says, drawn at random.
    """
    following, most = _Following(asking.vectoriser, records), asking.config.histories
    answers_NQ = np.stack([following.answers(question) for question in questions], axis=1)
    ends = np.flatnonzero((answers_NQ != UNASKED).any(axis=1))
    if len(ends) > most:
        ends = np.sort(np.random.default_rng((asking.seed, 16)).permutation(ends)[:most])
    histories = records.with_sequences(records.sequences.up_to(ends))
    return Histories(histories.with_texts(), answers_NQ[ends])


def recorded(question: WordQuestion, vectoriser: Vectoriser, slots: Sequences) -> NDArray[np.bool_]:
    """For which sequences the value of a question is recorded already, though it was only asked where it is not."""
    if question.again or question.value is None or question.kind not in ("next", "within"):
        return np.zeros(len(slots), dtype=bool)
    present_N, _ = _present(question, vectoriser, slots.x_ND)
    return np.logical_or.reduceat(present_N, slots.starts[:-1])


def _present(question: WordQuestion, vectoriser: Vectoriser, x_ND: Slots) -> tuple[Flags, Flags]:
    """Which records have the value, and of which it is known; a category that is missing is not."""
    place = slot_of(vectoriser, question)
    assert place is not None, "questions are about values that the vectoriser knows"
    slot, value = place
    is_category = vectoriser.layout.slots[slot].kind == "category"
    known_N = x_ND[:, slot] > 0 if is_category else np.ones(len(x_ND), dtype=bool)
    return x_ND[:, slot] == value, known_N


class _Following:
    """The records of all sequences, one after another: what follows each of them."""

    def __init__(self, vectoriser: Vectoriser, records: Records) -> None:
        sequences = records.sequences
        self.frame, self.vectoriser, self.schema = records.frame, vectoriser, records.schema
        self.sequences, self.x_ND = sequences, records.slots(vectoriser)[sequences.rows]
        self.count = len(sequences.values)
        #: past the last record of each record's sequence
        self.end_N = np.repeat(sequences.starts[1:], sequences.lengths)
        self.has_next_N = np.arange(self.count) + 1 < self.end_N
        #: the next record, where there is one
        self.next_N = np.minimum(np.arange(self.count) + 1, self.count - 1)

    def answers(self, question: WordQuestion) -> Answers:
        """The answers after each record."""
        by_kind = {"column": self._column, "threshold": self._threshold, "within": self._within, "next": self._next}
        asked_N, yes_N = by_kind[question.kind](question)
        return np.where(asked_N, yes_N, UNASKED).astype(np.int8)

    def _column(self, question: WordQuestion) -> tuple[Flags, Flags]:
        """The value of the last record; nothing for earlier ones."""
        column = role_column(self.frame, str(question.source), "answer", self.sequences.file)
        words = text_of(column, self.schema.missing_words)[self.sequences.rows]
        return ~self.has_next_N & words.is_not_null().to_numpy(), words.eq_missing(question.value).to_numpy()

    def _next(self, question: WordQuestion) -> tuple[Flags, Flags]:
        present_N, known_N = _present(question, self.vectoriser, self.x_ND)
        asked_N = self.has_next_N & known_N[self.next_N] & ~self._before(question, present_N)
        return asked_N, present_N[self.next_N]

    def _threshold(self, question: WordQuestion) -> tuple[Flags, Flags]:
        field = self.vectoriser.table_schema.field(str(question.source))
        records = Columns.of(self.frame[self.sequences.rows], self.vectoriser.table_schema, self.sequences.file)
        following_N = records.numbers(field)[self.next_N]
        assert question.above is not None, "a threshold"
        return self.has_next_N & np.isfinite(following_N), following_N > question.above

    def _within(self, question: WordQuestion) -> tuple[Flags, Flags]:
        """Yes where the event follows in time; no only where the table goes on for as long without it."""
        present_N = np.ones(self.count, dtype=bool)
        if question.source is not None:
            present_N, _ = _present(question, self.vectoriser, self.x_ND)
        horizon = question.horizon or 0.0
        time_N, until = self._times()
        events = np.append(np.flatnonzero(present_N), self.count)
        following_N = events[np.searchsorted(events, np.arange(self.count), side="right")]
        after_N = time_N[np.minimum(following_N, self.count - 1)] - time_N
        yes_N = (following_N < self.end_N) & (after_N <= horizon)
        return (yes_N | (until - time_N >= horizon)) & ~self._before(question, present_N), yes_N

    def _before(self, question: WordQuestion, present_N: Flags) -> Flags:
        """Where the value was recorded in the history already, for a question that then is not asked."""
        if question.again:
            return np.zeros(self.count, dtype=bool)
        counts_N = np.cumsum(present_N)
        earlier_N = np.concatenate([[0], counts_N])[np.repeat(self.sequences.starts[:-1], self.sequences.lengths)]
        return counts_N > earlier_N

    def _times(self) -> tuple[NDArray[np.float64], float]:
        """The time of each record in seconds, and the last one of the table."""
        remedy = "give a column of dates, or ask about the next record with `next`"
        column, unit = dates_of(self.frame, self.schema, self.sequences.file, "an event within a time needs", remedy)
        seconds = column.to_numpy().astype(np.float64) * unit
        return seconds[self.sequences.rows], float(seconds.max())


# ---- the questions of a fit ----


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


def question_data(asking: Asking, training: Records, validation: Records) -> QuestionData:
    """The questions of a task, and the histories that answer them; questions with too few answers are left out."""
    settings = asking.config
    if training.sequences.lengths.max(initial=0) < 2 and any(asked.column is None for asked in settings.asked):
        raise InputError(
            "questions about what comes next need sequences of several records, and every sequence here has one",
            file=training.file,
            remedy="name the column of the entity, `entity: COLUMN`, or ask about a `column`",
        )
    questions = catalogue(settings, asking.vectoriser, training.schema, training.frame, file=training.file)
    parts = [histories_in(asking, questions, records) for records in (training, validation)]
    counts_2Q = np.stack([(parts[0].answers_HQ == answer).sum(axis=0) for answer in (0, 1)])
    enough = np.flatnonzero(counts_2Q.min(axis=0) >= settings.least)
    if not len(enough):
        raise InputError(
            f"no question has {settings.least} training histories that answer yes and as many that answer no",
            file=training.file,
            remedy="ask about more common values, give more records, or set `least` under `questions:`",
        )
    if len(enough) < len(questions):
        dropped = np.setdiff1d(np.arange(len(questions)), enough)
        rare = ", ".join(f"“{questions[number].text}”" for number in dropped[:3])
        few = f"fewer than {settings.least} training histories answer yes, or no"
        more = " …" if len(dropped) > 3 else ""
        note(f"{len(dropped):,} of {len(questions):,} questions are left out ({few}): {rare}{more}")
    kept = tuple(questions[number] for number in enough)
    share = HOLD_OUT if settings.hold_out is None else settings.hold_out
    learned_all = [question.one_of and settings.hold_out is None for question in kept]
    # one that is an entry by itself is always learned
    entries = [-1 - number if learned_all[number] else question.entry for number, question in enumerate(kept)]
    held_out_Q = held_out_of(entries, share, asking.seed)
    pairs = settings.pairs_for(gpu=torch.cuda.is_available(), texts=bool(training.schema.text))
    learned, held = (replace(part, answers_HQ=part.answers_HQ[:, enough]) for part in parts)
    return QuestionData(settings, kept, held_out_Q, learned, held, pairs)


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
    drawn: list[Drawn] = []
    for question in trained.tolist():
        answers_H = part.answers_HQ[:, question]
        both = [np.flatnonzero(answers_H == answer) for answer in (0, 1)]
        count = min(most, *(len(of_answer) for of_answer in both))
        drawn += [(question, answer, 1.0, rng.permutation(both[answer])[:count]) for answer in (0, 1)]
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


def pairs_to_score(part: Histories, config: QuestionsConfig, *, seed: int) -> Pairs:
    """All questions on the same random histories, and on further ones that answer yes, since most are rare.

    The weights undo the drawing, for calibration; an AUROC does not need them.
    """
    drawn: list[Drawn] = []
    order = np.random.default_rng((seed, 18)).permutation(len(part))
    common, others = order[: config.scored], order[config.scored :]
    for question, answers_H in enumerate(part.answers_HQ.T):
        more = others[answers_H[others] == 1][: max(LEAST_YES, config.scored // 10)]
        for answer in (0, 1):
            chosen = common[answers_H[common] == answer]
            chosen = np.concatenate([chosen, more]) if answer else chosen
            everyone = int((answers_H == answer).sum())
            drawn.append((question, answer, everyone / max(1, len(chosen)), chosen))
    return _pairs(drawn)


#: A question, an answer, the weight of each pair, and the histories that give this answer.
Drawn = tuple[int, int, float, Numbers]


def _pairs(drawn: Sequence[Drawn]) -> Pairs:
    sizes = [len(histories) for *_, histories in drawn]
    questions, answers = (np.array([of[place] for of in drawn], dtype=np.int64) for place in (0, 1))
    weights = np.array([weight for _, _, weight, _ in drawn])
    history_P = np.concatenate([np.zeros(0, dtype=np.int64), *(histories for *_, histories in drawn)])
    return Pairs(history_P, *(np.repeat(values, sizes) for values in (questions, answers, weights)))


# ---- what is learned ----


def questions_to_learn(
    classifier: Classifier,
    prompt: Prompt,
    data: QuestionData,
    training_codes: NDArray[Any],
    validation_codes: NDArray[Any],
    teacher: QuestionTeacher,
    *,
    seed: int,
) -> ToLearn:
    """The prompts that the language model learns from, each with the teacher's answer.

    Codes are given per record of a part.
    """
    writer, training = writer_of(classifier, prompt), data.training
    few = min(MOST_VALIDATED, max(2, round(VALIDATED * data.pairs)))
    learned = pairs_to_teach(training, data.trained, data.pairs, seed=seed)
    validated = pairs_to_validate(data.validation, data.trained, few, seed=seed)
    yes_P = teacher.yes_HQ[learned.history_P, np.searchsorted(data.trained, learned.question_P)]
    texts = [question.text for question in data.questions]
    learning = _prompts(writer, training.histories, training_codes, learned, texts)
    validating = _prompts(writer, data.validation.histories, validation_codes, validated, texts)
    learning = replace(learning, classes_NQ=np.stack([1 - yes_P, yes_P], axis=1))
    return ToLearn([learning], [validating])


def teacher_of(data: QuestionData, slots_ND: Slots, layout: Layout, *, seed: int) -> QuestionTeacher:
    """What the slots of the training records say about the trained questions; held-out ones have no part in it."""
    training = data.training
    records = RecordSlots(slots_ND, layout, training.histories)
    _, entity_H = np.unique(training.histories.names, return_inverse=True)
    return QuestionTeacher.fit(
        history_features(records),
        training.answers_HQ[:, data.trained],
        entity_H,
        trees=sequence_features(records, "history"),
        seed=seed,
    )


def _prompts(
    writer: QuestionWriter, histories: Sequences, codes_NK: NDArray[Any], pairs: Pairs, texts: Sequence[str]
) -> Questions:
    used, number_P = np.unique(pairs.history_P, return_inverse=True)
    histories, tails = histories.select(used), [writer.tail(text) for text in texts]
    prefixes = writer.prefixes(histories.with_values(codes_NK[histories.rows]))
    prompts = [
        np.concatenate([prefixes[history], tails[question]])
        for history, question in zip(number_P.tolist(), pairs.question_P.tolist(), strict=True)
    ]
    shared_H = np.array([len(prefix) for prefix in prefixes], dtype=np.int64)
    return Questions(prompts, pairs.answer_P, writer.answers, history_N=number_P, shared_N=shared_H[number_P])
