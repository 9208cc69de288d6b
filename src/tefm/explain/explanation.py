"""`Explanation`: why the model gives one answer, in words, with the figures of the check.

It needs neither torch nor the libraries that read tables, so that a stored explanation can be shown anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tefm.explain.cards import Card, TextPart, plain, printable, quoted
from tefm.explain.counts import FEW, Corroboration, Observed, Share
from tefm.rationale.verify import Answer
from tefm.tables.references import Reference

#: Explained in `reasons`.
Outcome = Literal["settled", "contested", "unsettled", "default"]

#: Effects of each sign that a card shows.
SHOWN = 5
#: A smaller effect is not worth a line, and not worth a warning.
VISIBLE, DOUBTED = 0.001, 0.02


@dataclass(frozen=True)
class Finding:
    """A feature of one record, in words."""

    #: starts at 1
    record: int
    field: str
    #: its value as the table has it: a member of a set, a category; empty where there is none or several
    value: str
    words: str
    #: whether the record has no value there
    absent: bool = False
    #: what the user's references say about it
    references: tuple[Reference, ...] = ()
    #: how many features it counts as: the whole value of a set counts as many as it has members
    size: int = 1
    #: whether it is about a set: a member of it, or its whole value
    of_set: bool = False
    #: what the codes give back in its place, in words, empty where they give back nothing; None where they keep it
    decoded: str | None = None


@dataclass(frozen=True)
class Influence:
    """How much a feature raises the probability of a class, compared with others' values in its place."""

    finding: Finding
    #: with the ends of a 95% interval
    change: float
    low: float
    high: float
    #: training sequences of the class, with the feature and without it
    observed: Observed | None = None
    #: of a text, the words that matter most
    words: tuple[TextPart, ...] = ()

    @property
    def corroboration(self) -> Corroboration | None:
        """Whether the training data support the direction of the effect."""
        return None if self.observed is None else self.observed.corroborates(self.change > 0)

    @property
    def observation(self) -> str:
        """What was observed, or the words of a text that matter most; empty where nothing was counted."""
        if self.words:
            return "without " + ", ".join(f"“{part.words}” {-part.change:+.3f}" for part in self.words)
        return "" if self.observed is None else _observation(self.observed, self.corroboration, "it")


@dataclass(frozen=True)
class Settling:
    """Features of the sequence, and how often whoever shares them gets the same answer."""

    answer: str
    findings: tuple[Finding, ...]
    #: the share of the look-alikes that get the answer
    precision: Share
    #: training sequences of the class, with all of these features and without them
    observed: Observed | None = None

    @property
    def size(self) -> int:
        """The number of features."""
        return sum(finding.size for finding in self.findings)

    @property
    def observation(self) -> str:
        """What was observed where the features are present, in words; empty where nothing was counted."""
        if self.observed is None or not self.findings:
            return ""
        them = "it" if self.size == 1 else "them"
        return _observation(self.observed, self.observed.corroborates(True), them)


