"""Real training sequences that are most like an explained one: the nearest of those that satisfy its rule.

How far apart two sequences are is a mean over fields, as people compare records (Gower's distance): records are paired
from the last one backwards; a category counts as 0 or 1, a number by its buckets, a set by the share of the members of
either that the other lacks (Jaccard), and a record that only one of the two has as 1. Texts are not compared.

Shapes: S training sequences, N records of all of them, T records of the explained sequence, D slots, F fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tefm.explain.conditions import Condition, Rule
from tefm.explain.explanation import SimilarCase
from tefm.explain.in_words import finding_of
from tefm.explain.population import Cases
from tefm.rationale.masked_model import MaskedModel
from tefm.rationale.verify import Answer
from tefm.tables.layout import Layout, Slots
from tefm.tables.sequences import Sequences
from tefm.tables.vectorise import Vectoriser

#: Values of a case that differ and are named, the latest ones; the others are counted.
NAMED = 12


def similar_cases(
    cases: Cases, rule: Rule, x_TD: Slots, count: int, model: MaskedModel, vectoriser: Vectoriser, names: Sequence[str]
) -> tuple[SimilarCase, ...]:
    """Those that satisfy a rule and are most like a sequence, the nearest first; `names` are those of the classes."""
    layout, satisfying = vectoriser.layout, np.flatnonzero(cases.has(rule))
    if not len(satisfying):
        return ()
    distance_S = distances(cases.slots.select(satisfying), x_TD, layout)
    order = np.argsort(distance_S, kind="stable")[:count]
    nearest, labels = cases.slots.select(satisfying[order]), cases.labels_S[satisfying[order]]
    p_SQ = model(nearest)

    def case(number: int, answer: int) -> SimilarCase:
        differing, label = list(_differing(nearest[number], x_TD, layout)), int(labels[number])
        return SimilarCase(
            Answer(names[answer], dict(zip(names, p_SQ[number].tolist(), strict=True))),
            names[label] if label >= 0 else None,
            len(nearest[number]),
            1 - float(distance_S[order[number]]),
            tuple(finding_of(vectoriser, condition, x_TD) for condition in differing[:NAMED]),
            len(differing[NAMED:]),
        )

    return tuple(case(number, answer) for number, answer in enumerate(model.decide(p_SQ).tolist()))


def distances(cases: Sequences, x_TD: Slots, layout: Layout) -> NDArray[np.float64]:
    """How far each of some sequences is from one, from 0 (the same) to 1.

    >>> from tefm.tables.layout import Slot
    >>> layout = Layout((Slot("age", "number", 10), Slot("sex", "category", 2)))
    >>> cases = Sequences(np.array([[5, 1], [6, 2], [5, 1], [5, 1]]), np.array([0, 1, 2, 4]))
    >>> distances(cases, np.array([[5, 1]]), layout).round(2).tolist()
    [0.0, 0.55, 0.5]
    """
    lengths, length = cases.lengths, len(x_TD)
    apart_S = np.maximum(lengths, length).astype(np.float64)
    for back in range(length):
        has = np.flatnonzero(lengths > back)
        records_SD = cases.x_ND[cases.starts[has + 1] - 1 - back]
        apart_S[has] -= 1 - _apart(records_SD, x_TD[length - 1 - back], layout)
    return apart_S / np.maximum(lengths, length)


def _apart(x_SD: Slots, x_D: Slots, layout: Layout) -> NDArray[np.float64]:
    """How far records are from one record, on average over its fields."""
    differs_SD = (x_SD != x_D).astype(np.float32)
    for slot in np.flatnonzero(layout.number_D & (x_D > 0)).tolist():
        value_S = x_SD[:, slot].astype(np.float32)
        differs_SD[:, slot] = np.where(value_S > 0, np.abs(value_S - x_D[slot]) / layout.sizes_D[slot], 1)
    starts_F = [int(layout.of_field(name)[0]) for name in layout.fields]
    present_SF = np.add.reduceat((x_SD > 0) | (x_D > 0), starts_F, axis=1, dtype=np.float32)
    apart_SF = np.add.reduceat(differs_SD, starts_F, axis=1) / np.maximum(present_SF, 1)
    apart_S: NDArray[np.float64] = apart_SF.mean(axis=1)
    return apart_S


def _differing(case_TD: Slots, x_TD: Slots, layout: Layout) -> Iterator[Condition]:
    """The values of a case that the sequence does not have in the same record, the last record first."""
    for back in range(min(len(case_TD), len(x_TD))):
        case_D, x_D = case_TD[len(case_TD) - 1 - back], x_TD[len(x_TD) - 1 - back]
        for slot in np.flatnonzero((case_D != x_D) & ~(layout.static_D & (back > 0))).tolist():
            yield Condition((slot,), (int(case_D[slot]),), back)
