"""What a model sees of a table: one record of each sequence with its codes and errors, and the answers.

One record per sequence, drawn at random: the records of a patient are alike, and a test that took them for independent
would cry wolf whenever a patient has many. So in a batch, every record that is counted is of another entity.

Shapes: S sequences, D slots, K levels, Q classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.codes.coder import SlotCoder
from tefm.codes.fidelity import squared_error
from tefm.fitted import Fitted
from tefm.prepare import Preparation
from tefm.records.grouping import up_to
from tefm.records.layout import Slots
from tefm.records.readers.table import open_table
from tefm.records.sequences import Sequences

Logits = Callable[[Sequences], NDArray[Any]]

#: Records whose errors are computed at once.
AT_ONCE = 1 << 15


@dataclass(frozen=True, eq=False)
class Asked:
    """Sequences to answer, and the records that each of them brings: those that are new since it was last asked."""

    sequences: Sequences
    #: the rows that each sequence brings, one sequence after another, and where each starts
    own_rows: NDArray[np.int64]
    own_starts: NDArray[np.int64]
    #: the entity that each sequence is of
    unit_S: NDArray[np.int64]

    @classmethod
    def whole(cls, sequences: Sequences) -> Asked:
        """Sequences that are asked once, with all of their records."""
        return cls(sequences, sequences.rows, sequences.starts, np.arange(len(sequences)))

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def sizes_S(self) -> NDArray[np.int64]:
        """How many records each sequence brings."""
        return np.diff(self.own_starts)

    def one_record_each(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """A row of each sequence, at random among those that it brings."""
        rows: NDArray[np.int64] = self.own_rows[self.own_starts[:-1] + rng.integers(self.sizes_S)]
        return rows

    @classmethod
    def after_each_record(cls, preparation: Preparation, frame: pl.DataFrame, sequences: Sequences) -> Asked:
        """Sequences that are asked after each of their records."""
        ends = np.arange(len(sequences.rows))
        grown = up_to(frame, preparation.schema, sequences, ends, background=preparation.config.background)
        return cls(grown, sequences.rows, np.arange(len(ends) + 1), sequences.sequence_N)

    def select(self, chosen: NDArray[np.int64]) -> Asked:
        """Some of the sequences."""
        own = Sequences(self.own_rows, self.own_starts).select(chosen)
        return Asked(self.sequences.select(chosen), own.values, own.starts, self.unit_S[chosen])


class _Parts:
    """Arrays and a table with one entry per sequence."""

    def part(self, chosen: NDArray[np.integer[Any]]) -> Self:
        """Some of the entries."""
        return type(self)(*(getattr(self, one.name)[chosen] for one in fields(self)))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Records(_Parts):
    """One record per sequence, and the class number of its label (−1 without one)."""

    frame: pl.DataFrame
    x_SD: Slots
    codes_SK: NDArray[Any]
    #: how much of a record is lost: the mean squared error over its slots, and the distance from its code
    reconstruction_S: NDArray[np.float64]
    quantisation_S: NDArray[np.float64]
    label_S: NDArray[np.int64]
    #: the entity that it is of
    unit_S: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.x_SD)


@dataclass(frozen=True, eq=False)
class Answers(_Parts):
    """The calibrated probabilities of sequences, and the class numbers of their labels (−1 without one)."""

    p_SQ: NDArray[np.float64]
    label_S: NDArray[np.int64]
    #: the entity that each is of
    unit_S: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.p_SQ)

    @property
    def labelled(self) -> float:
        """The share of sequences with a label."""
        return float((self.label_S >= 0).mean()) if len(self) else 0.0


def look_at(fitted: Fitted, preparation: Preparation, frame: pl.DataFrame, asked: Asked, seed: int = 0) -> Records:
    """A record of each sequence, coded."""
    coder, vectoriser = coder_of(fitted), preparation.vectoriser
    assert vectoriser is not None, "codes come from slots"
    rows = frame[asked.one_record_each(np.random.default_rng((seed, 17)))]
    x_SD: Slots = vectoriser.transform(open_table(rows, name=asked.sequences.file))
    codes_SK = coder.encode(x_SD)
    errors = errors_of(coder, x_SD, codes_SK)
    return Records(rows, x_SD, codes_SK, *errors, label_numbers(asked.sequences, fitted.classes), asked.unit_S)


def answers_to(fitted: Fitted, preparation: Preparation, frame: pl.DataFrame, asked: Asked, logits: Logits) -> Answers:
    """The model's answers."""
    read = fitted.read(preparation.slots(frame, asked.sequences))
    p_SQ = fitted.calibration.probabilities(logits(read))
    return Answers(p_SQ, label_numbers(asked.sequences, fitted.classes), asked.unit_S)


def coder_of(fitted: Fitted) -> SlotCoder:
    """The coder of a model; the text baseline has none, and cannot be monitored."""
    if fitted.coder is None:
        raise InputError(
            "a model that reads text has no codes to monitor", remedy="fit it with `inputs: codes`, the default"
        )
    return fitted.coder


def label_numbers(sequences: Sequences, classes: Sequence[str]) -> NDArray[np.int64]:
    """The class number of each sequence; −1 without a label, or with one that the model does not know."""
    number = {name: number for number, name in enumerate(classes)}
    if sequences.labels is None:
        return np.full(len(sequences), -1, dtype=np.int64)
    return np.array([number.get(label, -1) for label in sequences.labels], dtype=np.int64)


def errors_of(coder: SlotCoder, x_ND: Slots, codes_NK: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How much of each record is lost: the mean squared error over its slots, and the distance from its code."""
    reconstruction_N, quantisation_N = np.zeros(len(x_ND)), np.zeros(len(x_ND))
    for start in range(0, len(x_ND), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        x, codes = x_ND[part], codes_NK[part]
        reconstruction_N[part] = squared_error(x, coder.decode(codes), coder.layout).mean(axis=1)
        quantisation_N[part] = np.square(coder.latent(x) - coder.embed(codes)).sum(axis=1)
    return reconstruction_N, quantisation_N
