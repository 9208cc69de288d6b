"""What clients are told of a model: its columns and example rows.

Example rows are invented from what the schema and the vectoriser say of each field: they are no training records.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any, Literal

import pydantic

from tefm.pipeline.prepare import Preparation
from tefm.serve.messages import Record
from tefm.serve.served import Served
from tefm.tables.mappers import CategoryMapper, FlagMapper, Mapper, NumberMapper, SetMapper
from tefm.tables.schema import Field

#: Values of a column that are listed.
LISTED = 300
#: Example rows that the page offers.
EXAMPLES = 6
#: A date to begin with; only the order of times counts.
FIRST_DAY = date(2024, 1, 31)


class Value(pydantic.BaseModel):
    """A value that the model knows, and its readable name."""

    value: str
    name: str


class Column(pydantic.BaseModel):
    """A column that a request has."""

    name: str
    #: `entity`, `time`, `text`, `date`, or the kind of its field
    role: str
    title: str
    field: str | None = None
    group: str | None = None
    unit: str | None = None
    #: the same in every record of an entity
    static: bool = False
    #: of a set that is written as one text
    delimiter: str | None = None
    #: of a number
    low: float | None = None
    high: float | None = None
    #: of a category or set, the most frequent first
    values: list[Value] = []


class ModelInfo(pydantic.BaseModel):
    """A model that is served."""

    id: str
    object: Literal["model"] = "model"
    owned_by: str = "tefm"
    title: str = pydantic.Field(description="what is predicted from what")
    classes: list[str]
    positive: str
    decision: str = pydantic.Field(description="how probabilities become a prediction")
    label: str | None
    record: str = pydantic.Field(description="what one row is called")
    sequence: str = pydantic.Field(description="what one prediction is about")
    entity: str | None
    time: str | None
    window: int | None
    explains: bool
    questions: list[str] = pydantic.Field(description="questions in words that it was trained on; empty if none")
    columns: list[Column]
    example: list[Record]


class ModelsReply(pydantic.BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelInfo]


def info(served: Served) -> ModelInfo:
    """What a client needs to know of a model."""
    preparation, fitted = served.preparation, served.fitted
    schema = preparation.schema
    return ModelInfo(
        id=served.name,
        title=preparation.title,
        classes=list(fitted.classes),
        positive=fitted.classes[fitted.positive],
        decision=served.decision,
        label=schema.label,
        record=schema.record,
        sequence=preparation.sequence_noun,
        entity=preparation.entity,
        time=schema.time,
        window=preparation.config.window,
        explains=fitted.look_alikes is not None,
        questions=served.questions,
        columns=columns_of(preparation),
        example=example_rows(preparation, EXAMPLES),
    )


def columns_of(preparation: Preparation) -> list[Column]:
    """The columns of a request, in the order of the schema."""
    schema = preparation.schema
    roles = (("entity", preparation.entity), ("time", schema.time))
    columns = [_column(name, role) for role, name in roles if name is not None]
    dates = dict.fromkeys(field.source[0] for field, _, _ in preparation.vectoriser.parts if field.part)
    columns += [_column(name, "date") for name in dates]
    for field, mapper, _ in preparation.vectoriser.parts:
        for name in () if field.part else field.source:
            title = field.display_name if len(field.source) == 1 else f"{field.display_name} ({name})"
            columns.append(
                Column(
                    name=name,
                    role=field.kind,
                    title=title,
                    field=field.name,
                    group=field.group,
                    unit=field.unit,
                    static=field.name in schema.static,
                    delimiter=field.delimiter,
                    **_known(mapper),
                )
            )
    return columns + [_column(name, "text") for name in schema.text]


def _column(name: str, role: str) -> Column:
    return Column(name=name, role=role, title=name.replace("_", " "))


def _known(mapper: Mapper) -> dict[str, Any]:
    """What the model knows of the values of a field."""
    match mapper:
        case NumberMapper():
            return {"low": mapper.low[0], "high": mapper.high[-1]}
        case CategoryMapper() | SetMapper():
            return {"values": [Value(value=word, name=mapper.names.get(word, word)) for word in mapper.values[:LISTED]]}
        case FlagMapper():
            return {"values": [Value(value=mapper.on, name="yes")]}


def example_rows(preparation: Preparation, count: int = 1) -> list[dict[str, Any]]:
    """Rows with ordinary values of every field, one sequence each."""
    schema = preparation.schema
    rows: list[dict[str, Any]] = []
    for number in range(count):
        row: dict[str, Any] = {}
        if preparation.entity is not None:
            row[preparation.entity] = f"example-{number + 1}"
        if schema.time is not None:
            row[schema.time] = (FIRST_DAY + timedelta(days=number)).isoformat()
        share = (number + 1) / (count + 1)
        for place, (field, mapper, _) in enumerate(preparation.vectoriser.parts):
            if not field.derived:
                row |= _cells(field, mapper, share, number * (1 + place % 3))
            elif field.part:
                row[field.source[0]] = (FIRST_DAY - timedelta(days=30 * number)).isoformat()
        rows.append(row | dict.fromkeys(schema.text, "no remarks"))
    return rows


def _cells(field: Field, mapper: Mapper, share: float, shift: int) -> dict[str, Any]:
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
