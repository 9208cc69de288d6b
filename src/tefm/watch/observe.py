"""What a model sees of a table: the slots, codes and errors of its records, and the answers to its sequences.

Shapes: N records, D slots, K levels, S sequences, Q classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.codes.coder import SlotCoder
from tefm.codes.fidelity import squared_error
from tefm.language.remember import RememberedLogits
from tefm.pipeline import Fitted
from tefm.prepare import Preparation
from tefm.records.layout import Slots
from tefm.records.sequences import Sequences
from tefm.watch.fields import Records

Logits = Callable[[Sequences], NDArray[Any]]

#: Records whose errors are computed at once.
AT_ONCE = 1 << 15


@dataclass(frozen=True, eq=False)
class Observed:
    """Records and sequences as a model sees them. The sequences may be parts of each other, the records are not."""

    records: Records
    codes_NK: NDArray[Any]
    #: how much of a record is lost: the mean squared error over its slots, and the distance from its code
    reconstruction_N: NDArray[np.float64]
    quantisation_N: NDArray[np.float64]
    #: of each sequence: the calibrated probabilities, its class number (−1 without a label), and its entity
    p_SQ: NDArray[np.float64]
    label_S: NDArray[np.int64]
    unit_S: NDArray[np.int64]

    def part(self, records: NDArray[np.integer[Any]], sequences: NDArray[np.integer[Any]]) -> Observed:
        """Some of the records and some of the sequences."""
        of = self.records
        some = Records(of.frame[records], of.x_ND[records], of.unit_N[records], of.label_N[records], of.file)
        return Observed(
            some,
            self.codes_NK[records],
            self.reconstruction_N[records],
            self.quantisation_N[records],
            self.p_SQ[sequences],
            self.label_S[sequences],
            self.unit_S[sequences],
        )


def observe(
    fitted: Fitted,
    preparation: Preparation,
    frame: pl.DataFrame,
    sequences: Sequences,
    answered: Sequences | None = None,
    units: NDArray[np.int64] | None = None,
    *,
    logits: Logits | None = None,
) -> Observed:
    """Code the records of `sequences` and answer them.

    `answered` are other sequences of the same rows to answer instead, such as the first records of each entity, and
    `units` the number of the sequence that each of them is from. `logits` remembers answers from call to call.
    """
    coder, vectoriser = coder_of(fitted), preparation.vectoriser
    assert vectoriser is not None, "codes come from slots"
    answered, units = (sequences, np.arange(len(sequences))) if answered is None else (answered, units)
    assert units is not None, "sequences that are part of others have a unit"
    rows = sequences.rows
    slots_ND: Slots = preparation.slots(frame, sequences).x_ND
    codes_NK = coder.encode(slots_ND)
    place = np.zeros(frame.height, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    read = preparation.context(frame, answered).with_values(codes_NK[place[answered.rows]])
    logits = logits or RememberedLogits(fitted.classifier)
    label_S = label_numbers(sequences, fitted.classes)
    reconstruction_N, quantisation_N = errors_of(coder, slots_ND, codes_NK)
    return Observed(
        Records(frame[rows], slots_ND, sequences.sequence_N, label_S[sequences.sequence_N], sequences.file),
        codes_NK,
        reconstruction_N,
        quantisation_N,
        fitted.calibration.probabilities(logits(read)),
        label_numbers(answered, fitted.classes),
        units,
    )


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


def errors_of(
    coder: SlotCoder, slots_ND: Slots, codes_NK: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How much of each record is lost: the mean squared error over its slots, and the distance from its code."""
    reconstruction_N, quantisation_N = np.zeros(len(slots_ND)), np.zeros(len(slots_ND))
    for start in range(0, len(slots_ND), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        x_ND, codes = slots_ND[part], codes_NK[part]
        reconstruction_N[part] = squared_error(x_ND, coder.decode(codes), coder.layout).mean(axis=1)
        quantisation_N[part] = np.square(coder.latent(x_ND) - coder.embed(codes)).sum(axis=1)
    return reconstruction_N, quantisation_N
