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
from dataclasses import dataclass, field, replace
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from tefm.explain.conditions import Condition, Rule, cells_of
from tefm.explain.population import Population
from tefm.explain.settle import Search
from tefm.tables.layout import Layout

#: Donors that say what a change of one condition does.
PROFILED = 64
#: At most this many values of a field are tried, the most frequent ones.
TRIED = 40
#: A single value of a condition may be so much less precise than all of them together: few donors judge each.
UNEVEN = 0.1
#: A move that costs less precision than this counts as one that costs so much.
SLIGHT = 0.01


#: How much more common a wider rule makes one condition (in logarithms), the precision that is expected, and the rule.
Move = tuple[float, float, Rule]
#: By how much the precision differs where one condition is another one, or is met at other times (without values), or
#: is dropped (None), and the rest of the rule holds.
Profile = dict[Condition | None, float]


@dataclass(frozen=True, eq=False)
class Widening:
    """The widening of rules of one sequence on the surrogate."""

    search: Search
    population: Population
    layout: Layout
    #: how many members of the population satisfy a condition: most are asked about in every round
    _counts: dict[Condition, int] = field(default_factory=dict)

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
            moves = [of for of in moves if of[0] > 0 and of[1] >= enough and of[2] not in tried]
            if not moves:
                return self._ordered(rule, enough)
            # the one that gains most for the precision that it costs
            best = max(moves, key=lambda of: of[0] / (max(0.0, now - of[1]) + SLIGHT))[2]
            tried.add(best)
            precision = float(self.precision([best])[0])
            if precision >= enough:
                rule, now = best, precision

    def _ordered(self, rule: Rule, enough: float) -> Rule:
        """The rule with two conditions on one field put as an order, where that is more common: none after the last."""
        for all_of, one_of in permutations(rule, 2):
            if (
                all_of.slots == one_of.slots
                and all_of.values
                and not all_of.anywhere
                and len(one_of.values) == 1
                and not one_of.text
            ):
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
        condition, key = rule[at], replace(rule[at], values=())
        profile = profiles[key] = profiles.get(key) or self._profile(rule, at)
        common = self._common(condition)
        for other, change in profile.items():
            if other is None and len(rule) > 1:
                yield -common, now + change, (*rule[:at], *rule[at + 1 :])
            elif other is not None and not other.values:
                other = replace(other, values=condition.values)
                yield self._common(other) - common, now + change, _with(rule, at, other)
        values = np.array([other.values[0] for other in profile if other is not None and other.values])
        if not len(values):
            return
        change_U = np.array([profile[replace(key, values=(value,))] for value in values.tolist()])
        weight_V, own_U = self.population.weights(condition.slots[0]), np.isin(values, condition.values)
        weight_U = np.append(weight_V, 0.0)[np.minimum(values, len(weight_V))] + 1e-9
        own = float(np.average(change_U[own_U], weights=weight_U[own_U]))
        wider = _range if self.layout.number_D[condition.slots[0]] else _several
        for target in (enough, (enough + now) / 2):
            for chosen in wider(change_U, weight_U, own_U, target - now + own):
                wide = replace(condition, values=tuple(values[chosen].tolist()))
                expected = now - own + float(np.average(change_U[chosen], weights=weight_U[chosen]))
                yield self._common(wide) - common, expected, _with(rule, at, wide)

    def _profile(self, rule: Rule, at: int) -> Profile:
        condition, length = rule[at], len(self.search.trial.x_TD)
        times = list(_at_other_times(condition, length))
        others = [replace(condition, values=(value,)) for value in self._values(condition)]
        smaller = (*rule[:at], *rule[at + 1 :]) or rule
        rules = [rule, smaller, *(_with(rule, at, of) for of in (*times, *others))]
        base, without, *precisions = self.precision(rules, PROFILED).tolist()
        keys = [*(replace(of, values=()) for of in times), *others]
        return {None: without - base, **{of: p - base for of, p in zip(keys, precisions, strict=True)}}

    def _values(self, condition: Condition) -> list[int]:
        """The values that a condition on a single slot could have: its own, and the most frequent ones."""
        if len(condition.slots) > 1 or condition.text is not None or condition.trend:
            return []
        kind, own = self.layout.slots[condition.slots[0]].kind, set(condition.values)
        if kind == "flag" or (kind == "number" and 0 in own):
            return []
        weight_V = self.population.weights(condition.slots[0])
        common = np.argsort(-weight_V, kind="stable")[:TRIED].tolist()
        return sorted(own | {value for value in common if weight_V[value] and (value or kind == "category")})

    def _common(self, condition: Condition) -> float:
        """The logarithm of the share of the population that satisfies a condition."""
        if condition not in self._counts:
            self._counts[condition] = int(self.population.has((condition,)).sum())
        return math.log((self._counts[condition] + 1) / (len(self.population) + 1))


def _range(
    precision_U: NDArray[np.float64], weight_U: NDArray[np.float64], own_U: NDArray[np.bool_], enough: float
) -> list[list[int]]:
    """The heaviest ranges of values around the own ones that are precise enough, the heaviest first.

    >>> _range(np.array([0.2, 0.9, 1, 1, 1]), np.ones(5), np.arange(5) == 3, 0.95)[0]
    [1, 2, 3, 4]
    """
    first, last = np.flatnonzero(own_U)[[0, -1]].tolist()
    uneven = np.flatnonzero(precision_U < enough - UNEVEN)  # no range goes beyond one of these
    if ((uneven >= first) & (uneven <= last)).any():
        return []
    lows = range(int(uneven[uneven < first].max(initial=-1)) + 1, first + 1)
    ends = range(last + 1, int(uneven[uneven > last].min(initial=len(own_U))) + 1)
    precise_U, fine = precision_U * weight_U, []
    for low, end in product(lows, ends):
        weight = float(weight_U[low:end].sum())
        if precise_U[low:end].sum() / weight >= enough:
            fine.append((weight, low, end))
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
    if length == 1 or condition.text is not None or condition.after is not None or condition.trend:
        return
    if condition.back:
        yield replace(condition, back=0, span=condition.back + 1, anywhere=True)
    if condition.span != 1:
        yield replace(condition, span=1, anywhere=False)
    if not condition.anywhere:
        yield replace(condition, back=0, span=None, anywhere=True)


def _with(rule: Rule, at: int, condition: Condition) -> Rule:
    return (*rule[:at], condition, *rule[at + 1 :])
