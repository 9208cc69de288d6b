"""Grouping the records of a table into sequences: one per entity, or windows of consecutive records."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError, did_you_mean
from tefm.records import roles
from tefm.records.readers.source import unnamed
from tefm.records.schema import Schema
from tefm.records.sequences import Sequences, Texts


def by_entity(
    frame: pl.DataFrame, schema: Schema, *, background: str | None = None, file: str | None = None
) -> Sequences:
    """The records of each entity, ordered by the time column; entities in the order of their first row.

    Records with equal times keep the file's order, and so do all records if the schema has no time column.
    Without an entity column every record is a sequence of its own.

    A sequence has the label of its last record. With `background` (the label of ordinary records, e.g. "BENIGN") it
    has its first label that differs from `background`, if there is one; records without a label are skipped.

    >>> frame = pl.DataFrame({"who": ["a", "b", "a"], "day": [2, 1, 1], "ill": [1, 0, 0], "x": [5, 6, 7]})
    >>> schema = Schema.from_yaml("{entity: who, time: day, label: ill, fields: {x: number}}")
    >>> sequences = by_entity(frame, schema)
    >>> [(name, sequences[i].tolist(), sequences.labels[i]) for i, name in enumerate(sequences.ids)]
    [('a', [2, 0], '1'), ('b', [1], '0')]
    """
    times, labels = roles.time_ranks(frame, schema, file), roles.labels(frame, schema, file)
    if schema.entity is None:
        rows = np.arange(frame.height)
        return _sequences(rows, rows, _numbered(frame.height), times, labels, background, file)
    entities = roles.entities(frame, schema.entity, schema, file)
    numbered = pl.DataFrame({"entity": entities}).with_row_index("row").cast({"row": pl.Int64})
    # the entity of each row, as the number of its first row
    first = numbered.select(pl.col("row").min().over("entity")).to_series().to_numpy()
    rows = np.lexsort((times, first))  # stable: ties keep the file's order
    starts = np.flatnonzero(np.diff(first[rows], prepend=-1))
    ids = np.array(unnamed(entities).gather(first[rows[starts]]).to_list(), dtype=object)
    return _sequences(rows, starts, ids, times, labels, background, file)


def by_window(
    frame: pl.DataFrame,
    schema: Schema,
    size: int,
    *,
    drop_last: bool = True,
    background: str | None = None,
    file: str | None = None,
) -> Sequences:
    """Windows of `size` consecutive records in time order, without overlap and regardless of entity.

    The last window may be shorter; `drop_last` leaves it out. Labels are assigned as in `by_entity`.
    """
    if size < 1:
        raise SettingsError("a window needs at least one record", value=size, remedy="set size to 1 or more")
    times, labels = roles.time_ranks(frame, schema, file), roles.labels(frame, schema, file)
    rows = np.argsort(times, kind="stable")
    if drop_last:
        rows = rows[: len(rows) // size * size]
        if not len(rows):
            raise InputError(
                f"{frame.height} records do not fill one window of {size}",
                file=file,
                remedy="give more records, a smaller size, or drop_last=False",
            )
    starts = np.arange(0, len(rows), size)
    return _sequences(rows, starts, _numbered(len(starts)), times, labels, background, file)


def up_to(
    frame: pl.DataFrame,
    schema: Schema,
    sequences: Sequences,
    ends: NDArray[np.int64],
    *,
    background: str | None = None,
) -> Sequences:
    """Sequences as they were when they had fewer records: one per end, a position in the records of `sequences`.

    Each has the records of its sequence up to this end, and the label that these give it. They have labels if
    `sequences` have.

    >>> frame = pl.DataFrame({"who": ["a", "b", "a"], "ill": [0, 0, 1], "x": [5, 6, 7]})
    >>> schema = Schema.from_yaml("{entity: who, label: ill, fields: {x: number}}")
    >>> grown = up_to(frame, schema, by_entity(frame, schema), np.array([0, 1, 2]))
    >>> [(grown[i].tolist(), grown.ids[i], grown.labels[i]) for i in range(3)]
    [([0], 'a', '0'), ([0, 2], 'a', '1'), ([1], 'b', '0')]
    """
    schema = schema if sequences.labels is not None else schema.model_copy(update={"label": None})
    unit_S = sequences.sequence_N[ends]
    firsts = sequences.starts[unit_S]
    lengths = ends - firsts + 1
    starts = np.cumsum(lengths) - lengths
    places = np.repeat(firsts - starts, lengths) + np.arange(lengths.sum())
    times, labels = roles.time_ranks(frame, schema, sequences.file), roles.labels(frame, schema, sequences.file)
    return _sequences(
        sequences.rows[places], starts, sequences.names[unit_S], times, labels, background, sequences.file
    )


def _sequences(
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    ids: Texts,
    times: NDArray[np.int64],
    labels: Texts | None,
    background: str | None,
    file: str | None,
) -> Sequences:
    """`times` and `labels` are per row of the table."""
    bounds = np.append(starts, len(rows))
    last = rows[bounds[1:] - 1]
    if labels is not None:
        labels = labels[last] if background is None else _first_unusual(labels[rows], bounds, background)
    return Sequences(rows, bounds, ids, labels, times[last], file=file)


def _first_unusual(labels: Texts, bounds: NDArray[np.int64], background: str) -> Texts:
    """The first label of each sequence that is not `background`; else `background`, or None if it has no label."""
    labelled = np.array([label is not None for label in labels], dtype=bool)
    if labelled.any() and background not in labels[labelled]:
        classes = sorted(set(labels[labelled]))
        remedy = did_you_mean(background, classes)
        raise InputError("no record has the background label", value=background, remedy=remedy)
    sequence = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    label_of = np.full(len(bounds) - 1, None, dtype=object)
    label_of[sequence[labelled]] = background
    unusual = np.flatnonzero(labelled & (labels != background))[::-1]  # backwards: the first one is written last
    label_of[sequence[unusual]] = labels[unusual]
    return label_of


def _numbered(count: int) -> Texts:
    return np.array([str(i) for i in range(count)], dtype=object)
