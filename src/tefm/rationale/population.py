"""The population that look-alikes come from: training sequences, and the model's answers to them.

A *look-alike* of a sequence shares some of its features and has everything else from one training sequence, its
*donor*: jointly, so that it stays plausible. Records are paired from the last one backwards.

Shapes: S sequences of the population, N records of all of them, B donors, T records of the explained sequence, D slots,
Q classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tefm.rationale.arrays import Keep, Numbers
from tefm.rationale.observed import Observed
from tefm.records.layout import Slots
from tefm.records.sequences import Sequences
from tefm.scoring.calibration import Floats

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
        """One look-alike of a sequence per donor: the kept slots, and everything else from the donor.

        With `own_context`, the text and the times between records stay those of the sequence.
        """
        x_TD, donors = sequence.x_ND, self.slots
        rows_BT = self.rows(donors_B, len(x_TD))
        mixed_BTD = np.where(keep_TD, x_TD, donors.x_ND[rows_BT]).astype(x_TD.dtype)
        copies = sequence.select(np.zeros(len(donors_B), dtype=np.int64)).with_values(
            mixed_BTD.reshape(-1, x_TD.shape[1])
        )
        if own_context:
            return copies
        return replace(
            copies,
            texts=None if donors.texts is None else [donors.texts[number] for number in donors_B.tolist()],
            gaps=None if donors.gaps is None else [donors.gaps[row] for row in rows_BT.ravel().tolist()],
        )

    def has(self, x_TD: Slots, keep_TD: Keep) -> NDArray[np.bool_]:
        """Which sequences of the population have all kept slots, in records paired from the last one backwards."""
        length = len(x_TD)
        record_K, slot_K = np.nonzero(keep_TD)
        rows_SK = self.rows(np.arange(len(self)), length)[:, record_K]
        same_S: NDArray[np.bool_] = (self.slots.x_ND[rows_SK, slot_K] == x_TD[record_K, slot_K]).all(axis=1)
        # a short sequence has no record there
        needed = length - int(record_K.min(initial=length - 1))
        return same_S & (self.slots.lengths >= needed)

    def observed(self, x_TD: Slots, keep_TD: Keep, of_class: int) -> Observed:
        """How often a class was observed among those who have all kept slots, and among the others."""
        labelled_S, has_S = self.labels_S >= 0, self.has(x_TD, keep_TD)
        is_class_S = self.labels_S == of_class
        having_S, others_S = labelled_S & has_S, labelled_S & ~has_S
        counts = ((group_S.sum(), (group_S & is_class_S).sum()) for group_S in (having_S, others_S))
        return Observed(*(int(count) for pair in counts for count in pair))


def mixed(sequences: Sequences, rng: np.random.Generator, *, least: float = 0.03) -> Sequences:
    """Each sequence with a random part of its slots replaced by those of another one of similar length.

    The share that stays is drawn uniformly on a logarithmic scale; in half of the sequences, what a record does not
    have stays too.
    """
    donors = Population(sequences, np.zeros((len(sequences), 0)), *[np.zeros(0, dtype=np.int64)] * 2)
    x_ND, lengths = sequences.x_ND, sequences.lengths
    share_S = np.exp(rng.uniform(np.log(least), 0.0, len(sequences)))
    keep_ND = rng.random(x_ND.shape) < share_S[sequences.sequence_N, None]
    keep_ND |= (x_ND == 0) & (rng.random(len(sequences)) < 0.5)[sequences.sequence_N, None]
    mixed_ND = x_ND.copy()
    for length in np.unique(lengths[lengths > 0]).tolist():
        same = np.flatnonzero(lengths == length)
        near = donors.nearest(length)[: max(len(same), NEAR)]
        rows = donors.rows(rng.choice(near, len(same)), length).ravel()
        at = sequences.places(same)
        mixed_ND[at] = np.where(keep_ND[at], x_ND[at], x_ND[rows])
    return sequences.with_values(mixed_ND)
