"""Which fields are of the entity: they have the same value in all of its records.

`inspect` looks for them in a table's first rows, and writes them under `static:`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from tefm.base.errors import listed
from tefm.tables.grouping import entities_of
from tefm.tables.readers.source import unnamed
from tefm.tables.schema import Schema

#: A field of the entity is constant in at least this share of the entities with several records, and in this share of
#: those that have another value than the most frequent one: a rare event, too, is absent from most of them.
CONSTANT, CONSTANT_UNUSUAL = 0.99, 0.9
#: Entities with several records, at least: what fewer have in common says little.
ENTITIES = 20


@dataclass(frozen=True)
class Static:
    """A field of the entity, and the entities that contradict it."""

    field: str
    entities: int
    exceptions: tuple[str, ...]

    def reason(self, entity: str) -> str:
        """What was seen, in words."""
        if not self.exceptions:
            return f"the same in all records of each {entity}"
        differ = f"{len(self.exceptions):,} of {self.entities:,}, such as {listed(self.exceptions[:3])}"
        return f"the same in all records of each {entity} but {differ}"


def static_fields(frame: pl.DataFrame, schema: Schema, file: str | None = None) -> list[Static]:
    """The fields of the entity, in the order of the schema; none where the records would have no other.

    >>> frame = pl.DataFrame({"who": list(range(20)) * 2, "born": list(range(1900, 1920)) * 2, "x": range(40)})
    >>> schema = Schema.from_yaml("{entity: who, fields: {born: number, x: number}}")
    >>> [found.field for found in static_fields(frame, schema)]
    ['born']
    """
    if schema.entity is None:
        return []
    found = list(_found(frame, schema, entities_of(frame, schema.entity, schema, file)))
    return found if len(found) < len(schema.fields) else []


def _found(frame: pl.DataFrame, schema: Schema, entities: pl.Series) -> Iterator[Static]:
    fields = [f for f in schema.fields if f.side is None and not f.derived and set(f.source) <= set(frame.columns)]
    columns = list(dict.fromkeys(column for field in fields for column in field.source))
    number = {column: str(i) for i, column in enumerate(columns)}
    values = [_plain(unnamed(frame[column])).alias(number[column]) for column in columns]
    usual = {series.name: series.mode().sort()[0] for series in values if len(series)}
    constant = [pl.col(name).n_unique().eq(1).alias(name) for name in usual]
    unusual = [pl.col(name).ne_missing(pl.lit(value)).any().alias(f"{name} unusual") for name, value in usual.items()]
    by_entity = (
        pl.DataFrame([unnamed(entities).alias("entity"), *values])
        .group_by("entity", maintain_order=True)
        .agg(pl.len().alias("records"), *constant, *unusual)
        .filter(pl.col("records") > 1)
    )
    if by_entity.height < ENTITIES:
        return
    for field in fields:
        names = [number[column] for column in field.source]
        is_constant = by_entity.select(pl.all_horizontal(names)).to_series().to_numpy()
        is_unusual = by_entity.select(pl.any_horizontal(f"{name} unusual" for name in names)).to_series().to_numpy()
        usually = is_constant.mean() >= CONSTANT
        if usually and is_unusual.any() and is_constant[is_unusual].mean() >= CONSTANT_UNUSUAL:
            exceptions = by_entity["entity"].filter(pl.Series(~is_constant))
            yield Static(field.name, by_entity.height, tuple(exceptions.to_list()))


def _plain(series: pl.Series) -> pl.Series:
    """A column whose values can be compared: lists, of whatever they are, by their hashes."""
    return series.hash() if series.dtype.is_nested() else series
