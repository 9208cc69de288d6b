"""Computed fields, which no column holds; many depend on other records of the sequence.

They come from the time of records and from columns of dates (`clock.py`), and from values that repeat (`repeats.py`).
"""

from __future__ import annotations

import polars as pl

from tefm.tables.clock import clock_columns, date_columns
from tefm.tables.grouping import by_entity
from tefm.tables.readers.table import Table, open_table
from tefm.tables.repeats import repeat_columns
from tefm.tables.schema import Schema
from tefm.tables.sequences import Sequences


def with_derived(frame: pl.DataFrame, schema: Schema, sequences: Sequences) -> pl.DataFrame:
    """The frame with a column for each derived field; rows in no sequence have no value."""
    return frame.with_columns(
        *clock_columns(frame, schema, sequences),
        *date_columns(frame, schema, sequences),
        *repeat_columns(frame, schema, sequences),
    )


def read_with_derived(table: Table, schema: Schema) -> Table:
    """The table with a column for each derived field, from the records of its entities.

    It is read as a whole: other records are needed. As it is, where it lacks the entity or the time.
    """
    derived = {field.name for field in schema.fields if field.derived}
    roles = {name for name in (schema.entity, schema.time) if name is not None}
    if derived <= set(table.columns) or not roles <= set(table.columns):
        return table
    frame = table.frame()
    sequences = by_entity(frame, schema.model_copy(update={"label": None}), file=table.name)
    return open_table(with_derived(frame, schema, sequences), name=table.name)
