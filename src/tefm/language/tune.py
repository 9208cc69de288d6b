"""Stage 3: the model learns to answer the question from the codes alone (or from text, for the baseline).

Shapes: N sequences, Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tefm.base.checkpoint import identity
from tefm.language.backbone import Backbone
from tefm.language.batches import Batch, Example, ShuffledBatches, collate
from tefm.language.compact import rows_in_use, tokens_of
from tefm.language.config import TuneConfig
from tefm.language.predict import Ids, answer_logits
from tefm.language.train import History, train
from tefm.records.distinct import numbered
from tefm.scoring.calibration import log_softmax


@dataclass(frozen=True)
class Questions:
    """Prompts, each with the number of its true class."""

    prompts: Sequence[Ids]
    labels_N: NDArray[np.int64]
    #: how probable each class is, to learn from instead of the labels
    classes_NQ: NDArray[np.floating] | None = None

    def __len__(self) -> int:
        return len(self.prompts)

    def repeated(self, times: int) -> Questions:
        """The same questions so many times."""
        classes_NQ = None if self.classes_NQ is None else np.tile(self.classes_NQ, (times, 1))
        return Questions([*self.prompts] * times, np.tile(self.labels_N, times), classes_NQ)

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
        return Questions([*self.prompts, *other.prompts], labels_N, classes_NQ)


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
        """The same with every prompt so many times in the training."""
        return self if times == 1 else replace(self, training=self.training.repeated(times))


def learned_together(parts: Sequence[ToLearn], config: TuneConfig) -> tuple[ToLearn, TuneConfig]:
    """What several domains learn, as one fine-tuning: of each as much as in a fine-tuning of its own.

    The steps are those of all of them. Where one has more passes over its prompts than another, because it has few,
    they occur that many times as often.
    """
    steps = [config.total_steps(len(part.training)) for part in parts]
    passes = [count * config.batch / len(part.training) for count, part in zip(steps, parts, strict=True)]
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
    learned = (training.labels_N, training.classes_NQ)
    fingerprint = identity(tokens, *training.prompts, *answers, *learned) if checkpoint else ""
    with rows_in_use(backbone, tokens) as to_local:
        local = [to_local(answer) for answer in answers]
        first_tokens = [int(answer[0]) for answer in local]
        classes = repeat(None) if training.classes_NQ is None else training.classes_NQ
        examples = [
            Example.answering(to_local(prompt), local[label], classes_Q)
            for prompt, label, classes_Q in zip(training.prompts, training.labels_N, classes, strict=False)
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


def log_loss(logits_NQ: NDArray[np.floating], labels_N: NDArray[np.integer]) -> float:
    """The mean negative log probability of the true class."""
    return -float(log_softmax(logits_NQ.astype(np.float64))[np.arange(len(labels_N)), labels_N].mean())
