"""Fields that say when the value of a category was last seen in the sequence: just before, earlier, or never.

A record alone does not show that its activity is that of the record before, and few models find out by themselves.
A fit adds such a field where it tells the label apart (`pipeline/telling.py`); `repeat_fields: none` leaves them out.

Shapes: N records.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.tables.schema import Field, Schema
from tefm.tables.sequences import Sequences
from tefm.tables.words import words_of

#: When a value was last seen; the number of each is its place, from 1 on, and 0 is a missing value.
SEEN = ("never", "earlier", "previous")


def repeat_fields(schema: Schema, taken: Collection[str]) -> list[Field]:
    """A field for each category that may repeat within a sequence; `taken` are names of columns."""
    if schema.entity is None or schema.repeat_fields == "none" or any(field.repeats for field in schema.fields):
        return []
    names = {*taken, *(field.name for field in schema.fields)}
    fields = []
    for of in schema.fields:
        if of.kind != "category" or of.derived or of.name in schema.static:
            continue
        name = f"{of.name}_last_seen"
        while name in names:
            name += "_again"
        fields.append(
            Field(
                name=name,
                kind="category",
                repeats=of.name,
                title=f"{of.display_name} last seen",
                names={"previous": f"in the previous {schema.record}"},
            )
        )
    return fields


def repeat_columns(frame: pl.DataFrame, schema: Schema, sequences: Sequences) -> list[pl.Series]:
    """A column for each field that says when a value was last seen."""
    words = pl.Series([None, *SEEN], dtype=pl.String)
    fields = [field for field in schema.fields if field.repeats]
    return [words.gather(last_seen(field, frame, schema, sequences)).alias(field.name) for field in fields]


def last_seen(field: Field, frame: pl.DataFrame, schema: Schema, sequences: Sequences) -> NDArray[np.uint8]:
    """For each row of the frame, when its value was last seen in the sequence; 0 where there is none.

    >>> frame = pl.DataFrame({"who": ["a"] * 5, "ward": ["x", "x", "y", None, "x"]})
    >>> schema = Schema.from_yaml("{entity: who, fields: {ward: category, again: {kind: category, repeats: ward}}}")
    >>> sequences = Sequences(np.arange(5), np.array([0, 5]))
    >>> [(None, *SEEN)[number] for number in last_seen(schema.fields[1], frame, schema, sequences)]
    ['never', 'previous', 'never', None, 'earlier']
    """
    seen_N = np.zeros(frame.height, dtype=np.uint8)
    assert field.repeats is not None, "it repeats a field"
    of, rows = schema.field(field.repeats), sequences.rows
    (column,) = of.source
    if column not in frame.columns or not len(rows):
        return seen_N
    words = words_of(frame[column][rows], {*schema.missing_words, *of.absent})
    place, value, sequence = words.rows, words.ids, sequences.sequence_N[words.rows]
    key = sequence * (value.max(initial=0) + 1) + value
    number = np.full(len(place), SEEN.index("earlier") + 1)
    number[np.unique(key, return_index=True)[1]] = SEEN.index("never") + 1
    again = 1 + np.flatnonzero((key[1:] == key[:-1]) & (place[1:] == place[:-1] + 1))
    number[again] = SEEN.index("previous") + 1
    seen_N[rows[place]] = number
    return seen_N
