"""`Records`: a table that is read, grouped and vectorised once, and then handed down.

It is made where a table comes in (`Records.of_frame`). What is done with the table after that asks it for sequences,
slots, labels and texts, and never opens the frame again.

Shapes: N rows of the frame, D slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from tefm.scoring.numbers import Cuts
from tefm.scoring.survival import Followed
from tefm.tables.clock import timed
from tefm.tables.derived import with_derived
from tefm.tables.grouping import (
    by_entity,
    by_window,
    entities_of,
    labels_of,
    numbers_of_label,
    observed_of,
    texts_of,
    up_to,
)
from tefm.tables.layout import Slots
from tefm.tables.schema import Schema
from tefm.tables.sequences import Sequences, Texts
from tefm.tables.vectorise import Vectoriser

#: Rows of prefixes that are read at once, about.
TOLD = 200_000


@dataclass(frozen=True, eq=False)
class Records:
    """The rows of a table, what its columns mean, and the sequences that its rows form.

    Slots are computed on first use, once per vectoriser; selections of the sequences share them.

    >>> frame = pl.DataFrame({"who": ["a", "b", "a"], "ill": [0, 0, 1], "x": [5, 6, 7]})
    >>> records = Records.of_frame(frame, Schema.from_yaml("{entity: who, label: ill, fields: {x: number}}"))
    >>> vectoriser = records.vectoriser()
    >>> slots = records.as_slots(vectoriser)
    >>> [(name, slots[i].tolist(), slots.labels[i]) for i, name in enumerate(slots.ids)]
    [('a', [[1], [3]], '1'), ('b', [[2]], '0')]
    """

    frame: pl.DataFrame
    schema: Schema
    #: row numbers of the frame
    sequences: Sequences
    #: how many consecutive records are a sequence; None: those of one entity are
    window: int | None = None
    #: the background class: a sequence has its first other label
    background: str | None = None
    #: the classes that the numbers of the label become; None: the label's own values are classes
    cuts: Cuts | None = None
    #: the slots of all rows of the frame, for each vectoriser that was asked for
    known: list[tuple[Vectoriser, Slots]] = field(default_factory=list, repr=False)

    @classmethod
    def of_frame(
        cls,
        frame: pl.DataFrame,
        schema: Schema,
        *,
        window: int | None = None,
        background: str | None = None,
        labelled: bool = True,
        whole: bool = True,
        file: str | None = None,
    ) -> Records:
        """The rows of a frame that was read from a table; `file` is what error messages call it.

        Without `labelled`, labels are neither needed nor read; `whole` leaves out a last window that is too short.
        """
        if window is not None:  # of many entities
            schema = schema.model_copy(update={"static": ()})
        read = schema if labelled else schema.model_copy(update={"label": None})
        if window is None:
            sequences = by_entity(frame, read, background=background, file=file)
        else:
            sequences = by_window(frame, read, window, drop_last=whole, background=background, file=file)
        return cls(with_derived(frame, schema, sequences), schema, sequences, window, background)

    def timed(self) -> Records:
        """These records with the fields that their time gives, for a fit."""
        return self.with_schema(timed(self.frame, self.schema, self.sequences))

    def with_schema(self, schema: Schema) -> Records:
        """These records with the derived fields of another schema; all sequences must still be there."""
        if schema == self.schema:
            return self
        return replace(self, frame=with_derived(self.frame, schema, self.sequences), schema=schema, known=[])

    def __len__(self) -> int:
        """The number of sequences."""
        return len(self.sequences)

    @property
    def file(self) -> str | None:
        """What error messages call the table."""
        return self.sequences.file

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The rows of the frame that belong to sequences, in its order, each once."""
        return np.unique(self.sequences.rows)

    @cached_property
    def labels_N(self) -> Texts | None:
        """The label of each row of the frame; None if the schema has no label."""
        if self.cuts is not None:
            return self.cuts.names_of(self.numbers_N)
        return labels_of(self.frame, self.schema, self.file)

    @cached_property
    def numbers_N(self) -> NDArray[np.float64]:
        """The label of each row of the frame as a number, NaN where it is missing.

        Once the records are cut, censored times until an event are completed.
        """
        if self.cuts is None or self.cuts.survival is None or self.schema.observed is None:
            return numbers_of_label(self.frame, self.schema, self.file)
        return self.cuts.survival.completed(self._followed_of(self.frame))

    @property
    def followed(self) -> Followed | None:
        """How long each sequence was followed until the event; None where the label is no such time."""
        return None if self.schema.observed is None else self._followed_of(self.frame[self.sequences.last])

    def _followed_of(self, frame: pl.DataFrame) -> Followed:
        times_N = numbers_of_label(frame, self.schema, self.file)
        return Followed(times_N, observed_of(frame, self.schema, self.file))

    @property
    def numbers_S(self) -> NDArray[np.float64]:
        """The label of each sequence as a number: that of its last record."""
        numbers_S: NDArray[np.float64] = self.numbers_N[self.sequences.last]
        return numbers_S

    def cut(self, cuts: Cuts | None) -> Records:
        """These records with the numbers of their label as classes; None changes nothing."""
        if cuts is None:
            return self
        cut = replace(self, cuts=cuts)
        labels = None if self.sequences.labels is None else cuts.names_of(cut.numbers_S)
        return replace(cut, sequences=replace(self.sequences, labels=labels))

    @cached_property
    def entities_N(self) -> NDArray[np.str_] | None:
        """The entity of each row of the frame; None if the schema has none."""
        if self.schema.entity is None:
            return None
        return entities_of(self.frame, self.schema.entity, self.schema, self.file).to_numpy().astype(str)

    # ---- other sequences of these rows ------------------------------------------------------------------------

    def select(self, which: ArrayLike) -> Records:
        """Some of the sequences, by mask or by index; rows and slots are shared."""
        return self.with_sequences(self.sequences.select(which))

    def with_sequences(self, sequences: Sequences) -> Records:
        """Other sequences of the same rows; rows and slots are shared."""
        return replace(self, sequences=sequences)

    def up_to(self, ends: NDArray[np.int64]) -> Records:
        """Prefixes: sequences as they were with fewer records, one per end, a position in their records."""
        grown = up_to(self.frame, self.schema, self.sequences, ends, background=self.background)
        return self.with_sequences(grown).cut(self.cuts)

    def after_each(self, rows: int = TOLD) -> Iterator[Records]:
        """Prefixes: the sequences as they were after each of their records, in parts of about this many rows.

        >>> frame = pl.DataFrame({"who": ["a", "b", "a"], "x": [5, 6, 7]})
        >>> (grown,) = Records.of_frame(frame, Schema.from_yaml("{entity: who, fields: {x: number}}")).after_each()
        >>> [(name, grown.sequences[i].tolist()) for i, name in enumerate(grown.sequences.ids)]
        [('a', [0]), ('a', [0, 2]), ('b', [1])]
        """
        lengths = self.sequences.lengths
        told = int((lengths * (lengths + 1) // 2).sum())
        for ends in np.array_split(np.arange(len(self.sequences.rows)), max(1, -(-told // rows))):
            yield self.up_to(ends)

    def part(self, which: ArrayLike) -> Records:
        """Some of the sequences as a table of their own: its rows only, in the table's order, with known slots."""
        chosen = self.sequences.select(which)
        rows = np.unique(chosen.rows)
        sequences = chosen.with_values(np.searchsorted(rows, chosen.rows))
        if self.window is not None or self.schema.entity is None:  # numbered, as in a table of their own
            sequences = replace(sequences, ids=replace(sequences, ids=None).names)
        known = [(vectoriser, x_ND[rows]) for vectoriser, x_ND in self.known]
        return replace(self, frame=self.frame[rows], sequences=sequences, known=known)

    # ---- what a model reads -----------------------------------------------------------------------------------

    def vectoriser(self, *, seed: int = 0) -> Vectoriser:
        """A vectoriser learned from the records of these sequences."""
        return Vectoriser.fit(self.frame[self.rows], self.schema, seed=seed, name=self.file)

    def slots(self, vectoriser: Vectoriser) -> Slots:
        """The slots of every row of the frame."""
        for known, x_ND in self.known:
            if known is vectoriser:
                return x_ND
        x_ND = vectoriser.transform(self.frame, name=self.file)
        self.known.append((vectoriser, x_ND))
        return x_ND

    def as_slots(self, vectoriser: Vectoriser) -> Sequences:
        """The sequences as slots, with their free text."""
        rows = self.sequences.rows
        is_known = any(known is vectoriser for known, _ in self.known)
        if is_known or 2 * len(rows) >= self.frame.height:
            x_ND = self.slots(vectoriser)[rows]
        else:  # a few rows of a long table
            x_ND = vectoriser.transform(self.frame[rows], name=self.file)
        return self.with_texts().with_values(x_ND)

    def with_texts(self) -> Sequences:
        """The sequences as row numbers, with their free text, which goes into their prompts besides the codes."""
        return replace(self.sequences, texts=texts_of(self.frame, self.schema, self.sequences))
