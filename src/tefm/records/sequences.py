"""`Sequences`: records in order, at every stage of the path.

A sequence is the ordered records of one entity (a patient) or a window of consecutive records (10 flows). The same
sequences go through all stages: as row numbers of a table, as slots, as codes. Arrays only.

Shapes: S sequences, N records of all of them, D slots, K levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: One text or None each.
Texts = NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class Sequences:
    """S sequences, the records of all of them one after another, and what is known of each record.

    >>> slots = Sequences(np.array([[1, 0], [2, 3], [1, 1]]), np.array([0, 2, 3]), texts=["first", "second"])
    >>> slots[0].tolist(), slots.select([1]).texts
    ([[1, 0], [2, 3]], ['second'])
    >>> codes = slots.with_values(np.array([[7], [8], [7]]))
    >>> codes[0].tolist(), codes.texts
    ([[7], [8]], ['first', 'second'])
    """

    #: what a stage knows of each record: its row number in a table (N), its slots (N×D), or its code (N×K)
    values: NDArray[Any]
    #: where each sequence starts in `values`, and the end of the last one
    starts: NDArray[np.int64]
    #: the entity; None where nobody asks whose the records are
    ids: Texts | None = None
    #: one per sequence, None where it has no label; None altogether when the schema has no label
    labels: Texts | None = None
    #: when each sequence ends, as a rank: sequences are compared by it, never measured
    ends: NDArray[np.int64] | None = None
    #: text per sequence that the language model reads: beside the codes, or in their place
    texts: Sequence[str] | None = None
    #: words per record about the time since the one before
    gaps: Sequence[str] | None = None
    #: what messages call the table that the records are from
    file: str | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, i: int) -> NDArray[Any]:
        """The values of sequence i, in order."""
        i = range(len(self))[i]  # IndexError past the end, -1 is the last
        return self.values[self.starts[i] : self.starts[i + 1]]

    @property
    def rows(self) -> NDArray[np.int64]:
        """Row numbers of the table, where that is what the sequences hold."""
        return self.values

    @property
    def x_ND(self) -> NDArray[Any]:
        """Slots, where that is what the sequences hold."""
        return self.values

    @property
    def codes_NK(self) -> NDArray[Any]:
        """Codes, where that is what the sequences hold."""
        return self.values

    @property
    def names(self) -> Texts:
        """The ids, or numbers where there are none."""
        return self.ids if self.ids is not None else np.array([str(i) for i in range(len(self))], dtype=object)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many records each sequence has."""
        return np.diff(self.starts).astype(np.int64)

    @property
    def sequence_N(self) -> NDArray[np.int64]:
        """The number of the sequence that each record belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def last(self) -> NDArray[Any]:
        """The value of each sequence's last record."""
        last: NDArray[Any] = self.values[self.starts[1:] - 1]
        return last

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which sequences have a label."""
        if self.labels is None:
            return np.zeros(len(self), dtype=bool)
        return np.array([label is not None for label in self.labels], dtype=bool)

    def places(self, chosen: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Where the records of some sequences stand in `values`, one sequence after another."""
        return _places(self.starts, np.asarray(chosen))[0]

    def select(self, which: ArrayLike) -> Sequences:
        """Some of the sequences, by mask or by number; a number may come several times."""
        chosen = np.asarray(which)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        places, starts = _places(self.starts, chosen)
        return replace(
            self,
            values=self.values[places],
            starts=starts,
            ids=None if self.ids is None else self.ids[chosen],
            labels=None if self.labels is None else self.labels[chosen],
            ends=None if self.ends is None else self.ends[chosen],
            texts=None if self.texts is None else [self.texts[int(i)] for i in chosen],
            gaps=None if self.gaps is None else [self.gaps[int(place)] for place in places],
        )

    def with_values(self, values: NDArray[Any]) -> Sequences:
        """The same sequences with something else known of each record."""
        assert len(values) == len(self.values), "one value per record"
        return replace(self, values=values)

    def masked(self, keep_ND: NDArray[np.bool_]) -> Sequences:
        """x ⊙ m: slots that are not kept become absent."""
        assert keep_ND.shape == self.values.shape, "one mask per record"
        return replace(self, values=np.where(keep_ND, self.values, 0).astype(self.values.dtype))


def _places(starts: NDArray[np.int64], chosen: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the records of the chosen sequences stand, and where each sequence starts among them."""
    lengths = np.diff(starts)[chosen]
    new_starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    moved = np.repeat(starts[:-1][chosen] - new_starts[:-1], lengths)
    return moved + np.arange(new_starts[-1]), new_starts
