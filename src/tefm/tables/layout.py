"""The layout of a vectorised record: the meaning of each slot (an encoded feature).

Slot value 0 always means "absent": missing, not measured, flag off, masked out. A slot of size n takes the values 0…n.
This module needs only the standard library and numpy, so that the stages after `tables/` can work from arrays alone.

Shapes: N records, D slots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Slots = NDArray[np.unsignedinteger[Any]]
SlotKind = Literal["category", "number", "flag"]


@dataclass(frozen=True)
class Slot:
    """One position of the vectorised record.

    `category` values are unordered, `number` values are ordered buckets, a `flag` is on (1) or absent.
    """

    field: str
    kind: SlotKind
    size: int
    #: for a flag of a set: its member
    member: str | None = None
    #: its field is of the entity: every record of a sequence has the same value
    static: bool = False

    @property
    def name(self) -> str:
        return self.field if self.member is None else f"{self.field}={self.member}"


@dataclass(frozen=True)
class Layout:
    """The slots of a record, in order.

    >>> layout = Layout((Slot("age", "number", 10), Slot("dx", "flag", 1, "250"), Slot("dx", "flag", 1, "428")))
    >>> layout.width, layout.fields, layout.of_field("dx")
    (3, ('age', 'dx'), array([1, 2]))
    """

    slots: tuple[Slot, ...]

    @property
    def width(self) -> int:
        """D, the number of slots."""
        return len(self.slots)

    @cached_property
    def sizes_D(self) -> NDArray[np.int64]:
        """The largest value of each slot."""
        return np.array([slot.size for slot in self.slots], dtype=np.int64)

    @cached_property
    def number_D(self) -> NDArray[np.bool_]:
        """Which slots are ordered buckets."""
        return np.array([slot.kind == "number" for slot in self.slots], dtype=bool)

    @cached_property
    def member_D(self) -> NDArray[np.bool_]:
        """Which slots are flags of a set: sparse, and scored by recall rather than accuracy."""
        return np.array([slot.member is not None for slot in self.slots], dtype=bool)

    @cached_property
    def static_D(self) -> NDArray[np.bool_]:
        """Which slots are of fields of the entity."""
        return np.array([slot.static for slot in self.slots], dtype=bool)

    @cached_property
    def profile(self) -> Layout:
        """The slots of the fields of the entity, as a record of their own."""
        return Layout(tuple(replace(slot, static=False) for slot in self.slots if slot.static))

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(dict.fromkeys(slot.field for slot in self.slots))

    @property
    def dtype(self) -> type[np.unsignedinteger[Any]]:
        """The smallest integer type that holds every slot value."""
        return np.uint8 if self.sizes_D.max(initial=0) <= 255 else np.uint16

    def to_json(self) -> list[tuple[Any, ...]]:
        """The slots as plain values.

        >>> layout = Layout((Slot("age", "number", 10, static=True), Slot("dx", "flag", 1, "250")))
        >>> Layout.from_json(layout.to_json()) == layout
        True
        """
        return [astuple(slot) if slot.static else astuple(slot)[:-1] for slot in self.slots]

    @classmethod
    def from_json(cls, slots: Iterable[Any]) -> Layout:
        """What `to_json` gave."""
        return cls(tuple(Slot(*slot) for slot in slots))

    def of_field(self, name: str) -> NDArray[np.int64]:
        """The positions of a field's slots."""
        return np.flatnonzero([slot.field == name for slot in self.slots])
