"""Anchors (Ribeiro et al. 2018) over our look-alikes: the beam search of its authors, on the language model.

Only that search is used, so the package is installed without its dependencies:
`pip install --no-deps anchor-exp==0.0.2.0`.

Shapes: B look-alikes, T records of the explained sequence, D slots, F features.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import MissingExtraError
from tefm.explain.population import Population
from tefm.explain.slot_features import Feature, keep_of
from tefm.rationale.masked_model import MaskedModel, Numbers
from tefm.tables.sequences import Sequences

#: As its explainer of tables calls the search; 0.95 less its slack of 0.05 is our 0.9.
SETTINGS = {"delta": 0.1, "epsilon": 0.15, "batch_size": 100, "desired_confidence": 0.95, "epsilon_stop": 0.05}
#: Look-alikes that estimate the coverage of an anchor; none of them is put to the model.
COVERAGE = 2_000
#: Look-alikes below which the precision of a set says little, where a search was cut.
FEW = 30


class _EnoughError(Exception):
    """The search has used up its questions."""


@dataclass(frozen=True, eq=False)
class _Sampler:
    """What the search asks for: look-alikes that share some features, what they share by chance, and their answers."""

    model: MaskedModel
    population: Population
    sequence: Sequences
    answer: int
    features: Sequence[Feature]
    donors: Numbers
    most: int
    rng: np.random.Generator
    #: per set: look-alikes, and how many got the answer
    tried: dict[tuple[int, ...], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))

    def __call__(self, present: list[int], count: int, compute_labels: bool = True) -> tuple[Any, Any, Any]:
        x_TD = self.sequence.x_ND
        keep_TD = keep_of([self.features[number] for number in present], x_TD.shape)
        mixed = self.population.look_alikes(self.sequence, keep_TD, self.rng.choice(self.donors, count))
        x_BTD = mixed.x_ND.reshape(count, *x_TD.shape)
        shared_BF = np.empty((count, len(self.features)), dtype=np.int8)
        for number, feature in enumerate(self.features):
            slots = list(feature.slots)
            shared_BF[:, number] = (x_BTD[:, feature.record, slots] == x_TD[feature.record, slots]).all(axis=1)
        raw_B1 = np.zeros((count, 1), dtype=np.int8)  # it stores examples, which nobody reads
        if not compute_labels:
            return raw_B1, shared_BF, None
        if sum(of for of, _ in self.tried.values()) + count > self.most:
            raise _EnoughError
        same_B: NDArray[np.int64] = (self.model.decide(self.model(mixed)) == self.answer).astype(np.int64)
        tried = self.tried[tuple(sorted(present))]
        tried[0] += count
        tried[1] += int(same_B.sum())
        return raw_B1, shared_BF, same_B

    @property
    def best(self) -> list[Feature]:
        """The most precise set so far."""
        known = {numbers: same / of for numbers, (of, same) in self.tried.items() if of >= FEW and numbers}
        return [self.features[number] for number in max(known, key=lambda numbers: known[numbers], default=())]


def anchor(
    model: MaskedModel,
    population: Population,
    sequence: Sequences,
    answer: int,
    features: Sequence[Feature],
    donors: Numbers,
    *,
    most: int,
    size: int,
    seed: int,
) -> tuple[list[Feature], bool]:
    """The features of an anchor of at most `size` in the order in which they were added, and whether it was cut short.

    After `most` questions the most precise set so far is taken.
    """
    try:
        from anchor.anchor_base import AnchorBaseBeam
    except ImportError as error:
        raise MissingExtraError(
            "this method needs anchor-exp", remedy="pip install --no-deps anchor-exp==0.0.2.0"
        ) from error

    if not features:
        return [], False
    sampler = _Sampler(model, population, sequence, answer, features, donors, most, np.random.default_rng(seed))
    state = np.random.get_state()  # the search draws its examples from numpy's global generator
    try:
        found = AnchorBaseBeam.anchor_beam(sampler, **SETTINGS, max_anchor_size=size, coverage_samples=COVERAGE)
    except _EnoughError:
        return sampler.best, True
    finally:
        np.random.set_state(state)
    return [features[number] for number in found["feature"]], False
