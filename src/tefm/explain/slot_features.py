"""The features of a sequence, of which an explanation names a few: what its records say, and what they do not.

Shapes: T records of one sequence, D slots, F features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tefm.rationale.bag_of_words import columns_of, texts_NM_of
from tefm.rationale.masked_model import Keep
from tefm.tables.layout import Layout, Slots
from tefm.tables.sequences import Sequences

#: Of a category, what follows the last record with each of this many values is a feature.
FOLLOWED = 6
#: Over how many of the last records a number may rise or fall; the slots that change most are offered.
TRENDS = (4, 8)


@dataclass(frozen=True)
class Feature:
    """Slots that are kept or replaced together, in one record or in several consecutive ones.

    The value of a field is one slot, also where there is none; so is a member of a set. An empty set is a feature, with
    all of its slots. The text of a column is a feature too; its slot comes after those of the layout.
    """

    #: the position of the record in its sequence; of several, the last one
    record: int
    slots: tuple[int, ...]
    #: whether the record has no value there
    absent: bool = False
    #: how many records it is about
    span: int = 1
    #: whether they may have each other's values
    varied: bool = False
    #: 1 where a number is higher in the last of them than in the first, −1 where it is lower
    trend: int = 0

    @property
    def records(self) -> slice:
        return slice(self.record - self.span + 1, self.record + 1)


def mask_shape(sequence: Sequences) -> tuple[int, int]:
    """The shape of a mask of one sequence: its records, and its slots with the columns of text after them."""
    return len(sequence.x_ND), sequence.x_ND.shape[1] + columns_of(sequence)


def text_features(sequence: Sequences) -> list[Feature]:
    """The texts of a sequence as features.

    >>> one = Sequences(np.zeros((2, 5)), np.array([0, 2]), texts=[(("cough",), ("",))])
    >>> [(f.record, f.slots, f.absent) for f in text_features(one)]
    [(0, (5,), False), (1, (5,), True)]
    """
    if sequence.texts is None:
        return []
    first = sequence.x_ND.shape[1]
    notes = enumerate(texts_NM_of(sequence))
    return [Feature(record, (first + m,), absent=not text) for record, note in notes for m, text in enumerate(note)]


def features_of(x_TD: Slots, layout: Layout, often_D: NDArray[np.bool_] | None = None) -> list[Feature]:
    """All features of a sequence's slots: those of each record, of the whole sequence, and of its last records.

    Members that a set does not have are offered where others have them `often_D`. A field of the entity is one feature.

    >>> from tefm.tables.layout import Slot
    >>> layout = Layout((Slot("age", "number", 9), Slot("sex", "category", 2), Slot("dx", "flag", 1, "250"),
    ...                  Slot("dx", "flag", 1, "401")))
    >>> [(f.slots, f.absent) for f in features_of(np.array([[4, 0, 0, 1]]), layout)]
    [((0,), False), ((1,), True), ((3,), False)]
    >>> [(f.slots, f.record, f.span) for f in features_of(np.array([[4, 1, 0, 0], [4, 0, 1, 0]]), layout)][-2:]
    [((2,), 1, 1), ((0,), 1, 2)]
    """
    optional_D = layout.member_D if often_D is None else layout.member_D & ~often_D
    sets = [layout.of_field(name) for name in dict.fromkeys(s.field for s in layout.slots if s.member is not None)]
    length = len(x_TD)
    several_D = layout.static_D if length > 1 else np.zeros_like(layout.static_D)
    features = []
    for record, x_D in enumerate(x_TD):
        offered = np.flatnonzero(((x_D > 0) | ~optional_D) & ~several_D).tolist()
        features += [Feature(record, (slot,), absent=not x_D[slot]) for slot in offered]
        empty = [slots for slots in sets if not x_D[slots].any()]
        features += [Feature(record, tuple(slots.tolist()), absent=True) for slots in empty]
    return features + (list(_lasting(x_TD, optional_D, layout)) if length > 1 else [])


def _lasting(x_TD: Slots, optional_D: NDArray[np.bool_], layout: Layout) -> Iterator[Feature]:
    """Values that the last records share, in all of them where they do; and what follows the last one of a category."""
    last_D, length = x_TD[-1], len(x_TD)
    same_TD = np.logical_and.accumulate(x_TD[::-1] == last_D)
    span_D = np.where(layout.static_D, length, same_TD.sum(axis=0))
    for slot in np.flatnonzero((span_D > 1) & ((last_D > 0) | ~optional_D)).tolist():
        yield Feature(length - 1, (slot,), absent=not last_D[slot], span=int(span_D[slot]))
    for slot in [at for at, of in enumerate(layout.slots) if of.kind == "category" and not of.static]:
        spans = {int((x_TD[::-1, slot] == value).argmax()) for value in np.unique(x_TD[:, slot])}
        for span in sorted(spans - set(range(span_D[slot] + 1)))[:FOLLOWED]:
            yield Feature(length - 1, (slot,), span=span, varied=True)
    numbers = [at for at, of in enumerate(layout.slots) if of.kind == "number" and not of.static]
    for span in (span for span in TRENDS if span <= length):
        change = {slot: (int(x_TD[-1, slot]) - int(x_TD[-span, slot])) / layout.slots[slot].size for slot in numbers}
        known = [slot for slot in numbers if change[slot] and x_TD[-1, slot] and x_TD[-span, slot]]
        for slot in sorted(known, key=lambda slot: -abs(change[slot]))[:FOLLOWED]:
            yield Feature(length - 1, (slot,), span=span, varied=True, trend=1 if change[slot] > 0 else -1)


def within(feature: Feature, kept: Sequence[Feature]) -> bool:
    """Whether the slots of a feature are kept already: then it says no more."""
    return any(
        set(feature.slots) <= set(other.slots)
        and other.records.start <= feature.records.start
        and feature.record <= other.record
        for other in kept
    )


def distinct(features: Sequence[Feature]) -> tuple[Feature, ...]:
    """Without features that others of them contain."""
    return tuple(of for of in features if not within(of, [other for other in features if other != of]))


def keep_of(features: Sequence[Feature], shape: tuple[int, ...]) -> Keep:
    """The slots of these features as a mask.

    >>> keep_of([Feature(1, (0, 2))], (2, 3)).astype(int).tolist()
    [[0, 0, 0], [1, 0, 1]]
    """
    keep_TD = np.zeros(shape, dtype=bool)
    for feature in features:
        keep_TD[feature.records, list(feature.slots)] = True
    return keep_TD


def keeps_of(sets: Sequence[Sequence[Feature]], shape: tuple[int, ...]) -> Keep:
    """The masks of several sets of features, one above the other."""
    return np.stack([keep_of(features, shape) for features in sets]) if sets else np.zeros((0, *shape), dtype=bool)
