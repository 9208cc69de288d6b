"""`Rationale`: the features selected for one prediction, in words, with the model's answers with and without them.

It mentions selected features only, since only those were checked. A stored rationale is shown without torch and the
libraries that read tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tefm.explain.cards import Card, Finding, plain, printable, quoted
from tefm.rationale.verify import MARGIN, Answer, Verification


@dataclass(frozen=True)
class Retention:
    """How many slots were selected, how many have a value, and how many there are."""

    kept: int
    present: int
    slots: int


@dataclass(frozen=True, repr=False, kw_only=True)
class Rationale(Card, Verification):
    """The few features that give the same prediction on their own, and the model's answers with and without them."""

    kind: ClassVar[str] = "rationale"
    stored: ClassVar[tuple[str, ...]] = ("text", "conclusion", "passed", "sufficiency", "comprehensiveness")

    retention: Retention
    #: the selected features, record by record
    findings: tuple[Finding, ...]

    # ---- in words ---------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """The sequence and its prediction."""
        return f"{self.entity} {self.sequence}: {self.named(self.predicted)} (p = {self.full.p:.2f})"

    @property
    def predicted(self) -> str:
        """The class predicted from all features."""
        return self.full.says

    @property
    def kept(self) -> str:
        """How many features were selected, in words."""
        counts = self.retention
        return (
            f"{counts.kept:,} of {counts.present:,} recorded features ({counts.kept / max(counts.present, 1):.1%}), "
            f"out of {counts.slots:,} possible ({counts.kept / max(counts.slots, 1):.1%})"
        )

    @property
    def text(self) -> str:
        """All selected features in words."""
        return f"{'; '.join(map(self.placed, self.findings)) or 'No features selected'}."

    @property
    def lossy(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.decoded is not None]

    # ---- the check --------------------------------------------------------------------------------------------

    @property
    def answers(self) -> list[tuple[str, Answer]]:
        """What the model was given, and what it answered."""
        return [
            ("all features", self.full),
            ("only the selected features", self.alone),
            ("all other features", self.without),
            ("no features", self.nothing),
        ]

    @property
    def check(self) -> str:
        """The result of the check in a few words."""
        results = {
            "sufficient": "the selected features are sufficient",
            "default": "default answer",
            "insufficient": "the selected features are not sufficient",
        }
        return f"check {'passed' if self.passed else 'not passed'}: {results[self.verdict]}"

    @property
    def conclusion(self) -> str:
        """The result of the check in full sentences, which claim no more than the check shows."""
        predicted, nothing = quoted(self.predicted), self.nothing.probabilities[self.predicted]
        if self.verdict == "default":
            return (
                f"Default answer: the model also predicts {predicted} with no features (p = {nothing:.2f}, with all "
                f"features {self.full.p:.2f}), so no features can be shown to support it."
            )
        if not self.retention.kept:
            return (
                "No features were selected; with no features the model predicts "
                f"{quoted(self.nothing.says)} (p = {self.nothing.p:.2f})."
            )
        features = "this feature" if self.retention.kept == 1 else f"these {self.retention.kept:,} features"
        if self.alone.says != self.predicted:
            return (
                f"With only {features} the model predicts {quoted(self.alone.says)} (p = {self.alone.p:.2f}), "
                f"not {predicted} as with all features (p = {self.full.p:.2f})."
            )
        same = f"With only {features} the model gives the same answer, {predicted} (p = {self.alone.p:.2f})"
        if self.verdict == "insufficient" and self.full.p - nothing < MARGIN:
            return (
                f"{same}, but all features together raise p by less than {MARGIN}: it is {nothing:.2f} with no "
                f"features and {self.full.p:.2f} with all."
            )
        if self.verdict == "insufficient":
            return (
                f"{same}, but less surely: p is {nothing:.2f} with no features and {self.full.p:.2f} with all, and the "
                "selected features give less than half of that increase."
            )
        them, are = ("it", "it is") if self.retention.kept == 1 else ("them", "they are")
        answer = f"{quoted(self.without.says)} (p = {self.without.p:.2f})"
        if self.without.says != self.predicted:
            return f"{same}; without {them} the model predicts {answer}."
        return (
            f"{same}. Without {them} the model still predicts {answer}: {are} sufficient for this answer, but not "
            "needed."
        )

    @property
    def measures(self) -> str:
        """The two usual measures, with what they mean."""
        return (
            f"Sufficiency {self.sufficiency:z.3f}, comprehensiveness {self.comprehensiveness:z.3f}: how much p falls "
            "with only the selected features, and without them."
        )

    # ---- on its own -------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        counts = self.retention
        selected = f"{counts.kept:,} of {counts.present:,} features selected"
        return printable(f"<Rationale {self.title}, {selected}, {self.verdict}>")

    def __str__(self) -> str:
        return plain([self.title, f"Selected: {self.kept}.", self.text, self.conclusion])
