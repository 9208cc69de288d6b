"""The search for features that settle an answer (a sufficient rule, or anchor): whoever shares them gets the same one.

The surrogate judges every candidate on the same donors. Features are added one at a time, the best first. A pair that
decides only together would never be found so: each of the two alone changes nothing. Both show when they are taken
*away* from the whole sequence, so the search also starts from pairs of features that are missed most.

Shapes: F features, C sets of features, B donors, Q classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, count

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tefm.explain.slot_features import Feature, distinct, keeps_of, within
from tefm.explain.trial import Trial
from tefm.rationale.masked_model import Keep
from tefm.tables.layout import Slots

#: A set is made from at most this many features: the best alone, and those that are missed most.
CANDIDATES = 48
#: How many of them are tried in a step, those that gained most when last tried; in every few steps all of them are.
TRIED, ALL_EVERY = 12, 4
#: Features that are missed most, of which all pairs are tried first.
PAIRED = 8
#: Makes the made-up cases of a set of features.
Made = Callable[[Sequence[Feature]], Slots]


@dataclass(frozen=True)
class Candidate:
    """A set of features, and the share of its look-alikes that get the answer, as the surrogate sees it."""

    features: tuple[Feature, ...]
    precision: float
    #: breaks ties: also how sure the answer is
    value: float

    @property
    def size(self) -> int:
        return len(self.features)


@dataclass(frozen=True, eq=False)
class Search:
    """The search for one answer to one sequence."""

    trial: Trial
    answer: int
    #: features whose replacement moves the codes (or what else the model reads) for some donor: no other can matter
    features: tuple[Feature, ...]
    #: how much the answer suffers when each of them is replaced and everything else stays
    missed_F: NDArray[np.float64]
    #: for sets of features of which some are varied
    made: Made | None = None
    #: the sets found so far, by the size that they may have
    grown: dict[int, list[list[Candidate]]] = field(default_factory=dict)
    #: what each feature added to the value of a set when it was last tried
    gains: dict[Feature, float] = field(default_factory=dict)

    @classmethod
    def of(cls, trial: Trial, answer: int, features: Sequence[Feature], made: Made | None = None) -> Search:
        """A search among the features that the model reads: those that the codes carry, and those that a head reads."""
        without_FTD = ~keeps_of([[feature] for feature in features], trial.shape)
        moved_F = trial.moved(without_FTD).numpy()
        # a text is beside the codes
        moved_F |= np.array([feature.slots[0] >= trial.x_TD.shape[1] for feature in features], dtype=bool)
        carried = [feature for feature, moved in zip(features, moved_F, strict=True) if moved]
        return cls.among(trial, answer, carried, made)

    @classmethod
    def among(cls, trial: Trial, answer: int, carried: Sequence[Feature], made: Made | None = None) -> Search:
        """A search among features that are known to be carried."""
        search = cls(trial, answer, tuple(carried), np.zeros(len(carried)))
        if not carried:
            return search
        _, value_F = search.values(~keeps_of([[feature] for feature in carried], trial.shape))
        return cls(trial, answer, tuple(carried), -value_F, made)

    def contest(self, answer: int) -> Search:
        """A search among the same features for another answer."""
        return Search.among(self.trial, answer, self.features, self.made)

    def values(self, keep_CTD: Keep) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The precision of each set, and its value: precision and mean probability together."""
        return self._judged(self.trial.answers(keep_CTD))

    def precision(self, x_CBTD: Slots, keep_CTD: Keep) -> NDArray[np.float64]:
        """The precision of several rules, from their made-up cases and the texts that these keep."""
        return self._judged(self.trial.answers_to(x_CBTD, keep_CTD))[0]

    def _judged(self, p_CBQ: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        p_CBQ = p_CBQ / self.trial.cut_Q
        p_CBQ = p_CBQ / p_CBQ.sum(dim=2, keepdim=True)
        same_C = (p_CBQ.argmax(dim=2) == self.answer).double().mean(dim=1)
        return same_C.numpy(), (same_C + p_CBQ[:, :, self.answer].double().mean(dim=1)).numpy()

    def best(self, most: int, enough: float, least: int = 0) -> Candidate:
        """The smallest set found that is precise `enough`, or else the best one; it counts as `least` to `most`."""
        nothing = self._candidates([[]])[0]
        if not self.features or (nothing.precision >= enough and not least):
            return nothing
        ends = [self._grown(path, most, enough, least) for path in self._paths(most)]
        precise = [self._pruned(found, enough, least) for found in ends if found.precision >= enough]
        if precise:
            return min(precise, key=lambda found: (found.size, -found.value))
        return max(ends, key=lambda candidate: candidate.value, default=nothing)

    def _paths(self, most: int) -> list[list[Candidate]]:
        """Sets of growing size, from the best feature and from the best pair; they are kept for the next call."""
        if most not in self.grown:
            starts = [self._alone, self._pairs] if len(self._chosen) > 1 else [self._alone]
            fitting = [[start for start in of if start.size <= most] for of in starts]
            self.grown[most] = [[max(of, key=lambda candidate: candidate.value)] for of in fitting if of]
        return self.grown[most]

    @cached_property
    def _alone(self) -> list[Candidate]:
        return self._candidates([[feature] for feature in self.features])

    @cached_property
    def _by_missed(self) -> list[int]:
        order: list[int] = np.argsort(-self.missed_F, kind="stable").tolist()
        return order

    @cached_property
    def _chosen(self) -> list[Feature]:
        """Features that sets are made from: the best alone, and those that are missed most."""
        by_value = sorted(range(len(self._alone)), key=lambda i: -self._alone[i].value)
        half = CANDIDATES // 2
        return [self.features[i] for i in dict.fromkeys([*by_value[:half], *self._by_missed[:half]])]

    @cached_property
    def _pairs(self) -> list[Candidate]:
        return self._candidates(list(combinations([self.features[i] for i in self._by_missed[:PAIRED]], 2)))

    def _grown(self, path: list[Candidate], most: int, enough: float, least: int) -> Candidate:
        """The first set of a path that is precise enough; the path grows by the best feature at a time."""
        for step in count():
            if step == len(path):
                kept = path[-1].features
                new = [feature for feature in self._chosen if not within(feature, kept)]
                new = [feature for feature in new if len(distinct((*kept, feature))) <= most]
                if not new:
                    break
                if len(kept) % ALL_EVERY != 1:
                    new = sorted(new, key=lambda feature: -self.gains.get(feature, math.inf))[:TRIED]
                larger = self._candidates([distinct((*kept, feature)) for feature in new])
                self.gains.update({of: found.value - path[-1].value for of, found in zip(new, larger, strict=True)})
                path.append(max(larger, key=lambda candidate: candidate.value))
            found = path[step]
            if found.precision >= enough and found.size >= least:
                return found
        return path[-1]

    def _pruned(self, found: Candidate, enough: float, least: int) -> Candidate:
        """Without the features that are not needed to be precise enough."""
        while True:
            smaller = [some for some in combinations(found.features, len(found.features) - 1) if some]
            smaller = [some for some in smaller if len(some) >= least]
            if not smaller:
                return found
            best = max(self._candidates(smaller), key=lambda candidate: candidate.value)
            if best.precision < enough:
                return found
            found = best

    def _candidates(self, sets: Sequence[Sequence[Feature]]) -> list[Candidate]:
        keep_CTD = keeps_of(sets, self.trial.shape)
        precision_C, value_C = self.values(keep_CTD)
        varied = [at for at, features in enumerate(sets) if any(feature.varied for feature in features)]
        if varied and self.made is not None:
            x_CBTD = np.stack([self.made(sets[at]) for at in varied])
            precision_C[varied], value_C[varied] = self._judged(self.trial.answers_to(x_CBTD, keep_CTD[varied]))
        return [
            Candidate(tuple(features), float(precision), float(value))
            for features, precision, value in zip(sets, precision_C, value_C, strict=True)
        ]
