"""Records whose codes can be learned from their words, and a miniature with tokens for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.language.alignment import AlignmentExamples
from tefm.language.backbone import Backbone, open_backbone
from tefm.language.vocabulary import CodeVocabulary, extend, start_rows
from tefm.tables.layout import Layout, Slot, SlotKind
from tefm.tables.phrases import FieldPhrases, Phrases

LEVELS, ENTRIES = 3, 5
PHRASES = Phrases(
    "stay",
    (
        FieldPhrases("ward", (0,), (("surgery", "heart", "lung", "other"),)),
        FieldPhrases("result", (1,), (("high", "low", "none"),)),
        FieldPhrases("drugs", (2, 3), (("insulin",), ("metformin",)), several=True),
    ),
)
SIZES = np.array([4, 3, 1, 1])
KINDS: tuple[SlotKind, ...] = ("category", "number", "flag", "flag")
LAYOUT = Layout(tuple(Slot(kind, kind, int(size)) for kind, size in zip(KINDS, SIZES, strict=True)))
Aligned = tuple[Backbone, AlignmentExamples]


def opened(folder: Path) -> Aligned:
    backbone = open_backbone(folder, device="cpu")
    ids = extend(backbone, CodeVocabulary.of("stay", levels=LEVELS, entries=ENTRIES))
    start_rows(backbone, ids, np.random.default_rng(0).normal(size=(LEVELS * ENTRIES, 8)))
    return backbone, AlignmentExamples(PHRASES, backbone.tokenizer, ids)


def drawn(count: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(SIZES + 1, size=(count, len(SIZES)))


def codes_of(x_ND: NDArray[Any]) -> NDArray[np.int64]:
    """Codes that can be learned: the ward, the result, and both drugs together."""
    return np.stack([x_ND[:, 0], x_ND[:, 1], x_ND[:, 2] + 2 * x_ND[:, 3]], axis=1)
