"""Stage 3: the model learns to answer the question from the codes alone (or from text, for the baseline).

Shapes: N sequences, Q classes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tefm.base.training import History, identity
from tefm.language.backbone import Backbone
from tefm.language.batches import Batch, Example, ShuffledBatches, collate
from tefm.language.config import TuneConfig
from tefm.language.prediction import answer_logits
from tefm.language.training_loop import train
from tefm.language.vocabulary import Ids, ToLocal, rows_in_use, tokens_of
from tefm.scoring.calibration import log_softmax
from tefm.tables.sequences import numbered

#: Prompts about one history that an example holds, at most: the model reads the history once for all of them.
TOGETHER = 16


@dataclass(frozen=True)
class Questions:
    """Prompts, each with the number of its true class."""

    prompts: Sequence[Ids]
    labels_N: NDArray[np.int64]
    #: the answer of each class, as token ids
    answers: Sequence[Ids]
    #: how probable each class is, to learn from instead of the labels
    classes_NQ: NDArray[np.floating] | None = None
    #: the number of the history that a prompt is about, and the tokens that it begins with, which prompts about the
    #: same history share; without them, no prompts share anything
    history_N: NDArray[np.int64] | None = None
    shared_N: NDArray[np.int64] | None = None

    @property
    def together(self) -> list[NDArray[np.int64]]:
        """The prompts of each example."""
        return read_together(np.arange(len(self.prompts)) if self.history_N is None else self.history_N)


def read_together(history_N: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The prompts of each example: those about one history, at most `TOGETHER` of them.

    >>> [group.tolist() for group in read_together(np.array([4, 2, 4]))]
    [[1], [0, 2]]
    """
    order = np.argsort(history_N, kind="stable")
    ends = np.flatnonzero(np.diff(history_N[order])) + 1
    groups = np.split(order, ends) if len(order) else []
    return [group[first : first + TOGETHER] for group in groups for first in range(0, len(group), TOGETHER)]


@dataclass(frozen=True)
class ToLearn:
    """Prompts to learn from, and prompts to validate on."""

    training: Sequence[Questions]
    validation: Sequence[Questions]

    def followed_by(self, other: ToLearn) -> ToLearn:
        """Both together: labels, questions in words, other domains."""
        return ToLearn([*self.training, *other.training], [*self.validation, *other.validation])


def learned_together(parts: Sequence[ToLearn], config: TuneConfig) -> tuple[ToLearn, TuneConfig]:
    """What several domains learn, as one fine-tuning: of each as much as in a fine-tuning of its own.

    The steps are those of all of them. Where one has more passes over its prompts than another, because it has few,
    they occur that many times as often.
    """
    examples = [sum(len(questions.together) for questions in part.training) for part in parts]
    steps = [config.total_steps(count) for count in examples]
    passes = [count * config.batch / own for count, own in zip(steps, examples, strict=True)]
    repeated = [
        replace(part, training=[*part.training] * max(1, round(own / min(passes))))
        for own, part in zip(passes, parts, strict=True)
    ]
    together = reduce(ToLearn.followed_by, repeated)
    return together, config if len(parts) == 1 else config.model_copy(update={"steps": sum(steps)})


def tune(
    backbone: Backbone, codes: Sequence[int], learned: ToLearn, config: TuneConfig, *, checkpoint: Path | None = None
) -> History:
    """Fine-tune the backbone in place; it ends with the weights of the lowest validation loss, the mean over its parts.

    `codes` are the code tokens, whose rows are trained also where not all weights are.
    """
    validation = [of for of in learned.validation if len(of.prompts)]
    parts = (*learned.training, *validation)
    tokens = tokens_of(backbone, codes, (ids for part in parts for ids in (*part.prompts, *part.answers)))
    known = ((*of.prompts, *of.answers, of.labels_N, of.classes_NQ, of.history_N) for of in learned.training)
    fingerprint = identity(tokens, *itertools.chain(*known)) if checkpoint else ""
    with rows_in_use(backbone, tokens) as to_local:
        examples = []
        for of in learned.training:
            answers = [to_local(answer) for answer in of.answers]
            for group in of.together:
                examples += _examples(of, group, to_local, answers, backbone.window)
        # each distinct prompt is validated once
        held_out = []
        for of in validation:
            number_N = numbered(prompt.tobytes() for prompt in of.prompts)
            prompts = [to_local(of.prompts[first]) for first in np.unique(number_N, return_index=True)[1]]
            held_out.append((prompts, [int(to_local(answer)[0]) for answer in of.answers], number_N, of.labels_N))
        lengths_N = np.array([len(example.ids) for example in examples])
        batches = ShuffledBatches(lengths_N, config.batch, config.seed)
        pad, window = int(to_local(backbone.tokenizer.pad_token_id)), backbone.window

        def batch_of(step: int) -> Batch:
            return collate([examples[row] for row in batches[step]], pad, window)

        def validate() -> float:
            losses = []
            for prompts, first_tokens, number_N, labels_N in held_out:
                logits_NQ = answer_logits(backbone, prompts, first_tokens, pad=pad)
                losses.append(log_loss(logits_NQ[number_N], labels_N))
            return sum(losses) / len(losses)

        return train(
            backbone,
            to_local(codes).tolist(),
            batch_of,
            config.total_steps(len(examples)),
            config,
            title="fine-tuning the language model",
            validate=validate if held_out else None,
            checkpoint=checkpoint,
            fingerprint=fingerprint,
        )


def _examples(
    questions: Questions, group: NDArray[np.int64], to_local: ToLocal, answers: Sequence[Ids], window: int | None
) -> list[Example]:
    """Prompts about one history as one example; as several where it would be longer than a layer of the model sees."""

    def answering(row: int, begin: int) -> Example:
        classes = None if questions.classes_NQ is None else (first_Q, questions.classes_NQ[row])
        answer = answers[questions.labels_N[row]]
        return Example.answering(to_local(questions.prompts[row][begin:]), answer, classes)

    first_Q = np.array([answer[0] for answer in answers])
    first, rows = int(group[0]), group.tolist()
    if len(rows) > 1:
        shared = 0 if questions.shared_N is None else int(questions.shared_N[first])
        beginning = to_local(questions.prompts[first][:shared])
        together = Example.branching(beginning, [answering(row, shared) for row in rows])
        if window is None or len(together.ids) <= window:
            return [together]
    return [answering(row, 0) for row in rows]


def log_loss(logits_NQ: NDArray[np.floating], labels_N: NDArray[np.integer]) -> float:
    """The mean negative log probability of the true class."""
    return -float(log_softmax(logits_NQ.astype(np.float64))[np.arange(len(labels_N)), labels_N].mean())
