"""What requests and replies look like. Unknown settings of a request are refused, with the most similar name."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tefm.serve.example import Column

#: A cell: a set may be a list.
Scalar = str | int | float | bool | None
Record = dict[str, Scalar | list[Scalar]]


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
