"""How questions are answered: by the language model from codes, by a head from what else is known, or by both.

Shapes: N records, K levels, H histories, S sequences, P pairs of a history and a question, F features, d latent;
T trained questions, N texts, h hidden.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import normalize

from tefm.codes.coder import SlotCoder
from tefm.language.backbone import Backbone
from tefm.language.classifier import CHUNK, Answerer, Classifier
from tefm.language.prediction import last_states, mean_states, pair_logits
from tefm.language.prompts import Prompt, QuestionWriter
from tefm.questions.book import Book, Scaling
from tefm.tables.layout import Layout, Slots
from tefm.tables.sequences import Sequences
from tefm.tabular.heads import Floats, Head, Linear, Reads, Way, of_regression
from tefm.tabular.inputs import RecordSlots, empty_record, sequence_features
from tefm.tabular.question_teacher import history_features

#: Questions whose meanings have the cosine c are alike by the exponential of this times c − 1, which is a Gaussian
#: kernel of vectors of length 1.
SHARPNESS = 2.0
#: Probabilities are clipped this far from 0 and 1, which have no log-odds.
TINY = 1e-12
#: How strongly the weights of trained questions are held back.
STRENGTH = 0.3

Numbers = NDArray[np.int64]


def writer_of(classifier: Classifier, prompt: Prompt, question: str = "") -> QuestionWriter:
    """Writes histories and questions as this classifier reads them."""
    return QuestionWriter(classifier.backbone.tokenizer, prompt, classifier.ids, question)


# ---- one question -----------------------------------------------------------------------------------------------


def asking(classifier: Classifier, prompt: Prompt, text: str) -> Classifier:
    """The language model with a question in words, which it answers with no or yes."""
    return Classifier(classifier.backbone, writer_of(classifier, prompt, text))


def answerer_of(classifier: Classifier, prompt: Prompt, coder: SlotCoder, way: Way) -> Answerer:
    """The model as it answers one question, with a head beside the language model or in its place."""
    reader = asking(classifier, prompt, way.text)
    beside = None if way.head is None else QuestionHead(way.head, coder, reader)
    return Answerer(reader, coder, beside, way.model_share)


@dataclass(frozen=True, eq=False)
class QuestionHead:
    """A head as it answers one question from slots."""

    head: Head
    coder: SlotCoder
    #: the language model with the question
    reader: Classifier

    @property
    def cheap(self) -> bool:
        """Whether a search may ask the head thousands of times."""
        return "state" not in self.head.reads

    def logits(self, slots: Sequences, _: Layout) -> Floats:
        """The logits of no and yes."""
        score_S = self.head.score(features_of(slots, self.coder, self.reader, self.head.reads))
        return np.stack([np.zeros(len(score_S)), score_S], axis=1)


@dataclass(frozen=True, eq=False)
class OneOf:
    """A question of several of which exactly one is answered with yes: what it has among all of them."""

    #: the question itself, then the others
    members: Sequence[tuple[Answerer, Scaling]]
    book: Book
    source: str | None

    @property
    def cheap(self) -> bool:
        """Whether a search may ask all of them thousands of times."""
        return all(not one.share and one.beside is not None and one.beside.cheap for one, _ in self.members)

    def logits(self, slots: Sequences, _: Layout) -> Floats:
        """The logits of no and yes."""
        scored = ((one.logits(slots), scaling) for one, scaling in self.members)
        p_QS = np.stack([scaling.probability(logits_S2[:, 1] - logits_S2[:, 0]) for logits_S2, scaling in scored])
        yes_S = logit(np.clip(self.book.among(self.source, p_QS), TINY, 1 - TINY))
        return np.stack([np.zeros(len(yes_S)), yes_S], axis=1)


def feature_widths(coder: SlotCoder, backbone: Backbone) -> dict[Reads, int]:
    """How many features there are of each kind."""
    records = empty_record(coder.layout)
    return {
        "codes": 2 * coder.latent_width,
        "fields": history_features(records).shape[1],
        "slots": sequence_features(records, "history").x_NF.shape[1],
        "state": backbone.hidden_size,
    }


def features_of(
    slots: Sequences, coder: SlotCoder, reader: Classifier, reads: Collection[Reads] = ()
) -> dict[Reads, NDArray[Any]]:
    """What a head reads of each history of slots; by default, all that may be worth reading.

    `reader` is the language model with the question.
    """
    if not reads:
        reads = ("codes", "fields", "slots") if slots.texts is None else ("codes", "fields", "slots", "state")
    found: dict[Reads, NDArray[Any]] = {}
    records = RecordSlots.of(slots, coder.layout)
    if "fields" in reads:
        found["fields"] = history_features(records)
    if "slots" in reads:
        found["slots"] = sequence_features(records, "history").x_NF
    if "codes" in reads or "state" in reads:
        codes = coder.coded(slots)
    if "codes" in reads:
        latent_Nd = coder.embed(codes.codes_NK).astype(np.float64)
        mean_Sd = np.add.reduceat(latent_Nd, codes.starts[:-1]) / codes.lengths[:, None]
        found["codes"] = np.concatenate([mean_Sd, latent_Nd[codes.starts[1:] - 1]], axis=1)
    if "state" in reads:
        found["state"] = last_states(reader.backbone, reader.prompts(codes)).astype(np.float64)
    return found


# ---- many questions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Asker:
    """Puts many questions about the histories of a part; what they have in common is computed once."""

    classifier: Classifier
    coder: SlotCoder
    prompt: Prompt
    #: row numbers of the records
    histories: Sequences
    x_ND: Slots
    ways: Sequence[Way]

    def __call__(self, history_P: Numbers, question_P: Numbers, *, title: str | None = None) -> Floats:
        """The log-odds of yes for pairs of a history and a question."""
        share_P = np.array([way.model_share for way in self.ways])[question_P]
        score_P = np.zeros(len(history_P))
        if len(asked := np.flatnonzero(share_P > 0)):
            score_P[asked] = share_P[asked] * self.by_model(history_P[asked], question_P[asked], title=title)
        if len(asked := np.flatnonzero(share_P < 1)):
            score_P[asked] += (1 - share_P[asked]) * self.by_heads(history_P[asked], question_P[asked])
        return score_P

    def by_model(self, history_P: Numbers, question_P: Numbers, *, title: str | None = None) -> Floats:
        """The log-odds of the language model; equal pairs are answered once."""
        writer = writer_of(self.classifier, self.prompt)
        histories = self.histories.with_values(self._codes_NK[self.histories.rows])
        first, number_H = histories.distinct()
        count = max(1, len(self.ways))
        keys, inverse = np.unique(number_H[history_P] * count + question_P, return_inverse=True)
        used, history_U = np.unique(keys // count, return_inverse=True)
        prefixes = writer.prefixes(histories.select(first[used]))
        tails = [writer.tail(way.text) for way in self.ways]
        logits_U2 = pair_logits(
            self.classifier.backbone, prefixes, tails, history_U, keys % count, writer.first_tokens, title=title
        )
        score_U: Floats = (logits_U2[:, 1] - logits_U2[:, 0]).astype(np.float64)
        return score_U[inverse]

    def by_heads(self, history_P: Numbers, question_P: Numbers) -> Floats:
        """The log-odds of the heads; 0 for a question without one."""
        score_P = np.zeros(len(history_P))
        used, number_P = np.unique(history_P, return_inverse=True)
        heads = {question: head for question in np.unique(question_P).tolist() if (head := self.ways[question].head)}
        common: set[Reads] = {read for head in heads.values() for read in head.reads} - {"state"}
        for start in range(0, len(used), CHUNK):
            histories = self.histories.select(used[start : start + CHUNK])
            slots = histories.with_values(self.x_ND[histories.rows])
            features = features_of(slots, self.coder, self.classifier, common)
            here_P = (number_P >= start) & (number_P < start + CHUNK)
            for question, head in heads.items():
                own = np.flatnonzero(here_P & (question_P == question))
                rows, inverse = np.unique(number_P[own] - start, return_inverse=True)
                if not len(rows):
                    continue
                read = {name: of[rows] for name, of in features.items() if name in head.reads}
                if "state" in head.reads:  # it depends on the question
                    reader = asking(self.classifier, self.prompt, self.ways[question].text)
                    read |= features_of(slots.select(rows), self.coder, reader, {"state"})
                score_P[own] = head.score(read)[inverse]
        return score_P

    @cached_property
    def _codes_NK(self) -> NDArray[Any]:
        return self.coder.encode(self.x_ND)


# ---- new questions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TrainedWords:
    """The trained questions of a model: their words, and their regressions.

    A new question has a weighted sum of the regressions: the more its words mean the same as those of a trained
    question, the more that one counts. What words mean is what the language model makes of them; the weights are those
    of a kernel ridge regression over the trained questions.
    """

    backbone: Backbone
    writer: QuestionWriter
    texts: tuple[str, ...]
    regressions: tuple[Linear, ...]

    def heads(self, texts: Sequence[str]) -> list[Head]:
        """How new questions are answered from fields."""
        centre_h, spread_h, ridge = self._trained
        weights_NF = ridge.predict(normalize((self._meaning(texts) - centre_h) / spread_h))
        return [of_regression(Linear.of(weights_F[:-1], float(weights_F[-1]))) for weights_F in weights_NF]

    @cached_property
    def _trained(self) -> tuple[Floats, Floats, KernelRidge]:
        """The mean and the spread of what trained questions mean, and a ridge from their meanings to regressions."""
        meaning_Th = self._meaning(self.texts)
        centre_h, spread_h = meaning_Th.mean(axis=0), meaning_Th.std(axis=0) + 1e-6
        weights_TF = np.array([[*regression.weights, regression.bias] for regression in self.regressions])
        ridge = KernelRidge(alpha=STRENGTH, kernel="rbf", gamma=SHARPNESS / 2)
        return centre_h, spread_h, ridge.fit(normalize((meaning_Th - centre_h) / spread_h), weights_TF)

    def _meaning(self, texts: Sequence[str]) -> Floats:
        return mean_states(self.backbone, [self.writer.tail(text) for text in texts]).astype(np.float64)


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
