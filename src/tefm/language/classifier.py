"""`Classifier`: a language model that scores the classes of sequences. It works on arrays and needs no table.

Its input is codes; as a baseline, it takes the same records as text, with the same question and the same training.

Shapes: N records, D slots, K levels, C entries, d latent; S sequences, Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.training import load_checkpoint, save_checkpoint
from tefm.language.alignment import Alignment, AlignmentExamples, align, measure_alignment
from tefm.language.backbone import Backbone
from tefm.language.config import AlignConfig, Start
from tefm.language.prediction import answer_logits
from tefm.language.prompts import Prompt, PromptWriter
from tefm.language.training_loop import History, is_first
from tefm.language.tuning import Questions, ToLearn
from tefm.language.vocabulary import CodeVocabulary, TokenIds, extend, start_rows, word_vectors
from tefm.tables.phrases import Phrases
from tefm.tables.sequences import Sequences

#: The fingerprint of a finished stage's file; what it belongs to is in the name of its folder.
FINISHED = "finished"


class Classifier:
    """A backbone that classifies sequences: `align` and `tune` train it, `logits` predicts."""

    def __init__(self, backbone: Backbone, writer: PromptWriter, *, text_limit: int | None = None) -> None:
        self.backbone, self.writer = backbone, writer
        #: the maximum number of tokens of a text, of which the last ones are kept
        self.text_limit = text_limit

    @property
    def ids(self) -> TokenIds | None:
        """The ids of the code tokens; without them, the input is text."""
        return self.writer.ids

    @property
    def vocabulary(self) -> CodeVocabulary:
        """The names of the code tokens, as the tokenizer knows them."""
        assert self.ids is not None, "text has no codes"
        first = self.backbone.tokenizer.convert_ids_to_tokens(self.ids.first)
        return CodeVocabulary(str(first).removeprefix("<").partition("_")[0], self.ids.levels, self.ids.entries)

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
            embedding = table.weight.detach().cpu().numpy()
            record_NH = classifier.alignment_examples(phrases).mean_embeddings(embedding, x_ND)
            start_rows(backbone, ids, word_vectors(codes_NK, record_NH, vocabulary.entries), seed=seed)
        return classifier

    def alignment_examples(self, phrases: Phrases) -> AlignmentExamples:
        """The training examples of the alignment, for records with these phrases."""
        assert self.ids is not None, "alignment needs code tokens"
        return AlignmentExamples(phrases, self.backbone.tokenizer, self.ids)

    # ---- stage 2 ----------------------------------------------------------------------------------------------

    def align(
        self,
        phrases: Phrases,
        x_ND: NDArray[Any],
        codes_NK: NDArray[np.integer],
        config: AlignConfig,
        *,
        checkpoint: Path | None = None,
    ) -> History:
        """Align codes and words, on records as slots and codes."""
        return align(self.backbone, self.alignment_examples(phrases), x_ND, codes_NK, config, checkpoint=checkpoint)

    def measure_alignment(
        self, phrases: Phrases, x_ND: NDArray[Any], codes_NK: NDArray[np.integer], coder: Any, *, beam: int = 1
    ) -> Alignment:
        """Measure the alignment on held-out records; `coder` is the `SlotCoder` that made the codes."""
        examples = self.alignment_examples(phrases)
        return measure_alignment(
            self.backbone, examples, x_ND, codes_NK, coder.decode, coder.layout, coder.mode_D_, beam=beam
        )

    # ---- the trained weights of a finished stage --------------------------------------------------------------

    def keep(self, path: Path | None, history: History, alignment: Alignment | None = None) -> None:
        """Save the weights of a finished stage, so that a resumed run can skip it; only the first process writes."""
        if path is None or not is_first():
            return
        body = {
            "weights": self.backbone.model.state_dict(),
            "history": history.to_dict(),
            "alignment": asdict(alignment) if alignment else None,
        }
        save_checkpoint(path, FINISHED, body)

    def restore(self, path: Path | None) -> tuple[History, Alignment | None] | None:
        """Load the weights that `keep` saved in an earlier run; None when there are none."""
        if path is None or not path.is_file():
            return None
        body = load_checkpoint(path, FINISHED)
        self.backbone.model.load_state_dict(body["weights"])
        return History(**body["history"]), Alignment(**body["alignment"]) if body["alignment"] else None

    # ---- stage 3 ----------------------------------------------------------------------------------------------

    def to_learn(
        self,
        training: Sequences,
        labels: NDArray[np.int64],
        validation: Sequences,
        validation_labels: NDArray[np.int64],
        *,
        classes_SQ: NDArray[np.floating] | None = None,
    ) -> ToLearn:
        """Labelled sequences as prompts with answers.

        With `classes_SQ`, the probability of each class is learned instead of the labels alone.
        """
        answers = self.writer.answers
        validated = [(Questions(self.prompts(validation), validation_labels), answers)] if len(validation) else []
        return ToLearn(Questions(self.prompts(training), labels, classes_SQ), answers, validated)

    # ---- prediction -------------------------------------------------------------------------------------------

    def prompts(self, sequences: Sequences) -> list[NDArray[np.int64]]:
        """The prompt of each sequence as token ids."""
        if self.ids is None:
            assert sequences.texts is not None, "a classifier without code tokens needs texts"
            return self.writer.of_texts(sequences.texts, sequences.lengths.tolist(), limit=self.text_limit)
        return self.writer.of_codes(sequences.codes_NK, sequences.starts, texts=sequences.texts, gaps=sequences.gaps)

    def logits(self, sequences: Sequences, *, batch_tokens: int | None = None, show: bool = False) -> NDArray[Any]:
        """The logits of the classes' answers, for every sequence; `show` displays the progress.

        The model answers each distinct prompt once.
        """
        first, number_S = self.distinct(sequences)
        prompts, title = self.prompts(sequences.select(first)), "predicting" if show else None
        logits_FQ = answer_logits(
            self.backbone, prompts, self.writer.first_tokens, batch_tokens=batch_tokens, title=title
        )
        logits_SQ: NDArray[Any] = logits_FQ[number_S]
        return logits_SQ

    def distinct(self, sequences: Sequences) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first of each group of sequences with the same prompt, and the number of each sequence's group."""
        if self.ids is None:  # the model reads the texts of the records, and not which rows they are
            sequences = sequences.with_values(np.zeros(len(sequences.values), dtype=np.int64))
        return sequences.distinct()
