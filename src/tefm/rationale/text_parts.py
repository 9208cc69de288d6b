"""Which words of a text matter: each is left out once, and the language model answers again."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from tefm.rationale.features import Feature
from tefm.rationale.masked_model import MaskedModel
from tefm.rationale.parts import TextPart
from tefm.rationale.words import notes_N_of, with_notes
from tefm.records.sequences import Sequences

#: Parts of a text that are left out, at most: of a long text, several neighbouring words at once.
MOST_PARTS = 40
#: Parts that are named, at most, and the least change that is worth it.
NAMED, VISIBLE = 3, 0.005


def text_parts(
    model: MaskedModel, sequence: Sequences, feature: Feature, of_class: int, p: float
) -> tuple[tuple[TextPart, ...], int]:
    """The words of a text that matter most, the strongest first, and how many questions that took.

    `p` is the probability of the class for the whole sequence.
    """
    notes, column = notes_N_of(sequence), feature.slots[0] - sequence.x_ND.shape[1]
    note = notes[feature.record]
    parts = parts_of(note[column])
    copies = sequence.select(np.zeros(len(parts), dtype=np.int64))
    versions = []
    for number in range(len(parts)):
        left = " ".join([*parts[:number], *parts[number + 1 :]])
        changed = (*note[:column], left, *note[column + 1 :])
        versions += [*notes[: feature.record], changed, *notes[feature.record + 1 :]]
    change_P = p - model(replace(copies, texts=with_notes(copies, versions)))[:, of_class]
    strongest = np.argsort(-np.abs(change_P), kind="stable")[:NAMED].tolist()
    named = tuple(TextPart(parts[i], float(change_P[i])) for i in strongest if abs(change_P[i]) >= VISIBLE)
    return named, len(parts)


def parts_of(text: str) -> list[str]:
    """The words of a text; of a long one, neighbouring words together.

    >>> parts_of("no  fever,\\nno cough")
    ['no', 'fever,', 'no', 'cough']
    >>> len(parts_of("word " * 100)), parts_of("word " * 100)[0]
    (34, 'word word word')
    """
    words = re.findall(r"\S+", text)
    size = -(-len(words) // MOST_PARTS)
    return [" ".join(words[start : start + size]) for start in range(0, len(words), max(1, size))]
