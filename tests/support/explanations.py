"""Explanations of one patient, made by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO
from typing import Any

from rich.console import Console, RenderableType

from tefm.explain.cards import Finding
from tefm.explain.counts import Share
from tefm.explain.explanation import Explanation, Influence, JointEffect, Settling
from tefm.explain.render import explanation_card
from tefm.rationale.verify import Answer

MORPHINE = Finding(3, "drugs", "morphine", "Drugs: morphine")
OLD = Finding(1, "age", "80–89", "Age: 80–89 years")
NO_WARD = Finding(2, "ward", "", "Ward: not recorded", absent=True)
ASPIRIN = Finding(3, "drugs", "aspirin", "Drugs: aspirin")


def share(percent: float, of: int = 200) -> Share:
    """A share with an interval of ten points."""
    value = percent / 100
    return Share(round(value * of), of, max(round(value - 0.05, 3), 0.0), min(round(value + 0.05, 3), 1.0))


def influence(finding: Finding, change: float, wide: float = 0.01) -> Influence:
    return Influence(finding, change, change - wide, change + wide)


def explanation(says: str = "yes", other: str = "no", **changes: Any) -> Explanation:
    """A patient with three stays who is predicted to die: morphine and age settle it."""
    settled = Explanation(
        entity="patient",
        sequence="p7",
        record="stay",
        records=3,
        classes=(other, says),
        label="died",
        answer=Answer(says, {other: 0.09, says: 0.91}),
        verdict="settled",
        distinct=True,
        least=0.9,
        most=10,
        settling=Settling(says, (MORPHINE, OLD), share(97), share(98, 40), without=(share(50, 64), share(80, 64))),
        coverage=share(4, 1_000),
        base=share(30, 1_000),
        flips=share(62),
        joint=JointEffect(0.31, 0.25, 0.37, 0.28, (influence(MORPHINE, 0.4321), influence(OLD, 0.1679))),
        threshold=0.6,
        rival=Settling(other, (ASPIRIN,), share(41)),
        of_class=says,
        mean_p=0.25,
        influences=(),
        questions=1_112,
    )
    return replace(settled, **changes)


def about(of_class: str = "no", **changes: Any) -> Explanation:
    """The same patient, and what speaks for and against another class, feature by feature."""
    influences = (
        influence(MORPHINE, 0.4321),
        influence(OLD, 0.2),
        influence(NO_WARD, 0.05, 0.06),
        influence(ASPIRIN, -0.1),
    )
    return explanation(**{"of_class": of_class, "mean_p": 0.75, "influences": influences, **changes})


def contested(*findings: Finding) -> Explanation:
    return explanation(verdict="contested", rival=Settling("no", findings, share(95)))


def printed(explanation: Explanation, width: int = 80, **how: Any) -> str:
    """The card as a terminal shows it, without colours."""
    return on_terminal(explanation_card(explanation, **how), width)


def on_terminal(card: RenderableType, width: int = 80) -> str:
    """Any card as a terminal shows it, without colours."""
    console = Console(file=StringIO(), width=width, no_color=True, force_terminal=True, legacy_windows=False)
    console.print(card)
    assert isinstance(console.file, StringIO)
    return re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
