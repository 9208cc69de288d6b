"""Stage 3: the model learns to answer the question from the codes alone (or from text, for the baseline).

Shapes: N sequences, Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tefm.base.checkpoint import identity
from tefm.language.backbone import Backbone
from tefm.language.batches import Batch, Example, ShuffledBatches, collate
from tefm.language.config import TuneConfig
from tefm.language.predict import Ids, answer_logits
from tefm.language.prompts import PromptWriter
from tefm.language.train import History, train
from tefm.language.vocabulary import TokenIds


@dataclass(frozen=True)
class Questions:
    """Prompts, each with the number of its true class."""

    prompts: Sequence[Ids]
    labels_N: NDArray[np.int64]
    #: how probable each class is, to learn from instead of the labels
    classes_NQ: NDArray[np.floating] | None = None

    def __len__(self) -> int:
        return len(self.prompts)


def tune(
    backbone: Backbone,
    ids: TokenIds | None,
    writer: PromptWriter,
    training: Questions,
    validation: Questions | None,
    config: TuneConfig,
    *,
    checkpoint: Path | None = None,
) -> History:
    """Fine-tune the backbone in place; it ends with the weights of the lowest validation loss."""
    classes = repeat(None) if training.classes_NQ is None else training.classes_NQ
    examples = [
        Example.answering(prompt, writer.answers[label], classes_Q)
        for prompt, label, classes_Q in zip(training.prompts, training.labels_N, classes, strict=False)
    ]
    lengths_N = np.array([len(example.ids) for example in examples])
    batches = ShuffledBatches(lengths_N, config.batch, config.seed)
    pad, window = backbone.tokenizer.pad_token_id, backbone.window

    def batch_of(step: int) -> Batch:
        return collate([examples[row] for row in batches[step]], pad, window)

    def validate() -> float:
        assert validation is not None, "only called with validation questions"
        return log_loss(answer_logits(backbone, validation.prompts, writer.first_tokens), validation.labels_N)

    return train(
        backbone,
        ids,
        batch_of,
        config.total_steps(len(examples)),
        config,
        title="fine-tuning the language model",
        first_tokens=writer.first_tokens,
        validate=validate if validation is not None and len(validation) else None,
        checkpoint=checkpoint,
        fingerprint=identity(*(example.ids for example in examples), training.labels_N, training.classes_NQ) if checkpoint else "",
    )


def log_loss(logits_NQ: NDArray[np.floating], labels_N: NDArray[np.integer]) -> float:
    """The mean negative log probability of the true class."""
    shifted_NQ = logits_NQ.astype(np.float64) - logits_NQ.max(axis=1, keepdims=True)
    losses_N = np.log(np.exp(shifted_NQ).sum(axis=1)) - shifted_NQ[np.arange(len(labels_N)), labels_N]
    return float(losses_N.mean())