@dataclass(frozen=True, repr=False, kw_only=True)
class Explanation(Card):
    """Which features settle an answer, and what speaks for and against a class. Notebooks show it as a card."""

    kind: ClassVar[str] = "explanation"
    stored: ClassVar[tuple[str, ...]] = ("conclusion", "context", "risk")

    #: how many records the sequence has
    records: int
    answer: Answer
    verdict: Outcome
    #: whether the probability of the answer is clearly above the mean of the population; a default answer counts too
    distinct: bool
    #: the precision that settles an answer, and the number of features that may do so
    least: float
    most: int
    settling: Settling
    #: the share of the population that has these features, and that gets the same answer anyway
    coverage: Share
    base: Share
    #: how often the answer changes when these features are replaced
    flips: Share
    #: the features that come closest to settling another answer, where that was tried
    rival: Settling | None
    #: the class that the influences are about, and its mean probability in the population
    of_class: str
    mean_p: float
    influences: tuple[Influence, ...]
    #: look-alikes that the model was asked about
    questions: int

    # ---- in words ---------------------------------------------------------------------------------------------

    @property
    def verified(self) -> bool:
        """Whether the check has shown that the features settle the answer."""
        return self.verdict in ("settled", "contested")

    @property
    def relevant(self) -> bool:
        """Whether its features say something: a default answer needs none, and nor does one that is not distinct."""
        return self.distinct and self.verdict != "default"

    @property
    def title(self) -> str:
        """The sequence and its prediction."""
        return f"{self.entity} {self.sequence}: {self.named(self.answer.says)} (p = {self.answer.p:.2f})"

    @property
    def conclusion(self) -> str:
        """The verdict in one or two sentences, which claim no more than the check shows."""
        if self.verdict == "default":
            return (
                f"Default answer: the model answers {quoted(self.answer.says)} for {_percent(self.base.value)} of the "
                "population, so no feature is needed for it."
            )
        if not self.distinct:
            return (
                f"Unsettled: little sets this {self.entity} apart. The probability of {quoted(self.answer.says)}, "
                f"{self.answer.p:.2f}, is not clearly above the population’s average."
            )
        share = self.settling.precision
        checked = (
            f"of {share.of:,} look-alikes that share {_these(self.settling.size)} and have everything else from "
            f"another {self.entity}, {_percent(share.value)} get the same answer (at least {_percent(share.low)} with "
            "95% confidence)."
        )
        if self.verdict == "unsettled":
            features = "single feature" if self.most == 1 else f"set of up to {self.most} features"
            return f"Unsettled: no {features} was found that settles this answer. Best set found: {checked}"
        if self.rival is None or self.verdict == "settled":
            return f"Settled: {checked}"
        listed = "; ".join(self.placed(finding) for finding in self.rival.findings)
        one = self.rival.size == 1
        return (
            f"Contested: {checked} But {'another feature' if one else 'other features'} of the same {self.entity} "
            f"{'settles' if one else 'settle'} {quoted(self.rival.answer)} "
            f"({_percent(self.rival.precision.value)} of {self.rival.precision.of:,} look-alikes): {listed}."
        )

    @property
    def context(self) -> str:
        """How common the features and the answer are, and what happens without the features."""
        count = self.settling.size
        if not count or not self.relevant:
            return ""
        have = f"{_percent(self.coverage.value)} of the population have"
        if not self.coverage.count:
            have = f"None of {self.coverage.of:,} training sequences have"
        return (
            f"{have} {_these(count)}; {_percent(self.base.value)} of the population get this answer anyway. Replacing "
            f"{'it' if count == 1 else 'them'} with the values of others changes the answer in "
            f"{_percent(self.flips.value)} of cases."
        )

    @property
    def corroborated(self) -> str:
        """What the training data say of the settling features, as a sentence; empty where that is not relevant."""
        observation = self.settling.observation if self.relevant else ""
        return f"In the data, {quoted(self.answer.says)} was {observation}." if "observed" in observation else ""

    @property
    def risk(self) -> str:
        """The probability of the class in question, compared with that of the population."""
        p, mean = self.answer.probabilities[self.of_class], self.mean_p
        average = f"{mean:.2f}" if mean >= 0.01 else f"{mean:.1g}"  # 0.00 would look like never
        words = f"The probability of {quoted(self.of_class)} is {p:.2f}"
        if mean > 0 and p >= 2 * mean:
            return f"{words}, {p / mean:.1f} times the population’s average of {average}."
        return f"{words}; the population’s average is {average}."

    @property
    def supporting(self) -> tuple[Influence, ...]:
        """The features that raise the probability of the class most."""
        return self._strongest(1)

    @property
    def opposing(self) -> tuple[Influence, ...]:
        """The features that lower it most."""
        return self._strongest(-1)

    def _strongest(self, sign: int) -> tuple[Influence, ...]:
        """The largest effects of this sign that are visible and certain, the largest first."""
        certain = [of for of in self.influences if of.low > 0 or of.high < 0]
        visible = [of for of in certain if sign * of.change >= VISIBLE]
        return tuple(sorted(visible, key=lambda of: -sign * of.change)[:SHOWN])

    @property
    def shown(self) -> tuple[Influence, ...]:
        """The effects on the card, those for the class first."""
        return self.supporting + self.opposing

    def placed(self, finding: Finding) -> str:
        """A feature with its record, where there are several."""
        return finding.words + self.place(finding)

    def place(self, finding: Finding) -> str:
        """The record of a feature in brackets; empty where there is only one."""
        return f" ({self.record} {finding.record} of {self.records})" if self.records > 1 else ""

    @property
    def doubts(self) -> str:
        """A warning where the data contradict a feature that the model uses; empty where they do not."""
        large = [of for of in self.shown if abs(of.change) >= DOUBTED]
        listed = "; ".join(self.placed(of.finding) for of in large if of.corroboration == "contradicted")
        return f"The training data contradict the direction of: {listed}." if listed else ""

    @property
    def blurred(self) -> str:
        """The features on the card that the codes do not keep as they are; empty where they keep all."""
        cited = [of.finding for of in self.shown]
        if self.relevant:
            cited = [*self.settling.findings, *cited]
        lossy = {(of.record, of.words): of for of in cited if of.decoded is not None}
        listed = "; ".join(
            f"{self.placed(of)} ({f'read as {quoted(of.decoded)}' if of.decoded else 'lost'})" for of in lossy.values()
        )
        return f"The codes that the model reads blur: {listed}." if listed else ""

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of all references on the card, in the order of their numbers."""
        findings = [*self.settling.findings, *(of.finding for of in self.shown)]
        return tuple(dict.fromkeys(of.source for finding in findings for of in finding.references))

    def cited(self, finding: Finding) -> list[str]:
        """What references say about a feature, with the number of each source."""
        return [f"{of.statement} [{self.sources.index(of.source) + 1}]" for of in finding.references]

    @property
    def by_record(self) -> dict[str, list[Finding]]:
        """The settling features under the heading of their record."""
        by_heading: dict[str, list[Finding]] = {}
        for finding in sorted(self.settling.findings, key=lambda finding: finding.record):
            heading = f"{self.record.capitalize()} {finding.record} of {self.records}"
            by_heading.setdefault(heading, []).append(finding)
        return by_heading

    @property
    def unnamed(self) -> str:
        """The records without settling features, in words; empty if there are none."""
        named = {finding.record for finding in self.settling.findings}
        numbers = [number for number in range(1, self.records + 1) if number not in named]
        if not numbers or self.records == 1:
            return ""
        return f"None from {self.numbered(numbers)}."

    # ---- on its own -------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return printable(f"<Explanation {self.title}, {self.verdict}>")

    def __str__(self) -> str:
        features = "; ".join(self.placed(finding) for finding in self.settling.findings)
        shown = f"Features: {features}." if features and self.relevant else ""
        lines = [self.title, shown, self.conclusion, self.context, self.corroborated, self.risk]
        for heading, influences in (("For", self.supporting), ("Against", self.opposing)):
            listed = "; ".join(f"{self.placed(of.finding)} ({of.change:+.3f})" for of in influences)
            lines.append(f"{heading} {quoted(self.of_class)}: {listed}." if listed else "")
        return plain([*lines, self.doubts, self.blurred])


def _observation(observed: Observed, corroboration: Corroboration | None, them: str) -> str:
    if observed.having < FEW:
        return f"{observed.having or 'no'} training sequences have {them}: too few to tell"
    ratio, low, high = observed.relative_risk
    return (
        f"observed for {_percent(observed.share)} of {observed.having:,} training sequences with {them} and "
        f"{_percent(observed.other_share)} of the others (relative risk {ratio:.2g}, {low:.2g} to {high:.2g}): "
        f"{corroboration}"
    )


def _these(count: int) -> str:
    return {0: "no feature", 1: "this feature"}.get(count, f"these {count} features")


def _percent(share: float) -> str:
    """A share in whole percent; a small one that is not zero keeps a digit.

    >>> [_percent(share) for share in (0.9712, 0.004, 0.0, 1.0, 0.9996)]
    ['97%', '0.4%', '0%', '100%', '99.9%']
    """
    if 0 < share < 0.01:
        return f"{max(share, 0.001):.1%}"
    if 0.99 < share < 1:
        return f"{min(share, 0.999):.1%}"
    return f"{share:.0%}"
