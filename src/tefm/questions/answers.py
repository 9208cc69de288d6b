"""Histories of a table, and the answer to every question where it can be asked.

A history is the first records of a sequence. What follows it answers questions about the next record or a time ahead;
a column of its last record answers the others, about whole sequences only, as for a label.

Shapes: N records of all sequences, H histories, Q questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.questions.catalogue import WordQuestion, slot_of
from tefm.questions.config import QuestionsConfig
from tefm.tables.columns import Columns
from tefm.tables.grouping import role_column, times_of
from tefm.tables.layout import Slots
from tefm.tables.records import Records
from tefm.tables.sequences import Sequences
from tefm.tables.vectorise import Vectoriser
from tefm.tables.words import text_of

#: The answer where a question cannot be asked: it is unknown, or the value was recorded before.
UNASKED = -1

Answers = NDArray[np.int8]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Histories:
    """Histories as row numbers, and the answers to all questions: 1 yes, 0 no, −1 not asked."""

    histories: Sequences
    answers_HQ: Answers

    def __len__(self) -> int:
        return len(self.histories)

    def only(self, questions: NDArray[np.int64]) -> Histories:
        """With the answers to some of the questions."""
        return Histories(self.histories, self.answers_HQ[:, questions])


@dataclass(frozen=True)
class Asking:
    """What is asked, and how tables are seen."""

    config: QuestionsConfig
    vectoriser: Vectoriser
    #: of what is drawn at random
    seed: int = 0
    #: whether prompts say how much time passed between two records
    gaps: bool = False


def histories_in(asking: Asking, questions: Sequence[WordQuestion], records: Records) -> Histories:
    """The histories of a table as row numbers, with the texts of their prompts, and their answers.

    There are at most as many as the config says, drawn at random.
    """
    following, most = _Following(asking.vectoriser, records), asking.config.histories
    answers_NQ = np.stack([following.answers(question) for question in questions], axis=1)
    ends = np.flatnonzero((answers_NQ != UNASKED).any(axis=1))
    if len(ends) > most:
        ends = np.sort(np.random.default_rng((asking.seed, 16)).permutation(ends)[:most])
    histories = records.with_sequences(first_records(records.sequences, ends))
    return Histories(histories.with_texts(gaps=asking.gaps), answers_NQ[ends])


def first_records(sequences: Sequences, ends: NDArray[np.int64]) -> Sequences:
    """The records of each sequence up to an end, which is a position in the records of all sequences.

    >>> grown = first_records(Sequences(np.array([7, 8, 9]), np.array([0, 2, 3])), np.array([0, 1, 2]))
    >>> [grown[i].tolist() for i in range(3)]
    [[7], [7, 8], [9]]
    """
    of_H = sequences.sequence_N[ends]
    firsts = sequences.starts[of_H]
    lengths = ends - firsts + 1
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.repeat(firsts - starts[:-1], lengths) + np.arange(starts[-1])
    return Sequences(sequences.values[places], starts, ids=sequences.names[of_H], file=sequences.file)


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
        before_N: Flags = counts_N > earlier_N
        return before_N

    def _times(self) -> tuple[NDArray[np.float64], float]:
        """The time of each record in seconds, and the last one of the table."""
        schema, file = self.schema, self.sequences.file
        column, unit = times_of(self.frame, str(schema.time), schema, file)
        if unit is None:
            raise InputError(
                "an event within a time needs dates, but this column contains plain numbers",
                file=file,
                column=schema.time,
                remedy="give a column of dates, or ask about the next record with `next`",
            )
        seconds = column.to_numpy().astype(np.float64) * unit
        return seconds[self.sequences.rows], float(seconds.max())
