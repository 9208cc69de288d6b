"""The population that look-alikes come from: training sequences (the background sample), and the model's answers.

A *look-alike* (perturbed sample) of a sequence shares some of its features and has everything else from one training
sequence, its *donor*: jointly, so that it stays plausible. Records are paired from the last one backwards.

Shapes: S sequences of the population, N records of all of them, B donors, T records of the explained sequence, D slots,
Q classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.explain.counts import Observed
from tefm.rationale.bag_of_words import Note, columns_of, notes_N_of, with_notes
from tefm.rationale.masked_model import Keep, Numbers
from tefm.scoring.calibration import Floats
from tefm.tables.layout import Slots
from tefm.tables.sequences import Sequences

#: Sequences of similar length that a random mixture draws its donor from, at least.
NEAR = 400


@dataclass(frozen=True, eq=False)
class Population:
    """Training sequences in random order, as they occur: the first ones are a sample of all."""

    #: slots, with the texts and times that go into their prompts
    slots: Sequences
    #: the model's probabilities for each of them, and the class that it decides on
    p_SQ: Floats
    answers_S: Numbers
    #: the class number that was observed, −1 where there is no label
    labels_S: Numbers

    def __len__(self) -> int:
        return len(self.slots)

    def select(self, which: Numbers) -> Population:
        """Some of the sequences."""
        return Population(self.slots.select(which), self.p_SQ[which], self.answers_S[which], self.labels_S[which])

    def nearest(self, length: int) -> Numbers:
        """The sequences by how close they are to this length, in random order where they are equally close."""
        return np.argsort(np.abs(self.slots.lengths - length), kind="stable").astype(np.int64)

    def rows(self, donors_B: Numbers, length: int) -> NDArray[np.int64]:
        """The records of donors as sequences of this length: the last ones; the first is repeated where it is short.

        >>> slots = Sequences(np.zeros((4, 1)), np.array([0, 1, 4]))
        >>> none = np.zeros(0, dtype=np.int64)
        >>> Population(slots, np.zeros((2, 2)), none, none).rows(np.array([0, 1]), 2).tolist()
        [[0, 0], [2, 3]]
        """
        starts = self.slots.starts
        rows_BT: NDArray[np.int64] = starts[donors_B + 1, None] - np.arange(length, 0, -1)
        return np.maximum(rows_BT, starts[donors_B, None])

    def records(self, donors_B: Numbers, length: int) -> Slots:
        """The slots of these records, B × T × D."""
        records_BTD: Slots = self.slots.x_ND[self.rows(donors_B, length)]
        return records_BTD

    def look_alikes(
        self, sequence: Sequences, keep_TD: Keep, donors_B: Numbers, *, own_context: bool = False
    ) -> Sequences:
        """One look-alike of a sequence per donor: the kept slots and texts, and everything else from the donor.

        With `own_context`, the times between records stay those of the sequence, and so does its text, where the mask
        has only slots.
        """
        x_TD, donors = sequence.x_ND, self.slots
        keep_TD, keep_TM = keep_TD[:, : x_TD.shape[1]], keep_TD[:, x_TD.shape[1] :]
        rows_BT = self.rows(donors_B, len(x_TD))
        mixed_BTD = np.where(keep_TD, x_TD, donors.x_ND[rows_BT]).astype(x_TD.dtype)
        copies = sequence.select(np.zeros(len(donors_B), dtype=np.int64)).with_values(
            mixed_BTD.reshape(-1, x_TD.shape[1])
        )
        if keep_TM.size:
            copies = replace(copies, texts=self._texts(copies, notes_N_of(sequence), keep_TM, rows_BT))
        if own_context:
            return copies
        if not keep_TM.size:
            texts = None if donors.texts is None else [donors.texts[number] for number in donors_B.tolist()]
            copies = replace(copies, texts=texts)
        return replace(
            copies,
            gaps=None if donors.gaps is None else [donors.gaps[row] for row in rows_BT.ravel().tolist()],
        )

    @cached_property
    def notes_N(self) -> list[Note]:
        """The texts of every record of the population."""
        return notes_N_of(self.slots)

    def notes(self, donors_B: Numbers, length: int) -> list[Note]:
        """The texts of `records`, one after another."""
        return [self.notes_N[row] for row in self.rows(donors_B, length).ravel().tolist()]

    def _texts(self, copies: Sequences, own: Sequence[Note], keep_TM: Keep, rows_BT: NDArray[np.int64]) -> list[Any]:
        """The texts of look-alikes: the kept ones, and those of the donors."""
        mixed = [
            _mixed_note(own[t], self.notes_N[row], keep_M)
            for rows_T in rows_BT.tolist()
            for t, (row, keep_M) in enumerate(zip(rows_T, keep_TM.tolist(), strict=True))
        ]
        return with_notes(copies, mixed)

    def has(self, x_TD: Slots, keep_TD: Keep, notes: Sequence[Note] | None = None) -> NDArray[np.bool_]:
        """Which sequences of the population have all kept slots, in records paired from the last one backwards.

        `notes` are the texts of the sequence; where the mask keeps some, they must be the same.
        """
        length = len(x_TD)
        keep_TD, keep_TM = keep_TD[:, : x_TD.shape[1]], keep_TD[:, x_TD.shape[1] :]
        if notes is not None and keep_TM.any():
            return self.has(x_TD, keep_TD) & self._says(notes, keep_TM)
        record_K, slot_K = np.nonzero(keep_TD)
        rows_SK = self.rows(np.arange(len(self)), length)[:, record_K]
        same_S: NDArray[np.bool_] = (self.slots.x_ND[rows_SK, slot_K] == x_TD[record_K, slot_K]).all(axis=1)
        # a short sequence has no record there
        needed = length - int(record_K.min(initial=length - 1))
        return same_S & (self.slots.lengths >= needed)

    def _says(self, notes: Sequence[Note], keep_TM: Keep) -> NDArray[np.bool_]:
        """Which sequences of the population have the kept texts."""
        says_S = np.ones(len(self), dtype=bool)
        rows_ST = self.rows(np.arange(len(self)), len(notes))
        for record, column in np.argwhere(keep_TM).tolist():
            text = notes[record][column]
            says_S &= np.array([self.notes_N[row][column] == text for row in rows_ST[:, record].tolist()])
            says_S &= self.slots.lengths >= len(notes) - record  # a short sequence has no record there
        return says_S

    def observed(self, x_TD: Slots, keep_TD: Keep, of_class: int, notes: Sequence[Note] | None = None) -> Observed:
        """How often a class was observed among those who have all kept slots and texts, and among the others."""
        labelled_S, has_S = self.labels_S >= 0, self.has(x_TD, keep_TD, notes)
        is_class_S = self.labels_S == of_class
        having_S, others_S = labelled_S & has_S, labelled_S & ~has_S
        counts = ((group_S.sum(), (group_S & is_class_S).sum()) for group_S in (having_S, others_S))
        return Observed(*(int(count) for pair in counts for count in pair))


def mixed(sequences: Sequences, rng: np.random.Generator, *, least: float = 0.03, texts: bool = False) -> Sequences:
    """Each sequence with a random part of its slots replaced by those of another one of similar length.

    The share that stays is drawn uniformly on a logarithmic scale; in half of the sequences, what a record does not
    have stays too. With `texts`, half of the texts are replaced as well.
    """
    donors = Population(sequences, np.zeros((len(sequences), 0)), *[np.zeros(0, dtype=np.int64)] * 2)
    x_ND, lengths = sequences.x_ND, sequences.lengths
    share_S = np.exp(rng.uniform(np.log(least), 0.0, len(sequences)))
    keep_ND = rng.random(x_ND.shape) < share_S[sequences.sequence_N, None]
    keep_ND |= (x_ND == 0) & (rng.random(len(sequences)) < 0.5)[sequences.sequence_N, None]
    mixed_ND, donors_N = x_ND.copy(), np.arange(len(x_ND))
    for length in np.unique(lengths[lengths > 0]).tolist():
        same = np.flatnonzero(lengths == length)
        near = donors.nearest(length)[: max(len(same), NEAR)]
        rows = donors.rows(rng.choice(near, len(same)), length).ravel()
        at = sequences.places(same)
        mixed_ND[at], donors_N[at] = np.where(keep_ND[at], x_ND[at], x_ND[rows]), rows
    copies = sequences.with_values(mixed_ND)
    if not texts:
        return copies
    notes_N = donors.notes_N
    keep_NM = rng.random((len(notes_N), columns_of(sequences))) < 0.5
    mixed_N = [
        _mixed_note(own, notes_N[donor], keep_M)
        for own, donor, keep_M in zip(notes_N, donors_N.tolist(), keep_NM.tolist(), strict=True)
    ]
    return replace(copies, texts=with_notes(copies, mixed_N))


def _mixed_note(own: Note, donor: Note, keep_M: Sequence[bool]) -> Note:
    """The kept texts of a record, and the donor's in place of the others."""
    return tuple(mine if kept else other for mine, other, kept in zip(own, donor, keep_M, strict=True))
