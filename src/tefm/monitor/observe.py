"""What a model sees of a table: its batches, one record of each sequence with its codes and errors, and the answers.

And what its probabilities say about the classes of a batch without labels: `class_shares` is the EM estimate of Saerens
et al. (2002), the class shares with which the adjusted probabilities are consistent, if the records of each class have
not changed.

Only one random record per sequence is counted: the records of a patient are correlated, and a test that took them for
independent would raise false alarms.

Shapes: S sequences, D slots, K levels, Q classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import SettingsError
from tefm.codes.coder import SlotCoder
from tefm.codes.fidelity import squared_error
from tefm.language.classifier import Answerer
from tefm.pipeline.fitted import Fitted
from tefm.pipeline.prepare import Preparation, label_numbers
from tefm.tables.grouping import dates_of
from tefm.tables.layout import Slots
from tefm.tables.records import Records
from tefm.tables.sequences import Sequences

#: Records whose errors are computed at once.
AT_ONCE = 1 << 15
#: How a table is cut into batches by time, and what polars calls that.
PERIODS = {"day": "1d", "week": "1w", "month": "1mo"}


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Sequences to answer, and the records that each of them brings: those that are new since it was last answered."""

    records: Records
    #: the rows that each sequence brings
    own: Sequences
    #: the entity that each sequence is of
    unit_S: NDArray[np.int64]

    @classmethod
    def whole(cls, records: Records) -> Arrivals:
        """Sequences that are asked once, with all of their records."""
        return cls(records, records.sequences, np.arange(len(records)))

    @classmethod
    def after(cls, records: Records, ends: NDArray[np.int64]) -> Arrivals:
        """Sequences that are asked again after some of their records, those at the positions `ends`."""
        sequences = records.sequences
        own = Sequences(sequences.rows, np.append(0, ends + 1))
        return cls(records.up_to(ends), own, sequences.sequence_N[ends])

    def __len__(self) -> int:
        return len(self.records)

    @property
    def file(self) -> str:
        """The name of their table, without its folder."""
        return Path(str(self.records.file)).name

    def select(self, chosen: NDArray[np.int64]) -> Arrivals:
        """Some of the sequences."""
        return Arrivals(self.records.select(chosen), self.own.select(chosen), self.unit_S[chosen])


class _Parts:
    """Arrays and a table with one entry per sequence."""

    def part(self, chosen: NDArray[np.integer[Any]]) -> Self:
        """Some of the entries."""
        return type(self)(*(getattr(self, one.name)[chosen] for one in fields(self)))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class SampledRecords(_Parts):
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
class SequenceAnswers(_Parts):
    """The calibrated probabilities of sequences, and the class numbers of their labels (−1 without one)."""

    p_SQ: NDArray[np.float64]
    label_S: NDArray[np.int64]
    #: the entity that each is of
    unit_S: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.p_SQ)


#: What a model sees of some sequences: a record of each, and its answers.
Observed = tuple[SampledRecords, SequenceAnswers]


def observe(
    fitted: Fitted,
    preparation: Preparation,
    arrivals: Arrivals,
    answerer: Answerer,
    *,
    seed: int = 0,
    most: int | None = None,
) -> Observed:
    """A record of each sequence, coded, and the model's answers, to the first `most` sequences or to all."""
    coder, own, arrived = fitted.coder, arrivals.own, arrivals.records
    drawn = np.random.default_rng((seed, 17)).integers(own.lengths)
    rows = arrived.frame[own.rows[own.starts[:-1] + drawn]]
    x_SD: Slots = preparation.vectoriser.transform(rows, name=arrived.file)
    codes_SK = coder.encode(x_SD)
    label_S = label_numbers(arrived.sequences, fitted.classes)
    records = SampledRecords(rows, x_SD, codes_SK, *_errors(coder, x_SD, codes_SK), label_S, arrivals.unit_S)
    slots = preparation.slots(arrived.select(np.arange(len(arrived))[:most]))
    p_SQ = fitted.calibration.probabilities(answerer.logits(slots))
    return records, SequenceAnswers(p_SQ, label_S[:most], arrivals.unit_S[:most])


