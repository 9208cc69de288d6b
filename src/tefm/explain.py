"""From sequences of a table to checked rationales in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import model_validator

from tefm.base.errors import InputError, NotFittedError, did_you_mean
from tefm.base.progress import progress
from tefm.base.settings import Settings
from tefm.language.vocabulary import CodeVocabulary
from tefm.pipeline import Fitted
from tefm.prepare import Preparation
from tefm.rationale.card import Rationale, describe_rationale
from tefm.rationale.extractor import Explainer
from tefm.rationale.grow import until_sufficient
from tefm.rationale.select import By, Of, Over, top_k
from tefm.rationale.verify import verify
from tefm.records.sequences import Sequences

#: Sequences that are explained at once.
BATCH = 256


class Choice(Settings):
    """Which features of a sequence are kept."""

    #: a share of the slots; None: the smallest rationale that passes the check
    keep: float | None = None
    #: what `keep` is a share of: all slots, or those that a record has
    of: Of = "all"
    #: whether each record keeps that share, or the sequence as a whole, where the scores are highest
    over: Over = "sequence"
    #: whether every slot counts, or fields: a set counts as many as the values it has
    by: By = "slot"

    @model_validator(mode="after")
    def _is_share(self) -> Choice:
        if self.keep is not None and not 0 < self.keep <= 1:
            raise ValueError(f"keep is a share, not {self.keep} → give a number above 0, up to 1, like 0.05")
        return self


def explainer_of(fitted: Fitted) -> Explainer:
    """The extractor of a model; one that was fitted without it cannot explain."""
    if fitted.explainer is None:
        raise NotFittedError(
            "this model cannot explain: it was fitted without rationales",
            remedy="fit it with inputs: codes and without rationale: none",
        )
    return fitted.explainer


def explain(
    fitted: Fitted, preparation: Preparation, frame: pl.DataFrame, sequences: Sequences, choice: Choice
) -> list[Rationale]:
    """The rationale of each sequence, with the answers that check it."""
    explainer_of(fitted)  # before anything is vectorised
    rationales = []
    with progress("explaining", len(sequences)) as advance:
        for start in range(0, len(sequences), BATCH):
            batch = sequences.select(np.arange(start, min(start + BATCH, len(sequences))))
            rationales += explain_slots(fitted, preparation, preparation.slots(frame, batch), choice)
            advance(len(batch))
    return rationales


def explain_slots(fitted: Fitted, preparation: Preparation, slots: Sequences, choice: Choice) -> list[Rationale]:
    """The same for sequences of slots, all at once."""
    explainer, model = explainer_of(fitted), fitted.masked_model
    scores_ND = explainer.rank(slots, model(slots))
    if choice.keep is None:
        keep_ND = until_sufficient(model, scores_ND, slots, over=choice.over)
    else:
        layout = explainer.network.layout
        keep_ND = top_k(scores_ND, slots, choice.keep, of=choice.of, over=choice.over, by=choice.by, layout=layout)
    return _in_words(fitted, preparation, slots, keep_ND, scores_ND)


def _in_words(
    fitted: Fitted,
    preparation: Preparation,
    slots: Sequences,
    keep_ND: NDArray[np.bool_],
    scores_ND: NDArray[np.float32],
) -> list[Rationale]:
    """Masks and scores become rationales in the words of the schema."""
    coder, vectoriser = fitted.coder, preparation.vectoriser
    assert coder is not None and vectoriser is not None, "text has no slots to explain"
    codes_NK = coder.encode(slots.x_ND)
    decoded_ND = coder.decode(codes_NK)
    vocabulary = CodeVocabulary.of(preparation.schema.record, levels=coder.config.levels, entries=coder.config.entries)
    rationales = []
    for number, verification in enumerate(verify(fitted.masked_model, slots, keep_ND)):
        rows = slice(int(slots.starts[number]), int(slots.starts[number + 1]))
        rationale = describe_rationale(
            vectoriser,
            slots.x_ND[rows],
            keep_ND[rows],
            scores_ND[rows],
            verification,
            sequence=str(slots.names[number]),
            classes=fitted.classes,
            codes=[vocabulary.text(code) for code in codes_NK[rows]],
            decoded_ND=decoded_ND[rows],
        )
        rationales.append(replace(rationale, entity=preparation.sequence_noun))
    return rationales


def named_sequences(sequences: Sequences, names: Sequence[str], noun: str) -> Sequences:
    """The sequences with these names; a name that is not in the table is refused."""
    numbers = {str(name): number for number, name in enumerate(sequences.names)}
    for name in names:
        if name not in numbers:
            remedy = did_you_mean(name, numbers)
            raise InputError(f"there is no such {noun} in this table", file=sequences.file, value=name, remedy=remedy)
    return sequences.select(np.array([numbers[name] for name in names], dtype=np.int64))
