"""From the slots of a sequence to its `Trajectory`: which fields are drawn, and the probability after each record.

Shapes: T records of the sequence, D slots, E ends of its prefixes, Q classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.explain.conditions import Rule, cells_of
from tefm.explain.trajectory import Lane, Trajectory
from tefm.rationale.masked_model import MaskedModel
from tefm.tables.layout import Slots
from tefm.tables.mappers import NumberMapper
from tefm.tables.sequences import Sequences
from tefm.tables.vectorise import Vectoriser

#: Records that are drawn, the last ones, and fields.
RECORDS, LANES = 60, 8
#: Records that the model reads for the probabilities, about.
READ = 2_000
#: The band of the population lies between these shares of its records.
BAND = (0.1, 0.9)


def trajectory_of(
    vectoriser: Vectoriser, sequence: Sequences, rule: Rule, population_ND: Slots, model: MaskedModel, answer: int
) -> Trajectory | None:
    """The last records of a sequence, with what a rule cites marked; None where there is only one.

    `population_ND` are records of the training population, and `answer` is the class whose probability is told.
    """
    x_TD = sequence.x_ND
    if len(x_TD) < 2:
        return None
    first = max(0, len(x_TD) - RECORDS)
    cited_TD = cells_of([condition for condition in rule if condition.text is None], x_TD, x_TD.shape)
    lanes = list(_lanes(vectoriser, x_TD[first:], cited_TD[first:], population_ND))
    lanes.sort(key=lambda lane: (not lane.cited, lane.kind != "number"))
    drawn = Trajectory(first + 1, len(x_TD) - first, tuple(lanes[:LANES]), len(lanes[LANES:]))
    if sequence.texts is not None and isinstance(sequence.texts[0], str):  # the text of the last record alone
        return drawn
    ends_E = _ends(first, len(x_TD))
    p_EQ = model(sequence.up_to(ends_E))
    decided_E = model.decide(p_EQ)
    other = np.flatnonzero(decided_E != decided_E[-1])
    p = zip((ends_E + 1).tolist(), p_EQ[:, answer].tolist(), strict=True)
    return replace(drawn, p=tuple(p), since=int(ends_E[other.max(initial=-1) + 1]) + 1)


def _ends(first: int, length: int) -> NDArray[np.int64]:
    """The records after which the model is asked: all that are drawn, or of long sequences some of them."""
    count = min(length - first, max(2, READ // length))
    return np.unique(np.linspace(first, length - 1, count).round().astype(np.int64))


def _lanes(vectoriser: Vectoriser, x_TD: Slots, cited_TD: NDArray[np.bool_], population_ND: Slots) -> Iterator[Lane]:
    """The fields that are cited or that change; of a set, its size and the members that are cited."""
    for field, mapper, own in vectoriser.parts:
        for slot in range(own.start, own.stop):
            layout, title = vectoriser.layout.slots[slot], field.display_name
            value_T, cited = x_TD[:, slot], np.flatnonzero(cited_TD[:, slot])
            changes = layout.member is None and bool((value_T != value_T[0]).any())
            if layout.static or not (len(cited) or changes):
                continue
            numbers = mapper if mapper.kind == "number" else mapper.count if mapper.kind == "set" else None
            if layout.member is not None and mapper.kind == "set":
                title, numbers = f"{title}: {mapper.member_in_words(layout.member)}", None
            elif mapper.kind == "set":
                title = f"{title}: how many"
            yield Lane(
                title,
                layout.kind,
                tuple(None if not value else _value(numbers, value) for value in value_T.tolist()),
                tuple(_words(mapper if numbers is None else numbers, layout.kind, value) for value in value_T.tolist()),
                tuple(cited.tolist()),
                None if numbers is None else _band(numbers, population_ND[:, slot]),
            )


def _value(numbers: NumberMapper | None, value: int) -> float:
    return 1.0 if numbers is None else numbers.middle[value - 1]


def _words(mapper: Any, kind: str, value: int) -> str:
    if kind == "flag":
        return "yes" if value else "no"
    return mapper.in_words(value) if value else "not recorded"


def _band(numbers: NumberMapper, value_N: NDArray[np.integer]) -> tuple[float, float] | None:
    """Between which values most records of the population lie."""
    known = np.sort(value_N[value_N > 0])
    if not len(known):
        return None
    low, high = (known[int(share * (len(known) - 1))] for share in BAND)
    return numbers.middle[low - 1], numbers.middle[high - 1]
