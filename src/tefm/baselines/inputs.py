"""What a baseline reads of sequences: one row of features each, or all records of each as a set.

Needs nothing but numpy, so that it also works where the table libraries are missing.

Shapes: N records or sequences, D slots, F features, L records of the longest sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.records.layout import Layout, SlotKind

Kind = Literal["last", "history", "flat"]


class Ordered(Protocol):
    """Row numbers, sequence after sequence: `tefm.records.sequences.Sequences`, or what else has these two."""

    @property
    def rows(self) -> NDArray[np.int64]: ...

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each sequence starts in `rows`, and the end of the last one."""
        ...


@dataclass(frozen=True, eq=False)
class Features:
    """One row per sequence, and what each column holds."""

    x_NF: NDArray[Any]
    kinds: tuple[SlotKind, ...]

    def __len__(self) -> int:
        return len(self.x_NF)

    def __getitem__(self, which: NDArray[Any]) -> Features:
        return Features(self.x_NF[which], self.kinds)

    def of_kind(self, wanted: SlotKind) -> list[int]:
        """The columns of one kind."""
        return [column for column, kind in enumerate(self.kinds) if kind == wanted]


@dataclass(frozen=True, eq=False)
class Records:
    """The records of every sequence, in order: rows of one table that is never copied."""

    slots_ND: NDArray[Any]
    layout: Layout
    rows: NDArray[np.int64]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, which: NDArray[Any]) -> Records:
        chosen = np.flatnonzero(which) if which.dtype == bool else which
        lengths = np.diff(self.starts)[chosen]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        moved = np.repeat(self.starts[chosen] - starts[:-1], lengths)
        return Records(self.slots_ND, self.layout, self.rows[moved + np.arange(starts[-1])], starts)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    @property
    def from_end(self) -> NDArray[np.int64]:
        """Of each record, how many of its sequence come after it."""
        return np.repeat(self.starts[1:], self.lengths) - np.arange(len(self.rows)) - 1


def records_of(slots_ND: NDArray[Any], sequences: Ordered, layout: Layout) -> Records:
    """The records of sequences, once it is known that they fit the layout."""
    if slots_ND.shape[1] != layout.width:
        raise InputError(
            f"these records have {slots_ND.shape[1]} slots, not {layout.width}",
            remedy="give the layout of the vectoriser that made them",
        )
    return Records(slots_ND, layout, sequences.rows, sequences.starts)


def sequence_features(records: Records, kind: Kind) -> Features:
    """One row per sequence.

    `last`: the slots of its last record. `history`: these, the mean of each slot over its records (as a share of the
    slot's size; of a flag, how often it is on), and the number of records. `flat`: the slots of all records side by
    side, the last record at the end and 0 (absent) in front of shorter sequences; meant for windows.

    >>> from tefm.records.layout import Slot
    >>> x = np.array([[1, 0], [3, 1], [4, 1]], dtype=np.uint8)
    >>> layout = Layout((Slot("age", "number", 4), Slot("dx", "flag", 1, "428")))
    >>> records = Records(x, layout, np.arange(3), np.array([0, 2, 3]))
    >>> sequence_features(records, "history").x_NF.tolist()
    [[3.0, 1.0, 0.5, 0.5, 2.0], [4.0, 1.0, 1.0, 1.0, 1.0]]
    >>> sequence_features(records, "flat").x_NF.tolist()
    [[1, 0, 3, 1], [0, 0, 4, 1]]
    """
    if kind not in get_args(Kind):
        raise SettingsError("there are no such features", value=kind, remedy=f"choose one of {get_args(Kind)}")
    layout, lengths_N = records.layout, records.lengths
    slots = tuple(slot.kind for slot in layout.slots)
    last_ND = records.slots_ND[records.rows[records.starts[1:] - 1]]
    if kind == "last":
        return Features(last_ND, slots)
    all_ND = records.slots_ND[records.rows]
    if kind == "flat":
        longest = int(lengths_N.max())
        flat_NLD = np.zeros((len(records), longest, layout.width), dtype=all_ND.dtype)
        flat_NLD[np.repeat(np.arange(len(records)), lengths_N), longest - 1 - records.from_end] = all_ND
        return Features(flat_NLD.reshape(len(records), longest * layout.width), slots * longest)
    first = records.starts[:-1]
    means_ND = np.add.reduceat(all_ND / layout.sizes_D.astype(np.float32), first, axis=0) / lengths_N[:, None]
    # counts of presence and largest buckets, added to these, were no better on validation (Diabetes130, splits 20, 21)
    x_NF = np.hstack([last_ND, means_ND, lengths_N[:, None]], dtype=np.float32)
    number: SlotKind = "number"
    return Features(x_NF, slots + (number,) * (x_NF.shape[1] - layout.width))
