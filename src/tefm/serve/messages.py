"""What requests and replies look like, for clients and for OpenAPI, with examples that a model answers.

Unknown settings of a request are refused, with the most similar name. Example rows are invented from what the schema
and the vectoriser say of each field: they are no training records.
"""

from __future__ import annotations

import csv
import io
from datetime import date, timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tefm.pipeline.prepare import Preparation
from tefm.serve.served import Served
from tefm.tables.mappers import CategoryMapper, FlagMapper, Mapper, NumberMapper, SetMapper
from tefm.tables.schema import Field as TableField
from tefm.tables.schema import Kind

#: A cell: a set may be a list.
Scalar = str | int | float | bool | None
Record = dict[str, Scalar | list[Scalar]]
#: Values of a column that are listed.
LISTED = 300
#: A date to begin with; only the order of times counts.
FIRST_DAY = date(2024, 1, 31)
MEANINGS = {
    401: "no or wrong API key",
    404: "no such model",
    413: "the body is too large",
    422: "something in the request is wrong: which column, which value, what to do",
    429: "the queue has no room: try again after `Retry-After` seconds",
    503: "waited too long and was dropped",
    504: "took too long",
}


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


class Options(BaseModel):
    """What a request may ask besides its rows; with a CSV body, these are query parameters."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(default=None, description="name of the model; the first one by default")
    absent: bool = Field(default=False, description="read missing columns of fields as absent")


class PredictOptions(Options):
    codes: bool = Field(default=False, description="also return the codes of every record")


class ExplainOptions(Options):
    of_class: str | None = Field(default=None, description="the class that the evidence is about; default: the answer")
    precision: float = Field(default=0.9, description="share of the look-alikes that must get the same answer")
    most: int = Field(default=10, description="features that may settle an answer, at most")
    html: bool = Field(default=False, description="also return the card as HTML")
    question: str | None = Field(default=None, description="explain the answer to this question, not the class")


class AskOptions(Options):
    question: str = Field(description="a question in words")


class PredictRequest(PredictOptions):
    """Rows to predict."""

    rows: list[Record] = Field(description="records, one object per row")


class ExplainRequest(ExplainOptions):
    """Rows to explain."""

    rows: list[Record] = Field(description="records, one object per row")


class AskRequest(Options):
    """Rows to ask about, and one question or several."""

    rows: list[Record] = Field(description="records, one object per row")
    question: str | list[str] = Field(description="a question in words, or several")


class Prediction(BaseModel):
    """The prediction for one sequence."""

    id: Any = Field(description="the entity as it came, or the number of the sequence")
    rows: list[int] = Field(description="the rows of the request that it is made of, in the order of time")
    predicted: str
    p: float = Field(description="probability of the predicted class")
    probabilities: dict[str, float]
    codes: list[list[str]] | None = Field(default=None, description="the code of every record, if asked for")


class PredictReply(BaseModel):
    model: str
    predictions: list[Prediction]


class AnswerInWords(BaseModel):
    """The answer to a question about one sequence, with what it is worth."""

    id: Any = Field(description="the entity as it came, or the number of the sequence")
    question: str
    p: float = Field(description="probability of yes")
    known: Literal["trained", "held out", "taught", "new"] = Field(description="how the model knows the question")
    auroc: float | None = Field(description="of a trained question, or the mean over questions held out of training")
    auroc_low: float | None
    auroc_high: float | None
    worth: str = Field(description="the same in a sentence")
    remark: str | None = None


class AskReply(BaseModel):
    model: str
    answers: list[AnswerInWords]


class Explained(BaseModel):
    """Why the model predicts a class for one sequence."""

    id: str
    predicted: str
    p: float
    probabilities: dict[str, float]
    verdict: str = Field(description="settled, contested, unsettled or default")
    conclusion: str
    explanation: dict[str, Any] = Field(description="the card: features, evidence for and against, counts")
    html: str | None = None


class ExplainReply(BaseModel):
    model: str
    explanations: list[Explained]


# ---- other servers' clients -------------------------------------------------------------------------------------


class ClassifyRequest(BaseModel):
    """vLLM's request, with records in place of texts: each input is one sequence, a record or a list of records."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    input: Record | list[Record | list[Record]]


class Classified(BaseModel):
    index: int
    label: str
    probs: list[float]
    num_classes: int


