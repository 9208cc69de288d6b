"""The smallest rationale that passes the check: slots are added in ranked order, then the unneeded ones are dropped.

Shapes: S sequences, A selected sequences, N records of all of them, D slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.rationale.masked_model import Keep, MaskedModel, Numbers
from tefm.rationale.masks import Order, Over, order_over
from tefm.rationale.verify import MaskedPredictions, predict, sufficient
from tefm.tables.sequences import Sequences


def until_sufficient(
    masked_model: MaskedModel,
    scores_ND: NDArray[Any],
    sequences: Sequences,
    *,
    over: Over = "sequence",
    prune: bool = True,
) -> Keep:
    """Grow each rationale in ranked order until it passes the check, and return the smallest that passes.

    A size is a number of slots of the whole sequence, or of each of its records. The sizes 1, 2, 3, 4, 6, 8, 12, 16,
    24, … are tried first, for all sequences at a time, then every size between the last that fails and the first that
    passes. Passing is not monotone: one more slot can change the answer back. "The smallest" therefore means the
    smallest above the last coarse size that fails; a smaller one that passes between two that fail is not searched
    for. Finally, `prune` drops each slot that is not needed to pass, from the lowest rank up.

    All features always pass, unless nothing in the records supports the answer: then no slot is selected.
    """
    order_ND = order_over(scores_ND, sequences, over)
    present_ND = sequences.x_ND > 0
    limit_S = np.zeros(len(sequences), dtype=np.int64)
    np.maximum.at(limit_S, sequences.sequence_N, np.where(present_ND, order_ND, -1).max(axis=1, initial=-1) + 1)
    full, nothing = predict(masked_model, sequences, [present_ND, np.zeros_like(present_ND)])
    growth = _Growth(masked_model, sequences, order_ND, full, nothing)
    size_S = growth.smallest_sizes(limit_S)
    keep_ND = growth.first(np.arange(len(sequences)), size_S)
    return growth.pruned(keep_ND, int(size_S.max(initial=0))) if prune else keep_ND


@dataclass(frozen=True, eq=False)
class _Growth:
    masked_model: MaskedModel
    sequences: Sequences
    order_ND: Order
    full: MaskedPredictions
    nothing: MaskedPredictions

    def passes(self, chosen_A: Numbers, keep: Keep) -> NDArray[np.bool_]:
        """Whether these slots of the chosen sequences are sufficient."""
        (alone,) = predict(self.masked_model, self.sequences.select(chosen_A), [keep])
        return sufficient(self.full.select(chosen_A), alone, self.nothing.select(chosen_A))

    def first(self, chosen_A: Numbers, size_A: Numbers) -> Keep:
        """The first `size_A` slots of the chosen sequences."""
        size_N = np.repeat(size_A, self.sequences.lengths[chosen_A])
        keep: Keep = self.order_ND[self.sequences.places(chosen_A)] < size_N[:, None]
        return keep

    def smallest_sizes(self, limit_S: Numbers) -> Numbers:
        """The smallest size that passes, up to the limit; 0 where nothing supports the answer."""
        size_S, failed_S = limit_S.copy(), np.zeros(len(limit_S), dtype=np.int64)
        # if all features together do not pass, no selection of them does
        supported_S = sufficient(self.full, self.full, self.nothing)
        size_S[~supported_S] = 0
        open_A = np.flatnonzero(supported_S & (limit_S > 0))
        for size in _coarse_sizes():
            if not len(open_A):
                break
            size_A = np.minimum(size, limit_S[open_A])
            passed_A = self.passes(open_A, self.first(open_A, size_A))
            size_S[open_A[passed_A]] = size_A[passed_A]
            failed_S[open_A[~passed_A]] = size_A[~passed_A]
            open_A = open_A[~passed_A & (size_A < limit_S[open_A])]

        between_S = np.maximum(size_S - failed_S - 1, 0) * (failed_S > 0)
        if between_S.any():
            chosen_A = np.repeat(np.arange(len(limit_S)), between_S)
            first_A = np.repeat(np.cumsum(between_S) - between_S, between_S)
            size_A = failed_S[chosen_A] + 1 + np.arange(len(chosen_A)) - first_A
            passed_A = self.passes(chosen_A, self.first(chosen_A, size_A))
            np.minimum.at(size_S, chosen_A[passed_A], size_A[passed_A])
        return size_S

    def pruned(self, keep_ND: Keep, largest: int) -> Keep:
        """Without the slots that are not needed to pass; `largest` is the size of the largest rationale."""
        sequence_N, count = self.sequences.sequence_N, len(self.sequences)
        keep_ND = keep_ND.copy()
        for place in range(largest - 1, -1, -1):
            tried_ND = keep_ND & (self.order_ND != place)
            some_left_S = np.bincount(sequence_N, tried_ND.sum(axis=1), minlength=count) > 0
            changed_S = np.bincount(sequence_N, (tried_ND != keep_ND).any(axis=1), minlength=count) > 0
            chosen_A = np.flatnonzero(some_left_S & changed_S)
            if len(chosen_A):
                passed_A = self.passes(chosen_A, tried_ND[self.sequences.places(chosen_A)])
                rows = self.sequences.places(chosen_A[passed_A])
                keep_ND[rows] = tried_ND[rows]
        return keep_ND


def _coarse_sizes() -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, 24, …"""
    yield 1
    for power in count(1):
        yield 2**power
        yield 3 * 2 ** (power - 1)
