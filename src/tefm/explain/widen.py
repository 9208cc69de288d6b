"""From the very values of a sequence to a rule that many share: every condition is widened while the precision holds.

The surrogate judges made-up cases. For each condition, it answers for each value that the field could have instead: the
values that keep the answer can become the condition, a range of numbers or several categories. A condition can also be
met in any of the last records, or at some time, instead of in one of them; or be dropped. Of these moves, the one that
makes its condition most common for the precision that it costs comes first.

Shapes: C rules, U values of a field, B donors, T records, D slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from tefm.explain.conditions import Condition, Rule, cells_of
from tefm.explain.population import Population
from tefm.explain.settle import Search

#: Donors that say what a change of one condition does.
PROFILED = 64
#: At most this many values of a field are tried, the most frequent ones.
TRIED = 40
#: A single value of a condition may be so much less precise than all of them together: few donors judge each.
UNEVEN = 0.1
#: A move that costs less precision than this counts as one that costs so much.
SLIGHT = 0.01


@dataclass(frozen=True)
class Move:
    """A wider rule: how much more common one condition is (in logarithms), and the precision that is expected."""

    rule: Rule
    gain: float
    expected: float

    def worth(self, now: float) -> float:
        """The gain for the precision that it costs."""
        return self.gain / (max(0.0, now - self.expected) + SLIGHT)


@dataclass(frozen=True, eq=False)
class Profile:
    """What the surrogate answers where one condition of a rule is changed, and the rest of it holds."""

    #: of the rule as it was then
    base: float
    #: values of the field, how often each keeps the answer, and how many training records have it
    values: NDArray[np.int64]
    precision_U: NDArray[np.float64]
    weight_U: NDArray[np.float64]
    #: the condition at other times, or None for its removal, with the precision then
    others: tuple[tuple[Condition | None, float], ...]


@dataclass(frozen=True, eq=False)
class Widening:
    """The widening of rules of one sequence on the surrogate."""

    search: Search
    population: Population
    #: which slots are numbers, or flags
    number_D: NDArray[np.bool_]
    flag_D: NDArray[np.bool_]

    def precision(self, rules: Sequence[Rule], donors: int | None = None) -> NDArray[np.float64]:
        """How often made-up cases of each rule get the answer, as the surrogate sees it, of all donors or the first."""
        trial = self.search.trial
        x_CBTD = np.stack([self.population.satisfying(rule, trial.donors_BTD[:donors]) for rule in rules])
        texts = [[condition for condition in rule if condition.text is not None] for rule in rules]
        return self.search.precision(x_CBTD, np.stack([cells_of(of, trial.x_TD, trial.shape) for of in texts]))

    def widened(self, rule: Rule, enough: float) -> Rule:
        """The rule with the most common conditions that was found precise enough."""
        now = float(self.precision([rule])[0])
        profiles: dict[Condition, Profile] = {}
        tried = set()
        while True:
            moves = [move for at in range(len(rule)) for move in self._moves(rule, at, now, enough, profiles)]
            moves = [move for move in moves if move.rule not in tried and move.gain > 0 and move.expected >= enough]
            if not moves:
                return self._ordered(rule, enough)
            best = max(moves, key=lambda move: move.worth(now))
            tried.add(best.rule)
            precision = float(self.precision([best.rule])[0])
            if precision >= enough:
                rule, now = best.rule, precision

    def _ordered(self, rule: Rule, enough: float) -> Rule:
        """The rule with two conditions on one field put as an order, where that is more common: none after the last."""
        for all_of, one_of in permutations(rule, 2):
            if all_of.slots == one_of.slots and not all_of.anywhere and len(one_of.values) == 1 and not one_of.text:
                slot, value, x_TD = all_of.slots[0], one_of.values[0], self.search.trial.x_TD
                since = int((x_TD[::-1, slot] == value).argmax())
                order = replace(all_of, back=0, span=since, after=(slot, value))
                holds = np.isin(x_TD[len(x_TD) - since :, slot], all_of.values).all()
                merged = (*(condition for condition in rule if condition not in (all_of, one_of)), order)
                wider = self.population.has(merged).sum() > self.population.has(rule).sum()
                if holds and wider and self.precision([merged])[0] >= enough:
                    return self.widened(merged, enough)
        return rule

    def _moves(
        self, rule: Rule, at: int, now: float, enough: float, profiles: dict[Condition, Profile]
    ) -> Iterator[Move]:
        """What can become of one condition; its profile is asked for once."""
        condition = rule[at]
        key = replace(condition, values=())
        if key not in profiles:
            profiles[key] = self._profile(rule, at)
        profile, common = profiles[key], self._common(condition)
        for other, precision in profile.others:
            if other is not None:
                other = replace(other, values=condition.values)
                yield Move(_with(rule, at, other), self._common(other) - common, now + precision - profile.base)
            elif len(rule) > 1:
                yield Move((*rule[:at], *rule[at + 1 :]), -common, now + precision - profile.base)
        if not len(profile.values):
            return
        own_U = np.isin(profile.values, condition.values)
        own = float(np.average(profile.precision_U[own_U], weights=profile.weight_U[own_U]))
        wider = _range if self.number_D[condition.slots[0]] else _several
        for target in (enough, (enough + now) / 2):
            for chosen in wider(profile.precision_U, profile.weight_U, own_U, target - now + own):
                values = replace(condition, values=tuple(profile.values[chosen].tolist()))
                mean = np.average(profile.precision_U[chosen], weights=profile.weight_U[chosen])
                yield Move(_with(rule, at, values), self._common(values) - common, now + float(mean) - own)

    def _profile(self, rule: Rule, at: int) -> Profile:
        condition = rule[at]
        times = list(_at_other_times(condition, len(self.search.trial.x_TD)))
        values = self._values(condition)
        rules = [_with(rule, at, of) for of in (*times, *(replace(condition, values=(value,)) for value in values))]
        removed = [(*rule[:at], *rule[at + 1 :])] if len(rule) > 1 else []
        base, *precision_C = self.precision([rule, *removed, *rules], PROFILED)
        others = [*[None] * len(removed), *times]
        weight_V = self.population.weights(condition.slots[0]) if values else np.zeros(0)
        weight_U = np.array([weight_V[value] if value < len(weight_V) else 0 for value in values]) + 1e-9
        return Profile(
            float(base),
            np.array(values, dtype=np.int64),
            np.array(precision_C[len(others) :]),
            weight_U,
            tuple(zip(others, precision_C, strict=False)),
        )

    def _values(self, condition: Condition) -> list[int]:
        """The values that a condition on a single slot could have: its own, and the most frequent ones."""
        slot, own = condition.slots[0], set(condition.values)
        if condition.text is not None:
            return []
        number = bool(self.number_D[slot])
        if len(condition.slots) > 1 or self.flag_D[slot] or (number and 0 in own):
            return []
        weight_V = self.population.weights(slot)
        common = [v for v in np.argsort(-weight_V, kind="stable").tolist() if weight_V[v] and (v or not number)]
        return sorted({*own, *common[:TRIED]})

    def _common(self, condition: Condition) -> float:
        """The logarithm of the share of the population that satisfies a condition."""
        count = int(self.population.has((condition,)).sum())
        return math.log((count + 1) / (len(self.population) + 1))


def _range(
    precision_U: NDArray[np.float64], weight_U: NDArray[np.float64], own_U: NDArray[np.bool_], enough: float
) -> list[list[int]]:
    """The heaviest ranges of values around the own ones that are precise enough, the heaviest first.

    >>> _range(np.array([0.2, 0.9, 1, 1, 1]), np.ones(5), np.arange(5) == 3, 0.95)[0]
    [1, 2, 3, 4]
    """
    first, last = np.flatnonzero(own_U)[[0, -1]].tolist()
    pairs = [(low, high + 1) for low in range(first + 1) for high in range(last, len(own_U))]
    fine = [
        (float(weight_U[low:end].sum()), low, end)
        for low, end in pairs
        if np.average(precision_U[low:end], weights=weight_U[low:end]) >= enough
        and precision_U[low:end].min() >= enough - UNEVEN
    ]
    return [list(range(low, end)) for _, low, end in sorted(fine, reverse=True)[:3]]


def _several(
    precision_U: NDArray[np.float64], weight_U: NDArray[np.float64], own_U: NDArray[np.bool_], enough: float
) -> list[list[int]]:
    """The own values, and the others that keep the answer while all together are precise enough.

    >>> _several(np.array([0.2, 0.97, 1, 0.9]), np.ones(4), np.arange(4) == 2, 0.95)
    [[1, 2, 3]]
    """
    chosen = np.flatnonzero(own_U).tolist()
    others = [u for u in np.argsort(-precision_U, kind="stable").tolist() if not own_U[u]]
    for u in others:
        more = [*chosen, u]
        if precision_U[u] < enough - UNEVEN or np.average(precision_U[more], weights=weight_U[more]) < enough:
            break
        chosen = more
    return [sorted(chosen)]


def _at_other_times(condition: Condition, length: int) -> Iterator[Condition]:
    """A condition met in any of the last records, or at some time; or in the last one, not in all."""
    if length == 1 or condition.text is not None or condition.after is not None:
        return
    if condition.back:
        yield replace(condition, back=0, span=condition.back + 1, anywhere=True)
    if condition.span != 1:
        yield replace(condition, span=1, anywhere=False)
    if not condition.anywhere:
        yield replace(condition, back=0, span=None, anywhere=True)


def _with(rule: Rule, at: int, condition: Condition) -> Rule:
    return (*rule[:at], condition, *rule[at + 1 :])
