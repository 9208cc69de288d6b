"""What the model itself says: the check of a rule, its joint effect, and the influence of single features and words.

The check asks: do sequences that satisfy a rule, and otherwise vary like the population (perturbed samples), get the
same answer? It asks about whole records; nothing is masked. It can fail, and often does. The influence of a feature on
a class is the mean change of its probability when the feature is replaced by the values of other sequences; that of all
conditions of a rule together is the joint effect, which their shares add up to.

Shapes: F features, C conditions, B donors, A questions, P parts of a text, T records of the explained sequence,
D slots, M columns of text, Q classes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import permutations

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

#: Of up to this many conditions, the shares in the joint effect are exact over all orders.
EXACT = 3
#: At most this many parts of a text are left out, one at a time: of a long text, several neighbouring words at once.
MOST_PARTS = 40
#: At most this many parts are named, and the least change that is worth it.
NAMED, VISIBLE = 3, 0.005


# ---- a set of features -----------------------------------------------------------------------------------------------


def precision(model: MaskedModel, cases: Sequences, answer: int, *, level: float = 0.95) -> Share:
    """The share of some cases that get the answer."""
    return exact_share(int((model.decide(model(cases)) == answer).sum()), len(cases), level)


# ---- the joint effect, and the share of each condition -------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A mean over donors, with a 95% interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values_B: NDArray[np.float64]) -> Estimate:
        """The mean of some values; a single one says nothing about others.

        >>> estimate = Estimate.of(np.array([0.1, 0.3]))
        >>> round(estimate.value, 3), round(estimate.high, 3)
        (0.2, 0.396)
        """
        mean, count = float(values_B.mean()), len(values_B)
        error = float(values_B.std(ddof=1)) / count**0.5 if count > 1 else 1.0
        return cls(mean, mean - Z * error, mean + Z * error)


@dataclass(frozen=True)
class Joint:
    """How much probability a class loses when all fields of a rule are taken from others, and whose doing that is."""

    #: the probability with the values of others in the fields of the rule
    without: Estimate
    #: the share of each condition in the difference (Shapley value): they sum to it
    shares: tuple[Estimate, ...]
    #: how often the answer changes
    flips: Share
    questions: int


def joint_effect(
    model: MaskedModel,
    population: Population,
    sequence: Sequences,
    cells_CTD: Keep,
    of_class: int,
    p_Q: Sequence[float],
    donors_B: Numbers,
) -> Joint:
    """The effect of all conditions together, and the share of each, by donor; `p_Q` is of the whole sequence.

    Of up to `EXACT` conditions, all subsets are asked about; of more, each donor takes the fields over in an order of
    its own, and every second one in the reverse of that. Both ways, a donor's shares sum to its joint effect.
    """
    count, donors = len(cells_CTD), len(donors_B)
    orders_BC = _orders(count, donors)
    taken: dict[
        int, list[int]
    ] = {}  # the fields that are taken over, as bits, and the donors that are asked about them
    for donor, order in enumerate(orders_BC):
        sets = range(1, 1 << count) if count <= EXACT else np.cumsum(1 << order).tolist()
        for bits in sets:
            taken.setdefault(int(bits), []).append(donor)
    cases = [
        population.look_alikes(sequence, ~_taken(cells_CTD, bits), donors_B[numbers], own_context=True)
        for bits, numbers in taken.items()
    ]
    p_AQ = model(reduce(Sequences.followed_by, cases))
    keys = [(bits, donor) for bits, numbers in taken.items() for donor in numbers]
    p_of = dict(zip(keys, p_AQ[:, of_class].tolist(), strict=True)) | {
        (0, donor): p_Q[of_class] for donor in range(donors)
    }
    shares_BC = np.zeros((donors, count))
    every = list(permutations(range(count))) if count <= EXACT else None
    for donor in range(donors):
        for order in every or [orders_BC[donor].tolist()]:
            bits = 0
            for condition in order:
                more = bits | 1 << condition
                shares_BC[donor, condition] += (p_of[bits, donor] - p_of[more, donor]) / len(every or [0])
                bits = more
    whole = [number for number, (bits, _) in enumerate(keys) if bits == (1 << count) - 1]
    changed = model.decide(p_AQ[whole]) != model.decide(np.array([p_Q]))[0]
    return Joint(
        Estimate.of(p_AQ[whole, of_class]),
        tuple(Estimate.of(shares_BC[:, condition]) for condition in range(count)),
        exact_share(int(changed.sum()), donors),
        len(keys),
    )


def _orders(count: int, donors: int) -> NDArray[np.int64]:
    """An order of the conditions for each donor; every second one is the reverse of the one before."""
    rng = np.random.default_rng(count)
    orders = [rng.permutation(count) for _ in range(-(-donors // 2))]
    return np.array([order for each in orders for order in (each, each[::-1])][:donors], dtype=np.int64)


def _taken(cells_CTD: Keep, bits: int) -> Keep:
    """The cells of the conditions in a set of bits that no other condition holds on to."""
    is_taken_C = np.array([bool(bits >> number & 1) for number in range(len(cells_CTD))])
    taken_TD: Keep = cells_CTD[is_taken_C].any(axis=0) & ~cells_CTD[~is_taken_C].any(axis=0)
    return taken_TD


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
    estimates = map(Estimate.of, change_FB)
    return [Effect(feature, of.value, of.low, of.high) for feature, of in zip(features, estimates, strict=True)]


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
    model: MaskedModel, sequence: Sequences, at: tuple[int, int], of_class: int, p: float
) -> tuple[tuple[TextPart, ...], int]:
    """The words of a text that matter most, the strongest first, and how many questions that took.

    The text is `at` a record and a column; `p` is the probability of the class for the whole sequence.
    """
    texts_TM = texts_NM_of(sequence)
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
