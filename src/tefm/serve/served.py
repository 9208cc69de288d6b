"""A model that is served: it answers the records of several requests at once, and explains one sequence at a time.

Shapes: S sequences, N records, K levels, Q classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError, TefmError
from tefm.explain.explanation import Explanation
from tefm.explain.reasons import Question
from tefm.language.classifier import Answerer
from tefm.model.ask import QuestionExplainer, ask, book_of
from tefm.model.estimator import TEFM
from tefm.model.explainer import explain_slots, look_alikes_of
from tefm.pipeline.fitted import Fitted
from tefm.serve.messages import AnswerInWords, Prediction
from tefm.serve.rows import REQUEST, RowReader, Rows, notices
from tefm.tables.records import Records
from tefm.tables.sequences import Sequences

#: Between the request's number and the entity's name: no CSV or JSON text contains it by accident.
APART = "\x1f"
#: Answers to questions in words of one request, at most: its sequences times its questions.
MAX_ANSWERS = 2_000
#: Questions of one request, at most; and answers between two looks at requests that are more urgent.
MAX_QUESTIONS, AT_ONCE = 100, 64

PredictionsOrError = list[Prediction] | TefmError


class Served:
    """A fitted model under a name. Only the worker's thread calls `predict` and `explain`."""

    def __init__(self, name: str, model: TEFM, *, remember: bool = True) -> None:
        """With `remember`, a prompt that came before is not put to the language model again."""
        self.name, self.model = name, model
        self.fitted, self.preparation = model.fitted, model.preparation
        self.reader = RowReader(self.preparation)
        self._answerer = self.fitted.answerer.remembering() if remember else self.fitted.answerer
        self._explainer: QuestionExplainer | None = None
        self._vocabulary = self.fitted.classifier.vocabulary
        self.decision = self.fitted.decision_in_words

    def warm_up(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Answer some records, so that the first client does not wait for what libraries do once."""
        (outcome,) = self.predict([self.reader.of_records(records)])
        if isinstance(outcome, TefmError):
            raise outcome

    # ---- predicting -------------------------------------------------------------------------------------------

    def predict(self, tables: Sequence[Rows]) -> list[PredictionsOrError]:
        """The answers to the rows of each request; where one of them is wrong, the others do not notice."""
        kinds: dict[Any, list[int]] = {}
        for number, rows in enumerate(tables):
            kinds.setdefault(tuple(rows.frame.schema.items()), []).append(number)
        outcomes: dict[int, PredictionsOrError] = {}
        for numbers in kinds.values():
            outcomes |= zip(numbers, self._alike([tables[number] for number in numbers]), strict=True)
        return [outcomes[number] for number in range(len(tables))]

    def _alike(self, tables: Sequence[Rows]) -> Sequence[PredictionsOrError]:
        """The outcomes of requests with the same columns."""
        try:
            return self._together(tables)
        except TefmError as error:
            if len(tables) == 1:
                return [error]
            return [outcome for rows in tables for outcome in self._alike([rows])]

    def _together(self, tables: Sequence[Rows]) -> list[list[Prediction]]:
        records = self._records(tables)
        sequences, slots = records.sequences, self.preparation.slots(records)
        codes = self._answerer.codes(slots)
        p_SQ = self.fitted.calibration.probabilities(self._answerer.logits(slots, codes))
        predicted_S = self.fitted.decide(p_SQ).tolist()
        numbers = {} if self.fitted.buckets is None else self.fitted.buckets.predicted(p_SQ).columns
        starts = np.cumsum([0, *(rows.height for rows in tables)])
        table_S = (np.searchsorted(starts, sequences.last, side="right") - 1).tolist()
        answered: list[list[Prediction]] = [[] for _ in tables]
        of_record = notices(self.preparation.vectoriser, records.frame[sequences.rows], slots.x_ND)
        for number, (of_table, p_Q) in enumerate(zip(table_S, p_SQ.tolist(), strict=True)):
            rows, classes = tables[of_table], self.fitted.classes
            own = (sequences[number] - starts[of_table]).tolist()
            places = range(*sequences.starts[number : number + 2])
            answered[of_table].append(
                Prediction(
                    id=len(answered[of_table]) if rows.entities is None else rows.entities[own[-1]],
                    rows=own,
                    predicted=classes[predicted_S[number]],
                    p=p_Q[predicted_S[number]],
                    probabilities=dict(zip(classes, p_Q, strict=True)),
                    notices=[text for place in places for text in of_record.get(place, ())],
                    number={name: float(of_S[number]) for name, of_S in numbers.items()} or None,
                    codes=self._codes(codes[number]),
                )
            )
        return answered

    def _records(self, tables: Sequence[Rows]) -> Records:
        """The rows of all requests as one table, and their sequences: none reaches across two requests."""
        frame, preparation = pl.concat([rows.frame for rows in tables]), self.preparation
        entity = preparation.entity
        if preparation.config.window:
            parts = []
            for start, stop in pairwise([0, *accumulate(rows.height for rows in tables)]):
                part = preparation.records(frame[start:stop], labelled=False, whole=False, file=REQUEST)
                parts.append(replace(part.sequences, values=part.sequences.values + start))
            return replace(part, frame=frame, sequences=reduce(Sequences.followed_by, parts))
        if entity is not None and len(tables) > 1:
            number = pl.Series(np.repeat(np.arange(len(tables)), [rows.height for rows in tables])).cast(pl.String)
            # a missing entity stays missing, and is refused as ever
            words = frame[entity].str.strip_chars()
            known = words.is_not_null() & ~words.str.to_lowercase().is_in(list(preparation.schema.missing_words))
            frame = frame.with_columns(
                pl.select(pl.when(known).then(pl.concat_str(number, words, separator=APART))).to_series().alias(entity)
            )
        return preparation.records(frame, labelled=False, whole=False, file=REQUEST)

    def _codes(self, codes_TK: NDArray[Any]) -> list[list[str]]:
        names, entries = self._vocabulary.names, self._vocabulary.entries
        return [[names[level * entries + entry] for level, entry in enumerate(code)] for code in codes_TK.tolist()]

    # ---- questions in words -----------------------------------------------------------------------------------

    @property
    def questions(self) -> list[str]:
        """The questions that the model was trained on."""
        return [] if self.fitted.book is None else [entry.question.text for entry in self.fitted.book.trained]

    def ask(
        self, rows: Rows, questions: Sequence[str], pause: Callable[[], None], *, anyway: bool = False
    ) -> list[AnswerInWords]:
        """The answers to questions about the sequences of a request; `pause` is called before each part of them."""
        book_of(self.fitted)  # before anything is vectorised
        if len(questions) > MAX_QUESTIONS:
            problem = f"the request has {len(questions):,} questions, and {MAX_QUESTIONS} are allowed"
            raise InputError(problem, file=REQUEST, remedy="send fewer questions at a time")
        records = self._records([rows])
        if len(records) * len(questions) > MAX_ANSWERS:
            raise InputError(
                f"{len(records)} sequences and {len(questions)} questions are more than {MAX_ANSWERS} answers",
                file=REQUEST,
                remedy="send fewer rows or fewer questions at a time",
            )
        last = records.sequences.last.tolist()
        names = list(range(len(last))) if rows.entities is None else [rows.entities[row] for row in last]
        slots, worth = self.preparation.slots(records), book_of(self.fitted).worth
        size = max(1, AT_ONCE // len(questions))  # the records of a sequence are read once for all questions
        of_question: list[list[AnswerInWords]] = [[] for _ in questions]
        for first in range(0, len(names), size):
            pause()
            part = slots.select(np.arange(first, min(first + size, len(names))))
            parts = ask(self.fitted, self.preparation, part, questions, anyway=anyway)
            for answered, answers in zip(of_question, parts, strict=True):
                for name, row in zip(names[first:], answers.rename({"p(yes)": "p"}).to_dicts(), strict=False):
                    answered.append(AnswerInWords(id=name, worth=worth(row["question"]), **row))
        return [answer for answered in of_question for answer in answered]

    # ---- explaining -------------------------------------------------------------------------------------------

    def count(self, rows: Rows) -> int:
        """About how many sequences a request has, before its rows are read."""
        if window := self.preparation.config.window:
            return math.ceil(rows.height / window)
        return rows.height if rows.entities is None else len(set(map(str, rows.entities)))

    def to_explain(self, rows: Rows, most: int) -> Sequences:
        """The sequences of a request as slots."""
        look_alikes_of(self.fitted)  # before anything is vectorised
        records = self._records([rows])
        if len(records) > most:
            raise InputError(
                f"the request holds {len(records)} sequences to explain, and {most} are allowed",
                file=REQUEST,
                remedy="send fewer at a time: an explanation asks the model hundreds of questions",
            )
        return self.preparation.slots(records)

    def explain(
        self, slots: Sequences, question: Question, pause: Callable[[], None], text: str | None = None
    ) -> Explanation:
        """The explanation of one sequence; `pause` is called before each question to the model.

        With `text`, of the answer to this question in words.
        """
        if text is None:
            paused = _pausing(self.fitted, self._answerer, pause)
            (explanation,) = explain_slots(paused, self.preparation, slots, question)
            return explanation
        if self._explainer is None:
            self._explainer = QuestionExplainer(self.fitted)

        def wrap(fitted: Fitted) -> Fitted:
            return _pausing(fitted, fitted.answerer.remembering(), pause)

        (explanation,) = self._explainer.explain(self.preparation, slots, text, question, wrap=wrap)
        return explanation


def _pausing(fitted: Fitted, answerer: Answerer, pause: Callable[[], None]) -> Fitted:
    """The model with a pause before each question to it."""
    return replace(fitted, answerer=_PausingAnswerer(**vars(answerer), pause=pause))


@dataclass(frozen=True, eq=False, kw_only=True)
class _PausingAnswerer(Answerer):
    """An answerer that pauses before it answers, for requests that are more urgent than an explanation."""

    pause: Callable[[], None]

    def logits(self, slots: Sequences, codes: Sequences | None = None, *, show: bool = False) -> NDArray[Any]:
        self.pause()
        return super().logits(slots, codes, show=show)
