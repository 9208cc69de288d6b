"""What answers: a `Classifier` reads codes, an `Answerer` reads slots, with or without a model of the fields.

Neither needs a table.

Shapes: N records, D slots, K levels, C entries, d latent; S sequences, F distinct ones, Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tefm.base.training import History, load_checkpoint, save_checkpoint
from tefm.codes.coder import SlotCoder
from tefm.language.alignment import AlignmentExamples
from tefm.language.backbone import Backbone
from tefm.language.config import Start
from tefm.language.prediction import answer_logits
from tefm.language.prompts import Prompt, PromptWriter
from tefm.language.training_loop import is_first
from tefm.language.vocabulary import CodeVocabulary, TokenIds, extend, start_rows, word_vectors
from tefm.tables.layout import Layout
from tefm.tables.phrases import Phrases
from tefm.tables.sequences import Sequences

#: Sequences whose features are held at once.
CHUNK = 8_192
#: The maximum number of remembered answers; beyond it, the memory is emptied.
REMEMBERED_ANSWERS = 500_000
#: The fingerprint of a finished stage's file; what it belongs to is in the name of its folder.
FINISHED = "finished"

Floats = NDArray[np.float64]


class Classifier:
    """A backbone that classifies sequences: alignment and tuning train it, `logits` predicts."""

    def __init__(self, backbone: Backbone, writer: PromptWriter) -> None:
        self.backbone, self.writer = backbone, writer

    @property
    def ids(self) -> TokenIds:
        """The ids of the code tokens."""
        assert self.writer.ids is not None, "the language model has tokens for the codes"
        return self.writer.ids

    @property
    def vocabulary(self) -> CodeVocabulary:
        """The names of the code tokens, as the tokenizer knows them."""
        first = self.backbone.tokenizer.convert_ids_to_tokens(self.ids.first)
        stem = str(first).removeprefix("<").partition("_")[0]
        return CodeVocabulary(stem, self.ids.levels, self.ids.entries, self.ids.profile)

    @classmethod
    def open(
        cls,
        backbone: Backbone,
        vocabulary: CodeVocabulary,
        codebooks_KCd: NDArray[np.floating],
        prompt: Prompt,
        classes: Sequence[str],
        *,
        start: Start = "codebook",
        seed: int = 0,
        words: tuple[Phrases, NDArray[Any], NDArray[np.integer]] | None = None,
        share_markers: bool = False,
    ) -> Classifier:
        """A classifier of codes, untrained: adds the code tokens to the backbone and initialises their rows.

        `start` chooses how (see `Start`). Only `start="words"` needs `words` (phrases, slots and codes of records).
        `share_markers`: the backbone has the markers already, from another domain.
        """
        ids = extend(backbone, vocabulary, share_markers=share_markers)
        classifier = cls(backbone, PromptWriter(backbone.tokenizer, prompt, classes, ids))
        if start == "codebook":
            start_rows(backbone, ids, np.concatenate(list(codebooks_KCd)), seed=seed)
        elif start == "words":
            assert words is not None, "`start: words` needs the words of records"
            phrases, x_ND, codes_NK = words
            table: Any = backbone.model.get_input_embeddings()
            embedding_VH = table.weight.detach().cpu().numpy()
            record_NH = AlignmentExamples(phrases, backbone.tokenizer, ids).mean_embeddings(embedding_VH, x_ND)
            start_rows(backbone, ids, word_vectors(codes_NK, record_NH, vocabulary.entries), seed=seed)
        return classifier

    # ---- the trained weights of a finished stage --------------------------------------------------------------

    def keep(self, path: Path | None, history: History) -> None:
        """Save the weights of a finished stage, so that a resumed run can skip it; only the first process writes."""
        if path is None or not is_first():
            return
        save_checkpoint(path, FINISHED, {"weights": self.backbone.model.state_dict(), "history": asdict(history)})

    def restore(self, path: Path | None) -> History | None:
        """Load the weights that `keep` saved in an earlier run; None when there are none."""
        if path is None or not path.is_file():
            return None
        body = load_checkpoint(path, FINISHED)
        self.backbone.model.load_state_dict(body["weights"])
        return History(**body["history"])

    # ---- prediction -------------------------------------------------------------------------------------------

    def prompts(self, codes: Sequences) -> list[NDArray[np.int64]]:
        """The prompt of each sequence as token ids."""
        return self.writer.of_codes(codes)

    def logits(self, codes: Sequences, *, show: bool = False) -> NDArray[Any]:
        """The logits of the classes' answers, for every sequence; `show` displays the progress.

        The model answers each distinct prompt once.
        """
        first, number_S = codes.distinct()
        prompts, title = self.prompts(codes.select(first)), "predicting" if show else None
        logits_FQ = answer_logits(self.backbone, prompts, self.writer.first_tokens, title=title)
        return logits_FQ[number_S]


# ---- beside a model of the fields ------------------------------------------------------------------------------------


class FieldModel(Protocol):
    """A model that answers from slots: trees for the label, or the head of a question."""

    @property
    def cheap(self) -> bool:
        """Whether a search may ask it thousands of times."""

    def logits(self, slots: Sequences, layout: Layout, /) -> Floats:
        """The logits of the classes."""


@dataclass(frozen=True, eq=False)
class Answerer:
    """Slots in, logits of the classes out.

    The slots are encoded once, and the language model reads the codes. With a model of the fields beside it, the
    logits are the weighted mean of both.
    """

    classifier: Classifier
    coder: SlotCoder
    #: what answers beside the language model
    beside: FieldModel | None = None
    #: the weight of the language model; the rest is that of the model of the fields
    share: float = 1.0
    #: the language model's answers, where they are kept between calls
    memory: dict[Any, NDArray[Any]] | None = None

    def remembering(self) -> Self:
        """An answerer with a memory: the language model is not asked again about codes of an earlier call."""
        return self if self.memory is not None else replace(self, memory={})

    def codes(self, slots: Sequences) -> Sequences:
        """What the language model reads: the sequences as codes."""
        return self.coder.coded(slots)

    def logits(self, slots: Sequences, codes: Sequences | None = None, *, show: bool = False) -> NDArray[Any]:
        """The logits of the classes for every sequence of slots; give its `codes` where they are known.

        Each distinct sequence is answered once. `show` displays the progress of the language model.
        """
        if self.beside is None:
            return self._by_language_model(self.codes(slots) if codes is None else codes, show=show)
        first, number_S = slots.distinct()
        slots, codes = slots.select(first), None if codes is None else codes.select(first)
        return (self.by_model(slots, codes, show=show) + self.by_fields(slots))[number_S]

    def by_model(self, slots: Sequences, codes: Sequences | None = None, *, show: bool = False) -> NDArray[Any]:
        """The language model's part of the logits."""
        if not self.share:
            return np.zeros((len(slots), len(self.classifier.writer.classes)))
        return self.share * self._by_language_model(self.codes(slots) if codes is None else codes, show=show)

    def by_fields(self, slots: Sequences) -> Floats:
        """The part of the logits that the model of the fields adds."""
        logits_SQ = np.zeros((len(slots), len(self.classifier.writer.classes)))
        if self.beside is not None and self.share < 1:
            for start in range(0, len(slots), CHUNK):
                rows = np.arange(start, min(start + CHUNK, len(slots)))
                logits_SQ[rows] = (1 - self.share) * self.beside.logits(slots.select(rows), self.coder.layout)
        return logits_SQ

    def _by_language_model(self, codes: Sequences, *, show: bool = False) -> NDArray[Any]:
        """The language model's logits; with a memory, it is asked about new codes only.

        A table that is read in parts has the same few codes in each of them, and so have the masked versions of a
        record.
        """
        if self.memory is None or not len(codes):
            return self.classifier.logits(codes, show=show)
        first, number_S = codes.distinct()
        asked = codes.select(first)
        contents = [_content(asked, number) for number in range(len(asked))]
        new = [number for number, content in enumerate(contents) if content not in self.memory]
        if len(self.memory) + len(new) > REMEMBERED_ANSWERS:
            self.memory.clear()
            new = list(range(len(contents)))
        if new:
            answers_FQ = self.classifier.logits(asked.select(new))
            self.memory.update(zip((contents[number] for number in new), answers_FQ, strict=True))
        return np.stack([self.memory[content] for content in contents])[number_S]


def _content(codes: Sequences, number: int) -> tuple[Any, ...]:
    """All that the prompt of a sequence depends on."""
    return codes[number].tobytes(), "" if codes.texts is None else codes.texts[number]
