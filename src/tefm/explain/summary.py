"""Many explanations at once: how many answers are settled, the rules that settle them, and the fields that matter."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tefm.explain.cards import Finding
from tefm.explain.counts import Share, exact_share
from tefm.explain.explanation import Explanation

#: At most this many rules and fields are listed.
LISTED = 10
RULES = (
    "The rules that most of the population satisfy. Precision: the share of made-up cases with the same answer. "
    "New: real cases that satisfy no rule above it with the same answer; a rule without any is not listed."
)
RULE_COLUMNS = ("rule", "answer", "precision", "real cases", "explained sequences")
FIELDS = "How much a field raises or lowers p, compared with others' values in its place: means over the explained ones"
FIELD_COLUMNS = ("class", "field", "raises p by", "lowers p by")


@dataclass(frozen=True)
class Rule:
    """Conditions that settle an answer, for everyone who satisfies them."""

    answer: str
    features: tuple[str, ...]
    #: of its made-up cases, those that get the answer; of the population, those that satisfy it; and of those again
    precision: Share
    coverage: Share
    real: Share
    #: explained sequences with this rule
    sequences: int
    #: of the population, those that satisfy it and no rule above it with the same answer; None where nobody looked
    new: Share | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of `RULE_COLUMNS`."""
        precision = f"{self.precision.value:.1%} [{self.precision.low:.1%}, {self.precision.high:.1%}]"
        real = f"{self.coverage.value:.1%}" + (f" ({self.new.value:.1%} new)" if self.new is not None else "")
        real += f", {self.real.value:.0%} the same answer" if self.real.of else ""
        return "; ".join(self.features), self.answer, precision, real, f"{self.sequences:,}"


@dataclass(frozen=True)
class FieldEffect:
    """How much the values of a field move the probability of a class, on average over the explained sequences."""

    field: str
    of_class: str
    #: mean change, of those that raise it and of those that lower it, over all sequences
    raised: float
    lowered: float

    @property
    def total(self) -> float:
        return self.raised - self.lowered

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of `FIELD_COLUMNS`."""
        return self.of_class, self.field, f"{self.raised:.3f}", f"{abs(self.lowered):.3f}"


@dataclass(frozen=True)
class Summary:
    """What many explanations have in common."""

    explained: int
    #: how many have each verdict
    verdicts: dict[str, int]
    #: features of the settled and contested ones
    median_features: float | None
    #: those that most of the population satisfy first
    rules: tuple[Rule, ...]
    #: the strongest fields of each class first
    fields: tuple[FieldEffect, ...]

    @property
    def sentence(self) -> str:
        """The verdicts in words."""
        counts = [f"{count:,} {verdict}" for verdict, count in self.verdicts.items()]
        median_size = self.median_features
        size = "" if median_size is None else f"; median number of settling features: {median_size:g}"
        return f"{self.explained:,} answer{'' if self.explained == 1 else 's'} explained: {', '.join(counts)}{size}."

    @property
    def tables(self) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
        """The rules and the fields, where there are some: the title, the columns and the rows of each."""
        parts = ((RULES, RULE_COLUMNS, self.rules), (FIELDS, FIELD_COLUMNS, self.fields))
        return [(title, columns, [one.cells for one in listed]) for title, columns, listed in parts if listed]


def summarise(explanations: Sequence[Explanation], cases_ES: Sequence[NDArray[np.bool_]] = ()) -> Summary:
    """Rules and fields of these explanations; `cases_ES` are the training sequences that satisfy the rule of each.

    With them, rules that add no training sequence to those above them are left out.
    """
    verified = [one for one in explanations if one.verified]
    sizes = [one.settling.size for one in verified]
    # a single record is the last one where others have several
    several = any(one.records > 1 for one in explanations)
    by_rule: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    for number, one in enumerate(explanations):
        if one.verified:
            features = sorted(f.words + (_place(one, f) if several else "") for f in one.settling.findings)
            by_rule[one.answer.says, tuple(features)].append(number)
    found: list[tuple[Rule, NDArray[np.bool_] | None]] = []
    for (answer, words), same in by_rule.items():
        one = explanations[same[0]]
        rule = Rule(answer, words, one.settling.precision, one.coverage, one.settling.real, len(same))
        found.append((rule, cases_ES[same[0]] if len(cases_ES) else None))
    found.sort(key=lambda pair: (-pair[0].coverage.value, -pair[0].sequences, pair[0].features))
    return Summary(
        len(explanations),
        dict(Counter(one.verdict for one in explanations).most_common()),
        float(median(sizes)) if sizes else None,
        tuple(islice(_adding(found), LISTED)),
        _fields(explanations),
    )


def _adding(rules: Sequence[tuple[Rule, NDArray[np.bool_] | None]]) -> Iterator[Rule]:
    """The rules that training sequences satisfy which satisfy no earlier rule with the same answer."""
    covered: dict[str, NDArray[np.bool_]] = {}
    for rule, has_S in rules:
        if has_S is None:
            yield rule
            continue
        before_S = covered.get(rule.answer, np.zeros_like(has_S))
        covered[rule.answer] = before_S | has_S
        if (has_S & ~before_S).any():
            yield replace(rule, new=exact_share(int((has_S & ~before_S).sum()), len(has_S)))


def _place(one: Explanation, finding: Finding) -> str:
    """The records of a condition; a single record is the last one of others."""
    return replace(one, records=max(2, one.records)).place(replace(finding, record=finding.record + (one.records == 1)))


def _fields(explanations: Sequence[Explanation]) -> tuple[FieldEffect, ...]:
    raised: dict[tuple[str, str], float] = defaultdict(float)
    lowered: dict[tuple[str, str], float] = defaultdict(float)
    sequences = Counter(one.of_class for one in explanations)
    for one in explanations:
        for influence in one.effects:
            (raised if influence.change > 0 else lowered)[one.of_class, influence.finding.field] += influence.change
    effects = []
    for of_class, field in sorted({*raised, *lowered}):
        key, count = (of_class, field), sequences[of_class]
        effects.append(FieldEffect(field, of_class, raised[key] / count, lowered[key] / count))
    effects.sort(key=lambda effect: (effect.of_class, -effect.total))
    return tuple(effect for _, of in groupby(effects, lambda effect: effect.of_class) for effect in islice(of, LISTED))
