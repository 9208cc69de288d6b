"""Evidence for and against a class: how the probability changes when a feature is replaced by other sequences' values.

Shapes: F features, B donors, T records of the explained sequence, D slots, Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tefm.rationale.arrays import Numbers
from tefm.rationale.features import Feature, keep_of, keeps_of, mask_shape
from tefm.rationale.masked_model import MaskedModel
from tefm.rationale.observed import Z
from tefm.rationale.parts import TextPart
from tefm.rationale.population import Population
from tefm.rationale.trial import Tried
from tefm.records.sequences import Sequences


@dataclass(frozen=True)
class Effect:
    """By how much a feature raises the probability of a class, with a 95% interval over donors."""

    feature: Feature
    value: float
    low: float
    high: float
    #: of a text, the words that matter most
    words: tuple[TextPart, ...] = ()


def expected_effects(trial: Tried, features: Sequence[Feature], of_class: int) -> NDArray[np.float64]:
    """The effects as the surrogate expects them."""
    shape = trial.shape
    keep_CTD = np.concatenate([np.ones((1, *shape), dtype=bool), ~keeps_of([[f] for f in features], shape)])
    p_CB = trial.answers(keep_CTD)[:, :, of_class].double().numpy()
    effects_F: NDArray[np.float64] = p_CB[0, 0] - p_CB[1:].mean(axis=1)
    return effects_F


def effects(
    model: MaskedModel,
    population: Population,
    sequence: Sequences,
    features: Sequence[Feature],
    of_class: int,
    p: float,
    donors_B: Numbers,
) -> list[Effect]:
    """The effects as the model itself shows them; `p` is the probability of the class for the whole sequence."""
    if not features:
        return []
    shape = mask_shape(sequence)
    mixed = [
        population.look_alikes(sequence, ~keep_of([feature], shape), donors_B, own_context=True) for feature in features
    ]
    together = sequence.select(np.zeros(len(features) * len(donors_B), dtype=np.int64)).with_values(
        np.concatenate([copies.x_ND for copies in mixed])
    )
    if together.texts is not None:
        together = replace(together, texts=[text for copies in mixed for text in copies.texts or ()])
    change_FB = p - model(together)[:, of_class].reshape(len(features), len(donors_B))
    mean_F = change_FB.mean(axis=1)
    error_F = change_FB.std(axis=1, ddof=1) / np.sqrt(len(donors_B)) if len(donors_B) > 1 else np.full(len(mean_F), 1.0)
    return [
        Effect(feature, float(mean), float(mean - Z * error), float(mean + Z * error))
        for feature, mean, error in zip(features, mean_F, error_F, strict=True)
    ]


def strongest(effects_F: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """The features with the largest effects of each sign, `most` of each.

    >>> strongest(np.array([0.1, -0.2, 0.3, 0.0]), 1).tolist()
    [1, 2]
    """
    order = np.argsort(effects_F, kind="stable")
    against, support = order[:most], order[::-1][:most]
    chosen = [*against[effects_F[against] < 0].tolist(), *support[effects_F[support] > 0].tolist()]
    return np.array(sorted(chosen), dtype=np.int64)
