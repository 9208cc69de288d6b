"""Counting: what followed the same last values in the training part. The trivial model of a sequence.

For every category, the last one, two or three values of a sequence are looked up among those of the training
sequences: the class frequencies there, smoothed towards those after one value fewer. Which field, and how many values,
is chosen on validation. A sequence model that does not beat it has learned no order.

Shapes: S sequences, D slots, Q classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.tabular.inputs import RecordSlots
from tefm.tabular.learners import Candidate, Chosen, Examples, LearningTask, choose

#: Values that are looked up, at most, and how many sequences the frequencies after one value fewer count for.
MOST, PRIOR = 3, 2.0
Counts = dict[tuple[int, ...], NDArray[np.float64]]


def fit_counting(train: Examples[RecordSlots], validation: Examples[RecordSlots], task: LearningTask) -> Chosen:
    """Class frequencies after the last values of a category, which one and how many being chosen on validation."""
    seen, positions_N = train.seen
    layout = train.inputs.layout.slots
    slots = [number for number, slot in enumerate(layout) if slot.kind == "category" and not slot.static]
    if not slots:
        raise InputError("there is no category whose values could be counted", remedy="leave counting out")

    def candidates() -> Iterator[Candidate]:
        for slot in slots:
            histories = _last_values(train.inputs, slot)
            for length in range(1, MOST + 1):
                counts = _counts(histories, positions_N, len(seen), length)
                predict = partial(_probabilities, counts, slot, length)
                yield predict, {"slot": layout[slot].name, "values": length}

    return choose(candidates(), seen, validation, task)


def _last_values(inputs: RecordSlots, slot: int) -> list[tuple[int, ...]]:
    """The last values of a slot in each sequence, the last one first; 0 before the first record."""
    x_N, starts = inputs.x_ND[:, slot], inputs.sequences.starts
    last = [x_N[max(start, end - MOST) : end][::-1].tolist() for start, end in pairwise(starts)]
    return [(*map(int, values), *[0] * (MOST - len(values))) for values in last]


def _counts(histories: list[tuple[int, ...]], positions_N: NDArray[Any], classes: int, length: int) -> Counts:
    counts: Counts = defaultdict(lambda: np.zeros(classes))
    for values, position in zip(histories, positions_N, strict=True):
        for used in range(length + 1):
            counts[values[:used]][position] += 1
    return dict(counts)


def _probabilities(counts: Counts, slot: int, length: int, inputs: RecordSlots) -> NDArray[np.float64]:
    known: dict[tuple[int, ...], NDArray[np.float64]] = {}

    def after(values: tuple[int, ...]) -> NDArray[np.float64]:
        if values not in known:
            own = counts.get(values, np.zeros_like(counts[()]))
            fewer = after(values[:-1]) if values else np.full(len(own), 1 / len(own))
            known[values] = (own + PRIOR * fewer) / (own.sum() + PRIOR)
        return known[values]

    return np.array([after(values[:length]) for values in _last_values(inputs, slot)])
