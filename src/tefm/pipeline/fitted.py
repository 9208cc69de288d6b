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

from tefm.base.errors import SettingsError
from tefm.base.progress import note
from tefm.base.training import History
from tefm.codes.coder import SlotCoder
from tefm.explain.look_alikes import LookAlikes
from tefm.language.classifier import Answerer, Classifier
from tefm.language.prompts import NO_YES, Prompt
from tefm.pipeline.config import ModelConfig
from tefm.questions.answering import Asker, OneOf, TrainedWords, answerer_of, ways_of, words_of
from tefm.questions.book import Book, Scaling
from tefm.rationale.extractor import MaskExplainer
from tefm.rationale.masked_model import MaskedModel
from tefm.scoring.breakdown import Evaluation
from tefm.scoring.calibration import Calibration, Folded
from tefm.scoring.decision import Decision
from tefm.scoring.metrics import score_with_unknown
from tefm.scoring.numbers import Buckets, NumberScores
from tefm.scoring.survival import Followed
from tefm.tables.layout import Slots
from tefm.tables.sequences import Sequences
from tefm.tabular.heads import Way
from tefm.tabular.label_trees import LabelTrees


@dataclass(frozen=True)
class Fitted:
    """A fitted model. It takes sequences of slots; it knows no table."""

    config: ModelConfig
    classes: tuple[str, ...]
    positive: int
    prompt: Prompt
    answerer: Answerer
    calibration: Calibration = field(default_factory=Calibration)
    #: what explanations need; None where the config leaves them out
    look_alikes: LookAlikes | None = None
    #: the paper's masks, where the config asks for them
    explainer: MaskExplainer | None = None
    #: losses of the language stages, by name: `align`, `tune`
    history: Mapping[str, History] = field(default_factory=dict)
    #: where the label is a number: the classes are its buckets
    buckets: Buckets | None = None
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
        """The metric that its predictions optimise."""
        return self.config.decision_for(self.classes, self.shares)

    @property
    def classifier(self) -> Classifier:
        """Its language model, as it answers from codes alone."""
        return self.answerer.classifier

    @property
    def coder(self) -> SlotCoder:
        """What makes codes of slots."""
        return self.answerer.coder

    def codes(self, slots: Sequences) -> Sequences:
        """What the language model reads."""
        return self.answerer.codes(slots)

    def probabilities(self, slots: Sequences, codes: Sequences | None = None) -> NDArray[np.float64]:
        """The calibrated probability of each class, for every sequence; give its `codes` where they are known."""
        return self.calibration.probabilities(self.answerer.logits(slots, codes, show=True))

    def deciding_at(self, threshold: float | None) -> Fitted:
        """The model with another threshold on the probability of the positive class; None changes nothing."""
        if threshold is None:
            return self
        if len(self.classes) != 2:
            raise SettingsError(
                f"a threshold needs a model with two classes, and this one has {len(self.classes)}",
                value=threshold,
                remedy="leave it out",
            )
        return replace(self, calibration=replace(self.calibration, threshold=threshold))

    @property
    def decision_in_words(self) -> str:
        """How its probabilities become a prediction."""
        if self.buckets is not None:
            return "the median"
        calibration = self.calibration
        if calibration.threshold is not None:
            positive = self.classes[calibration.positive]
            about = f" to “{self.question}”" if self.question else ""
            return f"{positive}{about} if its probability is at least {calibration.threshold:.3f}"
        if calibration.weights:
            return f"the class with the largest weighted probability, for {calibration.rule}"
        return "the most probable class"

    def decide(self, p_SQ: NDArray[np.float64]) -> NDArray[np.int64]:
        """Class numbers from probabilities; of a number, the bucket of its median."""
        if self.buckets is not None:
            return self.buckets.class_of(self.buckets.predicted(p_SQ).median_S)
        return self.calibration.predict(p_SQ)

    def evaluate(self, slots: Sequences, labels_S: NDArray[Any], **settings: Any) -> Evaluation:
        """Every figure on labelled sequences, with bootstrap intervals; the settings are those of `evaluation`."""
        codes = self.codes(slots)
        return self.evaluation(codes, self.probabilities(slots, codes), labels_S, **settings)

    def evaluation(
        self,
        codes: Sequences,
        p_SQ: NDArray[np.float64],
        labels_S: NDArray[Any],
        *,
        resamples: int = 1_000,
        followed: Followed | None = None,
    ) -> Evaluation:
        """Every figure, from the codes of labelled sequences and the probabilities of their classes.

        Labels of classes that the model does not know are numbered after those of its own. Where the label is a number,
        `labels_S` are the numbers, and of times until an event, `followed` says which were observed.
        """
        tokens_S = self.tokens(codes)
        tokens = float(tokens_S.mean()), float(np.median(tokens_S))
        if (buckets := self.buckets) is not None:
            predicted = buckets.predicted(p_SQ)
            how: dict[str, Any] = {"resamples": resamples, "followed": followed}
            return Evaluation(NumberScores.of(predicted, labels_S, buckets.interval, **how), *tokens)
        settings: dict[str, int] = {"positive": self.positive, "resamples": resamples}
        scores = score_with_unknown(p_SQ, labels_S, self.classes, predicted_N=self.decide(p_SQ), **settings)
        return Evaluation(scores, *tokens)

    def tokens(self, codes: Sequences) -> NDArray[np.int64]:
        """The length of each prompt."""
        first, number_S = codes.distinct()
        return np.array([len(prompt) for prompt in self.classifier.prompts(codes.select(first))])[number_S]

    def with_trees(self, trees: LabelTrees) -> Fitted:
        """The model with these trees beside its language model."""
        return replace(self, answerer=replace(self.answerer, beside=trees, share=trees.share))

    @property
    def trees(self) -> LabelTrees | None:
        """The trees beside its language model, where there are some."""
        beside = self.answerer.beside
        return beside if isinstance(beside, LabelTrees) else None

    def reading(self, above: float | None = None) -> Fitted:
        """Of a number: the model as it says whether it is above a threshold, by default the training labels' median.

        The threshold is the nearest one between two buckets. A model of classes stays as it is.
        """
        if (buckets := self.buckets) is None:
            if above is None:
                return self
            remedy = "leave it out, or name a class"
            raise SettingsError("`above` needs a label that is a number", value=above, remedy=remedy)
        cuts = buckets.above(above)
        if above not in (None, *cuts.upper):
            note(f"explaining {cuts.names[0]} against {cuts.names[1]}: the bucket boundary nearest to {above:g}")
        group_Q = buckets.groups(cuts)
        own = self.calibration
        calibration = Folded(temperature=own.temperature, bias=own.bias, group_Q=group_Q)
        return replace(
            self,
            classes=cuts.names,
            positive=1,
            calibration=calibration,
            look_alikes=None if self.look_alikes is None else self.look_alikes.folded(calibration),
            shares=tuple(calibration.fold(np.array([self.shares]))[0].tolist()),
            buckets=None,
        )

    # ---- questions in words -----------------------------------------------------------------------------------

    @property
    def _questions(self) -> Book:
        assert self.book is not None, "the model answers questions"
        return self.book

    def ways(self, texts: Sequence[str]) -> list[Way]:
        """How it answers questions in words."""
        return ways_of(self._questions, self._words, texts)

    @cached_property
    def _words(self) -> TrainedWords | None:
        return words_of(self.classifier, self._questions)

    def asker(self, histories: Sequences, x_ND: Slots, texts: Sequence[str]) -> Asker:
        """Asks questions about histories, which are row numbers of `x_ND`."""
        return Asker(self.classifier, self.coder, self._questions.prompt, histories, x_ND, self.ways(texts))

    def answering(self, text: str) -> Fitted:
        """The model as it answers one question, with the classes no and yes."""
        book = self._questions
        alike = [entry.question for entry in book.one_of(text)]
        ways = self.ways([question.text for question in alike] or [text])
        answerers = [answerer_of(self.classifier, book.prompt, self.coder, way) for way in ways]
        answerer, scaling = answerers[0], book.scaling(text)
        if alike:
            scalings = [book.scaling(question.text) for question in alike]
            together = OneOf(list(zip(answerers, scalings, strict=True)), book, alike[0].source)
            answerer, scaling = replace(answerer, beside=together, share=0.0), Scaling()
        calibration = scaling.calibration
        model = replace(self, classes=NO_YES, positive=1, question=text, buckets=None)
        return replace(model, answerer=answerer, calibration=calibration)

    # ---- explanations -----------------------------------------------------------------------------------------

    def masked_model(self) -> MaskedModel:
        """The model as it answers when only some of the slots are kept.

        It remembers what the language model answered, so one is made for everything that is asked in one call. With
        a memory that outlives the call, the last digits of an answer would depend on what was asked before.
        """
        answerer, beside = self.answerer.remembering(), self.answerer.beside
        if beside is None or not beside.cheap:
            return MaskedModel(answerer.logits, self.calibration)
        language_model = MaskedModel(answerer.by_model, replace(self.calibration, bias=()))
        return MaskedModel(answerer.logits, self.calibration, answerer.by_fields, language_model)
