"""What a baseline is given of a sequence: one row of features, or all of its records.

Needs only numpy, so it also works without the table libraries.

Shapes: N records or sequences, D slots, F features, L records of the longest sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.records.layout import Layout, SlotKind
from tefm.records.sequences import Sequences

Kind = Literal["last", "history", "flat"]
#: What the name of a kind begins with where the features are raw values and not slots.
RAW = "raw "


@dataclass(frozen=True, eq=False)
class Features:
    """One row per sequence, and the kind of each column."""

    x_NF: NDArray[Any]
    kinds: tuple[SlotKind, ...]
    #: the words of the sequence's text, as a sparse matrix; only logistic regression reads it
    words_NV: Any = None

    def __len__(self) -> int:
        return len(self.x_NF)

    def __getitem__(self, which: NDArray[Any]) -> Features:
        return Features(self.x_NF[which], self.kinds, None if self.words_NV is None else self.words_NV[which])

    def with_numbers(self, numbers_NM: NDArray[Any]) -> Features:
        """The same rows with further columns."""
        number: SlotKind = "number"
        kinds = self.kinds + (number,) * numbers_NM.shape[1]
        return Features(np.hstack([self.x_NF, numbers_NM], dtype=np.float32), kinds, self.words_NV)

    def of_kind(self, kind: SlotKind) -> list[int]:
        """The columns of one kind."""
        return [column for column, other in enumerate(self.kinds) if other == kind]


@dataclass(frozen=True, eq=False)
class Records:
    """The records of every sequence, in order: rows of one table, which is never copied."""

    #: slots (0: absent), or the raw values of fields (nan: absent)
    slots_ND: NDArray[Any]
    layout: Layout
    #: row numbers of `slots_ND`
    sequences: Sequences

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, which: NDArray[Any]) -> Records:
        return Records(self.slots_ND, self.layout, self.sequences.select(which))

    @property
    def x_ND(self) -> NDArray[Any]:
        """The slots of the records, sequence after sequence."""
        x_ND: NDArray[Any] = self.slots_ND[self.sequences.rows]
        return x_ND

    @property
    def from_end(self) -> NDArray[np.int64]:
        """For each record, how many of its sequence come after it."""
        sequences = self.sequences
        return np.repeat(sequences.starts[1:], sequences.lengths) - np.arange(len(sequences.rows)) - 1


def records_of(slots_ND: NDArray[Any], sequences: Sequences, layout: Layout) -> Records:
    """The records of sequences, after checking that they fit the layout."""
    if slots_ND.shape[1] != layout.width:
        raise InputError(
            f"these records have {slots_ND.shape[1]} slots, not {layout.width}",
            remedy="give the layout of the vectoriser that made them",
        )
    return Records(slots_ND, layout, sequences)


def records_in(slots: Sequences, layout: Layout) -> Records:
    """The records of sequences of slots."""
    return Records(slots.x_ND, layout, slots.with_values(np.arange(len(slots.x_ND))))


def empty_record(layout: Layout) -> Records:
    """A sequence of one record without any value: features of it are as many as of any other."""
    return records_in(Sequences(np.zeros((1, layout.width), dtype=layout.dtype), np.array([0, 1])), layout)


def sequence_features(records: Records, kind: Kind) -> Features:
    """One row per sequence.

    `last`: the slots of its last record. `history`: these, the mean of each slot over its records (as a share of the
    slot's size; for a flag, how often it is on), and the number of records. `flat`: the slots of all records side by
    side, the last record at the end and absent ones in front of shorter sequences; meant for windows. Raw values are
    treated in the same way, and those that are absent do not count in a mean.

    >>> from tefm.records.layout import Slot
    >>> x = np.array([[1, 0], [3, 1], [4, 1]], dtype=np.uint8)
    >>> layout = Layout((Slot("age", "number", 4), Slot("dx", "flag", 1, "428")))
    >>> records = Records(x, layout, Sequences(np.arange(3), np.array([0, 2, 3])))
    >>> sequence_features(records, "history").x_NF.tolist()
    [[3.0, 1.0, 0.5, 0.5, 2.0], [4.0, 1.0, 1.0, 1.0, 1.0]]
    >>> sequence_features(records, "flat").x_NF.tolist()
    [[1, 0, 3, 1], [0, 0, 4, 1]]
    """
    if kind not in get_args(Kind):
        raise SettingsError("not a valid kind of features", value=kind, remedy=f"choose one of {get_args(Kind)}")
    layout, sequences = records.layout, records.sequences
    slot_kinds = tuple(slot.kind for slot in layout.slots)
    last_ND = records.slots_ND[sequences.last]
    if kind == "last":
        return Features(last_ND, slot_kinds)
    all_ND = records.x_ND
    if kind == "flat":
        longest = int(sequences.lengths.max())
        absent = np.nan if all_ND.dtype.kind == "f" else 0
        flat_NLD = np.full((len(records), longest, layout.width), absent, dtype=all_ND.dtype)
        flat_NLD[sequences.sequence_N, longest - 1 - records.from_end] = all_ND
        return Features(flat_NLD.reshape(len(records), longest * layout.width), slot_kinds * longest)
    lengths_N1 = sequences.lengths[:, None]
    sums_ND = np.add.reduceat(np.nan_to_num(all_ND / layout.sizes_D.astype(np.float32)), sequences.starts[:-1], axis=0)
    counts_ND = np.add.reduceat(~np.isnan(all_ND), sequences.starts[:-1], axis=0, dtype=np.int64)
    means_ND = np.divide(sums_ND, counts_ND, out=np.full(sums_ND.shape, np.nan, np.float32), where=counts_ND > 0)
    # adding counts of presence and largest buckets did not help on validation (Diabetes130, splits 20, 21)
    x_NF = np.hstack([last_ND, means_ND, lengths_N1], dtype=np.float32)
    number: SlotKind = "number"
    return Features(x_NF, slot_kinds + (number,) * (x_NF.shape[1] - layout.width))
