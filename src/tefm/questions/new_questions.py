"""What the words of a question say about its answer, where nobody has trained it.

Trained questions have regressions on the fields of a history. A new question has a weighted sum of them: the more its
words mean the same as those of a trained question, the more that one counts. What words mean is what the language model
makes of them; the weights are those of a kernel ridge regression over the trained questions.

Shapes: T trained questions, N texts, F features, h hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tefm.language.asking import QuestionWriter
from tefm.language.backbone import Backbone
from tefm.language.classifier import Classifier
from tefm.language.prediction import mean_states
from tefm.questions.answering import writer_of
from tefm.questions.book import Book
from tefm.tabular.heads import Floats, Head, Linear, Way, of_regression

#: Questions whose meaning has the cosine c are alike by the exponential of this times c − 1.
SHARPNESS = 2.0
#: How strongly the weights of trained questions are held back.
STRENGTH = 0.3


@dataclass(frozen=True, eq=False)
class TrainedWords:
    """The trained questions of a model: their words, and their regressions."""

    backbone: Backbone
    writer: QuestionWriter
    texts: tuple[str, ...]
    regressions: tuple[Linear, ...]

    def heads(self, texts: Sequence[str]) -> list[Head]:
        """How new questions are answered from fields."""
        weights_TF = np.stack([regression.weights_F for regression in self.regressions])
        bias_T = np.array([regression.bias for regression in self.regressions])
        return [
            of_regression(Linear.of(count_T @ weights_TF, float(count_T @ bias_T))) for count_T in self._counts(texts)
        ]

    def _counts(self, texts: Sequence[str]) -> Floats:
        """How much each trained question counts for each of these."""
        centre_h, spread_h, known_Th = self._trained
        alike_TT = _alike(known_Th, known_Th) + STRENGTH * np.eye(len(known_Th))
        new_Nh = _unit((self._meaning(texts) - centre_h) / spread_h)
        return np.asarray(np.linalg.solve(alike_TT, _alike(known_Th, new_Nh)).T, dtype=np.float64)

    @cached_property
    def _trained(self) -> tuple[Floats, Floats, Floats]:
        """The mean and the spread of what trained questions mean, and their meanings relative to these."""
        meaning_Th = self._meaning(self.texts)
        centre_h, spread_h = meaning_Th.mean(axis=0), meaning_Th.std(axis=0) + 1e-6
        return centre_h, spread_h, _unit((meaning_Th - centre_h) / spread_h)

    def _meaning(self, texts: Sequence[str]) -> Floats:
        meaning_Nh: Floats = mean_states(self.backbone, [self.writer.tail(text) for text in texts]).astype(np.float64)
        return meaning_Nh


def words_of(classifier: Classifier, book: Book) -> TrainedWords | None:
    """What new questions are answered from beside the language model; a model of earlier versions has nothing."""
    known = {entry.question.text: entry.regression for entry in book.trained if entry.regression is not None}
    if not known:
        return None
    return TrainedWords(classifier.backbone, writer_of(classifier, book.prompt), tuple(known), tuple(known.values()))


def ways_of(book: Book, words: TrainedWords | None, texts: Sequence[str]) -> list[Way]:
    """How questions are answered: those that were learned in their own way, new ones from their words."""
    learned = {text: entry.way for text in texts if (entry := book.learned(text)) is not None}
    new = [text for text in texts if text not in learned]
    heads: Sequence[Head | None] = words.heads(new) if words is not None and new else [None] * len(new)
    for text, head in zip(new, heads, strict=True):
        entry = book.entry(text)
        learned[text] = Way(text, head, book.share if entry is None else entry.share)
    return [learned[text] for text in texts]


def _unit(of_Nh: Floats) -> Floats:
    unit_Nh: Floats = of_Nh / np.maximum(np.linalg.norm(of_Nh, axis=1, keepdims=True), 1e-9)
    return unit_Nh


def _alike(one_Nh: NDArray[np.float64], other_Mh: NDArray[np.float64]) -> Floats:
    alike_NM: Floats = np.exp(SHARPNESS * (one_Nh @ other_Mh.T - 1))
    return alike_NM
