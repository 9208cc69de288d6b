"""The baseline that reads records as text: the backbone, question, fine-tuning and calibration of `tefm fit`, no codes.

Shapes: S sequences, Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tefm.base.training import History, reproducible
from tefm.language.backbone import Backbone
from tefm.language.prediction import answer_logits
from tefm.language.prompts import Prompt, PromptWriter
from tefm.language.tuning import Questions, ToLearn, tune
from tefm.language.vocabulary import Ids
from tefm.pipeline.config import ModelConfig
from tefm.scoring.breakdown import Evaluation
from tefm.scoring.calibration import Calibration, prior_shift
from tefm.scoring.metrics import score
from tefm.tables.sequences import numbered


class TextWriter(PromptWriter):
    """Writes the question of a task around records as text, with the same answers as around codes."""

    def around(self, texts: Sequence[str], counts: Sequence[int], *, limit: int | None = None) -> list[Ids]:
        """One prompt per sequence, from its text and its number of records; `limit` keeps only its last tokens."""
        prompts = []
        for text, count in zip(texts, counts, strict=True):
            head, tail = self._around(int(count), "")
            body = self.tokenised(self.shortener.plain(text))
            prompts.append(
                np.concatenate([self.tokenised(head), body[-limit:] if limit else body, self.tokenised(tail)])
            )
        return prompts


@dataclass(frozen=True)
class Texts:
    """Sequences as text, with their class numbers."""

    texts: Sequence[str]
    #: how many records each has
    counts: Sequence[int]
    labels_S: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class TextTask:
    """All that a text model is fitted from."""

    training: Texts
    #: other sequences, for early stopping and calibration
    validation: Texts
    classes: tuple[str, ...]
    positive: int
    prompt: Prompt
    #: the share of each class in the population that probabilities are about; empty: as in the training sequences
    shares: tuple[float, ...] = ()
    #: the validation sequences that early stopping uses; None: all of them
    stopping: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class TextModel:
    """A language model that was fine-tuned to answer the question of a task from records as text."""

    classes: tuple[str, ...]
    positive: int
    backbone: Backbone
    writer: TextWriter
    history: History
    limit: int | None = None
    calibration: Calibration = field(default_factory=Calibration)
    #: figures on the validation sequences
    validation: Evaluation | None = None

    @classmethod
    def fit(cls, task: TextTask, config: ModelConfig, backbone: Backbone, *, limit: int | None = None) -> TextModel:
        """Fine-tune a backbone in place, with the settings of a fit on codes; `limit` as in `TextWriter.around`."""
        writer = TextWriter(backbone.tokenizer, task.prompt, task.classes)
        training, validation = task.training, task.validation
        prompts = writer.around(validation.texts, validation.counts, limit=limit)
        stopping = np.arange(len(validation)) if task.stopping is None else task.stopping
        with reproducible(config.deterministic):
            asked = writer.around(training.texts, training.counts, limit=limit)
            learned = ToLearn(
                [Questions(asked, training.labels_S, writer.answers)],
                [Questions([prompts[i] for i in stopping], validation.labels_S[stopping], writer.answers)],
            )
            history = tune(backbone, (), learned, config.tune_config)
            model = cls(task.classes, task.positive, backbone, writer, history, limit)
            logits_SQ = model._logits(prompts)
        trained_shares = tuple(np.bincount(training.labels_S, minlength=len(task.classes)) / len(training))
        shares = task.shares or trained_shares
        calibration = Calibration.fit(
            logits_SQ,
            validation.labels_S,
            positive=task.positive,
            decision=config.decision_for(task.classes, shares),
            shift=prior_shift(trained_shares, shares),
        )
        model = replace(model, calibration=calibration)
        p_SQ = calibration.probabilities(logits_SQ)
        return replace(model, validation=model._evaluation(prompts, p_SQ, validation.labels_S))

    def probabilities(self, of: Texts) -> NDArray[np.float64]:
        """The calibrated probability of each class, for every sequence."""
        return self.calibration.probabilities(self._logits(self.prompts(of)))

    def decide(self, p_SQ: NDArray[np.float64]) -> NDArray[np.int64]:
        """Class numbers from probabilities."""
        return self.calibration.predict(p_SQ)

    def evaluate(self, of: Texts) -> Evaluation:
        """Every figure on labelled sequences, with bootstrap intervals."""
        prompts = self.prompts(of)
        return self._evaluation(prompts, self.calibration.probabilities(self._logits(prompts)), of.labels_S)

    def prompts(self, of: Texts) -> list[Ids]:
        """The prompt of each sequence as token ids."""
        return self.writer.around(of.texts, of.counts, limit=self.limit)

    def _logits(self, prompts: Sequence[Ids]) -> NDArray[np.float32]:
        """The logits of the classes' answers; each distinct prompt is answered once."""
        number_S = numbered(prompt.tobytes() for prompt in prompts)
        first = np.unique(number_S, return_index=True)[1]
        logits_FQ = answer_logits(
            self.backbone, [prompts[i] for i in first], self.writer.first_tokens, title="predicting"
        )
        logits_SQ: NDArray[np.float32] = logits_FQ[number_S]
        return logits_SQ

    def _evaluation(self, prompts: Sequence[Ids], p_SQ: NDArray[np.float64], labels_S: NDArray[np.int64]) -> Evaluation:
        scores = score(p_SQ, labels_S, self.classes, predicted_N=self.decide(p_SQ), positive=self.positive)
        tokens_S = np.array([len(prompt) for prompt in prompts])
        return Evaluation(scores, float(tokens_S.mean()), float(np.median(tokens_S)))
