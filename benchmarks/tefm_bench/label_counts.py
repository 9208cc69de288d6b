"""How often each class was observed with each value of each slot, for lists of features that ask no model.

Shapes: S sequences, N records, D slots, V values of all slots (0, absent, among them), Q classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.explain.counts import Observed
from tefm.tables.layout import Layout
from tefm.tables.sequences import Sequences


@dataclass(frozen=True, eq=False)
class Counts:
    """Training sequences of each class with each value of each slot, in their last record or in an earlier one."""

    last_VQ: NDArray[np.int64]
    earlier_VQ: NDArray[np.int64]
    #: sequences of each class, and those with an earlier record
    total_Q: NDArray[np.int64]
    longer_Q: NDArray[np.int64]
    #: where the values of each slot begin
    start_D: NDArray[np.int64]

    @classmethod
    def of(cls, slots: Sequences, labels_S: NDArray[np.int64], layout: Layout, classes: int) -> Counts:
        """Count sequences of slots; those without a label (−1) are left out."""
        labelled = np.flatnonzero(labels_S >= 0)
        slots, labels_S = slots.select(labelled), labels_S[labelled]
        start_D = np.concatenate([[0], np.cumsum(layout.sizes_D + 1)]).astype(np.int64)
        last_VQ, earlier_VQ = np.zeros((2, start_D[-1], classes), dtype=np.int64)
        before_N = np.ones(len(slots.x_ND), dtype=bool)
        before_N[slots.starts[1:] - 1] = False
        sequence_N = slots.sequence_N[before_N]
        for slot, start in enumerate(start_D[:-1].tolist()):
            size = int(layout.sizes_D[slot]) + 1
            at = slice(start, start + size)
            last_VQ[at] = _counted(slots.last[:, slot], labels_S, size, classes)
            # a value that several earlier records have counts once
            pairs = np.unique(np.stack([sequence_N, slots.x_ND[before_N, slot].astype(np.int64)]), axis=1)
            earlier_VQ[at] = _counted(pairs[1], labels_S[pairs[0]], size, classes)
        total_Q = np.bincount(labels_S, minlength=classes)
        longer_Q = np.bincount(labels_S[slots.lengths > 1], minlength=classes)
        return cls(last_VQ, earlier_VQ, total_Q, longer_Q, start_D)

    def observed(self, slot: int, value: int, of_class: int, *, last: bool) -> Observed:
        """Sequences with a value of a slot in their last record, or in an earlier one, and those without it."""
        counts_VQ, all_Q = (self.last_VQ, self.total_Q) if last else (self.earlier_VQ, self.longer_Q)
        return _observed(counts_VQ[self.start_D[slot] + value], all_Q, of_class)


def _observed(having_Q: NDArray[np.int64], all_Q: NDArray[np.int64], of_class: int) -> Observed:
    rest_Q = all_Q - having_Q
    return Observed(int(having_Q.sum()), int(having_Q[of_class]), int(rest_Q.sum()), int(rest_Q[of_class]))


def _counted(values: NDArray[np.integer[Any]], labels: NDArray[np.int64], size: int, classes: int) -> NDArray[np.int64]:
    return np.bincount(values.astype(np.int64) * classes + labels, minlength=size * classes).reshape(size, classes)
