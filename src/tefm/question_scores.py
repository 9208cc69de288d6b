"""What a fitted model's answers are worth on test histories, next to one LightGBM per question.

Shapes: N records, D slots.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import polars as pl

from tefm.base.progress import log
from tefm.fitted import Fitted
from tefm.prepare import Preparation, asking_of
from tefm.questions.answers import Histories
from tefm.questions.book import Book
from tefm.questions.compare import lightgbm_per_question
from tefm.questions.data import QuestionData, pairs_to_score
from tefm.questions.measure import figure_in_place, measured, score_questions, stand_ins
from tefm.questions.prepare import histories_in
from tefm.records.layout import Slots
from tefm.records.readers.table import open_table
from tefm.records.sequences import Sequences
from tefm.taskdata import TaskData


def scored_on_test(
    fitted: Fitted,
    preparation: Preparation,
    data: TaskData,
    frame: pl.DataFrame,
    sequences: Sequences,
    *,
    compare: bool = True,
) -> Book:
    """The model's questions with figures of the test part; `sequences` are row numbers of the frame.

    Held-out questions are compared with the trained question that stands in for each best on validation; with
    `compare`, trained ones with a LightGBM each, where that is installed.
    """
    questions, book, coder = data.questions, fitted.book, fitted.coder
    assert questions is not None and book is not None and coder is not None, "the model answers questions"
    tested, x_ND = test_histories(preparation, questions, frame, sequences)
    seed = fitted.config.seed
    texts = [question.text for question in questions.questions]
    ask_test = fitted.asker(tested.histories, x_ND, texts)
    scored = score_questions(tested, questions, ask_test, seed=seed, title="answering questions")
    in_place = None
    if questions.held_out_Q.any():
        validation = questions.validation
        ask_validation = fitted.asker(validation.histories, data.validation.slots_ND, texts)
        pairs = pairs_to_score(validation, np.arange(len(texts)), questions.config, seed=seed)
        chosen = stand_ins(questions, pairs, ask_validation)
        in_place = figure_in_place(scored, chosen, ask_test)
    book = measured(book, scored, "test", in_place=in_place)
    if compare and find_spec("lightgbm") is None:
        log.warning("no LightGBM per question: pip install 'tefm[doctor]'")
    elif compare:
        slots = (data.training.slots_ND, data.validation.slots_ND, x_ND)
        figures = lightgbm_per_question(questions, coder.layout, slots, tested, scored.pairs, seed=seed)
        entries = [
            entry.model_copy(update={"lightgbm": figures.get(number)}) for number, entry in enumerate(book.entries)
        ]
        book = book.model_copy(update={"entries": tuple(entries)})
    return book


def test_histories(
    preparation: Preparation, questions: QuestionData, frame: pl.DataFrame, sequences: Sequences
) -> tuple[Histories, Slots]:
    """The histories of the test part as row numbers into its slots, and these slots."""
    assert preparation.vectoriser is not None, "questions need codes"
    records = open_table(frame[np.sort(sequences.rows)], name=sequences.file)
    x_ND = preparation.vectoriser.transform(records)
    tabled = frame, sequences, x_ND
    return histories_in(asking_of(preparation), questions.questions, tabled, preparation.config.seed), x_ND
