"""The features of a sequence, of which an explanation names a few: what its records say, and what they do not.

Shapes: T records of one sequence, D slots, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tefm.rationale.bag_of_words import columns_of, texts_NM_of
from tefm.rationale.masked_model import Keep
from tefm.tables.layout import Layout, Slots
from tefm.tables.sequences import Sequences


@dataclass(frozen=True)
class Feature:
    """Slots of one record that are kept or replaced together.

    The value of a field is one slot, also where there is none. A set has a feature for each of its members, and one for
    its whole value: these members and no others. The text of a column is a feature too; its slot comes after those of
    the layout.
    """

    #: the position of the record in its sequence
    record: int
    slots: tuple[int, ...]
    #: whether the record has no value there
    absent: bool = False
    #: how many features it counts as: the whole value of a set as many as it has members, anything else as one
    size: int = 1


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


def features_of(x_TD: Slots, layout: Layout) -> list[Feature]:
    """All features of a sequence's slots, record by record.

    >>> from tefm.tables.layout import Slot
    >>> layout = Layout((Slot("age", "number", 9), Slot("sex", "category", 2), Slot("dx", "flag", 1, "250"),
    ...                  Slot("dx", "flag", 1, "401"), Slot("dx", "flag", 1, "428")))
    >>> [(f.slots, f.absent, f.size) for f in features_of(np.array([[4, 0, 0, 1, 1]]), layout)]
    [((0,), False, 1), ((1,), True, 1), ((3,), False, 1), ((4,), False, 1), ((2, 3, 4), False, 2)]
    """
    features = []
    member_D = layout.member_D
    sets = [layout.of_field(name) for name in dict.fromkeys(s.field for s in layout.slots if s.member is not None)]
    for record, x_D in enumerate(x_TD):
        features += [
            Feature(record, (slot,), absent=not x_D[slot])
            for slot in range(len(x_D))
            if x_D[slot] or not member_D[slot]
        ]
        for slots in sets:
            members = int(np.count_nonzero(x_D[slots]))
            features.append(Feature(record, tuple(slots.tolist()), absent=not members, size=max(1, members)))
    return features


def size_of(features: Sequence[Feature]) -> int:
    """How many features a set of them counts as."""
    return sum(feature.size for feature in features)


def within(feature: Feature, kept: Sequence[Feature]) -> bool:
    """Whether the slots of a feature are kept already: a member of a set whose whole value is kept says no more."""
    return any(feature.record == other.record and set(feature.slots) <= set(other.slots) for other in kept)


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
        keep_TD[feature.record, list(feature.slots)] = True
    return keep_TD


def keeps_of(sets: Sequence[Sequence[Feature]], shape: tuple[int, ...]) -> Keep:
    """The masks of several sets of features, one above the other."""
    return np.stack([keep_of(features, shape) for features in sets]) if sets else np.zeros((0, *shape), dtype=bool)
