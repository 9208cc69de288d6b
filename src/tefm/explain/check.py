"""What the model itself says: the check of a rule, its joint effect, and the words of a text that matter.

The check asks: do sequences that satisfy a rule, and otherwise vary like the population (perturbed samples), get the
same answer? It asks about whole records; nothing is masked. It can fail, and often does. The joint effect of conditions
on a class is the mean change of its probability when their fields are taken from other sequences, all together; the
shares of the conditions add up to it.

Shapes: C conditions, B donors, A questions, P parts of a text, T records of the explained sequence,
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
from tefm.explain.conditions import Condition, Rule
from tefm.explain.counts import FEW, NONE, Share, Z, exact_share
from tefm.explain.population import Population
from tefm.explain.slot_features import mask_shape
from tefm.rationale.bag_of_words import texts_NM_of, with_texts
from tefm.rationale.masked_model import Keep, MaskedModel, Numbers
from tefm.scoring.weighted import Interval
from tefm.tables.sequences import Sequences

#: The share of the error of a check that is spent on its first half.
EARLY = 0.25
#: Of up to this many conditions, the shares in the joint effect are exact over all orders.
EXACT = 3
#: Sequences whose values a sensitive field is given, at most.
OTHERS = 50
#: At most this many parts of a text are left out, one at a time: of a long text, several neighbouring words at once.
MOST_PARTS = 40
#: At most this many parts are named, and the least change that is worth it.
NAMED, VISIBLE = 3, 0.005


# ---- a rule -----------------------------------------------------------------------------------------------


def precision(model: MaskedModel, cases: Sequences, answer: int, *, level: float = 0.95) -> Share:
    """The share of some cases that get the answer."""
    return exact_share(int((model.decide(model(cases)) == answer).sum()), len(cases), level)


def checked_share(model: MaskedModel, cases: Sequences, answer: int, least: float, *, level: float = 0.95) -> Share:
    """The share of some cases that get the answer, of no more of them than tell whether it is at least `least`.

    A share that is clearly large enough after half of them ends it: its interval has a quarter of the error, and that
    of all of them the rest. So does the case with which it can no longer be. An exact interval remains valid when the
    count ends with a failure (inverse sampling).
    """
    count, half, error = len(cases), len(cases) // 2, 1 - level
    if exact_share(half, half, 1 - EARLY * error).low < least:
        half = 0  # too few for two looks
    whole = 1 - (1 - EARLY) * error if half else level
    allowed = next(n for n in range(count + 1) if exact_share(count - n, count, whole).low < least) - 1
    same_S = np.zeros(0, dtype=bool)
    for end in (max(FEW, half // 2), half, (half + count) // 2, count) if half else (count,):
        part = cases.select(np.arange(len(same_S), end))
        same_S = np.append(same_S, model.decide(model(part)) == answer)
        if 0 <= allowed < (~same_S).sum():
            same_S = same_S[: max(FEW, np.flatnonzero(~same_S)[allowed] + 1)]
            break
        early = exact_share(int(same_S.sum()), end, 1 - EARLY * error)
        if end == half and early.low >= least:
            return early
    return exact_share(int(same_S.sum()), len(same_S), whole)


# ---- the joint effect, and the share of each condition -------------------------------------------------------------


def mean_over_donors(values_B: NDArray[np.float64]) -> Interval:
    """The mean of some values with its 95% interval; a single one says nothing about others.

    >>> print(mean_over_donors(np.array([0.1, 0.3])))
    0.200 [0.004, 0.396]
    """
    mean, count = float(values_B.mean()), len(values_B)
    error = float(values_B.std(ddof=1)) / count**0.5 if count > 1 else 1.0
    return Interval(mean, mean - Z * error, mean + Z * error)


@dataclass(frozen=True)
class Joint:
    """How much probability a class loses when all fields of some conditions are taken from others, and whose doing."""

    rule: Rule
    #: the probability with the values of others in the fields
    without: Interval
    #: the share of each condition in the difference (Shapley value): they sum to it
    shares: tuple[Interval, ...]
    #: of each condition that is a text, the words that matter most
    words: tuple[tuple[TextPart, ...], ...]
    #: how often the answer changes
    flips: Share
    questions: int


def joint_effect(
    model: MaskedModel,
    population: Population,
    sequence: Sequences,
    rule: Rule,
    of_class: int,
    p_Q: Sequence[float],
    donors_B: Numbers,
) -> Joint:
    """The effect of all conditions together, and the share of each, by donor; `p_Q` is of the whole sequence.

    Of up to `EXACT` conditions, all subsets are asked about; of more, each donor takes the fields over in an order of
    its own, and every second one in the reverse of that. Both ways, a donor's shares sum to its joint effect.
    """
    shape, count, donors = mask_shape(sequence), len(rule), len(donors_B)
    cells_CTD = np.stack([condition.cells(sequence.x_ND, shape) for condition in rule])
    every = list(permutations(range(count))) if count <= EXACT else None
    orders = [every] * donors if every else [[tuple(order)] for order in _orders(count, donors).tolist()]
    # the fields that are taken over, as bits, and the donors that are asked about them
    taken: dict[int, list[int]] = {}
    for donor, of_donor in enumerate(orders):
        for bits in {sum(1 << i for i in order[: n + 1]) for order in of_donor for n in range(count)}:
            taken.setdefault(bits, []).append(donor)
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
    for donor, of_donor in enumerate(orders):
        for order in of_donor:
            bits = 0
            for condition in order:
                more = bits | 1 << condition
                shares_BC[donor, condition] += (p_of[bits, donor] - p_of[more, donor]) / len(of_donor)
                bits = more
    whole = [number for number, (bits, _) in enumerate(keys) if bits == (1 << count) - 1]
    changed = model.decide(p_AQ[whole]) != model.decide(np.array([p_Q]))[0]
    words = [text_parts(model, sequence, condition, of_class, p_Q[of_class]) for condition in rule]
    return Joint(
        rule,
        mean_over_donors(p_AQ[whole, of_class]),
        tuple(map(mean_over_donors, shares_BC.T)),
        tuple(parts for parts, _ in words),
        exact_share(int(changed.sum()), donors),
        len(keys) + sum(asked for _, asked in words),
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


# ---- other values of a field ----------------------------------------------------------------------------------------


def other_values(
    model: MaskedModel, population: Population, sequence: Sequences, slots: Sequence[int], answer: int
) -> tuple[Share, float, float]:
    """With the values that others have in some slots: how often the answer stays the same, and its probabilities.

    These are the lowest and the highest one. The share is of nothing where all others have the same values.
    """
    x_TD, own = sequence.x_ND, list(slots)
    nearest = population.nearest(len(x_TD))
    rows_BT = population.rows(nearest, len(x_TD))
    differs_B = (population.slots.x_ND[rows_BT[:, :, None], own] != x_TD[:, own]).any(axis=(1, 2))
    if not differs_B.any():
        return NONE, 0.0, 1.0
    keep_TD = np.ones(mask_shape(sequence), dtype=bool)
    keep_TD[:, own] = False
    cases = population.look_alikes(sequence, keep_TD, nearest[differs_B][:OTHERS], own_context=True)
    p_BQ = model(cases)
    same = int((model.decide(p_BQ) == answer).sum())
    return exact_share(same, len(cases)), float(p_BQ[:, answer].min()), float(p_BQ[:, answer].max())


# ---- the words of a text ---------------------------------------------------------------------------------------------


def text_parts(
    model: MaskedModel, sequence: Sequences, condition: Condition, of_class: int, p: float
) -> tuple[tuple[TextPart, ...], int]:
    """The words of a text that matter most, the strongest first, and how many questions that took.

    `p` is the probability of the class for the whole sequence.
    """
    if not condition.text:
        return (), 0
    texts_TM, width = texts_NM_of(sequence), sequence.x_ND.shape[1]
    at = len(texts_TM) - 1 - condition.back, condition.slots[0] - width
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
