"""What requests and replies look like, for clients and for OpenAPI.

Unknown settings of a request are refused, with the most similar name.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from tefm.base.errors import TefmError
from tefm.serve.rows import Scalar

#: A row; the cell of a set may be a list.
Record = dict[str, Scalar | list[Scalar]]


class Request(BaseModel):
    """What all requests have: rows. With a CSV body, everything but the rows is given as query parameters."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(default=None, description="name of the model (default: the first one)")
    absent: bool = Field(default=False, description="read missing columns of fields as absent")
    rows: list[Record] = Field(description="records, one object per row")


class PredictRequest(Request):
    """Rows to predict."""

    codes: bool = Field(default=False, description="also return the codes of every record")


class ExplainRequest(Request):
    """Rows to explain."""

    of_class: str | None = Field(default=None, description="class of the evidence (default: the predicted one)")
    above: float | None = Field(default=None, description="numeric label: threshold to explain (default: the median)")
    precision: float = Field(default=0.9, description="minimum share of a rule's cases that get the same answer")
    most: int = Field(default=10, description="maximum number of conditions in a rule")
    html: bool = Field(default=False, description="also return the card as HTML")
    question: str | None = Field(default=None, description="explain the answer to this question, not the class")


class AskRequest(Request):
    """Rows to ask about, and one question or several."""

    question: str | list[str] = Field(description="a question in words, or several")
    anyway: bool = Field(default=False, description="answer new questions even if the accuracy on them is unknown")


class Prediction(BaseModel):
    """The prediction for one sequence."""

    id: Any = Field(description="the entity as given in the request, or the number of the sequence")
    rows: list[int] = Field(description="rows of the request that make up the sequence, in time order")
    predicted: str
    p: float = Field(description="probability of the predicted class")
    probabilities: dict[str, float]
    notices: list[str] = Field(default=[], description="values not seen in training, and how they are read")
    number: dict[str, float] | None = Field(
        default=None, description="for a numeric label: prediction (median), mean, low and high"
    )
    codes: list[list[str]] | None = Field(default=None, description="the code of every record, if asked for")


class PredictReply(BaseModel):
    model: str
    decision: str = Field(description="how probabilities become a prediction: the threshold, where there is one")
    predictions: list[Prediction]


class AnswerInWords(BaseModel):
    """The answer to a question about one sequence, with what it is worth."""

    id: Any = Field(description="the entity as given in the request, or the number of the sequence")
    question: str
    p: float | None = Field(description="probability of yes; null if the accuracy on new questions is unknown")
    known: Literal["trained", "held out", "taught", "new"] = Field(description="how the model knows the question")
    auroc: float | None = Field(description="of a trained question, or the mean over questions held out of training")
    auroc_low: float | None
    auroc_high: float | None
    worth: str = Field(description="how accurate answers to this question are, in a sentence")
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
    verdict: str = Field(description="settled, real only, made-up only, contested, unsettled or default")
    conclusion: str
    explanation: dict[str, Any] = Field(description="the card: features, evidence for and against, counts")
    html: str | None = None


class ExplainReply(BaseModel):
    model: str
    decision: str | None = Field(description="how probabilities become a prediction; null for a question in words")
    explanations: list[Explained]


# ---- about the server -------------------------------------------------------------------------------------------


class Status(BaseModel):
    status: str


# ---- errors -----------------------------------------------------------------------------------------------------


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


class RefusedError(TefmError):
    """A request that is not answered, with the status of the reply."""

    kind: ClassVar[str] = "refused"

    def __init__(self, status: int, problem: str, *, headers: dict[str, str] | None = None, **details: Any) -> None:
        super().__init__(problem, **details)
        self.status, self.headers = status, headers


class InternalError(RefusedError):
    """A bug: what went wrong is in the log, without the records."""

    kind = "internal"

    def __init__(self) -> None:
        super().__init__(500, "internal error", remedy="see the server's log")


def json_reply(body: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body.model_dump_json(), status, headers, "application/json")


def error_reply(error: TefmError) -> Response:
    """The reply to a request that failed; the path of a file is nobody's business."""
    status, headers, kind = 422, None, type(error).__name__.removesuffix("Error").lower()
    if isinstance(error, RefusedError):
        status, headers, kind = error.status, error.headers, error.kind
    column, remedy = error.column, error.remedy
    body = ErrorBody(
        type=kind,
        message=error.problem + (f" [column {column!r}]" if column else "") + (f"\n  → {remedy}" if remedy else ""),
        problem=error.problem,
        column=column,
        value=None if error.value is None else str(error.value)[:200],
        remedy=remedy,
    )
    return json_reply(ErrorReply(error=body), status, headers)
