"""`Explanation`: why the model gives one answer, in words, with the figures of the check.

It needs neither torch nor the libraries that read tables, so that a stored explanation can be shown anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tefm.explain.cards import Card, Finding, TextPart, plain, printable, quoted
from tefm.explain.counts import FEW, NONE, Corroboration, Observed, Share
from tefm.explain.trajectory import Trajectory
from tefm.rationale.verify import Answer

#: Explained in `reasons`.
Outcome = Literal["settled", "real only", "made-up only", "contested", "unsettled", "default"]

#: Effects of each sign that a card shows.
SHOWN = 5
#: A smaller effect is not worth a line, and not worth a warning.
VISIBLE, DOUBTED = 0.001, 0.02


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
    def interval(self) -> str:
        """The interval in words; one without any width is none."""
        return f"{self.low:+.3f} to {self.high:+.3f}" if self.high > self.low else "the same with all others’ values"

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
    """A rule that holds for the sequence, and how often whoever satisfies it gets the same answer."""

    answer: str
    findings: tuple[Finding, ...]
    #: the share of the made-up cases that get the answer
    precision: Share
    #: the share of the real cases that get it, of those that the model was asked about
    real: Share = NONE
    #: training sequences of the class, with all of these conditions and without them
    observed: Observed | None = None
    #: the share of the made-up cases that get it without each of the conditions; empty where that was not asked
    without: tuple[Share, ...] = ()

    @property
    def size(self) -> int:
        """The number of conditions."""
        return len(self.findings)


@dataclass(frozen=True)
class JointEffect:
    """What becomes of the probability of the answer when the fields of the rule are taken from others."""

    #: the probability then, with the ends of a 95% interval
    without: float
    low: float
    high: float
    #: the mean probability in the population
    everyone: float
    #: the part of each condition in the difference; they sum to it
    shares: tuple[Influence, ...]


@dataclass(frozen=True)
class Sensitive:
    """What the answer would be if a sensitive field had the values of others, and all else stayed."""

    title: str
    #: the field, and what is computed from it
    fields: tuple[str, ...]
    #: how often it stays the same; of nothing where no one has other values
    same: Share
    #: the lowest and the highest probability of the answer
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True)
class SimilarCase:
    """A real training sequence that satisfies the rule and is like the explained one."""

    answer: Answer
    #: the class that was observed, where it has a label
    observed: str | None
    records: int
    #: from 0 to 1: the same
    likeness: float
    #: its values that the explained sequence does not have, and how many more there are
    differs: tuple[Finding, ...]
    more: int = 0

    @property
    def title(self) -> str:
        """How like it is, the model's answer, and what was observed."""
        observed = f"observed {quoted(self.observed)}" if self.observed is not None else "nothing observed"
        return f"{_percent(self.likeness)} alike: {quoted(self.answer.says)} (p = {self.answer.p:.2f}), {observed}"


