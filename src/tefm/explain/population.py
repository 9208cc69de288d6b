"""The population that look-alikes come from: training sequences (the background sample), and the model's answers.

A *made-up case* (look-alike, perturbed sample) of a rule satisfies it and has everything else from one training
sequence, its *donor*: jointly, so that it stays plausible. Records are paired from the last one backwards. A *real
case* is a training sequence that satisfies the rule; there are more of them than donors, and the model is asked about
them when a rule needs it.

Shapes: S sequences of the population, N records of all of them, B donors, T records of the explained sequence, D slots,
M columns of text, Q classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tefm.explain.conditions import Rule, cells_of
from tefm.explain.counts import Observed
from tefm.explain.slot_features import mask_shape
from tefm.rationale.bag_of_words import texts_NM_of, with_texts
from tefm.rationale.masked_model import Keep, Numbers
from tefm.scoring.calibration import Floats
from tefm.tables.layout import Slots
from tefm.tables.sequences import Sequences, Texts

#: Sequences of similar length that a random mixture draws its donor from, at least.
NEAR = 400


@dataclass(frozen=True, eq=False)
class Cases:
    """Training sequences in random order, as they occur: the first ones are a sample of all."""

    #: slots, with the texts and times that go into their prompts
    slots: Sequences
    #: the class number that was observed, −1 where there is no label
    labels_S: Numbers

    def __len__(self) -> int:
        return len(self.slots)

    @cached_property
    def texts_NM(self) -> Texts:
        """The texts of every record."""
        return texts_NM_of(self.slots)

    def has(self, rule: Rule) -> NDArray[np.bool_]:
        """Which of them satisfy a rule: its real cases."""
        has_S = np.ones(len(self), dtype=bool)
        for condition in rule:
            has_S &= condition.holds(self.slots, None if condition.text is None else self.texts_NM)
        return has_S

    def observed(self, rule: Rule, of_class: int) -> Observed:
        """How often a class was observed where a rule holds, and where it does not."""
        has_S, labelled_S, is_class_S = self.has(rule), self.labels_S >= 0, self.labels_S == of_class
        having_S, others_S = labelled_S & has_S, labelled_S & ~has_S
        having_class, others_class = (having_S & is_class_S).sum(), (others_S & is_class_S).sum()
        return Observed(int(having_S.sum()), int(having_class), int(others_S.sum()), int(others_class))


@dataclass(frozen=True, eq=False)
class Population(Cases):
    """The cases that look-alikes take their other fields from."""

    #: the model's probabilities for each of them, and the class that it decides on
    p_SQ: Floats
    answers_S: Numbers

    def select(self, which: Numbers) -> Population:
        """Some members."""
        return Population(self.slots.select(which), self.labels_S[which], self.p_SQ[which], self.answers_S[which])

    def nearest(self, length: int) -> Numbers:
        """The sequences by how close they are to this length, in random order where they are equally close."""
        return np.argsort(np.abs(self.slots.lengths - length), kind="stable").astype(np.int64)

    def rows(self, donors_B: Numbers, length: int) -> NDArray[np.int64]:
        """The records of donors as sequences of this length: the last ones; the first is repeated where it is short.

        >>> slots = Sequences(np.zeros((4, 1)), np.array([0, 1, 4]))
        >>> none = np.zeros(0, dtype=np.int64)
        >>> Population(slots, none, np.zeros((2, 2)), none).rows(np.array([0, 1]), 2).tolist()
        [[0, 0], [2, 3]]
        """
        starts = self.slots.starts
        rows_BT: NDArray[np.int64] = starts[donors_B + 1, None] - np.arange(length, 0, -1)
        return np.maximum(rows_BT, starts[donors_B, None])

    def records(self, donors_B: Numbers, length: int) -> Slots:
        """The slots of these records, B × T × D."""
        return self.slots.x_ND[self.rows(donors_B, length)]

    def look_alikes(
        self, sequence: Sequences, keep_TD: Keep, donors_B: Numbers, *, own_context: bool = False
    ) -> Sequences:
        """One look-alike of a sequence per donor: the kept slots and texts, and everything else from the donor.

        With `own_context`, the text stays that of the sequence, where the mask has only slots.
        """
        x_TD, donors = sequence.x_ND, self.slots
        width = x_TD.shape[1]
        keep_TM, rows_BT = keep_TD[:, width:], self.rows(donors_B, len(x_TD))
        mixed_BTD = np.where(keep_TD[:, :width], x_TD, donors.x_ND[rows_BT]).astype(x_TD.dtype)
        copies = sequence.select(np.zeros(len(donors_B), dtype=np.int64)).with_values(mixed_BTD.reshape(-1, width))
        if keep_TM.size:
            copies = with_texts(copies, np.where(keep_TM, texts_NM_of(sequence), self.texts_NM[rows_BT]))
        elif not own_context:
            texts = None if donors.texts is None else [donors.texts[number] for number in donors_B.tolist()]
            copies = replace(copies, texts=texts)
        return copies

    # ---- of rules ---------------------------------------------------------------------------------------------

    @cached_property
    def _counts(self) -> dict[int, NDArray[np.float64]]:
        return {}

    def weights(self, slot: int) -> NDArray[np.float64]:
        """How many records have each value of a slot."""
        if slot not in self._counts:
            self._counts[slot] = np.bincount(self.slots.x_ND[:, slot].astype(np.int64)).astype(np.float64)
        return self._counts[slot]

    def made_up(self, sequence: Sequences, rule: Rule, donors_B: Numbers) -> Sequences:
        """Made-up cases of a rule, one per donor: as the donor, but with values that satisfy the rule."""
        shape = mask_shape(sequence)
        texts = [condition for condition in rule if condition.text is not None]
        keep_TD = cells_of(texts, sequence.x_ND, shape)
        copies = self.look_alikes(sequence, keep_TD, donors_B)
        x_BTD = self.satisfying(rule, copies.x_ND.reshape(len(donors_B), *sequence.x_ND.shape))
        return copies.with_values(x_BTD.reshape(copies.x_ND.shape))

    def satisfying(self, rule: Rule, x_BTD: Slots) -> Slots:
        """Copies of sequences of slots with values that satisfy a rule, drawn from those of the population."""
        x_BTD = x_BTD.copy()
        for condition in rule:
            if condition.text is None:
                condition.enforce(x_BTD, self.weights(condition.slots[0]))
        return x_BTD


def mixed(sequences: Sequences, rng: np.random.Generator, *, least: float = 0.03, texts: bool = False) -> Sequences:
    """Each sequence with a random part of its slots replaced by those of another one of similar length.

    The share that stays is drawn uniformly on a logarithmic scale; in half of the sequences, what a record does not
    have stays too. With `texts`, half of the texts are replaced as well.
    """
    none = np.zeros(0, dtype=np.int64)
    donors = Population(sequences, none, np.zeros((len(sequences), 0)), none)
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
    keep_NM = rng.random(donors.texts_NM.shape) < 0.5
    return with_texts(copies, np.where(keep_NM, donors.texts_NM, donors.texts_NM[donors_N]))
