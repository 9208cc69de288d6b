"""A model explains itself: from a table to verified rationales in words.

Stage 4 as `TEFM` uses it: what the extractor learns from, and what `explain` does with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import model_validator

from tefm.base.errors import InputError, did_you_mean
from tefm.base.files import replacing
from tefm.base.progress import progress
from tefm.base.settings import Settings
from tefm.codes.coder import SlotCoder
from tefm.language.vocabulary import CodeVocabulary
from tefm.rationale.card import Rationale, describe_rationale
from tefm.rationale.config import RationaleConfig
from tefm.rationale.extractor import Explainer
from tefm.rationale.masked_model import MaskedModel
from tefm.rationale.select import By, Of, Over, top_k
from tefm.rationale.surrogate import Agreement
from tefm.rationale.verify import until_sufficient, verify
from tefm.records.readers.table import open_table
from tefm.records.sequences import Sequences

if TYPE_CHECKING:
    from tefm.model import TEFM

#: Sequences that are explained at once.
AT_ONCE = 256


def judge_of(model: TEFM) -> MaskedModel:
    """The model as the judge of masked records."""
    assert model.tokenizer_ is not None, "text has no codes to judge"
    return MaskedModel(model.tokenizer_.coder.encode, model.reader.logits, model.calibration_)


def slot_sequences(model: TEFM, frame: pl.DataFrame, sequences: Sequences) -> Sequences:
    """The sequences of a table as slots, with what the prompt says beside the codes."""
    assert model.tokenizer_ is not None
    texts, gaps = model.beside(frame, sequences)
    records = open_table(frame[sequences.rows], name=sequences.file)
    x_ND = model.tokenizer_.vectoriser.transform(records)
    return replace(sequences, values=x_ND, texts=texts, gaps=gaps)


def learn_to_explain(
    model: TEFM, frame: pl.DataFrame, sequences: Sequences, config: RationaleConfig, path: Path | None = None
) -> Explainer:
    """Fit the extractor on training sequences; `path` keeps it for a run that is resumed later."""
    assert model.tokenizer_ is not None
    coder = model.tokenizer_.coder
    if path is not None and path.is_file():
        return load_explainer(coder, path)
    explainer = Explainer.fit(coder, slot_sequences(model, frame, sequences), judge_of(model), config)
    if path is not None:
        save_explainer(explainer, path)
    return explainer


def save_explainer(explainer: Explainer, path: Path) -> None:
    """One safetensors file with what was learned, how, and how well."""
    from safetensors.torch import save_file

    with replacing(path) as temporary:
        agreement = explainer.agreement_
        facts = {"config": explainer.config.model_dump(), "agreement": asdict(agreement) if agreement else None}
        save_file(explainer.tensors(), temporary, metadata={"facts": json.dumps(facts)})


def load_explainer(coder: SlotCoder, path: Path) -> Explainer:
    """The opposite of `save_explainer`."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
        facts = json.loads(file.metadata()["facts"])
    explainer = Explainer.from_tensors(coder, tensors, RationaleConfig.checked(facts["config"]))
    explainer.agreement_ = Agreement(**facts["agreement"]) if facts["agreement"] else None
    return explainer


class Choice(Settings):
    """How much is kept of what."""

    #: a share of the slots; None: the smallest rationale that passes
    keep: float | None = None
    #: what `keep` is a share of: all slots, or those that a record has
    of: Of = "all"
    #: whether each record keeps that share, or the sequence as a whole, where the scores are highest
    over: Over = "sequence"
    #: whether every slot counts, or fields: a set counts the values that it has
    by: By = "slot"

    @model_validator(mode="after")
    def _a_share(self) -> Choice:
        if self.keep is not None and not 0 < self.keep <= 1:
            raise ValueError(f"keep is a share, not {self.keep} → give a number above 0, up to 1, like 0.05")
        return self


def explain(
    model: TEFM, table: Any, choice: Choice | None = None, *, entities: Sequence[str] | None = None
) -> list[Rationale]:
    """The rationale of every sequence of a table, verified."""
    choice, explainer = choice or Choice(), model.explainer
    frame, sequences = model.frame_and_sequences(table)
    if entities is not None:
        sequences = sequences.select(_numbers_of(sequences, entities, model.sequence_noun))
    judge, found = judge_of(model), []
    with progress("explaining", len(sequences)) as advance:
        for start in range(0, len(sequences), AT_ONCE):
            some = sequences.select(np.arange(start, min(start + AT_ONCE, len(sequences))))
            slots = slot_sequences(model, frame, some)
            scores_ND = explainer.rank(slots, judge(slots))
            if choice.keep is None:
                keep_ND = until_sufficient(judge, scores_ND, slots, over=choice.over)
            else:
                layout = explainer.network.layout
                keep_ND = top_k(
                    scores_ND, slots, choice.keep, of=choice.of, over=choice.over, by=choice.by, layout=layout
                )
            found += _described(model, some, slots, keep_ND, scores_ND, judge)
            advance(len(some))
    return found


def _described(
    model: TEFM,
    sequences: Sequences,
    slots: Sequences,
    keep_ND: NDArray[np.bool_],
    scores_ND: NDArray[np.float32],
    judge: MaskedModel,
) -> list[Rationale]:
    """Arrays become words."""
    assert model.tokenizer_ is not None
    coder, vectoriser = model.tokenizer_.coder, model.tokenizer_.vectoriser
    codes_NK = coder.encode(slots.x_ND)
    decoded_ND = coder.decode(codes_NK)
    words = CodeVocabulary.of(vectoriser.table_schema.record, levels=coder.config.levels, entries=coder.config.entries)
    found = []
    for number, verification in enumerate(verify(judge, slots, keep_ND)):
        rows = slice(int(slots.starts[number]), int(slots.starts[number + 1]))
        rationale = describe_rationale(
            vectoriser,
            slots.x_ND[rows],
            keep_ND[rows],
            scores_ND[rows],
            verification,
            sequence=str(sequences.names[number]),
            classes=model.classes_,
            codes=[words.said(code) for code in codes_NK[rows]],
            decoded_ND=decoded_ND[rows],
        )
        found.append(replace(rationale, entity=model.sequence_noun))
    return found


def _numbers_of(sequences: Sequences, wanted: Sequence[str], noun: str) -> NDArray[np.int64]:
    """The numbers of the sequences with these names."""
    numbers = {str(name): number for number, name in enumerate(sequences.names)}
    for name in wanted:
        if name not in numbers:
            remedy = did_you_mean(name, numbers)
            raise InputError(f"there is no such {noun} in this table", file=sequences.file, value=name, remedy=remedy)
    return np.array([numbers[name] for name in wanted], dtype=np.int64)