def _errors(coder: SlotCoder, x_ND: Slots, codes_NK: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How much of each record is lost: the mean squared error over its slots, and the distance from its code."""
    reconstruction_N, quantisation_N = np.zeros(len(x_ND)), np.zeros(len(x_ND))
    for start in range(0, len(x_ND), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        x, codes = x_ND[part], codes_NK[part]
        reconstruction_N[part] = squared_error(x, coder.decode(codes), coder.layout).mean(axis=1)
        quantisation_N[part] = np.square(coder.latent(x) - coder.embed(codes)).sum(axis=1)
    return reconstruction_N, quantisation_N


# ---- batches ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Batches:
    """Sequences in batches, each with its name."""

    names: tuple[str, ...]
    arrivals: Arrivals
    #: the batch that each sequence is in
    batch_S: NDArray[np.int64]

    def __iter__(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """The name and the sequences of each batch that has any."""
        for number, name in enumerate(self.names):
            if len(chosen := np.flatnonzero(self.batch_S == number)):
                yield name, chosen


def batches_of(records: Records, by: str | None) -> Batches:
    """The sequences of a table in one batch, or as they were at the end of each of its days, weeks or months.

    An entity whose records lie in several periods is in the batch of each of them, with its records up to then: that is
    what the model would have been asked. A record is counted in its own period only.
    """
    if by is None:
        arrivals = Arrivals.whole(records)
        return Batches((arrivals.file,), arrivals, np.zeros(len(arrivals), dtype=np.int64))
    if by not in PERIODS:
        raise SettingsError("not a valid period", value=by, remedy=f"choose one of {', '.join(PERIODS)}")
    sequences = records.sequences
    names, number_N = np.unique(_period_names(records, by), return_inverse=True)
    period_N = number_N[sequences.rows]
    if records.window is not None:  # a window belongs to the period of its last record
        return Batches(tuple(names.tolist()), Arrivals.whole(records), period_N[sequences.starts[1:] - 1])
    ends = np.flatnonzero(np.append((np.diff(period_N) != 0) | (np.diff(sequences.sequence_N) != 0), True))
    return Batches(tuple(names.tolist()), Arrivals.after(records, ends), period_N[ends])


def _period_names(records: Records, by: str) -> NDArray[np.str_]:
    """The day, the Monday of the week, or the month of each row."""
    remedy = "give a column of dates, or leave --by out and give one table per batch"
    column, seconds = dates_of(records.frame, records.schema, records.file, f"batches by {by} need", remedy)
    moments = (column.cast(pl.Float64) * seconds * 1e3).round().cast(pl.Int64).cast(pl.Datetime("ms"))
    names = moments.dt.truncate(PERIODS[by]).dt.strftime("%Y-%m" if by == "month" else "%Y-%m-%d")
    return names.to_numpy().astype(str)


# ---- the classes of a batch without labels ---------------------------------------------------------------------------


Floats = NDArray[np.float64]

#: EM ends when no share moves by more than this, or after this many rounds.
STILL, ROUNDS = 1e-7, 1_000
#: No class share is estimated below this: a class with none at all could never come back.
LEAST = 1e-6


@dataclass(frozen=True)
class ClassShares:
    """Estimated class shares with their standard errors."""

    shares: tuple[float, ...]
    errors: tuple[float, ...]


def class_shares(p_SQ: Floats, prior: Sequence[float]) -> ClassShares:
    """The class shares of some sequences, without labels; `prior` are the shares that the probabilities are about.

    >>> rng = np.random.default_rng(0)
    >>> label_S = rng.random(20_000) < 0.3
    >>> x_S = rng.normal(2.0 * label_S)
    >>> p_S = 1 / (1 + np.exp(2 - 2 * x_S))  # right where both classes are equally frequent
    >>> round(class_shares(np.stack([1 - p_S, p_S], axis=1), (0.5, 0.5)).shares[1], 1)
    0.3
    """
    prior_Q = np.maximum(np.asarray(prior, dtype=np.float64), LEAST)
    ratio_SQ = p_SQ / prior_Q
    share_Q = prior_Q / prior_Q.sum()
    for _ in range(ROUNDS):
        before_Q, share_Q = share_Q, np.maximum(reweighted(p_SQ, share_Q / prior_Q).mean(axis=0), LEAST)
        share_Q = share_Q / share_Q.sum()
        if np.abs(share_Q - before_Q).max() < STILL:
            break
    # the Fisher information of the shares, the last of which follows from the others
    slope_SQ = (ratio_SQ[:, :-1] - ratio_SQ[:, -1:]) / (ratio_SQ @ share_Q)[:, None]
    covariance = np.linalg.pinv(slope_SQ.T @ slope_SQ)
    errors = [*np.sqrt(np.maximum(np.diag(covariance), 0.0)), np.sqrt(max(covariance.sum(), 0.0))]
    return ClassShares(tuple(share_Q.tolist()), tuple(float(error) for error in errors))


def shares_of(parts: Sequence[SequenceAnswers], prior: Sequence[float]) -> list[ClassShares]:
    """The class shares of each part: of its labels where most sequences of all parts have one, otherwise estimated."""
    if all((answers.label_S >= 0).mean() > 0.5 for answers in parts):
        return [_label_shares(answers.label_S, len(prior)) for answers in parts]
    return [class_shares(answers.p_SQ, prior) for answers in parts]


def _label_shares(label_S: NDArray[np.int64], classes: int) -> ClassShares:
    label_S = label_S[label_S >= 0]
    counts_Q = np.bincount(label_S, minlength=classes)
    share_Q, cautious_Q = np.maximum(counts_Q / len(label_S), LEAST), (counts_Q + 1) / (len(label_S) + 2)
    errors_Q = np.sqrt(cautious_Q * (1 - cautious_Q) / len(label_S))
    return ClassShares(tuple(share_Q.tolist()), tuple(errors_Q.tolist()))


def reweighted(p_SQ: Floats, weight_Q: NDArray[Any]) -> Floats:
    """Probabilities for other class shares: each class counts `weight_Q` times as much."""
    weighted_SQ = p_SQ * weight_Q
    scaled_SQ: Floats = weighted_SQ / weighted_SQ.sum(axis=1, keepdims=True)
    return scaled_SQ
