"""Rationales of a few hospital stays, one with a long value and one with a hostile value."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console

from tefm.explain.in_words import describe_rationale
from tefm.explain.rationale_card import Rationale
from tefm.explain.render import card
from tefm.rationale.verify import Answer, Verdict, Verification
from tefm.tables.layout import Slots
from tefm.tables.phrases import statements
from tefm.tables.schema import Field, Schema
from tefm.tables.vectorise import Vectoriser

SCRIPT = "<script>alert('ward')</script> & [bold]co[/bold]"
LONG = "pneumonitis due to " + "inhalation of very solid and very liquid things " * 4 + "x" * 120
NAMES = {"507": LONG, "038": "septicemia", "250": "diabetes", "428": "cardiac failure", "518": "respiratory failure"}
SCHEMA = Schema(
    record="stay",
    entity="patient",
    fields=(
        Field(name="age", kind="number", title="Age", unit="years", buckets=3),
        Field(name="ward", kind="category", title="Ward", group="Stay"),
        Field(name="days", kind="number", title="Length of stay", unit="days", buckets=3, group="Stay"),
        Field(name="icu", kind="flag", title="Intensive care", group="Stay"),
        Field(name="dead", kind="flag", title="Declared lost"),
        Field(name="dx", kind="set", delimiter=";", title="Diagnoses", group="Diagnoses", names=NAMES),
    ),
)
TABLE = pl.DataFrame(
    {
        "age": [31, 52, 73, 34, 55, 76],
        "ward": ["heart", "lung", SCRIPT, "heart", "lung", SCRIPT],
        "days": [2, 4, 8, 3, 5, 9],
        "icu": [1, 0, 1, 1, 0, 1],
        "dead": [1, 1, 0, 1, 0, 1],
        "dx": ["428;518", "250;428;518;038", "507", "038;250", "518;250", None],
    }
)
VECTORISER = Vectoriser.fit(TABLE, SCHEMA)
X_ND = VECTORISER.transform(TABLE)
SIZES_D = VECTORISER.layout.sizes_D


def verified(
    verdict: Verdict = "sufficient", full: float = 0.9, alone: float = 0.8, without: float = 0.3, nothing: float = 0.4
) -> Verification:
    """The result of a check, by the probability of death."""
    answers = (
        Answer("died" if p >= 0.5 else "lived", {"died": p, "lived": 1 - p}) for p in (full, alone, without, nothing)
    )
    return Verification(*answers, verdict)


def selecting(x_ND: Slots, keep_ND: Any, decoded_ND: Slots | None = None, **how: Any) -> Rationale:
    return describe_rationale(
        VECTORISER,
        x_ND,
        np.asarray(keep_ND, dtype=bool),
        how.pop("verification", verified()),
        entity="patient",
        sequence="p7",
        classes=("died", "lived"),
        decoded_ND=x_ND if decoded_ND is None else decoded_ND,
    )


def everything(x_ND: Slots, **how: Any) -> Rationale:
    return selecting(x_ND, np.ones_like(x_ND, dtype=bool), **how)


def printed(rationale: Rationale, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width, no_color=True, force_terminal=True, legacy_windows=False)
    console.print(card(rationale))
    assert isinstance(console.file, StringIO)
    return re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())


def unwrapped(shown: str) -> str:
    """The words of a card without its frame and line breaks."""
    return " ".join(re.sub("[│╭╰╮╯]", " ", shown).split())


def slot_words(x_D: Slots, slot: int) -> str:
    """The words of one slot; a flag is its name."""
    only_D = np.zeros_like(x_D)
    only_D[slot] = x_D[slot]
    return statements(VECTORISER, only_D)[0].words
