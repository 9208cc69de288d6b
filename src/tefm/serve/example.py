"""What requests to a model look like: its columns with the values it knows, and example rows made of them.

The rows are invented from what the schema and the vectoriser say of each field. They are no training records.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from pydantic import BaseModel

from tefm.prepare import Preparation
from tefm.records.mappers import CategoryMapper, FlagMapper, Mapper, NumberMapper, SetMapper
from tefm.records.schema import Field, Kind

#: Values of a column that are listed.
LISTED = 300
#: A date to begin with; only the order of times counts.
FIRST_DAY = date(2024, 1, 31)


class Value(BaseModel):
    """A value that the model knows, and its readable name."""

    value: str
    name: str


class Column(BaseModel):
    """A column that a request has."""

    name: str
    #: `entity`, `time`, `text`, or the kind of its field
    role: str
    title: str
    field: str | None = None
    group: str | None = None
    unit: str | None = None
    #: of a set that is written as one text
    delimiter: str | None = None
    #: of a number
    low: float | None = None
    high: float | None = None
    #: of a category or set, the most frequent first
    values: list[Value] = []


def columns_of(preparation: Preparation) -> list[Column]:
    """The columns of a request, in the order of the schema."""
    schema = preparation.schema
    entity = None if preparation.config.window else schema.entity
    roles = (("entity", entity), ("time", schema.time))
    columns = [Column(name=name, role=role, title=name.replace("_", " ")) for role, name in roles if name is not None]
    for field, mapper in _fields(preparation):
        for name in field.source:
            title = field.display_name if len(field.source) == 1 else f"{field.display_name} ({name})"
            columns.append(_column(name, title, field, mapper))
    return columns + [Column(name=name, role="text", title=name.replace("_", " ")) for name in schema.text]


def _column(name: str, title: str, field: Field, mapper: Mapper | None) -> Column:
    kind: Kind = field.kind
    column = Column(
        name=name,
        role=kind,
        title=title,
        field=field.name,
        group=field.group,
        unit=field.unit,
        delimiter=field.delimiter,
    )
    match mapper:
        case NumberMapper():
            return column.model_copy(update={"low": mapper.low[0], "high": mapper.high[-1]})
        case CategoryMapper() | SetMapper():
            values = [Value(value=value, name=mapper.names.get(value, value)) for value in mapper.values[:LISTED]]
            return column.model_copy(update={"values": values})
        case FlagMapper():
            return column.model_copy(update={"values": [Value(value=mapper.on, name="yes")]})
    return column


def example_rows(preparation: Preparation, count: int = 1) -> list[dict[str, Any]]:
    """Rows with ordinary values of every field, one sequence each."""
    schema = preparation.schema
    rows: list[dict[str, Any]] = []
    for number in range(count):
        row: dict[str, Any] = {}
        if schema.entity is not None and not preparation.config.window:
            row[schema.entity] = f"example-{number + 1}"
        if schema.time is not None:
            row[schema.time] = (FIRST_DAY + timedelta(days=number)).isoformat()
        share = (number + 1) / (count + 1)
        for place, (field, mapper) in enumerate(_fields(preparation)):
            row |= _cells(field, mapper, share, number * (1 + place % 3))
        rows.append(row | dict.fromkeys(schema.text, "no remarks"))
    return rows


def _cells(field: Field, mapper: Mapper | None, share: float, shift: int) -> dict[str, Any]:
    """The cells of a field: the bucket at this share of its values, or the value so far down the list."""
    match mapper:
        case NumberMapper():
            middle = mapper.middle[min(int(share * len(mapper.middle)), len(mapper.middle) - 1)]
            return {field.source[0]: int(middle) if float(middle).is_integer() else round(middle, 4)}
        case CategoryMapper():
            # far down the list are values that hardly anyone has
            return {field.source[0]: mapper.values[shift % min(3, len(mapper.values))] if mapper.values else None}
        case FlagMapper():
            return {field.source[0]: mapper.on if shift % 2 else None}
        case SetMapper():
            few = [mapper.values[(shift + i) % min(12, len(mapper.values))] for i in range(2)] if mapper.values else []
            members = list(dict.fromkeys(few))
            if len(field.source) > 1:
                return {name: members[i] if i < len(members) else None for i, name in enumerate(field.source)}
            return {field.source[0]: field.delimiter.join(members) if field.delimiter else members or None}
    return {field.source[0]: 1 if field.kind == "number" else None}


def _fields(preparation: Preparation) -> list[tuple[Field, Mapper | None]]:
    """The fields with what was learned about them; the text baseline has learned nothing."""
    if preparation.vectoriser is None:
        return [(field, None) for field in preparation.schema.fields]
    return list(zip(preparation.vectoriser.table_schema.fields, preparation.vectoriser.mappers, strict=True))
