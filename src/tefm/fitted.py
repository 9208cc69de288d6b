"""A fitted model: all that predictions and explanations need, without any table.

Shapes: D slots, K levels, S sequences, Q classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.beside.classifier import ClassifierBeside
from tefm.beside.heads import Way
from tefm.beside.label import LabelClassifier, LabelTrees
from tefm.codes.coder import SlotCoder
from tefm.language.align import Alignment
from tefm.language.asking import NO_YES
from tefm.language.classifier import Classifier
from tefm.language.prompts import Prompt
from tefm.language.remember import RememberedLogits
from tefm.language.train import History
from tefm.questions.answering import Asker, QuestionClassifier, writer_of
from tefm.questions.book import Book
from tefm.questions.words import Words, ways_of, words_of
from tefm.rationale.look_alikes import LookAlikes
from tefm.rationale.masked_model import MaskedModel
from tefm.rationale.masks.extractor import Explainer
from tefm.records.layout import Slots
from tefm.records.sequences import Sequences
from tefm.scoring.calibration import Calibration
from tefm.scoring.decision import Decision
from tefm.scoring.evaluation import Evaluation
from tefm.scoring.metrics import score
from tefm.task import ModelConfig


@dataclass(frozen=True)
class Fitted:
    """A fitted model. It takes sequences of slots (for the text baseline: of texts); it knows no table."""

    config: ModelConfig
    classes: tuple[str, ...]
    positive: int
    prompt: Prompt
    classifier: Classifier
    calibration: Calibration = field(default_factory=Calibration)
    #: None for the text baseline
    coder: SlotCoder | None = None
    #: what explanations need; None for the text baseline, or where the config leaves them out
    look_alikes: LookAlikes | None = None
    #: the paper's masks, where the config asks for them
    explainer: Explainer | None = None
    #: how well codes and words were aligned, where they were
    alignment: Alignment | None = None
    #: losses of the language stages, by name: `align`, `tune`
    history: Mapping[str, History] = field(default_factory=dict)
    #: figures on the validation sequences
    validation: Evaluation | None = None
    #: the share of each class in the population that probabilities are about
    shares: tuple[float, ...] = ()
    #: the questions in words that it answers, where it does
    book: Book | None = None
    #: the one that it answers by default, where it has no label
    question: str | None = None

    @property
    def decision(self) -> Decision:
        """What its predictions should be good at."""
        return self.config.decision_for(self.classes, self.shares)

    def read(self, sequences: Sequences) -> Sequences:
        """What the model answers from: slots become codes, texts stay. A head reads slots."""
        return sequences if self.coder is None else sequences.with_values(self._encode(sequences.x_ND))

    def codes(self, slots: Sequences, read: Sequences) -> Sequences:
        """The codes of sequences, which the model has read already; texts have none and stay."""
        if self.coder is None or not self.classifier.takes_slots:
            return read
        return self.coder.coded(slots)

    def _encode(self, x_ND: Slots) -> NDArray[Any]:
        assert self.coder is not None, "texts have no codes"
        return x_ND if self.classifier.takes_slots else self.coder.encode(x_ND)

    def answer(self, read: Sequences) -> NDArray[np.float64]:
        """The calibrated probability of each class, from what the language model reads."""
        return self.calibration.probabilities(self.classifier.logits(read, show=True))

    def probabilities(self, sequences: Sequences) -> NDArray[np.float64]:
        """The calibrated probability of each class, for every sequence."""
        return self.answer(self.read(sequences))

    def decide(self, p_SQ: NDArray[np.float64]) -> NDArray[np.int64]:
        """Class numbers from probabilities."""
        return self.calibration.predict(p_SQ)

    def evaluate(self, sequences: Sequences, labels_S: NDArray[np.int64], *, resamples: int = 1_000) -> Evaluation:
        """Every figure on labelled sequences, with bootstrap intervals."""
        read = self.read(sequences)
        return self.evaluation(read, self.answer(read), labels_S, resamples=resamples)

    def evaluation(
        self, read: Sequences, p_SQ: NDArray[np.float64], labels_S: NDArray[np.int64], *, resamples: int = 1_000
    ) -> Evaluation:
        """The same, from what the language model has read and answered."""
        scores = score(
            p_SQ, labels_S, self.classes, predicted_N=self.decide(p_SQ), positive=self.positive, resamples=resamples
        )
        tokens_S = self.tokens(read)
        return Evaluation(scores, float(tokens_S.mean()), float(np.median(tokens_S)))

    def tokens(self, read: Sequences) -> NDArray[np.int64]:
        """The length of each prompt."""
        first, number_S = self.classifier.distinct(read)
        return np.array([len(prompt) for prompt in self.classifier.prompts(read.select(first))])[number_S]

    def beside(self, trees: LabelTrees) -> Fitted:
        """The same language model with these trees beside it."""
        assert self.coder is not None, "trees read slots"
        reader = self.classifier.reader if isinstance(self.classifier, LabelClassifier) else self.classifier
        return replace(self, classifier=LabelClassifier(reader, self.coder, trees))

    @property
    def trees(self) -> LabelTrees | None:
        """The trees beside its language model, where there are some."""
        return self.classifier.trees if isinstance(self.classifier, LabelClassifier) else None

    # ---- questions in words -----------------------------------------------------------------------------------

    def ways(self, texts: Sequence[str]) -> list[Way]:
        """How it answers questions in words."""
        assert self.book is not None, "the model answers questions"
        return ways_of(self.book, self._words, texts)

    @cached_property
    def _words(self) -> Words | None:
        assert self.book is not None, "the model answers questions"
        return words_of(self.classifier, self.book)

    def asker(self, histories: Sequences, x_ND: Slots, texts: Sequence[str]) -> Asker:
        """Asks questions about histories, which are row numbers of `x_ND`."""
        assert self.coder is not None and self.book is not None, "the model answers questions"
        return Asker(self.classifier, self.coder, self.book.prompt, histories, x_ND, self.ways(texts))

    def answering(self, text: str) -> Fitted:
        """The model as it answers one question, with the classes no and yes."""
        assert self.coder is not None and self.book is not None, "the model answers questions"
        (way,), prompt = self.ways([text]), self.book.prompt
        classifier = (
            Classifier(self.classifier.backbone, writer_of(self.classifier, prompt).asking(text))
            if way.head is None
            else QuestionClassifier(self.classifier, prompt, self.coder, way)
        )
        calibration = self.book.scaling(text).calibration
        return replace(self, classes=NO_YES, positive=1, classifier=classifier, calibration=calibration, question=text)

    # ---- explanations -----------------------------------------------------------------------------------------

    @property
    def masked_model(self) -> MaskedModel:
        """The model as it answers when only some of the slots are kept."""
        assert self.coder is not None, "text has no slots to mask"
        head = None if self._beside is None else self._beside.by_head
        return MaskedModel(self._encode, RememberedLogits(self.classifier), self.calibration, head)

    @property
    def masked_language_model(self) -> MaskedModel | None:
        """The language model's part of its answers, where a cheap head answers beside it."""
        if self.coder is None or self._beside is None:
            return None
        return MaskedModel(self.coder.encode, self._beside.by_model, replace(self.calibration, bias=()))

    @property
    def _beside(self) -> ClassifierBeside | None:
        classifier = self.classifier
        return classifier if isinstance(classifier, ClassifierBeside) and classifier.cheap else None
