"""Batches by day, week or month: which records came in each, and what each entity looked like at its end.

An entity whose records lie in several periods is in the batch of each of them, with its records up to then: that is
what the model would have been asked. A record is counted in its own period only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.prepare import Preparation
from tefm.records.grouping import up_to
from tefm.records.roles import times
from tefm.records.sequences import Sequences
from tefm.watch.observe import Asked

By = Literal["day", "week", "month"]
_TRUNCATED: dict[str, str] = {"day": "1d", "week": "1w", "month": "1mo"}


@dataclass(frozen=True, eq=False)
class Periods:
    """Sequences as they were at the end of each period."""

    #: what each period is called, in order
    names: tuple[str, ...]
    asked: Asked
    #: the period of each sequence that is asked
    period_S: NDArray[np.int64]


def by_period(preparation: Preparation, frame: pl.DataFrame, sequences: Sequences, by: str) -> Periods:
    """The sequences of a table at the end of each of its periods."""
    if by not in get_args(By):
        raise SettingsError("not a valid period", value=by, remedy=f"choose one of {', '.join(get_args(By))}")
    names_N = _period_names(preparation, frame, by, sequences.file)
    names, number_N = np.unique(names_N, return_inverse=True)
    period_N, unit_N = number_N[sequences.rows], sequences.sequence_N
    if preparation.config.window is not None:  # a window belongs to the period of its last record
        return Periods(tuple(names.tolist()), Asked.whole(sequences), period_N[sequences.starts[1:] - 1])
    ends = np.flatnonzero(np.append((np.diff(period_N) != 0) | (np.diff(unit_N) != 0), True))
    grown = up_to(frame, preparation.schema, sequences, ends, background=preparation.config.background)
    asked = Asked(grown, sequences.rows, np.append(0, ends + 1), unit_N[ends])
    return Periods(tuple(names.tolist()), asked, period_N[ends])


def _period_names(preparation: Preparation, frame: pl.DataFrame, by: str, file: str | None) -> NDArray[np.str_]:
    """The day, the Monday of the week, or the month of each row."""
    schema = preparation.schema
    if schema.time is None:
        raise InputError(
            f"batches by {by} need a time, but the model was fitted without one",
            file=file,
            remedy="fit it with `time: COLUMN`, or leave --by out and give one table per batch",
        )
    column, seconds = times(frame, schema.time, schema, file)
    if seconds is None:
        raise InputError(
            f"batches by {by} need dates, but this column contains plain numbers",
            file=file,
            column=schema.time,
            remedy="give a column of dates, or leave --by out and give one table per batch",
        )
    moments = (column.cast(pl.Float64) * seconds * 1e3).round().cast(pl.Int64).cast(pl.Datetime("ms"))
    names = moments.dt.truncate(_TRUNCATED[by]).dt.strftime("%Y-%m" if by == "month" else "%Y-%m-%d")
    return names.to_numpy().astype(str)
