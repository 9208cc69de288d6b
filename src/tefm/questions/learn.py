"""Pairs of a history and a question become prompts, for training and for answers.

Shapes: H histories, P pairs of a history and a question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.language.asking import QuestionWriter, pair_logits
from tefm.language.classifier import Classifier
from tefm.language.prompts import Prompt
from tefm.language.tune import Questions, ToLearn
from tefm.questions.data import Pairs, QuestionData, pairs_to_learn
from tefm.records.sequences import Sequences

#: Validation pairs for early stopping, as a share of those that are learned from.
VALIDATED = 0.15


def writer_of(classifier: Classifier, prompt: Prompt) -> QuestionWriter:
    """Writes histories and questions as this classifier reads them."""
    return QuestionWriter(classifier.backbone.tokenizer, prompt, classifier.ids)


def questions_to_learn(
    classifier: Classifier,
    prompt: Prompt,
    data: QuestionData,
    training_codes: NDArray[Any],
    validation_codes: NDArray[Any],
    *,
    seed: int,
) -> ToLearn:
    """The prompts that the language model learns from; codes are given per record of a part."""
    writer, config = writer_of(classifier, prompt), data.config
    few = config.model_copy(update={"pairs": max(2, round(VALIDATED * config.pairs))})
    learned = pairs_to_learn(data.training, data.trained, config, seed=seed)
    validated = pairs_to_learn(data.validation, data.trained, few, seed=seed)
    texts = [question.text for question in data.questions]
    validating = _prompts(writer, with_codes(data.validation.histories, validation_codes), validated, texts)
    return ToLearn(
        _prompts(writer, with_codes(data.training.histories, training_codes), learned, texts),
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
    return Questions(prompts, pairs.answer_P)


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
