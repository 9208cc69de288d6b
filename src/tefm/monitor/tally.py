"""`Tally`: how often each value of one thing occurs, such as the buckets of a field or the entries of a level.

A tally is all that is kept of records: it is small, and it names nobody. Things of one entity are alike, such as the
members of a set or the records of a patient, so n of them say less than n independent ones. The design effect measures
by how much (Rao and Scott 1981): the variance of the shares, with whole entities as units, divided by the variance that
independent things would have.

Shapes: M things counted, J cells, G groups of labels (the classes, and last the things without a label).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

#: What is counted: of a field, whether it is missing, whether it has a value that training did not have, which of the
#: known values it has, and how many members a set has; the entries of a level of codes; errors in bins; answers.
#: `shares` is the mean probability of a class, which has no tally.
Kind = Literal[
    "missing", "new", "values", "size", "codes", "reconstruction", "quantisation", "confidence", "predicted", "shares",
    "label", "right",
]  # fmt: skip
#: Tallies of one field.
OF_FIELDS: frozenset[Kind] = frozenset({"missing", "new", "values", "size"})


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts of one thing.

    >>> tally = Tally.of("ward", "values", np.array([0, 1, 1, 2]), np.array([0, 0, 1, 2]), np.array([0, 0, 1, 1]), 3, 2)
    >>> tally.counts_GJ.tolist(), tally.counts_J.tolist(), tally.total
    ([[1, 1, 0], [0, 1, 1], [0, 0, 0]], [1, 2, 1], 4)
    """

    #: the field, or the number of the level; empty where there is only one such tally
    subject: str
    kind: Kind
    counts_GJ: NDArray[np.int64]
    #: the design effect, 1 for independent things
    effect: float = 1.0
    #: whether neighbouring cells are alike: buckets and bins, not categories
    ordered: bool = False

    @classmethod
    def of(
        cls,
        subject: str,
        kind: Kind,
        cell_M: NDArray[Any],
        unit_M: NDArray[Any],
        group_M: NDArray[Any],
        cells: int,
        classes: int,
        ordered: bool = False,
    ) -> Tally:
        """Count things: their cell, their unit (the entity) and the class number of their label, −1 without one."""
        group_M = np.where(group_M < 0, classes, group_M)
        counts_M = np.bincount(group_M * cells + cell_M, minlength=(classes + 1) * cells)
        return cls(subject, kind, counts_M.reshape(classes + 1, cells), _effect(cell_M, unit_M, cells), ordered)

    @property
    def name(self) -> tuple[str, Kind]:
        return self.subject, self.kind

    @property
    def counts_J(self) -> NDArray[np.int64]:
        counts_J: NDArray[np.int64] = self.counts_GJ.sum(axis=0)
        return counts_J

    @property
    def total(self) -> int:
        return int(self.counts_GJ.sum())

    @property
    def shares_J(self) -> NDArray[np.float64]:
        return self.counts_J / max(1, self.total)


def _effect(cell_M: NDArray[Any], unit_M: NDArray[Any], cells: int) -> float:
    """The mean design effect over the cells, at least 1."""
    total = len(cell_M)
    _, unit_M = np.unique(unit_M, return_inverse=True)
    sizes_U = np.bincount(unit_M)
    if total < 2 or len(sizes_U) < 2 or sizes_U.max() == 1:
        return 1.0
    pairs, often = np.unique(unit_M.astype(np.int64) * cells + cell_M, return_counts=True)
    of_unit, of_cell = pairs // cells, pairs % cells
    shares_J = np.bincount(cell_M, minlength=cells) / total
    # the sum over units of (count − share × size)², cell by cell
    squares_J = np.bincount(of_cell, weights=often.astype(np.float64) ** 2, minlength=cells)
    products_J = np.bincount(of_cell, weights=often * sizes_U[of_unit].astype(np.float64), minlength=cells)
    spread_J = squares_J - 2 * shares_J * products_J + shares_J**2 * float((sizes_U.astype(np.float64) ** 2).sum())
    used_J = (shares_J > 0) & (shares_J < 1)
    if not used_J.any():
        return 1.0
    # Σ (1 − p) d / (J − 1) with d = variance / (p (1 − p) / n)
    mean = float((spread_J[used_J] / (shares_J[used_J] * total)).sum() / (used_J.sum() - 1))
    return max(1.0, mean * len(sizes_U) / (len(sizes_U) - 1))


def unit_effect(unit_S: NDArray[Any]) -> float:
    """The largest design effect that units can have: that of things which are equal within each of them."""
    sizes_U = np.unique(unit_S, return_counts=True)[1].astype(np.float64)
    return float((sizes_U**2).sum() / max(1.0, sizes_U.sum()))
