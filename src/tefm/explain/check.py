"""What the model itself says: the check of a set of features, and the influence of single features and words.

The check asks: do sequences that share some features, and otherwise vary like the population (perturbed samples), get
the same answer? It asks about whole records; nothing is masked. It can fail, and often does. The influence of a feature
on a class is the mean change of its probability when the feature is replaced by the values of other sequences.

Shapes: F features, B donors, P parts of a text, T records of the explained sequence, D slots, M columns of text,
Q classes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from tefm.explain.cards import TextPart
from tefm.explain.counts import Share, Z, exact_share
from tefm.explain.population import Population
from tefm.explain.slot_features import Feature, keep_of, keeps_of, mask_shape
from tefm.explain.trial import Trial
from tefm.rationale.bag_of_words import texts_NM_of, with_texts
from tefm.rationale.masked_model import Keep, MaskedModel, Numbers
from tefm.tables.sequences import Sequences

#: At most this many parts of a text are left out, one at a time: of a long text, several neighbouring words at once.
MOST_PARTS = 40
#: At most this many parts are named, and the least change that is worth it.
NAMED, VISIBLE = 3, 0.005


# ---- a set of features -----------------------------------------------------------------------------------------------


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


def coverage(population: Population, sequence: Sequences, keep_TD: Keep) -> Share:
    """The share of the population that has the features."""
    return exact_share(int(population.has(sequence, keep_TD).sum()), len(population))


# ---- single features -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    """By how much a feature raises the probability of a class, with a 95% interval over donors."""

    feature: Feature
    value: float
    low: float
    high: float
    #: of a text, the words that matter most
    words: tuple[TextPart, ...] = ()


def expected_effects(trial: Trial, features: Sequence[Feature], of_class: int) -> NDArray[np.float64]:
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
    change_FB = p - model(reduce(Sequences.followed_by, mixed))[:, of_class].reshape(len(features), len(donors_B))
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


# ---- the words of a text ---------------------------------------------------------------------------------------------


def text_parts(
    model: MaskedModel, sequence: Sequences, feature: Feature, of_class: int, p: float
) -> tuple[tuple[TextPart, ...], int]:
    """The words of a text that matter most, the strongest first, and how many questions that took.

    `p` is the probability of the class for the whole sequence.
    """
    texts_TM, at = texts_NM_of(sequence), (feature.record, feature.slots[0] - sequence.x_ND.shape[1])
    parts = parts_of(texts_TM[at])
    copies = sequence.select(np.zeros(len(parts), dtype=np.int64))
    texts_PTM = np.repeat(texts_TM[None], len(parts), axis=0)
    for number in range(len(parts)):
        texts_PTM[number, *at] = " ".join([*parts[:number], *parts[number + 1 :]])
    change_P = p - model(with_texts(copies, texts_PTM))[:, of_class]
    strongest = np.argsort(-np.abs(change_P), kind="stable")[:NAMED].tolist()
    named = tuple(TextPart(parts[i], float(change_P[i])) for i in strongest if abs(change_P[i]) >= VISIBLE)
    return named, len(parts)


def parts_of(text: str) -> list[str]:
    """The words of a text; of a long one, neighbouring words together.

    >>> parts_of("no  fever,\\nno cough")
    ['no', 'fever,', 'no', 'cough']
    >>> len(parts_of("word " * 100)), parts_of("word " * 100)[0]
    (34, 'word word word')
    """
    words = re.findall(r"\S+", text)
    size = -(-len(words) // MOST_PARTS)
    return [" ".join(words[start : start + size]) for start in range(0, len(words), max(1, size))]
