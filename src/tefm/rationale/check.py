"""The check: do sequences that share some features, and otherwise vary like the population, get the same answer?

It asks the model itself, about whole records; nothing is masked. It can fail, and often does.

Shapes: B donors, T records of the explained sequence, D slots, Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tefm.rationale.arrays import Keep, Numbers
from tefm.rationale.masked_model import MaskedModel
from tefm.rationale.population import Population
from tefm.rationale.shares import Share, exact_share
from tefm.rationale.words import Note
from tefm.records.layout import Slots
from tefm.records.sequences import Sequences


def precision(
    model: MaskedModel,
    population: Population,
    sequence: Sequences,
    keep_TD: Keep,
    answer: int,
    donors_B: Numbers,
    *,
    level: float = 0.95,
) -> Share:
    """The share of the look-alikes of a sequence that get the answer."""
    p_BQ = model(population.look_alikes(sequence, keep_TD, donors_B))
    return exact_share(int((model.decide(p_BQ) == answer).sum()), len(donors_B), level)


def flips(
    model: MaskedModel, population: Population, sequence: Sequences, keep_TD: Keep, answer: int, donors_B: Numbers
) -> Share:
    """How often the answer changes when only these features are replaced."""
    p_BQ = model(population.look_alikes(sequence, ~keep_TD, donors_B, own_context=True))
    return exact_share(int((model.decide(p_BQ) != answer).sum()), len(donors_B))


def coverage(population: Population, x_TD: Slots, keep_TD: Keep, notes: Sequence[Note] | None = None) -> Share:
    """The share of the population that has the features; `notes` are the texts of the sequence."""
    return exact_share(int(population.has(x_TD, keep_TD, notes).sum()), len(population))
