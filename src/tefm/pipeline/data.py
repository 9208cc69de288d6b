"""The arrays that a fit is made from. `prepare.py` makes them from tables, the benchmarks bring their own.

Shapes: N records, D slots, S sequences, Q classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.codes.coder import SlotCoder
from tefm.language.prompts import Prompt
from tefm.pipeline.config import ModelConfig
from tefm.questions.question_data import QuestionData
from tefm.scoring.numbers import Buckets
from tefm.tables.layout import Layout, Slots
from tefm.tables.phrases import Phrases
from tefm.tables.sequences import Sequences, Texts


@dataclass(frozen=True)
class Part:
    """The records of one part of the data, and the labelled sequences among them."""

    #: row numbers into `slots_ND`, with the texts that go into the prompt
    sequences: Sequences
    #: the class number of each sequence
    labels_S: NDArray[np.int64]
    #: the slots of all records, also of those in no sequence
    slots_ND: Slots
    #: the label of each record, which task-aware codes learn from; None where it has none
    record_labels_N: Texts | None = None
    #: whose record it is: the records of an entity are held out together
    groups_N: NDArray[Any] | None = None
    #: where the label is a number: that of each sequence
    numbers_S: NDArray[np.float64] | None = None
    #: the sequences of the part that are not used, because they have no label or for the balance of the classes
    others: Sequences | None = None
    #: their class numbers, −1 where there is no label
    other_labels_S: NDArray[np.int64] | None = None

    def with_values(self, values_N: NDArray[Any]) -> Sequences:
        """The sequences with values of their records, given one per record of the part."""
        return self.sequences.with_values(values_N[self.sequences.rows])

    @property
    def slots(self) -> Sequences:
        """The sequences with the slots of their records."""
        return self.with_values(self.slots_ND)


@dataclass(frozen=True)
class TaskData:
    """All that a fit is made from."""

    training: Part
    #: other sequences, for early stopping and calibration; may be empty
    validation: Part
    classes: tuple[str, ...]
    #: the number of the class that AUROC and the decision threshold are about
    positive: int
    prompt: Prompt
    #: which slot holds what, and what it is called
    layout: Layout
    phrases: Phrases
    #: the share of each class in the population that probabilities are about; empty: as in the training sequences
    shares: tuple[float, ...] = ()
    #: the validation sequences that early stopping uses, which are balanced like the training; None: all of them
    stopping: NDArray[np.int64] | None = None
    #: questions in words and their answers, where there are some
    questions: QuestionData | None = None
    #: where the label is a number: its classes, and how they become numbers again
    buckets: Buckets | None = None
    #: whether the labels are a task of their own; otherwise they are the answers to the first question
    labelled: bool = True

    @property
    def trained_shares(self) -> tuple[float, ...]:
        """The share of each class in the training sequences."""
        return shares_of(self.training.labels_S, len(self.classes))


@dataclass(frozen=True)
class Given:
    """What one domain of a language model is fitted from; most models have a single one."""

    data: TaskData
    config: ModelConfig
    #: codes that were learned before, with which stage 1 is skipped
    coder: SlotCoder | None = None

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of each class in the population."""
        return self.data.shares or self.data.trained_shares


def shares_of(labels_S: NDArray[np.int64], classes: int) -> tuple[float, ...]:
    """The share of each class.

    >>> shares_of(np.array([0, 1, 1, 1]), classes=2)
    (0.25, 0.75)
    """
    return tuple((np.bincount(labels_S, minlength=classes) / max(1, len(labels_S))).tolist())
