"""The records of a table become sequences: one per entity, or windows of consecutive records."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError, did_you_mean
from tefm.records import roles
from tefm.records.schema import Schema
from tefm.records.sequences import Sequences, Texts


def by_entity(
    frame: pl.DataFrame, schema: Schema, *, background: str | None = None, file: str | None = None
) -> Sequences:
    """The records of each entity, ordered by the time column; entities in the order of their first row.

    Records of the same time keep the file's order, and so do all records when the schema has no time.
    Without an entity column every record is a sequence of its own.

    A sequence has the label of its last record. With `background` (the label of nothing special, e.g. "BENIGN")
    it has its first label that is another one, if there is any; records without a label are passed over.

    >>> frame = pl.DataFrame({"who": ["a", "b", "a"], "day": [2, 1, 1], "ill": [1, 0, 0], "x": [5, 6, 7]})
    >>> schema = Schema.from_yaml("{entity: who, time: day, label: ill, fields: {x: number}}")
    >>> sequences = by_entity(frame, schema)
    >>> [(name, sequences[i].tolist(), sequences.labels[i]) for i, name in enumerate(sequences.ids)]
    [('a', [2, 0], '1'), ('b', [1], '0')]
    """
    when, labels = roles.time_ranks(frame, schema, file), roles.labels(frame, schema, file)
    if schema.entity is None:
        numbers = np.arange(frame.height)
        return _sequences(numbers, numbers, _numbered(frame.height), when, labels, background, file)
    who = roles.entities(frame, schema.entity, schema, file)
    numbered = pl.DataFrame({"who": who}).with_row_index("row").cast({"row": pl.Int64})
    first = numbered.select(pl.col("row").min().over("who")).to_series().to_numpy()  # names the entity of each row
    rows = np.lexsort((when, first))  # stable: ties keep the file's order
    starts = np.flatnonzero(np.diff(first[rows], prepend=-1))
    ids = np.array(who.gather(first[rows[starts]]).to_list(), dtype=object)
    return _sequences(rows, starts, ids, when, labels, background, file)


def by_window(
    frame: pl.DataFrame,
    schema: Schema,
    size: int,
    *,
    drop_last: bool = True,
    background: str | None = None,
    file: str | None = None,
) -> Sequences:
    """Windows of `size` consecutive records in the order of time, side by side, whatever their entity.

    The last window may be shorter; `drop_last` leaves it out. The label is that of `by_entity`.
    """
    if size < 1:
        raise SettingsError("a window needs at least one record", value=size, remedy="set size to 1 or more")
    when, labels = roles.time_ranks(frame, schema, file), roles.labels(frame, schema, file)
    rows = np.argsort(when, kind="stable")
    if drop_last:
        rows = rows[: len(rows) // size * size]
        if not len(rows):
            raise InputError(
                f"{frame.height} records do not fill one window of {size}",
                file=file,
                remedy="give more records, a smaller size, or drop_last=False",
            )
    starts = np.arange(0, len(rows), size)
    return _sequences(rows, starts, _numbered(len(starts)), when, labels, background, file)


def _sequences(
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    ids: Texts,
    when: NDArray[np.int64],
    labels: Texts | None,
    background: str | None,
    file: str | None,
) -> Sequences:
    """`when` and `labels` are per row of the table."""
    bounds = np.append(starts, len(rows))
    last = rows[bounds[1:] - 1]
    of_sequence = labels[last] if labels is not None else None
    if labels is not None and background is not None:
        of_sequence = _first_unusual(labels[rows], bounds, background)
    return Sequences(rows, bounds, ids, of_sequence, when[last], file=file)


def _first_unusual(labels: Texts, bounds: NDArray[np.int64], background: str) -> Texts:
    """Of each sequence the first label that is not `background`; else `background`, or None if it has no label."""
    known = np.array([label is not None for label in labels], dtype=bool)
    if known.any() and background not in labels[known]:
        seen = sorted(set(labels[known]))
        raise InputError("no record has the background label", value=background, remedy=did_you_mean(background, seen))
    sequence = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    found = np.full(len(bounds) - 1, None, dtype=object)
    found[sequence[known]] = background
    unusual = np.flatnonzero(known & (labels != background))[::-1]  # backwards, so that the first one is written last
    found[sequence[unusual]] = labels[unusual]
    return found


def _numbered(count: int) -> Texts:
    return np.array([str(i) for i in range(count)], dtype=object)
