"""Pairs of a history and a question become prompts, for training and for answers.

Shapes: H histories, P pairs of a history and a question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.baselines.inputs import Records, sequence_features
from tefm.language.asking import QuestionWriter, pair_logits
from tefm.language.classifier import Classifier
from tefm.language.prompts import Prompt
from tefm.language.tune import Questions, ToLearn
from tefm.questions.data import Pairs, QuestionData, pairs_to_teach, pairs_to_validate
from tefm.questions.teacher import history_features, taught_answers
from tefm.records.layout import Layout, Slots
from tefm.records.sequences import Sequences

#: Validation pairs for early stopping, as a share of those that are learned from, and at most.
VALIDATED, MOST_VALIDATED = 0.15, 9_000


def writer_of(classifier: Classifier, prompt: Prompt) -> QuestionWriter:
    """Writes histories and questions as this classifier reads them."""
    return QuestionWriter(classifier.backbone.tokenizer, prompt, classifier.ids)


def questions_to_learn(
    classifier: Classifier,
    prompt: Prompt,
    data: QuestionData,
    training_codes: NDArray[Any],
    validation_codes: NDArray[Any],
    slots_ND: Slots,
    layout: Layout,
    *,
    seed: int,
) -> ToLearn:
    """The prompts that the language model learns from, each with the teacher's answer.

    Codes are given per record of a part; slots are those of the training records.
    """
    writer, config, training = writer_of(classifier, prompt), data.config, data.training
    few = config.model_copy(update={"pairs": min(MOST_VALIDATED, max(2, round(VALIDATED * config.pairs)))})
    learned = pairs_to_teach(training, data.trained, config, seed=seed)
    validated = pairs_to_validate(data.validation, data.trained, few, seed=seed)
    records = Records(slots_ND, layout, training.histories)
    _, entity_H = np.unique(training.histories.names, return_inverse=True)
    # held-out questions have no part in the teacher either
    yes_HT = taught_answers(
        history_features(records),
        training.answers_HQ[:, data.trained],
        entity_H,
        trees=sequence_features(records, "history"),
        seed=seed,
    )
    yes_P = yes_HT[learned.history_P, np.searchsorted(data.trained, learned.question_P)]
    texts = [question.text for question in data.questions]
    learning = _prompts(writer, with_codes(training.histories, training_codes), learned, texts)
    validating = _prompts(writer, with_codes(data.validation.histories, validation_codes), validated, texts)
    return ToLearn(
        replace(learning, classes_NQ=np.stack([1 - yes_P, yes_P], axis=1)),
        writer.answers,
        [(validating, writer.answers)],
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


def logits_of(
    classifier: Classifier,
    prompt: Prompt,
    histories: Sequences,
    texts: Sequence[str],
    history_P: NDArray[np.int64],
    question_P: NDArray[np.int64],
    *,
    title: str | None = None,
) -> NDArray[np.float32]:
    """The logits of no and yes for pairs of a history (of codes) and a question; equal pairs are answered once."""
    writer = writer_of(classifier, prompt)
    first, number_H = histories.distinct()
    count = max(1, len(texts))
    keys, inverse = np.unique(number_H[history_P] * count + question_P, return_inverse=True)
    used, history_K = np.unique(keys // count, return_inverse=True)
    prefixes = writer.prefixes(histories.select(first[used]))
    tails = [writer.tail(text) for text in texts]
    logits_K2 = pair_logits(
        classifier.backbone, prefixes, tails, history_K, keys % count, writer.first_tokens, title=title
    )
    logits_P2: NDArray[np.float32] = logits_K2[inverse]
    return logits_P2
