"""Grouping the records of a table into sequences: one per entity, or windows of consecutive records.

Entities and labels are read as text, times as ranks. Values that cannot be read raise an error that names them.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError, did_you_mean
from tefm.scoring.numbers import Buckets
from tefm.tables.mappers import equal_frequency_edges
from tefm.tables.readers.source import unnamed
from tefm.tables.schema import FALSE_WORDS, TRUE_WORDS, Schema
from tefm.tables.sequences import Sequences, Text, Texts
from tefm.tables.words import as_numbers, text_of

#: How many different values a label needs to be predicted as a number, and about how many training labels a bucket has.
LEAST_NUMBERS, LEAST_OF_EACH = 3, 10


def by_entity(
    frame: pl.DataFrame, schema: Schema, *, background: str | None = None, file: str | None = None
) -> Sequences:
    """The records of each entity, ordered by the time column; entities in the order of their first row.

    Records with equal times keep the file's order, and so do all records if the schema has no time column.
    Without an entity column every record is a sequence of its own.

    A sequence has the label of its last record. With `background` (the background class, e.g. "BENIGN") it
    has its first label that differs from `background`, if there is one; records without a label are skipped.

    >>> frame = pl.DataFrame({"who": ["a", "b", "a"], "day": [2, 1, 1], "ill": [1, 0, 0], "x": [5, 6, 7]})
    >>> schema = Schema.from_yaml("{entity: who, time: day, label: ill, fields: {x: number}}")
    >>> sequences = by_entity(frame, schema)
    >>> [(name, sequences[i].tolist(), sequences.labels[i]) for i, name in enumerate(sequences.ids)]
    [('a', [2, 0], '1'), ('b', [1], '0')]
    """
    times_N = time_ranks(frame, schema, file)
    if schema.entity is None:
        rows = starts = np.arange(frame.height)
        ids = None
    else:
        entities = entities_of(frame, schema.entity, schema, file)
        first_N = first_rows(entities)
        rows = np.lexsort((times_N, first_N))  # stable: ties keep the file's order
        starts = np.flatnonzero(np.diff(first_N[rows], prepend=-1))
        ids = np.array(unnamed(entities).gather(first_N[rows[starts]]).to_list(), dtype=object)
    return _sequences(frame, schema, rows, starts, ids, times_N, background, file)


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
    times_N = time_ranks(frame, schema, file)
    rows = np.argsort(times_N, kind="stable")
    if drop_last:
        rows = rows[: len(rows) // size * size]
        if not len(rows):
            raise InputError(
                f"{frame.height} records do not fill one window of {size}",
                file=file,
                remedy="give more records, a smaller size, or drop_last=False",
            )
    return _sequences(frame, schema, rows, np.arange(0, len(rows), size), None, times_N, background, file)


def up_to(
    frame: pl.DataFrame, schema: Schema, sequences: Sequences, ends: NDArray[np.int64], *, background: str | None = None
) -> Sequences:
    """Prefixes: sequences as they were with fewer records, one per end, a position in the records of `sequences`.

    Each has the records of its sequence up to this end, and the label that these give it. They have labels if
    `sequences` have.

    >>> frame = pl.DataFrame({"who": ["a", "b", "a"], "ill": [0, 0, 1], "x": [5, 6, 7]})
    >>> schema = Schema.from_yaml("{entity: who, label: ill, fields: {x: number}}")
    >>> grown = up_to(frame, schema, by_entity(frame, schema), np.array([0, 1, 2]))
    >>> [(grown[i].tolist(), grown.ids[i], grown.labels[i]) for i in range(3)]
    [([0], 'a', '0'), ([0, 2], 'a', '1'), ([1], 'b', '0')]
    """
    schema = schema if sequences.labels is not None else schema.model_copy(update={"label": None})
    grown, times_N = sequences.up_to(ends), time_ranks(frame, schema, sequences.file)
    return _sequences(frame, schema, grown.rows, grown.starts[:-1], grown.ids, times_N, background, sequences.file)


def _sequences(
    frame: pl.DataFrame,
    schema: Schema,
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    ids: Texts | None,
    times_N: NDArray[np.int64],
    background: str | None,
    file: str | None,
) -> Sequences:
    """Sequences of these rows of the table, numbered if they have no ids; `times_N` are of all rows."""
    bounds = np.append(starts, len(rows))
    last = rows[bounds[1:] - 1]
    labels = labels_of(frame, schema, file)
    if labels is not None:
        labels = labels[last] if background is None else _first_unusual(labels[rows], bounds, background)
    sequences = Sequences(rows, bounds, ids, labels, times_N[last], file=file)
    return replace(sequences, ids=sequences.names)


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


def first_rows(entities: pl.Series) -> NDArray[np.int64]:
    """The entity of each row, as the number of its first row."""
    numbered = pl.DataFrame({"entity": entities}).with_row_index("row").cast({"row": pl.Int64})
    return numbered.select(pl.col("row").min().over("entity")).to_series().to_numpy()


#: Times as text: ISO 8601, with "T" replaced by a blank and "Z" by +00:00.
_DAYS, _CLOCKS = ("%Y-%m-%d", "%d.%m.%Y"), (" %H:%M:%S%.f", " %H:%M", "", " %H:%M:%S%.f%z", " %H:%M%z")
#: With points, the day comes first everywhere.
_FORMATS = tuple(day + clock for day in _DAYS for clock in _CLOCKS)


def entities_of(frame: pl.DataFrame, name: str, schema: Schema, file: str | None = None) -> pl.Series:
    """The entity of each row; every row must have one."""
    column = text_of(role_column(frame, name, "entity", file), schema.missing_words)
    _refuse_nulls(column, "entity", "drop these rows, or fill in their entity", file)
    return column


def labels_of(frame: pl.DataFrame, schema: Schema, file: str | None = None) -> Texts | None:
    """The label of each row, None where it is missing; None as a whole if the schema has no label column."""
    if schema.label is None:
        return None
    column = role_column(frame, schema.label, "label", file)
    return np.array(text_of(column, schema.missing_words).to_list(), dtype=object)


def numbers_of_label(frame: pl.DataFrame, schema: Schema, file: str | None = None) -> NDArray[np.float64]:
    """The label of each row as a number, NaN where it is missing."""
    assert schema.label is not None, "there is a label"
    words = text_of(role_column(frame, schema.label, "label", file), schema.missing_words)
    numbers = as_numbers(words)
    odd = words.filter(words.is_not_null() & ~numbers.is_finite().fill_null(False))
    if len(odd):
        raise InputError(
            f"the label is a number, but {len(odd):,} of {len(words):,} values are not, or are infinite",
            file=file,
            column=schema.label,
            value=odd[0],
            remedy="fix them, list words that mean missing under `missing:` in the schema, or predict the values as "
            f"classes: `label: {{column: {schema.label}, kind: category}}`",
        )
    return numbers.to_numpy()


def observed_of(frame: pl.DataFrame, schema: Schema, file: str | None = None) -> NDArray[np.bool_]:
    """Whether the event of each row was observed; where that is missing, its time is censored."""
    assert schema.observed is not None, "the label is a time until an event"
    words = text_of(role_column(frame, schema.observed, "observed", file), schema.missing_words).str.to_lowercase()
    odd = words.filter(~words.is_in([*TRUE_WORDS, *FALSE_WORDS]))
    if len(odd):
        raise InputError(
            "whether the event was observed is yes or no",
            file=file,
            column=schema.observed,
            value=odd[0],
            remedy=f"write one of {', '.join(TRUE_WORDS[2:])} or {', '.join(FALSE_WORDS[2:])}",
        )
    return words.is_in(TRUE_WORDS).fill_null(False).to_numpy()


def buckets_of(values_S: NDArray[np.float64], schema: Schema, file: str | None = None) -> Buckets:
    """The classes that a label which is a number becomes, from training labels."""
    assert schema.number is not None, "the label is a number"
    values_S = np.sort(values_S)
    if (count := len(np.unique(values_S))) < LEAST_NUMBERS:
        problem = f"the {len(values_S):,} labels of training have {count} different values"
        remedy = f"a number needs {LEAST_NUMBERS}: name another column, or predict the values as classes: "
        remedy += f"`label: {{column: {schema.label}, kind: category}}`"
        value = float(values_S[0]) if count else None
        raise InputError(problem, file=file, column=schema.label, value=value, remedy=remedy)
    most = min(schema.number.buckets, max(LEAST_NUMBERS, len(values_S) // LEAST_OF_EACH))
    return Buckets.of(values_S, equal_frequency_edges(values_S, most), schema.number.interval)


def in_buckets(labels: NDArray[Any], schema: Schema, file: str | None = None) -> NDArray[Any]:
    """Labels that are numbers as classes, which are chosen from all of them; other labels stay as they are."""
    if schema.number is None:
        return labels
    words = pl.Series(schema.label, labels.tolist(), dtype=pl.String)
    values_S = numbers_of_label(words.to_frame(), schema, file)
    return buckets_of(values_S[~np.isnan(values_S)], schema, file).names_of(values_S)


def time_ranks(frame: pl.DataFrame, schema: Schema, file: str | None = None) -> NDArray[np.int64]:
    """The rank of each row in time, equal for equal times; the row number if the schema has no time column."""
    if schema.time is None:
        return np.arange(frame.height)
    return unnamed(times_of(frame, schema.time, schema, file)[0]).rank("dense").to_numpy().astype(np.int64)


def times_of(frame: pl.DataFrame, name: str, schema: Schema, file: str | None = None) -> tuple[pl.Series, float | None]:
    """The time of each row as a number, and its unit in seconds; None if the column contains plain numbers."""
    column, unit_seconds = moments_of(frame, name, "time", schema, file)
    # a record without a time cannot be ordered, and the last record of a sequence decides its label
    remedy = "drop these rows, fill in their time, or remove `time:` to keep the file's order"
    _refuse_nulls(column.alias(name), "time", remedy, file)
    return column.alias(name), unit_seconds


def moments_of(
    frame: pl.DataFrame, name: str, role: str, schema: Schema, file: str | None = None
) -> tuple[pl.Series, float | None]:
    """A column of times or dates as numbers, null where missing, and their unit in seconds; None of plain numbers."""
    column = unnamed(role_column(frame, name, role, file))
    unit_seconds: float | None = None
    if column.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Object):
        column, unit_seconds = _parsed(text_of(column, schema.missing_words), name, role, file)
    elif column.dtype.is_float():
        column = column.fill_nan(None)
    elif column.dtype == pl.Date:
        unit_seconds = 86_400.0
    elif isinstance(column.dtype, pl.Datetime | pl.Duration):
        unit_seconds = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}[column.dtype.time_unit or "us"]
    return column.to_physical(), unit_seconds


def dates_of(frame: pl.DataFrame, schema: Schema, file: str | None, needs: str, remedy: str) -> tuple[pl.Series, float]:
    """The time of each row as a number, and its unit in seconds; `needs` begins the error where there are no dates."""
    if schema.time is None:
        remedy = "name its column in the schema, `time: COLUMN`, and fit the model with it"
        raise InputError(f"{needs} a time column", file=file, remedy=remedy)
    column, unit_seconds = times_of(frame, schema.time, schema, file)
    if unit_seconds is None:
        problem = f"{needs} dates, but this column contains plain numbers"
        raise InputError(problem, file=file, column=schema.time, remedy=remedy)
    return column, unit_seconds


def role_column(frame: pl.DataFrame, name: str, role: str, file: str | None = None) -> pl.Series:
    """The column of a role, which has one plain value per row."""
    column = _column(frame, name, role, file)
    if column.dtype.is_nested() or column.dtype == pl.Binary:
        problem = f"the {role} column contains {column.dtype} values"
        raise InputError(problem, file=file, column=name, remedy="give one value per row")
    return column


def _column(frame: pl.DataFrame, name: str, role: str, file: str | None) -> pl.Series:
    if name not in frame.columns:
        remedy = did_you_mean(name, frame.columns)
        raise InputError(f"the {role} column is not in the table", file=file, column=name, remedy=remedy)
    return frame[name]


def _refuse_nulls(column: pl.Series, role: str, remedy: str, file: str | None) -> None:
    if column.null_count():
        first = int(unnamed(column).is_null().arg_true()[0]) + 1
        problem = f"{column.null_count()} of {len(column)} rows have no {role}, the first is row {first}"
        raise InputError(problem, file=file, column=column.name, remedy=remedy)


def _parsed(text: pl.Series, name: str, role: str, file: str | None) -> tuple[pl.Series, float | None]:
    """Text as integers, as floats or as times (in microseconds), whichever fits every value."""
    iso = text.str.replace("T", " ").str.replace("Z$", "+00:00")
    times = [iso.str.to_datetime(pattern, time_unit="us", strict=False).to_physical() for pattern in _FORMATS]
    candidates = [
        text.cast(pl.Int64, strict=False),
        text.cast(pl.Float64, strict=False),
        pl.select(pl.coalesce(times)).to_series(),
    ]
    best = min(candidates, key=lambda candidate: candidate.null_count())
    unread = best.is_null() & text.is_not_null()
    if unread.any():
        otherwise = "or remove `time:` to keep the file's order" if role == "time" else "or move the column to `ignore`"
        raise InputError(
            f"{unread.sum()} of {len(text)} rows have a {role} that is neither a number nor a date of a known form",
            file=file,
            column=name,
            value=text.filter(unread)[0],
            remedy=f"write {role}s like 2024-01-31 or 2024-01-31 23:59:59; {otherwise}",
        )
    return best, 1e-6 if best is candidates[2] else None


def texts_of(frame: pl.DataFrame, schema: Schema, sequences: Sequences) -> list[Text] | None:
    """The text of each sequence; None if the schema has no text column.

    Where the columns have budgets, it is the notes of all records, otherwise the text of the last one.

    >>> frame = pl.DataFrame({"who": ["a", "a"], "x": [1, 2], "said": ["hot", None], "seen": ["red", "pale"]})
    >>> def texts(text: str) -> list[Text] | None:
    ...     schema = Schema.from_yaml(f"{{entity: who, text: {text}, fields: {{x: number}}}}")
    ...     return texts_of(frame, schema, by_entity(frame, schema))
    >>> texts("[said, seen]"), texts("{said: 64, seen: 64}")
    (['pale'], [(('hot', 'red'), ('', 'pale'))])
    """
    if not schema.text:
        return None
    rows = sequences.rows if schema.text_budgets else sequences.last
    columns = [_column(frame, name, "text", sequences.file) for name in schema.text]
    texts = [text_of(unnamed(column), schema.missing_words).gather(rows).fill_null("") for column in columns]
    records = list(zip(*(text.to_list() for text in texts), strict=True))
    if not schema.text_budgets:
        return ["\n".join(filter(None, record)) for record in records]
    starts = sequences.starts.tolist()
    return [tuple(records[start:end]) for start, end in pairwise(starts)]
