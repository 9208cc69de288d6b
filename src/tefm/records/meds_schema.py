"""What the metadata of a MEDS folder adds to an inferred schema: how records are made, and the names of codes."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from tefm.records.meds_events import set_column
from tefm.records.meds_settings import MedsRecords
from tefm.records.readers.meds import CODES
from tefm.records.schema import Field, Lookup, Schema


def with_meds(schema: Schema, how: MedsRecords, folder: Path) -> Schema:
    """The schema with the settings of the records, and the descriptions of `metadata/codes.parquet`."""
    path = folder / CODES
    described = path.is_file() and "description" in pq.read_schema(path).names
    names: dict[str, str] = {}
    if described:
        codes = pl.DataFrame(pq.read_table(path, columns=["code", "description"])).drop_nulls()
        names = dict(codes.filter(pl.col("code").is_in(how.numbers or ())).rows())
    lookup = Lookup(table=str(path.absolute()), key="code", name="description")
    sets = set(map(set_column, how.sets or ()))

    def named(field: Field) -> Field:
        if field.name in names:
            return field.model_copy(update={"title": names[field.name]})
        return field.model_copy(update={"lookup": lookup}) if described and field.name in sets else field

    record = "visit" if how.records == "visit" else "period"
    return schema.model_copy(update={"meds": how, "record": record, "fields": tuple(map(named, schema.fields))})
