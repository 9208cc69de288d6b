"""`Classifier`: sequences in, scores of the classes out. Works from arrays alone; it knows no table.

It reads codes; for the baseline it reads the same records as text, with the same question and the same training.

Shapes: N records, D slots, K levels, C entries, d latent; S sequences, Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tefm.base.errors import NotFittedError
from tefm.base.files import replacing
from tefm.language.align import Alignment, align, measure_alignment
from tefm.language.alignment_examples import AlignmentExamples
from tefm.language.backbone import Backbone
from tefm.language.config import AlignConfig, Start, TuneConfig
from tefm.language.distributed import is_first
from tefm.language.predict import answer_logits
from tefm.language.prompts import Prompt, PromptWriter
from tefm.language.train import History
from tefm.language.tune import Questions, tune
from tefm.language.vocabulary import CodeVocabulary, TokenIds, extend, start_rows, word_vectors
from tefm.records.phrases import Phrases
from tefm.records.sequences import Sequences


class Classifier:
    """A backbone that reads sequences: `align`, `tune`, `logits`."""

    def __init__(self, backbone: Backbone, ids: TokenIds | None = None, *, text_limit: int | None = None) -> None:
        self.backbone, self.ids = backbone, ids
        #: without code tokens it reads texts: so many tokens of each at most, the last ones
        self.text_limit = text_limit
        self.writer_: PromptWriter | None = None

    @classmethod
    def open(
        cls,
        backbone: Backbone,
        vocabulary: CodeVocabulary,
        codebooks_KCd: NDArray[np.floating],
        *,
        start: Start = "codebook",
        seed: int = 0,
        words: tuple[Phrases, NDArray[Any], NDArray[np.integer]] | None = None,
    ) -> Classifier:
        """A backbone with the new tokens; `words` (phrases, slots, codes) is needed to start rows from words."""
        ids = extend(backbone, vocabulary)
        reader = cls(backbone, ids)
        if start == "codebook":
            start_rows(backbone, ids, np.concatenate(list(codebooks_KCd)), seed=seed)
        elif start == "words":
            assert words is not None, "rows that start from words need them"
            phrases, x_ND, codes_NK = words
            table: Any = backbone.model.get_input_embeddings()
            embedding = table.weight.detach().cpu().numpy()
            record_NH = reader.describer(phrases).vectors(embedding, x_ND)
            start_rows(backbone, ids, word_vectors(codes_NK, record_NH, vocabulary.entries), seed=seed)
        return reader

    def describer(self, phrases: Phrases) -> AlignmentExamples:
        assert self.ids is not None, "text has no codes to align"
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
        """Teach codes and words."""
        return align(self.backbone, self.describer(phrases), x_ND, codes_NK, config, checkpoint=checkpoint)

    def measure_alignment(
        self, phrases: Phrases, x_ND: NDArray[Any], codes_NK: NDArray[np.integer], coder: Any, *, beam: int = 1
    ) -> Alignment:
        """What words and codes know of each other, with the tokenizer that made the codes."""
        describer = self.describer(phrases)
        return measure_alignment(
            self.backbone, describer, x_ND, codes_NK, coder.decode, coder.layout, coder.mode_D_, beam=beam
        )

    def keep(self, path: Path | None, history: History, alignment: Alignment | None = None) -> None:
        """Leave a trained model for a run that is resumed later; written by the first process."""
        if path is None or not is_first():
            return
        with replacing(path) as temporary:
            found = {"history": history.to_dict(), "alignment": asdict(alignment) if alignment else None}
            torch.save({"weights": self.backbone.model.state_dict(), **found}, temporary)

    def restore(self, path: Path | None) -> tuple[History, Alignment | None] | None:
        """Go on with the trained model that an earlier run left; None when there is none."""
        if path is None or not path.is_file():
            return None
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.backbone.model.load_state_dict(state["weights"])
        return History(**state["history"]), Alignment(**state["alignment"]) if state["alignment"] else None

    # ---- stage 3 ----------------------------------------------------------------------------------------------

    def tune(
        self,
        prompt: Prompt,
        classes: Sequence[str],
        training: Sequences,
        labels: NDArray[np.int64],
        validation: Sequences | None,
        validation_labels: NDArray[np.int64] | None,
        config: TuneConfig,
        *,
        checkpoint: Path | None = None,
        finished: Path | None = None,
    ) -> History:
        """Learn to answer; the weights that do best on the validation sequences stay, and are left in `finished`."""
        self.writer_ = PromptWriter(self.backbone.tokenizer, prompt, classes, self.ids)
        if (found := self.restore(finished)) is not None:
            return found[0]
        held = None
        if validation is not None and validation_labels is not None:
            held = Questions(self.prompts(validation), validation_labels)
        asked = Questions(self.prompts(training), labels)
        history = tune(self.backbone, self.ids, self.writer, asked, held, config, checkpoint=checkpoint)
        self.keep(finished, history)
        return history

    @property
    def writer(self) -> PromptWriter:
        if self.writer_ is None:
            raise NotFittedError("this reader has no question yet", remedy="call tune first")
        return self.writer_

    def prompts(self, sequences: Sequences) -> list[NDArray[np.int64]]:
        """The token ids that the model is shown."""
        if self.ids is None:
            assert sequences.texts is not None, "without code tokens there must be texts to read"
            return self.writer.of_texts(sequences.texts, sequences.lengths.tolist(), limit=self.text_limit)
        return self.writer.of_codes(sequences.codes_NK, sequences.starts, texts=sequences.texts, gaps=sequences.gaps)

    def logits(self, sequences: Sequences, *, batch_tokens: int | None = None, show: bool = False) -> NDArray[Any]:
        """Per sequence the logits of the classes' answers."""
        what = "predicting" if show else None
        return answer_logits(
            self.backbone, self.prompts(sequences), self.writer.first_tokens, batch_tokens=batch_tokens, what=what
        )
