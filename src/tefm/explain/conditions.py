"""The conditions of a rule: a feature with room, which real sequences of any length can satisfy.

A *condition* says that a field has one of several values in certain records, counted from the last one: in one record,
in all of the last n or in any of them, or in all after the last one that has some value; or that a number is higher or
lower in the last of n records than in the first. A *rule* is a few conditions that hold together.

Shapes: S sequences, N records of all of them, B made-up sequences, T records of each, W records that a condition is
about, D slots, M columns of text, V values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tefm.explain.slot_features import Feature
from tefm.tables.layout import Slots
from tefm.tables.sequences import Sequences, Texts


@dataclass(frozen=True)
class Condition:
    """In these records, each of these slots has one of these values."""

    slots: tuple[int, ...]
    values: tuple[int, ...]
    #: the records after them, up to the last one
    back: int = 0
    #: how many records; None: all, from the first one
    span: int | None = 1
    #: whether one of them is enough
    anywhere: bool = False
    #: of a column of text, the very text
    text: str | None = None
    #: a slot and a value: it is about all records after the last one with that
    after: tuple[int, int] | None = None
    #: 1: a number is higher in the last of these records than in the first; −1: it is lower; 0: it is not about that
    trend: int = 0

    @classmethod
    def of(cls, feature: Feature, x_TD: Slots, texts_TM: Texts | None = None) -> Condition:
        """The very values of a feature.

        >>> x_TD = np.array([[3, 1], [3, 2]])
        >>> Condition.of(Feature(0, (1,)), x_TD), Condition.of(Feature(1, (0,), span=2), x_TD).span
        (Condition(slots=(1,), values=(1,), back=1, span=1, anywhere=False, text=None, after=None, trend=0), None)
        """
        length, width = x_TD.shape
        back, (column, *_) = length - 1 - feature.record, feature.slots
        if column >= width:
            assert texts_TM is not None, "there are texts"
            return cls(feature.slots, (), back, text=texts_TM[feature.record, column - width])
        if feature.trend:
            return cls(feature.slots, (), back, feature.span, trend=feature.trend)
        values = np.unique(x_TD[feature.records, list(feature.slots)]).tolist()
        return cls(feature.slots, tuple(values), back, None if feature.span == length > 1 else feature.span)

    def holds(self, sequences: Sequences, texts_NM: Texts | None = None) -> NDArray[np.bool_]:
        """Which sequences satisfy it; one that has too few records does not.

        >>> sequences = Sequences(np.array([[1], [1], [2], [1]]), np.array([0, 1, 3, 4]))
        >>> last, ever = Condition((0,), (1,)), Condition((0,), (1,), span=None, anywhere=True)
        >>> last.holds(sequences).tolist(), ever.holds(sequences).tolist()
        ([True, False, True], [True, True, True])
        >>> Condition((0,), (2,), after=(0, 1)).holds(sequences).tolist()  # nothing but 2 after the last 1
        [True, True, True]
        >>> Condition((0,), (), span=2, trend=1).holds(sequences).tolist()
        [False, True, False]
        """
        starts, x_ND = sequences.starts, sequences.x_ND
        end_S, least = np.maximum(starts[1:] - self.back, starts[:-1]), self.span or 1
        first_S = starts[:-1] if self.span is None else np.maximum(starts[:-1], end_S - self.span)
        known_S = np.ones(len(first_S), dtype=bool)
        if self.trend:
            value_N = x_ND[:, self.slots[0]].astype(np.int64)
            known_S = (end_S - first_S == least) & (value_N[first_S] > 0) & (value_N[end_S - 1] > 0)
            has_S: NDArray[np.bool_] = known_S & (np.sign(value_N[end_S - 1] - value_N[first_S]) == self.trend)
            return has_S
        if self.after is not None:
            is_anchor_N = x_ND[:, self.after[0]] == self.after[1]
            first_S = np.maximum.reduceat(np.where(is_anchor_N, np.arange(1, len(x_ND) + 1), 0), starts[:-1])
            known_S, least = first_S > starts[:-1], 0
            first_S = np.maximum(first_S, starts[:-1])
        sums = np.concatenate([[0], np.cumsum(self._holds_N(x_ND, texts_NM))])
        count_S, number_S = sums[end_S] - sums[first_S], end_S - first_S
        held_S: NDArray[np.bool_] = count_S > 0 if self.anywhere else (count_S == number_S) & (number_S >= least)
        return held_S & known_S

    def _holds_N(self, x_ND: Slots, texts_NM: Texts | None) -> NDArray[np.bool_]:
        if self.text is not None:
            assert texts_NM is not None, "there are texts"
            same_N: NDArray[np.bool_] = texts_NM[:, self.slots[0] - x_ND.shape[1]] == self.text
            return same_N
        return self._among(x_ND[:, list(self.slots)])

    def _among(self, values: Slots) -> NDArray[np.bool_]:
        """Where all values of the last axis are among its own."""
        own_V = np.zeros(max(int(values.max(initial=0)), *self.values, 0) + 1, dtype=bool)
        own_V[list(self.values)] = True
        among: NDArray[np.bool_] = np.logical_and.reduce(own_V[values], axis=-1)
        return among

    def _about(self, x_BTD: Slots) -> NDArray[np.bool_]:
        """The records that it is about, B × T."""
        length = x_BTD.shape[1]
        back_T = np.arange(length - 1, -1, -1)
        if self.after is None:
            about_T = (back_T >= self.back) & (back_T < self.back + (length if self.span is None else self.span))
            return np.broadcast_to(about_T, x_BTD.shape[:2])
        is_anchor_BT = x_BTD[:, :, self.after[0]] == self.after[1]
        return ~np.logical_or.accumulate(is_anchor_BT[:, ::-1], axis=1)[:, ::-1]

    def cells(self, x_TD: Slots, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """The slots of a sequence that satisfy it, as a mask."""
        keep_TD, about_T = np.zeros(shape, dtype=bool), self._about(x_TD[None])[0].copy()
        if self.anywhere:
            about_T &= self._holds_N(x_TD, None)
        if self.after is not None:
            keep_TD[about_T.argmax() - 1 if about_T.any() else -1, self.after[0]] = True
        keep_TD[np.flatnonzero(about_T)[:, None], list(self.slots)] = True
        return keep_TD

    def enforce(self, x_BTD: Slots, weight_V: NDArray[np.float64]) -> None:
        """Change sequences that do not satisfy it, in place: their value is drawn from its values by their weights.

        What is drawn depends on the number of a sequence alone, so that rules can be compared.
        """
        if self.trend:  # what changes the other way is reversed; the rest changes by one
            last_BW = x_BTD[:, -int(self.span or 1) :, self.slots[0]]
            ends_B2 = last_BW[:, [0, -1]].astype(np.int64)
            direction_B = np.where((ends_B2 > 0).all(axis=1), np.sign(ends_B2[:, 1] - ends_B2[:, 0]), 0)
            other_B, flat_B = direction_B == -self.trend, direction_B == 0
            last_BW[other_B] = last_BW[other_B, ::-1]
            last_B = np.clip(np.maximum(ends_B2[flat_B, 0], 1) + self.trend, 1, max(2, len(weight_V) - 1))
            last_BW[flat_B, -1] = np.maximum(last_B, 1 + (self.trend > 0))
            last_BW[flat_B, 0] = last_BW[flat_B, -1].astype(np.int64) - self.trend
            return
        value_B, place_B = _drawn(self.slots[0], self.back, len(x_BTD))
        if self.after is not None:  # what others do not have comes where the sequence has it
            slot, value = self.after
            x_BTD[(x_BTD[:, :, slot] != value).all(axis=1), max(0, x_BTD.shape[1] - 1 - (self.span or 0)), slot] = value
        about_BT, part_BTW = self._about(x_BTD), x_BTD[:, :, self.slots[0] : self.slots[-1] + 1]
        lacks_BT: NDArray[np.bool_] = about_BT & ~self._among(part_BTW)
        if self.anywhere:  # one of them is enough, whichever
            at = np.flatnonzero(about_BT[0])
            chosen_B = at[(place_B * len(at)).astype(np.int64)]
            lacks_BT[(about_BT & ~lacks_BT).any(axis=1)] = False
            lacks_BT &= np.arange(x_BTD.shape[1]) == chosen_B[:, None]
        # also a value that no training sequence has
        share_V = np.cumsum([1e-9 + (weight_V[value] if value < len(weight_V) else 0) for value in self.values])
        drawn_B = np.array(self.values)[np.searchsorted(share_V / share_V[-1], value_B, side="right")]
        x_BTD[:, :, self.slots[0] : self.slots[-1] + 1] = np.where(
            lacks_BT[:, :, None], drawn_B[:, None, None], part_BTW
        )


@lru_cache(maxsize=1_000)
def _drawn(slot: int, back: int, count: int) -> NDArray[np.float64]:
    """Two random numbers for each of `count` sequences, equal for every condition on a slot of a record."""
    return np.random.default_rng([slot, back]).random((2, count))


#: Conditions that hold together.
Rule = tuple[Condition, ...]


def cells_of(rule: Sequence[Condition], x_TD: Slots, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """The slots of a sequence that a rule is about, as a mask."""
    keep_TD = np.zeros(shape, dtype=bool)
    for condition in rule:
        keep_TD |= condition.cells(x_TD, shape)
    return keep_TD