@dataclass(frozen=True, repr=False, kw_only=True)
class Explanation(Card):
    """Which features settle an answer, and what speaks for and against a class. Notebooks show it as a card."""

    kind: ClassVar[str] = "explanation"
    stored: ClassVar[tuple[str, ...]] = ("conclusion", "made_up", "real", "effect", "opposite", "risk", "other_values")

    answer: Answer
    verdict: Outcome
    #: whether the probability of the answer is clearly above the mean of the population; a default answer counts too
    distinct: bool
    #: the precision that settles an answer, and the number of conditions that may do so
    least: float
    most: int
    settling: Settling
    #: the share of the training sequences that satisfy the rule, and of the population that gets this answer anyway
    coverage: Share
    base: Share
    #: how often the answer changes when the fields of the rule are taken from others
    flips: Share = NONE
    joint: JointEffect | None = None
    #: the probability from which the model gives this answer, where that is a threshold of its own
    threshold: float | None = None
    #: the probability of the answer at the shares that the classes have in the data, where the model knows others
    real_world: float | None = None
    #: the rule that comes closest to settling another answer, where that was tried
    rival: Settling | None
    #: the class that the influences are about, and its mean probability in the population
    of_class: str
    mean_p: float
    influences: tuple[Influence, ...]
    sensitive: tuple[Sensitive, ...] = ()
    #: the nearest real cases of the rule; None where nobody asked
    similar: tuple[SimilarCase, ...] | None = None
    #: made-up cases that the model was asked about
    questions: int
    #: its fields over time; None for a single record
    trajectory: Trajectory | None = None

    # ---- in words ---------------------------------------------------------------------------------------------

    @property
    def verified(self) -> bool:
        """Whether made-up cases, real ones or both have shown that the rule settles the answer."""
        return self.verdict in ("settled", "real only", "made-up only", "contested")

    @property
    def relevant(self) -> bool:
        """Whether its rule says something: a default answer needs none, and nor does one that is not distinct."""
        return self.distinct and self.verdict != "default"

    @property
    def title(self) -> str:
        """The sequence and its prediction."""
        threshold = "" if self.threshold is None else f", threshold {self.threshold:.2f}"
        return f"{self.entity} {self.sequence}: {self.named(self.answer.says)} (p = {self.answer.p:.2f}{threshold})"

    @property
    def conclusion(self) -> str:
        """The verdict in a sentence, which claims no more than the checks show."""
        says = quoted(self.answer.says)
        if self.verdict == "default":
            return (
                f"Default answer: the model answers {says} for {_percent(self.base.value)} of the population, so no "
                "rule is needed for it."
            )
        if not self.distinct:
            return (
                f"Unsettled: little sets this {self.entity} apart. The probability of {says}, {self.answer.p:.2f}, is "
                "not clearly above the population’s average."
            )
        size = self.settling.size
        rule = {0: "no condition", 1: "this condition"}.get(size, f"these {size} conditions")
        if self.verdict == "unsettled":
            conditions = "single condition" if self.most == 1 else f"rule of up to {self.most} conditions"
            return f"Unsettled: no {conditions} settles this answer. The best one found:"
        if self.verdict == "settled":
            return f"Settled: whoever meets {rule} gets the answer {says}."
        if self.verdict == "made-up only":
            return f"Settled for made-up cases only: {rule}; real cases do not show it."
        if self.verdict == "real only":
            return f"Settled for real cases only: {rule}; where everything else is from others, they are not enough."
        assert self.rival is not None, "what contests it"
        listed = "; ".join(self.placed(finding) for finding in self.rival.findings)
        settle = "settles" if self.settling.size == 1 else "settle"
        rival = quoted(self.rival.answer)
        return f"Contested: {rule} {settle} {says}, but others of the same {self.entity} settle {rival}: {listed}."

    @property
    def opposite(self) -> str:
        """Whether another answer can be settled from the same sequence, as a sentence."""
        if self.verdict == "contested":
            return ""  # the conclusion says so
        if self.rival is None or self.rival.precision.low < self.least or not self.rival.findings:
            other = next((name for name in self.classes if name != self.answer.says), "")
            name = quoted(other) if len(self.classes) == 2 else "another answer"
            return f"Opposite answer: not contested; no rule here settles {name}."
        listed = "; ".join(self.placed(finding) for finding in self.rival.findings)
        return f"Opposite answer: {quoted(self.rival.answer)} is settled by: {listed}."

    @property
    def balanced(self) -> str:
        """What the probability would be in the real world, where the model knows a balanced one; else empty."""
        if self.real_world is None:
            return ""
        return f"The classes were balanced for this model: at their real shares, p = {_small(self.real_world)}."

    @property
    def effects(self) -> tuple[Influence, ...]:
        """What raises or lowers the class in question: the shares of the rule, or single features."""
        return self.joint.shares if self.joint is not None and self.of_class == self.answer.says else self.influences

    @property
    def made_up(self) -> str:
        """What made-up cases of the rule get, as a sentence."""
        share = self.settling.precision
        if not self.relevant or not share.of:
            return ""
        return (
            f"Made-up cases (the rule, and everything else from another {self.entity}): {_percent(share.value)} of "
            f"{share.of:,} get this answer (at least {_percent(share.low)} with 95% confidence), as do "
            f"{_percent(self.base.value)} of all."
        )

    @property
    def real(self) -> str:
        """How many real cases there are, what the model says of them, and what was observed, as a sentence."""
        share, has = self.settling.real, self.coverage
        if not self.relevant or not self.settling.findings:
            return ""
        if not share.of:
            return f"Real cases: none of {has.of:,} training sequences."
        told = f"Real cases: {has.count:,} of {has.of:,} training sequences ({_percent(has.value)})"
        if share.of < FEW:
            return f"{told}, too few to tell; {share.count:,} of them get this answer."
        asked = f" of {share.of:,} that the model was asked about" if share.of < has.count else ""
        says = f"{_percent(share.value)}{asked} get this answer (at least {_percent(share.low)})"
        return f"{told}; {says}{self._outcome}."

    @property
    def _outcome(self) -> str:
        of = self.settling.observed
        if of is None or not of.having:
            return ""
        others = f"{_percent(of.other_share)} of the others" if of.others else "no others"
        return f"; {quoted(self.answer.says)} was observed for {_percent(of.share)} of them and {others}"

    @property
    def effect(self) -> str:
        """The joint effect of the rule, as a sentence."""
        if self.joint is None or not self.relevant:
            return ""
        levels = "; ".join(f"{words} {p:.2f}" for words, p in self.levels)
        return (
            f"The probability of {quoted(self.answer.says)}: {levels}. With others’ values, the answer changes in "
            f"{_percent(self.flips.value)} of cases."
        )

    @property
    def levels(self) -> list[tuple[str, float]]:
        """The probability of the answer: of the sequence, without its rule, and of everybody."""
        if self.joint is None:
            return []
        without, everybody = "with others’ values in its fields", "everybody’s average"
        return [("with the rule", self.answer.p), (without, self.joint.without), (everybody, self.joint.everyone)]

    @property
    def other_values(self) -> str:
        """What the answer would be with other values of the sensitive fields, as a sentence."""
        says = quoted(self.answer.says)
        told = [
            f"with another {of.title}: {says} for {_percent(of.same.value)} of {of.same.of}, p {of.low:.2f} to "
            f"{of.high:.2f}"
            for of in self.sensitive
            if of.same.of
        ]
        told += [f"no one has another {of.title}" for of in self.sensitive if not of.same.of]
        return f"Sensitive fields: {'; '.join(told)}." if told else ""

    @property
    def similar_cases(self) -> str:
        """What the similar cases are, as a heading; empty where nobody asked for them."""
        if self.similar is None:
            return ""
        rule = " that satisfy the rule" if self.settling.findings else ""
        return f"{'Most similar' if self.similar else 'No'} training sequences{rule}"

    def differences(self, case: SimilarCase) -> list[str]:
        """What a similar case has that this sequence does not have, in words."""
        told = [] if case.records == self.records else [f"{case.records} {self.record}{'s' * (case.records > 1)}"]
        told += map(self.placed, case.differs)
        return [*told, *([f"{case.more} more values"] if case.more else [])] or ["the same in all fields"]

    @property
    def risk(self) -> str:
        """The probability of the class in question, compared with that of the population."""
        p, mean = self.answer.probabilities[self.of_class], self.mean_p
        average = _small(mean)
        words = f"The probability of {quoted(self.of_class)} is {p:.2f}"
        if mean > 0 and p >= 2 * mean:
            return f"{words}, {p / mean:.1f} times the population’s average of {average}."
        return f"{words}; the population’s average is {average}."

    @property
    def turn(self) -> str:
        """When the model came to its answer, as a sentence; empty where there is only one record."""
        if self.trajectory is None or self.trajectory.since is None:
            return ""
        since, says = self.trajectory.since, quoted(self.answer.says)
        if since == self.trajectory.first:
            return f"The model answers {says} after {self.record} {since} and after each one that follows."
        return f"The model has answered {says} since {self.record} {since} of {self.records}."

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

    def place(self, finding: Finding) -> str:
        """The records of a condition in brackets, counted from the last one; and whether its field is sensitive."""
        is_sensitive = any(finding.field in of.fields for of in self.sensitive)
        notes = [*self.when(finding), *(["sensitive"] if is_sensitive else [])]
        return f" ({', '.join(notes)})" if notes else ""

    @property
    def doubts(self) -> str:
        """A warning where the data contradict a feature that the model uses; empty where they do not."""
        shares = self.joint.shares if self.joint is not None and self.relevant else ()
        large = [of for of in (*shares, *self.shown) if abs(of.change) >= DOUBTED]
        contradicted = dict.fromkeys(self.placed(of.finding) for of in large if of.corroboration == "contradicted")
        listed = "; ".join(contradicted)
        return f"The training data contradict the direction of: {listed}." if listed else ""

    @property
    def lossy(self) -> list[Finding]:
        """The features on the card that the codes do not keep as they are."""
        cited = [*(self.settling.findings if self.relevant else ()), *(of.finding for of in self.shown)]
        return list({(of.record, of.words): of for of in cited if of.decoded is not None}.values())

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of all references on the card, in the order of their numbers."""
        findings = [*self.settling.findings, *(of.finding for of in self.shown)]
        return tuple(dict.fromkeys(of.source for finding in findings for of in finding.references))

    def cited(self, finding: Finding) -> list[str]:
        """What references say about a feature, with the number of each source."""
        return [f"{of.statement} [{self.sources.index(of.source) + 1}]" for of in finding.references]

    def to_json(self) -> dict[str, Any]:
        """Plain types for `from_json`, without what nobody asked for."""
        unasked = {"similar"} if self.similar is None else set()
        unasked |= set() if self.sensitive else {"sensitive", "other_values"}
        return {name: value for name, value in super().to_json().items() if name not in unasked}

    # ---- on its own -------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return printable(f"<Explanation {self.title}, {self.verdict}>")

    def __str__(self) -> str:
        features = "; ".join(map(self.placed, self.settling.findings))
        shown = f"Rule: {features}." if features and self.relevant else ""
        checks = [self.made_up, self.real, self.effect, self.opposite, self.balanced, self.other_values]
        lines = [self.title, shown, self.conclusion, *checks]
        if self.shown:
            lines.append(self.risk)
        for case in self.similar or ():
            lines.append(f"{case.title}; {'; '.join(self.differences(case))}.")
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
        f"{_percent(observed.other_share)} of the others (relative risk {ratio:.3g}, {low:.3g} to {high:.3g}): "
        f"{corroboration}"
    )


def _small(p: float) -> str:
    """A probability in two digits; one that is not zero does not look like it.

    >>> _small(0.214), _small(0.0021)
    ('0.21', '0.002')
    """
    return f"{p:.2f}" if p >= 0.01 else f"{p:.1g}"


def _percent(share: float) -> str:
    """A share in whole percent; a small one that is not zero keeps a digit.

    >>> [_percent(share) for share in (0.9712, 0.004, 0.00004, 0.0, 1.0, 0.9996)]
    ['97%', '0.4%', '<0.1%', '0%', '100%', '99.9%']
    """
    if 0 < share < 0.01:
        return f"{share:.1%}" if share >= 0.0005 else "<0.1%"
    if 0.99 < share < 1:
        return f"{min(share, 0.999):.1%}"
    return f"{share:.0%}"
