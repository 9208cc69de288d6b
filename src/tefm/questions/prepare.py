"""From tables to the data of a fit with questions: which questions have enough answers, and the histories of each part.

Shapes: N records, D slots, H histories, Q questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch

from tefm.base.errors import InputError
from tefm.base.progress import note
from tefm.questions.answers import Histories, histories_of
from tefm.questions.catalogue import WordQuestion, catalogue, held_out_of
from tefm.questions.config import QuestionsConfig
from tefm.questions.data import QuestionData
from tefm.records.layout import Slots
from tefm.records.schema import Schema
from tefm.records.sequences import Sequences
from tefm.records.vectorise import Vectoriser

#: A table, its sequences as row numbers, and the slots of their records in the order of the table.
Tabled = tuple[pl.DataFrame, Sequences, Slots]


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
