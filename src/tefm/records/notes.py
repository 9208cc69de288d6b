"""The free text of records, beside their codes: which columns it comes from, and to which record it belongs.

A sequence's text is one string, which belongs to its last record, or *notes*: for each of its records a tuple with the
text of every column, empty where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tefm.base.errors import InputError, did_you_mean
from tefm.records.readers.source import unnamed
from tefm.records.schema import Schema
from tefm.records.sequences import Sequences
from tefm.records.words import text_of

#: For each record of a sequence, the text of each column.
Notes = tuple[tuple[str, ...], ...]
#: The text of a sequence.
Text = str | Notes


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
    return [tuple(records[start:end]) for start, end in zip(starts[:-1], starts[1:], strict=True)]


def notes_of(text: Text, records: int) -> Notes:
    """The text of a sequence as notes of its records; a string is the note of the last one.

    >>> notes_of("cough", 2)
    (('',), ('cough',))
    """
    return (("",),) * (records - 1) + ((text,),) if isinstance(text, str) else text


def record_texts(sequences: Sequences) -> list[str] | None:
    """The text of every record, one sequence after another; None where there are none."""
    if sequences.texts is None:
        return None
    notes = (notes_of(text, int(n)) for text, n in zip(sequences.texts, sequences.lengths, strict=True))
    return ["\n".join(filter(None, note)) for of_sequence in notes for note in of_sequence]


def stored(texts: Sequence[Text | list[list[str]]] | None) -> list[Text] | None:
    """Texts as they are read from JSON, which knows no tuples."""
    if texts is None:
        return None
    return [text if isinstance(text, str) else tuple(tuple(note) for note in text) for text in texts]
