"""Masks, and the model's predictions from the slots that they keep.

Masked slots are removed, the record is encoded again, and the frozen model reads the new codes. A mask keeps the
highest-ranked slots of every record, or of every sequence, or random ones for training, and only present slots.

Shapes: S sequences, N records of all of them, D slots, Q classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.scoring.calibration import Calibration, Floats
from tefm.tables.layout import Slots
from tefm.tables.sequences import Sequences

#: Which slots are kept.
Keep = NDArray[np.bool_]
#: Positions, or class numbers.
Numbers = NDArray[np.int64]
Of = Literal["all", "present"]
Over = Literal["record", "sequence"]
Order = NDArray[np.int32]

#: The rank of an absent slot: after every other one.
ABSENT = np.iinfo(np.int32).max
#: The smallest share of slots that a random mask keeps.
LEAST_SHARE = 0.03


@dataclass(frozen=True)
class MaskedModel:
    """Slots in, probabilities out."""

    #: the logits of the classes for each sequence of slots
    logits: Callable[[Sequences], NDArray[Any]]
    calibration: Calibration
    #: of a model with a head beside the language model: the head's part of the logits, from slots
    head: Callable[[Sequences], Floats] | None = None
    #: of such a model, the language model's part of its answers
    language_model: MaskedModel | None = None

    def __call__(self, sequences: Sequences, keep_ND: Keep | None = None) -> Floats:
        """The probability of each class for each sequence; identical inputs are predicted once."""
        if keep_ND is not None:
            sequences = sequences.masked(keep_ND)
        first, number_S = sequences.distinct()
        return self.calibration.probabilities(self.logits(sequences.select(first)))[number_S]

    def beside(self, slots: Sequences) -> Floats:
        """What is added to the language model's part of the logits, after calibration."""
        assert self.head is not None, "the model has a head"
        logits_SQ = self.head(slots) / self.calibration.temperature
        return logits_SQ + np.array(self.calibration.bias) if self.calibration.bias else logits_SQ

    def decide(self, probabilities_SQ: Floats) -> NDArray[np.int64]:
        """Class numbers."""
        return self.calibration.predict(probabilities_SQ)


# ---- from a ranking to a mask ---------------------------------------------------------------------------------------


def top_k(
    scores_ND: NDArray[Any], sequences: Sequences, share: float, *, of: Of = "all", over: Over = "record"
) -> Keep:
    """Keep the slots that rank highest, a `share` of all or of the present ones, at least one.

    Over records, each record keeps its own best slots. Over a sequence, the records pool their budgets and spend them
    where the scores are highest. The first of equal scores wins.

    >>> x_ND = np.array([[4, 0, 1, 1], [2, 3, 0, 0]], dtype=np.uint8)
    >>> scores_ND = np.array([[0.1, 0.9, 0.3, 0.2], [0.8, 0.4, 0.9, 0.9]])
    >>> sequences = Sequences(x_ND, np.array([0, 2]))
    >>> top_k(scores_ND, sequences, 0.5).astype(int).tolist()
    [[0, 0, 1, 1], [1, 1, 0, 0]]
    >>> top_k(scores_ND, sequences, 0.5, of="present", over="sequence").astype(int).tolist()
    [[0, 0, 1, 0], [1, 1, 0, 0]]
    """
    if not 0 < share <= 1:
        raise SettingsError(
            "the retention is not a valid share", value=share, remedy="use a number above 0 and up to 1, like 0.05"
        )
    present_ND = sequences.x_ND > 0
    present_N = present_ND.sum(axis=1)
    counted_N = present_N if of == "present" else np.full(len(present_N), present_ND.shape[1])
    budget_N = np.minimum(np.maximum(1, np.rint(share * counted_N)), present_N)
    if over == "sequence":
        budget_N = np.bincount(sequences.sequence_N, budget_N, minlength=len(sequences))[sequences.sequence_N]
    keep_ND: Keep = order_over(scores_ND, sequences, over) < budget_N[:, None]
    return keep_ND


def order_of(scores_ND: NDArray[Any], x_ND: Slots) -> Order:
    """The rank of each present slot in its record, 0 for the highest score; absent slots rank last.

    >>> order_of(np.array([[0.2, 0.9, 0.9, 0.5]]), np.array([[1, 3, 1, 0]], dtype=np.uint8))[0, :3].tolist()
    [2, 0, 1]
    """
    assert scores_ND.shape == x_ND.shape, "one score per slot"
    if np.isnan(scores_ND).any():
        raise InputError(
            f"{np.isnan(scores_ND).any(axis=1).sum()} of {len(scores_ND)} records have nan scores",
            remedy="a ranking needs a number for each slot: replace nan with the lowest score",
        )
    lowest = np.finfo(np.float64).min  # a present slot with a score of -inf still ranks above the absent ones
    cost_ND = np.where(x_ND > 0, -np.maximum(scores_ND.astype(np.float64), lowest), np.inf)
    by_score_ND = np.argsort(cost_ND, axis=1, kind="stable")
    order_ND = np.empty(x_ND.shape, dtype=np.int32)
    np.put_along_axis(order_ND, by_score_ND, np.arange(x_ND.shape[1], dtype=np.int32)[None], axis=1)
    order_ND[x_ND == 0] = ABSENT
    return order_ND


def order_over(scores_ND: NDArray[Any], sequences: Sequences, over: Over) -> Order:
    """`order_of` for each record, or for all slots of a sequence together."""
    if over == "record":
        return order_of(scores_ND, sequences.x_ND)
    slots = sequences.x_ND.shape[1]
    order_ND = np.empty(sequences.x_ND.shape, dtype=np.int32)
    for length in np.unique(sequences.lengths[sequences.lengths > 0]):
        # sequences of the same length form one wide table
        rows = sequences.places(np.flatnonzero(sequences.lengths == length))
        wide = (-1, int(length) * slots)
        order_ND[rows] = order_of(scores_ND[rows].reshape(wide), sequences.x_ND[rows].reshape(wide)).reshape(-1, slots)
    return order_ND


def random_keep(sequences: Sequences, rng: np.random.Generator) -> Keep:
    """A random part of the present slots of each record.

    The share is drawn per sequence, uniformly on a logarithmic scale, because inputs of one or two slots are the
    hardest; one record in twenty is empty.
    """
    share_S = np.exp(rng.uniform(np.log(LEAST_SHARE), 0.0, len(sequences)))
    present_ND = sequences.x_ND > 0
    size_N = np.ceil(share_S[sequences.sequence_N] * present_ND.sum(axis=1))
    size_N[rng.random(len(size_N)) < 0.05] = 0
    keep_ND: Keep = order_of(rng.random(present_ND.shape), sequences.x_ND) < size_N[:, None]
    return keep_ND
