"""Questions in words: answers with their accuracy, explanations of answers, and figures of the test part.

Shapes: S sequences, Q questions, N records, D slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import polars as pl

from tefm.base.errors import NotFittedError
from tefm.base.progress import log
from tefm.explain.explanation import Explanation
from tefm.explain.look_alikes import LookAlikes
from tefm.explain.reasons import Question
from tefm.language.prompts import NO_YES, escaped
from tefm.model.explainer import explain_slots, look_alikes_of
from tefm.pipeline.data import TaskData
from tefm.pipeline.fitted import Fitted
from tefm.pipeline.prepare import Preparation, asking_of
from tefm.questions.answering import asking, features_of
from tefm.questions.book import Book, Entry, checked_question
from tefm.questions.catalogue import of_column
from tefm.questions.config import QuestionSettings
from tefm.questions.measure import (
    auroc_of,
    figure_in_place,
    lightgbm_per_question,
    measured,
    score_questions,
    stand_ins,
)
from tefm.questions.question_data import Histories, QuestionData, histories_in, pairs_to_score, recorded
from tefm.tables.grouping import role_column
from tefm.tables.layout import Slots
from tefm.tables.records import Records
from tefm.tables.references import References
from tefm.tables.sequences import Sequences
from tefm.tables.words import text_of
from tefm.tabular.few_labels import check_labels, learn

#: The surrogate of a question is learned when it is first explained, from less than that of the label: in seconds.
ON_DEMAND: dict[str, int] = {"questions": 1_200, "surrogate_steps": 400, "donors": 600}
#: Columns of answers that may be empty.
TYPES = {
    "p(yes)": pl.Float64,
    "auroc": pl.Float64,
    "auroc_low": pl.Float64,
    "auroc_high": pl.Float64,
    "remark": pl.String,
}
#: What is said of a sequence where the value of a question is recorded already.
RECORDED = "recorded before: the question was learned where it is not"
#: And where nothing is known about new questions.
GUESS = "accuracy unknown: no probability without `--anyway`"


def book_of(fitted: Fitted) -> Book:
    """The questions of a model; one that was fitted without any cannot be asked."""
    if fitted.book is None:
        raise NotFittedError(
            "this model does not answer questions: it was fitted on a label only",
            remedy="teach it one with `tefm teach`, or add `questions:` to the task file and fit it again",
        )
    return fitted.book


def ask(
    fitted: Fitted, preparation: Preparation, slots: Sequences, questions: Sequence[str], *, anyway: bool = False
) -> list[pl.DataFrame]:
    """The answers to each question about sequences of slots, a row per sequence, with what they are worth.

    The records of a sequence are read once for all questions. A new question has no probability where nothing is known
    about the worth of new questions, unless it is wanted `anyway`.
    """
    book = book_of(fitted)
    texts = [_as_trained(book, text) for text in questions]
    alike = {text: [entry.question.text for entry in book.one_of(text)] for text in texts}
    every = list(dict.fromkeys([*texts, *(other for others in alike.values() for other in others)]))
    count, vectoriser = len(slots), preparation.vectoriser
    rows = slots.with_values(np.arange(len(slots.x_ND)))
    asker = fitted.asker(rows, slots.x_ND, every)
    history_P, question_P = np.tile(np.arange(count), len(every)), np.repeat(np.arange(len(every)), count)
    score_QS = asker(history_P, question_P).reshape(len(every), count)
    p_of = {text: book.scaling(text).probability(score_S) for text, score_S in zip(every, score_QS, strict=True)}
    answers = []
    for text in texts:
        entry = book.entry(text)
        before_S = np.zeros(count, dtype=bool) if entry is None else recorded(entry.question, vectoriser, slots)
        figure, p_S, is_guess = book.figure(text), p_of[text], book.is_guess(text) and not anyway
        if entry is not None and alike[text]:
            p_S = book.among(entry.question.source, np.stack([p_of[other] for other in alike[text]]))
        columns = {
            "question": text,
            "p(yes)": [None] * count if is_guess else p_S,
            "known": book.known(text),
            "auroc": figure.auroc,
            "auroc_low": figure.low,
            "auroc_high": figure.high,
            "remark": [GUESS if is_guess else RECORDED if is_recorded else None for is_recorded in before_S],
        }
        answers.append(pl.DataFrame(columns, schema_overrides=TYPES))
    return answers


def _as_trained(book: Book, text: str) -> str:
    """A question with the words that it was trained with, where only case or blanks differ."""
    text = checked_question(text)
    entry = book.entry(text)
    return text if entry is None else entry.question.text


# ---- new questions ----------------------------------------------------------------------------------------------


def teach(
    fitted: Fitted,
    preparation: Preparation,
    records: Records,
    question: str,
    column: str,
    *,
    yes: str | None = None,
    share: float | None = None,
) -> Entry:
    """Learn a question from labelled sequences; sequences without a label are left out."""
    text = checked_question(question)
    _book_or_empty(fitted).to_replace(text)  # refuses one that it has from its fit, before it learns
    wanted = QuestionSettings(column=column, values=None if yes is None else (yes,), ask=escaped(text))
    (learned,) = of_column(wanted, preparation.schema, records.frame, file=records.file)
    words = text_of(role_column(records.frame, column, "answer", records.file), preparation.schema.missing_words)
    words_S = np.array(words.to_list(), dtype=object)[records.sequences.last]
    labelled = np.flatnonzero([word is not None for word in words_S])
    yes_S = words_S[labelled] == learned.value
    check_labels(yes_S, file=records.file, column=column)
    reader = asking(fitted.classifier, _book_or_empty(fitted).prompt, text)
    features = features_of(preparation.slots(records.select(labelled)), fitted.coder, reader)
    head, score_S = learn(features, yes_S, share=share, seed=fitted.config.seed)
    figure = auroc_of(score_S, yes_S, seed=fitted.config.seed)
    return Entry(question=learned, trained=False, head=head, figure=figure, asked=len(yes_S), yes=int(yes_S.sum()))


def with_taught(fitted: Fitted, entry: Entry) -> Fitted:
    """The model with one more question; one without any questions has its first."""
    return replace(fitted, book=_book_or_empty(fitted).with_taught(entry))


def _book_or_empty(fitted: Fitted) -> Book:
    return fitted.book or Book(entries=(), prompt=fitted.prompt)


# ---- explanations -----------------------------------------------------------------------------------------------


class QuestionExplainer:
    """Explains answers to questions; what a question needs is learned when it is first asked about, and kept."""

    #: questions that are kept at most
    KEPT = 32

    def __init__(self, fitted: Fitted) -> None:
        look_alikes_of(fitted)  # refuses a model without explanations
        book_of(fitted)
        self.fitted = fitted
        self._known: dict[str, LookAlikes] = {}

    def model(self, question: str, wrap: Callable[[Fitted], Fitted] | None = None) -> Fitted:
        """The model for one question, with what explanations need."""
        text = _as_trained(book_of(self.fitted), question)
        fitted = self.fitted.answering(text)
        prompt = fitted.classifier.writer.prompt
        fitted = replace(fitted, prompt=prompt, look_alikes=None, explainer=None, validation=None)
        fitted = fitted if wrap is None else wrap(fitted)
        if text not in self._known:
            if len(self._known) >= self.KEPT:
                self._known.pop(next(iter(self._known)))
            # learned from the training sequences that the model keeps; none of them has a label
            parts = look_alikes_of(self.fitted)
            slots, config = parts.population.slots, parts.config
            everyone = slots, np.full(len(slots), -1, dtype=np.int64)
            less = config.model_copy(
                update={name: min(most, getattr(config, name)) for name, most in ON_DEMAND.items()}
            )
            self._known[text] = LookAlikes.fit(fitted.coder, fitted.masked_model(), slots, everyone, everyone, less)
        return replace(fitted, look_alikes=self._known[text])

    def explain(
        self,
        preparation: Preparation,
        slots: Sequences,
        text: str,
        question: Question,
        references: References | None = None,
        *,
        wrap: Callable[[Fitted], Fitted] | None = None,
    ) -> list[Explanation]:
        """Why the model answers a question as it does, for each sequence; the evidence is about yes by default.

        `wrap` may change how the model for the question is asked.
        """
        fitted = self.model(text, wrap)
        if question.of_class is None:
            question = question.model_copy(update={"of_class": NO_YES[1]})
        # a card names the column that holds the classes; here these are the answers to the question
        schema = preparation.schema.model_copy(update={"label": fitted.question})
        return explain_slots(fitted, replace(preparation, schema=schema), slots, question, references)


# ---- figures of the test part ----


def scored_on_test(fitted: Fitted, data: TaskData, tested: Histories, x_ND: Slots, *, compare: bool = True) -> Book:
    """The model's questions with figures of the test part, whose histories and slots `test_histories` gives.

    Held-out questions are compared with the trained question that stands in for each best on validation; with
    `compare`, trained ones with a LightGBM each, where that is installed.
    """
    questions, book = data.questions, fitted.book
    assert questions is not None and book is not None, "the model answers questions"
    seed = fitted.config.seed
    texts = [question.text for question in questions.questions]
    ask_test = fitted.asker(tested.histories, x_ND, texts)
    scored = score_questions(tested, questions, ask_test, seed=seed, title="answering questions")
    in_place = None
    if questions.held_out_Q.any():
        validation = questions.validation
        ask_validation = fitted.asker(validation.histories, data.validation.slots_ND, texts)
        pairs = pairs_to_score(validation, questions.config, seed=seed)
        chosen = stand_ins(questions, pairs, ask_validation)
        in_place = figure_in_place(scored, chosen, ask_test)
    book = measured(book, scored, "test", in_place=in_place)
    if compare and find_spec("lightgbm") is None:
        log.warning("not compared with LightGBM: pip install 'tefm[doctor]'")
    elif compare:
        slots = (data.training.slots_ND, data.validation.slots_ND, x_ND)
        figures = lightgbm_per_question(questions, fitted.coder.layout, slots, tested, scored.pairs, seed=seed)
        entries = [
            entry.model_copy(update={"lightgbm": figures.get(number)}) for number, entry in enumerate(book.entries)
        ]
        return book.model_copy(update={"entries": tuple(entries)})
    return book


def test_histories(preparation: Preparation, questions: QuestionData, records: Records) -> tuple[Histories, Slots]:
    """The histories of the test part as row numbers of its table, and the slots of these rows."""
    histories = histories_in(asking_of(preparation), questions.questions, records)
    return histories, records.slots(preparation.vectoriser)
