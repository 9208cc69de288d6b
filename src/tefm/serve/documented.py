"""The requests of every route for OpenAPI, with examples that the first model answers."""

from __future__ import annotations

import csv
import io
from typing import Any

from pydantic import BaseModel

from tefm.serve.example import example_rows
from tefm.serve.messages import (
    AskRequest,
    ClassifyRequest,
    ErrorReply,
    ExplainRequest,
    InvocationsRequest,
    PredictRequest,
)
from tefm.serve.service import Service

MEANINGS = {
    401: "no or wrong API key",
    404: "no such model",
    413: "the body is too large",
    422: "something in the request is wrong: which column, which value, what to do",
    429: "the queue has no room: try again after `Retry-After` seconds",
    503: "waited too long and was dropped",
    504: "took too long",
}


def errors(reply: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The replies of a route."""
    replies: dict[int | str, dict[str, Any]] = {200: {"model": reply}}
    return replies | {status: {"model": ErrorReply, "description": words} for status, words in MEANINGS.items()}


class Documented:
    """What `openapi_extra` of each route says of its body."""

    def __init__(self, service: Service) -> None:
        served = next(iter(service.models.values()))
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
