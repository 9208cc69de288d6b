"""Pairs of a history and a question become prompts to learn from.

Shapes: H histories, P pairs of a history and a question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.language.asking import QuestionWriter
from tefm.language.classifier import Classifier
from tefm.language.prompts import Prompt
from tefm.language.tuning import Questions, ToLearn
from tefm.questions.answering import writer_of
from tefm.questions.question_data import Pairs, QuestionData, pairs_to_teach, pairs_to_validate
from tefm.tables.layout import Layout, Slots
from tefm.tables.sequences import Sequences
from tefm.tabular.inputs import RecordSlots, sequence_features
from tefm.tabular.question_teacher import QuestionTeacher, history_features

#: Validation pairs for early stopping, as a share of those that are learned from, and at most.
VALIDATED, MOST_VALIDATED = 0.15, 9_000


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
    learning = _prompts(writer, with_codes(training.histories, training_codes), learned, texts)
    validating = _prompts(writer, with_codes(data.validation.histories, validation_codes), validated, texts)
    return ToLearn(
        replace(learning, classes_NQ=np.stack([1 - yes_P, yes_P], axis=1)),
        writer.answers,
        [(validating, writer.answers)],
    )


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


def with_codes(histories: Sequences, codes_NK: NDArray[Any]) -> Sequences:
    """Histories of row numbers as histories of codes."""
    return histories.with_values(codes_NK[histories.rows])


def _prompts(writer: QuestionWriter, histories: Sequences, pairs: Pairs, texts: Sequence[str]) -> Questions:
    used, number_P = np.unique(pairs.history_P, return_inverse=True)
    prefixes, tails = writer.prefixes(histories.select(used)), [writer.tail(text) for text in texts]
    prompts = [
        np.concatenate([prefixes[history], tails[question]])
        for history, question in zip(number_P.tolist(), pairs.question_P.tolist(), strict=True)
    ]
    shared_H = np.array([len(prefix) for prefix in prefixes], dtype=np.int64)
    return Questions(prompts, pairs.answer_P, history_N=number_P, shared_N=shared_H[number_P])
