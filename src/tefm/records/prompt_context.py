"""What a prompt may contain besides the codes: free text, and the time between records in words."""

from __future__ import annotations

from itertools import pairwise

import polars as pl

from tefm.base.errors import InputError, did_you_mean
from tefm.records.notes import Text
from tefm.records.readers.source import unnamed
from tefm.records.roles import times
from tefm.records.schema import Schema
from tefm.records.sequences import Sequences
from tefm.records.words import text_of

#: Units for a gap: used below this many seconds, the unit's length in seconds, its name.
UNITS = (
    (60, 1, "second"),
    (3_600, 60, "minute"),
    (86_400, 3_600, "hour"),
    (60 * 86_400, 86_400, "day"),
    (2 * 365 * 86_400, 30 * 86_400, "month"),
    (float("inf"), 365 * 86_400, "year"),
)


def texts_of(frame: pl.DataFrame, schema: Schema, sequences: Sequences, file: str | None = None) -> list[Text] | None:
    """The text of each sequence; None if the schema has no text column.

    Where the columns have budgets, it is the notes of all records, otherwise the text of the last one.

    >>> from tefm.records.grouping import by_entity
    >>> frame = pl.DataFrame({"who": ["a", "a"], "x": [1, 2], "said": ["hot", None], "seen": ["red", "pale"]})
    >>> def texts(text: str) -> list[Text] | None:
    ...     schema = Schema.from_yaml(f"{{entity: who, text: {text}, fields: {{x: number}}}}")
    ...     return texts_of(frame, schema, by_entity(frame, schema))
    >>> texts("[said, seen]"), texts("{said: 64, seen: 64}")
    (['pale'], [(('hot', 'red'), ('', 'pale'))])
    """
    if not schema.text:
        return None
    missing = [name for name in schema.text if name not in frame.columns]
    if missing:
        remedy = did_you_mean(missing[0], frame.columns)
        raise InputError("the text column is not in the table", file=file, column=missing[0], remedy=remedy)
    rows = sequences.rows if schema.text_budgets else sequences.last
    columns = [
        text_of(unnamed(frame[name]), schema.missing_words).gather(rows).fill_null("").to_list() for name in schema.text
    ]
    records = list(zip(*columns, strict=True))
    if not schema.text_budgets:
        return ["\n".join(filter(None, texts)) for texts in records]
    starts = sequences.starts.tolist()
    return [tuple(records[start:end]) for start, end in pairwise(starts)]


def gap_words(frame: pl.DataFrame, schema: Schema, sequences: Sequences, file: str | None = None) -> list[str]:
    """The time since the previous record in words, per record in the order of the sequences; empty for the first.

    >>> from tefm.records.grouping import by_entity
    >>> days = ["2024-01-01", "2024-01-04", "2024-01-01"]
    >>> frame = pl.DataFrame({"who": ["a", "a", "b"], "day": days, "x": [1, 2, 3]})
    >>> schema = Schema.from_yaml("{entity: who, time: day, fields: {x: number}}")
    >>> gap_words(frame, schema, by_entity(frame, schema))
    ['', ' 3 days later: ', '']
    """
    if schema.time is None:
        remedy = "name its column in the schema: `time: COLUMN`"
        raise InputError("time gaps in the prompt need a time column", file=file, remedy=remedy)
    column, unit_seconds = times(frame, schema.time, schema, file)
    if unit_seconds is None:
        raise InputError(
            "time gaps in the prompt need dates, but this column contains plain numbers",
            file=file,
            column=schema.time,
            remedy="give a column of dates, or leave `gaps` out of the prompt",
        )
    time_N = column.gather(sequences.rows).to_numpy()
    firsts = set(sequences.starts[:-1].tolist())
    return ["" if i in firsts else _in_words((time_N[i] - time_N[i - 1]) * unit_seconds) for i in range(len(time_N))]


def _in_words(seconds: float) -> str:
    for limit, length, unit in UNITS:
        if seconds < limit:
            count = round(seconds / length)
            return f" {count} {unit}{'' if count == 1 else 's'} later: "
    raise AssertionError("the last unit has no limit")
