"""Histories of a table, and the answer to every question where it can be asked.

A history is the first records of a sequence. What follows it answers questions about the next record or a time ahead;
a column of its last record answers the others, about whole sequences only, as for a label.

Shapes: N records of all sequences, H histories, Q questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.questions.catalogue import WordQuestion, slot_of
from tefm.tables.columns import Columns
from tefm.tables.grouping import role_column, times_of
from tefm.tables.layout import Slots
from tefm.tables.schema import Schema
from tefm.tables.sequences import Sequences
from tefm.tables.vectorise import Vectoriser
from tefm.tables.words import text_of

#: The answer where a question cannot be asked: it is unknown, or the value was recorded before.
UNASKED = -1

Answers = NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Histories:
    """Histories as row numbers, and the answers to all questions: 1 yes, 0 no, −1 not asked."""

    histories: Sequences
    answers_HQ: Answers

    def __len__(self) -> int:
        return len(self.histories)

    def select(self, which: NDArray[np.int64]) -> Histories:
        return Histories(self.histories.select(which), self.answers_HQ[which])

    def only(self, questions: NDArray[np.int64]) -> Histories:
        """With the answers to some of the questions."""
        return Histories(self.histories, self.answers_HQ[:, questions])


def histories_of(
    questions: Sequence[WordQuestion],
    vectoriser: Vectoriser,
    schema: Schema,
    frame: pl.DataFrame,
    sequences: Sequences,
    x_ND: Slots,
    *,
    most: int,
    seed: int,
) -> Histories:
    """Every history of the sequences (at most `most` of them, drawn at random) with its answers.

    `sequences` are row numbers of the frame and `x_ND` the slots of the same records, in their order.
    """
    records = _Records(frame, vectoriser, schema, sequences, x_ND)
    answers_NQ = np.stack([records.answers(question) for question in questions], axis=1)
    ends = np.flatnonzero((answers_NQ != UNASKED).any(axis=1))
    if len(ends) > most:
        ends = np.sort(np.random.default_rng((seed, 16)).permutation(ends)[:most])
    return Histories(first_records(sequences, ends), answers_NQ[ends])


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
    slot, value = slot_of(vectoriser, question)
    return np.logical_or.reduceat(slots.x_ND[:, slot] == value, slots.starts[:-1])


class _Records:
    """The records of all sequences, one after another: what follows each of them."""

    def __init__(
        self, frame: pl.DataFrame, vectoriser: Vectoriser, schema: Schema, sequences: Sequences, x_ND: Slots
    ) -> None:
        self.frame, self.vectoriser, self.schema = frame, vectoriser, schema
        self.sequences, self.x_ND = sequences, x_ND
        self.count = len(sequences.values)
        #: past the last record of each record's sequence
        self.end_N = np.repeat(sequences.starts[1:], sequences.lengths)
        self.has_next_N = np.arange(self.count) + 1 < self.end_N

    def answers(self, question: WordQuestion) -> Answers:
        match question.kind:
            case "column":
                return self._column(question)
            case "threshold":
                return self._threshold(question)
            case "within":
                return self._within(question)
            case "next":
                return self._next(question)

    def _column(self, question: WordQuestion) -> Answers:
        """The value of the last record; nothing for earlier ones."""
        answers_N = np.full(self.count, UNASKED, dtype=np.int8)
        column = role_column(self.frame, str(question.source), "answer", self.sequences.file)
        words = np.array(text_of(column, self.schema.missing_words).to_list(), dtype=object)[self.sequences.last]
        last = self.sequences.starts[1:] - 1
        known = np.array([word is not None for word in words], dtype=bool)
        answers_N[last[known]] = words[known] == question.value
        return answers_N

    def _next(self, question: WordQuestion) -> Answers:
        present_N, known_N = self._present(question)
        answers_N = np.full(self.count, UNASKED, dtype=np.int8)
        asked = np.flatnonzero(self.has_next_N & ~self._before(question, present_N))
        asked = asked[known_N[asked + 1]]
        answers_N[asked] = present_N[asked + 1]
        return answers_N

    def _threshold(self, question: WordQuestion) -> Answers:
        values_N = self._numbers(str(question.source))
        answers_N = np.full(self.count, UNASKED, dtype=np.int8)
        asked = np.flatnonzero(self.has_next_N)
        asked = asked[np.isfinite(values_N[asked + 1])]
        following = values_N[asked + 1]
        low = -np.inf if question.above is None else question.above
        high = np.inf if question.below is None else question.below
        answers_N[asked] = (following > low) & (following < high)
        return answers_N

    def _within(self, question: WordQuestion) -> Answers:
        """Yes where the event follows in time; no only where the table goes on for as long without it."""
        present_N = np.ones(self.count, dtype=bool) if question.source is None else self._present(question)[0]
        horizon = question.horizon or 0.0
        time_N, until = self._times()
        events = np.append(np.flatnonzero(present_N), self.count)
        following_N = events[np.searchsorted(events, np.arange(self.count), side="right")]
        happens_N = following_N < self.end_N
        after_N = time_N[np.minimum(following_N, self.count - 1)] - time_N
        yes_N = happens_N & (after_N <= horizon)
        answers_N = np.where(yes_N, 1, np.where(until - time_N >= horizon, 0, UNASKED)).astype(np.int8)
        answers_N[self._before(question, present_N)] = UNASKED
        return answers_N

    def _present(self, question: WordQuestion) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which records have the value, and of which it is known; a category that is missing is not."""
        slot, value = slot_of(self.vectoriser, question)
        of_N = self.x_ND[:, slot]
        known_N = of_N > 0 if self.vectoriser.layout.slots[slot].kind == "category" else np.ones(self.count, dtype=bool)
        return of_N == value, known_N

    def _before(self, question: WordQuestion, present_N: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Where the value was recorded in the history already, for a question that then is not asked."""
        if question.again:
            return np.zeros(self.count, dtype=bool)
        counts_N = np.cumsum(present_N)
        earlier_N = np.concatenate([[0], counts_N])[np.repeat(self.sequences.starts[:-1], self.sequences.lengths)]
        before_N: NDArray[np.bool_] = counts_N > earlier_N
        return before_N

    def _numbers(self, name: str) -> NDArray[np.float64]:
        field = self.vectoriser.table_schema.field(name)
        records = self.frame[self.sequences.rows]
        return Columns.of(records, self.vectoriser.table_schema, self.sequences.file).numbers(field)

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