class Usage(BaseModel):
    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class ClassifyReply(BaseModel):
    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Classified]
    usage: Usage


class DataframeSplit(BaseModel):
    model_config = ConfigDict(extra="ignore")

    columns: list[str]
    data: list[list[Scalar | list[Scalar]]]


class InvocationsRequest(BaseModel):
    """MLflow's request: exactly one of the two."""

    model_config = ConfigDict(extra="ignore")

    dataframe_split: DataframeSplit | None = None
    dataframe_records: list[Record] | None = None


class InvocationsReply(BaseModel):
    predictions: list[dict[str, Any]]


# ---- about the server -------------------------------------------------------------------------------------------


class ModelInfo(BaseModel):
    """A model that is served."""

    id: str
    object: Literal["model"] = "model"
    owned_by: str = "tefm"
    title: str = Field(description="what is predicted from what")
    classes: list[str]
    positive: str
    label: str | None
    record: str = Field(description="what one row is called")
    sequence: str = Field(description="what one prediction is about")
    entity: str | None
    time: str | None
    window: int | None
    explains: bool
    questions: list[str] = Field(description="questions in words that it was trained on; empty: it takes none")
    columns: list[Column]
    example: list[Record]


class ModelsReply(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelInfo]


class Status(BaseModel):
    status: str


class ErrorBody(BaseModel):
    """What is wrong, where, and what to do."""

    type: str
    message: str
    problem: str
    column: str | None = None
    value: str | None = None
    remedy: str | None = None


class ErrorReply(BaseModel):
    error: ErrorBody


# ---- columns and example rows ---------------------------------------------------------------------------------------


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


def _column(name: str, title: str, field: TableField, mapper: Mapper) -> Column:
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


def _cells(field: TableField, mapper: Mapper, share: float, shift: int) -> dict[str, Any]:
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


def _fields(preparation: Preparation) -> list[tuple[TableField, Mapper]]:
    """The fields with what was learned about them."""
    return list(zip(preparation.vectoriser.table_schema.fields, preparation.vectoriser.mappers, strict=True))


# ---- OpenAPI --------------------------------------------------------------------------------------------------------


def errors(reply: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The replies of a route."""
    replies: dict[int | str, dict[str, Any]] = {200: {"model": reply}}
    return replies | {status: {"model": ErrorReply, "description": words} for status, words in MEANINGS.items()}


class Documented:
    """What `openapi_extra` of each route says of its body."""

    def __init__(self, served: Served) -> None:
        rows = example_rows(served.preparation, 2)
        table = {"text/csv": {"schema": {"type": "string"}, "example": as_csv(rows)}}
        columns = list(rows[0])
        split = {"columns": columns, "data": [[row[name] for name in columns] for row in rows]}
        self.predict = _body(PredictRequest, {"rows": rows, "model": served.name, "codes": True}, table)
        self.explain = _body(ExplainRequest, {"rows": rows[:1], "model": served.name}, table)
        asked = served.questions[0] if served.questions else "Next admission: heart failure?"
        self.ask = _body(AskRequest, {"rows": rows, "question": asked, "model": served.name}, table)
        self.classify = _body(ClassifyRequest, {"input": rows, "model": served.name}, {})
        self.invocations = _body(InvocationsRequest, {"dataframe_split": split}, table)


def _body(kind: type[BaseModel], example: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    for part in schema.pop("$defs", {}).values():  # few and small: written where they are used
        schema = _with_part(schema, part)
    content = {"application/json": {"schema": schema, "example": example}, **others}
    return {"requestBody": {"required": True, "content": content}}


def _with_part(schema: Any, part: dict[str, Any]) -> Any:
    """The schema with a part in the place of every reference to it."""
    if isinstance(schema, dict):
        if schema.get("$ref") == f"#/components/schemas/{part['title']}":
            return part
        return {name: _with_part(value, part) for name, value in schema.items()}
    return [_with_part(value, part) for value in schema] if isinstance(schema, list) else schema


def as_csv(rows: list[dict[str, Any]]) -> str:
    """Rows as a CSV; a list becomes its first member, since a cell holds one value."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    for row in rows:
        writer.writerow({name: value[0] if isinstance(value, list) else value for name, value in row.items()})
    return text.getvalue()
