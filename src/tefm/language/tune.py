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
from tefm.language.compact import local_codes, rows_in_use, tokens_of
from tefm.language.config import TuneConfig
from tefm.language.predict import Ids, answer_logits
from tefm.language.prompts import PromptWriter
from tefm.language.train import History, train
from tefm.language.vocabulary import TokenIds
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
    validated = validation.prompts if validation is not None else []
    tokens = tokens_of(backbone, ids, [*training.prompts, *validated, *writer.answers])
    learned = (training.labels_N, training.classes_NQ)
    fingerprint = identity(tokens, *training.prompts, *writer.answers, *learned) if checkpoint else ""
    with rows_in_use(backbone, tokens) as to_local:
        answers = [to_local(answer) for answer in writer.answers]
        first_tokens = [int(answer[0]) for answer in answers]
        classes = repeat(None) if training.classes_NQ is None else training.classes_NQ
        examples = [
            Example.answering(to_local(prompt), answers[label], classes_Q)
            for prompt, label, classes_Q in zip(training.prompts, training.labels_N, classes, strict=False)
        ]
        # each distinct prompt is validated once
        number_N = numbered(prompt.tobytes() for prompt in validated)
        held_out = [to_local(validated[first]) for first in np.unique(number_N, return_index=True)[1]]
        lengths_N = np.array([len(example.ids) for example in examples])
        batches = ShuffledBatches(lengths_N, config.batch, config.seed)
        pad, window = int(to_local(backbone.tokenizer.pad_token_id)), backbone.window

        def batch_of(step: int) -> Batch:
            return collate([examples[row] for row in batches[step]], pad, window)

        def validate() -> float:
            assert validation is not None, "only called with validation questions"
            logits_NQ = answer_logits(backbone, held_out, first_tokens, pad=pad)
            return log_loss(logits_NQ[number_N], validation.labels_N)

        return train(
            backbone,
            local_codes(ids, to_local),
            batch_of,
            config.total_steps(len(examples)),
            config,
            title="fine-tuning the language model",
            first_tokens=first_tokens,
            validate=validate if validation is not None and len(validation) else None,
            checkpoint=checkpoint,
            fingerprint=fingerprint,
        )


def log_loss(logits_NQ: NDArray[np.floating], labels_N: NDArray[np.integer]) -> float:
    """The mean negative log probability of the true class."""
    return -float(log_softmax(logits_NQ.astype(np.float64))[np.arange(len(labels_N)), labels_N].mean())
