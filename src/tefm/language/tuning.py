"""Stage 3: the model learns to answer the question from the codes alone (or from text, for the baseline).

Shapes: N sequences, Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tefm.base.training import identity
from tefm.language.backbone import Backbone
from tefm.language.batches import Batch, Example, ShuffledBatches, collate
from tefm.language.config import TuneConfig
from tefm.language.prediction import Ids, answer_logits
from tefm.language.training_loop import History, train
from tefm.language.vocabulary import ToLocal, rows_in_use, tokens_of
from tefm.scoring.calibration import log_softmax
from tefm.tables.sequences import numbered

#: Prompts about one history that an example holds, at most: the model reads the history once for all of them.
TOGETHER = 16


@dataclass(frozen=True)
class Questions:
    """Prompts, each with the number of its true class."""

    prompts: Sequence[Ids]
    labels_N: NDArray[np.int64]
    #: how probable each class is, to learn from instead of the labels
    classes_NQ: NDArray[np.floating] | None = None
    #: the number of the history that a prompt is about, and the tokens that it begins with, which prompts about the
    #: same history share; without them, no prompts share anything
    history_N: NDArray[np.int64] | None = None
    shared_N: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def histories(self) -> NDArray[np.int64]:
        return np.arange(len(self)) if self.history_N is None else self.history_N

    @property
    def shared(self) -> NDArray[np.int64]:
        return np.zeros(len(self), dtype=np.int64) if self.shared_N is None else self.shared_N

    def repeated(self, times: int) -> Questions:
        """Every question this many times."""
        classes_NQ = None if self.classes_NQ is None else np.tile(self.classes_NQ, (times, 1))
        history_N = np.concatenate([self.histories + number * (self.histories.max() + 1) for number in range(times)])
        return Questions(
            [*self.prompts] * times, np.tile(self.labels_N, times), classes_NQ, history_N, np.tile(self.shared, times)
        )

    def followed_by(self, other: Questions, answers: int, other_answers: int) -> Questions:
        """These questions and others with answers of their own, which are numbered after the `answers` of these.

        >>> nothing = np.zeros(0, dtype=np.int64)
        >>> classes = Questions([nothing], np.array([2]), np.array([[0.1, 0.2, 0.7]]))
        >>> both = classes.followed_by(Questions([nothing], np.array([1])), 3, 2)
        >>> both.labels_N.tolist(), both.classes_NQ.tolist()
        ([2, 4], [[0.1, 0.2, 0.7, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]])
        """
        classes_NQ = None
        if self.classes_NQ is not None or other.classes_NQ is not None:
            own, others = (
                np.eye(count)[part.labels_N] if part.classes_NQ is None else part.classes_NQ
                for part, count in ((self, answers), (other, other_answers))
            )
            classes_NQ = np.zeros((len(self) + len(other), answers + other_answers))
            classes_NQ[: len(self), :answers], classes_NQ[len(self) :, answers:] = own, others
        labels_N = np.concatenate([self.labels_N, answers + other.labels_N])
        history_N = np.concatenate([self.histories, self.histories.max(initial=-1) + 1 + other.histories])
        shared_N = np.concatenate([self.shared, other.shared])
        return Questions([*self.prompts, *other.prompts], labels_N, classes_NQ, history_N, shared_N)


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
    """Prompts to learn from, the answers (as token ids) that their labels number, and parts to validate on."""

    training: Questions
    answers: Sequence[Ids]
    #: each with its own answers
    validation: Sequence[tuple[Questions, Sequence[Ids]]]

    def followed_by(self, other: ToLearn) -> ToLearn:
        """Both together: labels, questions in words, other domains."""
        return ToLearn(
            self.training.followed_by(other.training, len(self.answers), len(other.answers)),
            [*self.answers, *other.answers],
            [*self.validation, *other.validation],
        )

    def repeated(self, times: int) -> ToLearn:
        """Every training prompt this many times."""
        return self if times == 1 else replace(self, training=self.training.repeated(times))


def learned_together(parts: Sequence[ToLearn], config: TuneConfig) -> tuple[ToLearn, TuneConfig]:
    """What several domains learn, as one fine-tuning: of each as much as in a fine-tuning of its own.

    The steps are those of all of them. Where one has more passes over its prompts than another, because it has few,
    they occur that many times as often.
    """
    examples = [len(read_together(part.training.histories)) for part in parts]
    steps = [config.total_steps(count) for count in examples]
    passes = [count * config.batch / own for count, own in zip(steps, examples, strict=True)]
    repeated = [part.repeated(max(1, round(own / min(passes)))) for own, part in zip(passes, parts, strict=True)]
    together = reduce(ToLearn.followed_by, repeated)
    return together, config if len(parts) == 1 else config.model_copy(update={"steps": sum(steps)})


def tune(
    backbone: Backbone,
    codes: Sequence[int],
    answers: Sequence[Ids],
    training: Questions,
    validation: Sequence[tuple[Questions, Sequence[Ids]]],
    config: TuneConfig,
    *,
    checkpoint: Path | None = None,
) -> History:
    """Fine-tune the backbone in place; it ends with the weights of the lowest validation loss.

    `codes` are the code tokens, whose rows are trained also where not all weights are. `answers` are those of the
    training's labels. Each part of the validation comes with its own; the loss is the mean over the parts.
    """
    validation = [(questions, own) for questions, own in validation if len(questions)]
    asked = [prompt for questions, _ in validation for prompt in questions.prompts]
    tokens = tokens_of(backbone, codes, [*training.prompts, *asked, *answers])
    learned = (training.labels_N, training.classes_NQ, training.history_N)
    fingerprint = identity(tokens, *training.prompts, *answers, *learned) if checkpoint else ""
    with rows_in_use(backbone, tokens) as to_local:
        local = [to_local(answer) for answer in answers]
        first_tokens = [int(answer[0]) for answer in local]
        examples = [
            example
            for group in read_together(training.histories)
            for example in _examples(training, group, to_local, local, backbone.window)
        ]
        # each distinct prompt is validated once
        held_out = []
        for questions, own in validation:
            number_N = numbered(prompt.tobytes() for prompt in questions.prompts)
            prompts = [to_local(questions.prompts[first]) for first in np.unique(number_N, return_index=True)[1]]
            held_out.append((prompts, [int(to_local(answer)[0]) for answer in own], number_N, questions.labels_N))
        lengths_N = np.array([len(example.ids) for example in examples])
        batches = ShuffledBatches(lengths_N, config.batch, config.seed)
        pad, window = int(to_local(backbone.tokenizer.pad_token_id)), backbone.window

        def batch_of(step: int) -> Batch:
            return collate([examples[row] for row in batches[step]], pad, window)

        def validate() -> float:
            losses = []
            for prompts, own_tokens, number_N, labels_N in held_out:
                logits_NQ = answer_logits(backbone, prompts, own_tokens, pad=pad)
                losses.append(log_loss(logits_NQ[number_N], labels_N))
            return sum(losses) / len(losses)

        return train(
            backbone,
            to_local(codes).tolist(),
            batch_of,
            config.total_steps(len(examples)),
            config,
            title="fine-tuning the language model",
            first_tokens=first_tokens,
            validate=validate if validation else None,
            checkpoint=checkpoint,
            fingerprint=fingerprint,
        )


def _examples(
    training: Questions, group: NDArray[np.int64], to_local: ToLocal, answers: Sequence[Ids], window: int | None
) -> list[Example]:
    """Prompts about one history as one example; as several where it would be longer than a layer of the model sees."""

    def answering(row: int, begin: int) -> Example:
        classes_Q = None if training.classes_NQ is None else training.classes_NQ[row]
        return Example.answering(to_local(training.prompts[row][begin:]), answers[training.labels_N[row]], classes_Q)

    first, rows = int(group[0]), group.tolist()
    if len(rows) > 1:
        shared = int(training.shared[first])
        beginning = to_local(training.prompts[first][:shared])
        together = Example.branching(beginning, [answering(row, shared) for row in rows])
        if window is None or len(together.ids) <= window:
            return [together]
    return [answering(row, 0) for row in rows]


def log_loss(logits_NQ: NDArray[np.floating], labels_N: NDArray[np.integer]) -> float:
    """The mean negative log probability of the true class."""
    return -float(log_softmax(logits_NQ.astype(np.float64))[np.arange(len(labels_N)), labels_N].mean())
