"""The application: routes for models, probes, the page. `create_app` joins them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import PurePath
from typing import Any

import polars as pl
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from tefm.base import __version__
from tefm.base.errors import TefmError
from tefm.explain.cards import rendered
from tefm.explain.explanation import Explanation
from tefm.explain.reasons import Question
from tefm.serve import messages
from tefm.serve.describe import ModelsReply, example_rows, info
from tefm.serve.limits import ServeSettings
from tefm.serve.messages import RefusedError, Status, error_reply, json_reply
from tefm.serve.protect import Keys, Protect
from tefm.serve.served import Served
from tefm.serve.service import Service

#: The types of the page's files.
TYPES = {".css": "text/css", ".js": "text/javascript"}
MEANINGS = {
    401: "no or wrong API key",
    404: "no such model",
    413: "the body is too large",
    422: "something in the request is wrong: which column, which value, what to do",
    429: "the queue has no room: try again after `Retry-After` seconds",
    503: "waited too long and was dropped",
    504: "took too long",
}
#: The errors that a route may reply with.
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": messages.ErrorReply, "description": meaning} for status, meaning in MEANINGS.items()
}


def create_app(models: Sequence[Served], settings: ServeSettings | None = None, keys: Keys | None = None) -> FastAPI:
    """The application for these models; the first one is the default. Its worker starts and ends with it."""
    service = Service(models, settings or ServeSettings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.worker.start()
        yield
        service.worker.close()

    app = FastAPI(
        title="tefm",
        version=__version__,
        description="Predictions from structured records, and why.",
        lifespan=lifespan,
        exception_handlers={TefmError: _refused, HTTPException: _refused},
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # a redirect would lead to whatever host the client names
    )
    app.state.service = service
    documented = bodies(next(iter(service.models.values())))
    _model_routes(app, service, documented)
    _probes(app, service)
    _page(app)
    app.add_middleware(Protect, service=service, keys=keys or Keys([]))
    return app


# ---- routes for models -------------------------------------------------------------------------------------------


def _model_routes(app: FastAPI, service: Service, documented: dict[str, dict[str, Any]]) -> None:
    settings, worker = service.settings, service.worker
    shared: dict[str, Any] = {"responses": ERRORS, "tags": ["tefm"]}

    @app.post("/v1/predict", response_model=messages.PredictReply, openapi_extra=documented["predict"], **shared)
    @app.post("/v1/models/{model}/predict", include_in_schema=False)
    async def predict(request: Request, model: str | None = None) -> Response:
        """The class of each sequence and the probability of every class."""
        asked, served, rows = await service.read(request, messages.PredictRequest, model)
        predictions = await service.answer(request, worker.predict(served, rows), settings.timeout)
        for one in predictions:
            service.metrics.predictions.labels(served.name, one.predicted).inc()
        if not asked.codes:
            predictions = [one.model_copy(update={"codes": None}) for one in predictions]
        return json_reply(messages.PredictReply(model=served.name, decision=served.decision, predictions=predictions))

    @app.post("/v1/explain", response_model=messages.ExplainReply, openapi_extra=documented["explain"], **shared)
    @app.post("/v1/models/{model}/explain", include_in_schema=False)
    async def explain(request: Request, model: str | None = None) -> Response:
        """Why the model predicts these classes: features that settle the answer, evidence for and against."""
        asked, served, rows = await service.read(request, messages.ExplainRequest, model)
        question = Question.checked(asked.model_dump(include={"of_class", "above", "precision", "most"}))
        future = worker.explain(served, rows, question, asked.question)
        explanations = await service.answer(request, future, settings.explain_timeout)
        for one in explanations:
            service.metrics.explanations.labels(served.name, one.verdict).inc()
        replies = [explained(one, html=asked.html) for one in explanations]
        decision = served.decision if asked.question is None else None
        return json_reply(messages.ExplainReply(model=served.name, decision=decision, explanations=replies))

    @app.post("/v1/ask", response_model=messages.AskReply, openapi_extra=documented["ask"], **shared)
    @app.post("/v1/models/{model}/ask", include_in_schema=False)
    async def ask(request: Request, model: str | None = None) -> Response:
        """The probability of yes for questions in words, each with what answers to it are worth."""
        asked, served, rows = await service.read(request, messages.AskRequest, model)
        questions = [asked.question] if isinstance(asked.question, str) else asked.question
        if not questions:
            raise RefusedError(422, "there is no question", remedy='write {"question": …}')
        answers = await service.answer(
            request, worker.ask(served, rows, questions, anyway=asked.anyway), settings.timeout
        )
        return json_reply(messages.AskReply(model=served.name, answers=answers))

    @app.get("/v1/models", response_model=ModelsReply, **shared)
    async def models() -> Response:
        """The models that are served, with the columns that they read."""
        return json_reply(ModelsReply(data=[info(served) for served in service.models.values()]))


def explained(explanation: Explanation, *, html: bool) -> messages.Explained:
    return messages.Explained(
        id=explanation.sequence,
        predicted=explanation.answer.says,
        p=explanation.answer.p,
        probabilities=explanation.answer.probabilities,
        verdict=explanation.verdict,
        conclusion=explanation.conclusion,
        explanation=explanation.to_json(),
        html=rendered("explanation.html", card=explanation, anchor="") if html else None,
    )


# ---- probes and the page ----------------------------------------------------------------------------------------


def _probes(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", response_model=Status, tags=["probes"])
    async def alive() -> Response:
        """Whether the process works: 503 means that it should be started again."""
        is_alive = service.worker.alive
        return json_reply(Status(status="ok" if is_alive else "the worker has ended"), 200 if is_alive else 503)

    @app.get("/readyz", response_model=Status, tags=["probes"])
    async def ready() -> Response:
        """Whether new requests are welcome: 503 while the server is about to stop."""
        return json_reply(Status(status="ok" if service.ready else "stopping"), 200 if service.ready else 503)

    @app.get("/metrics", tags=["probes"])
    async def metrics() -> Response:
        """Counters in Prometheus' format."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


def _page(app: FastAPI) -> None:
    contents = {file.name: file.read_text(encoding="utf-8") for file in (files("tefm.serve") / "page").iterdir()}
    contents["card.css"] = rendered("style.css", scope=".tefm-card")
    index = contents.pop("index.html")

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(index, media_type="text/html")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        if name not in contents:
            raise RefusedError(404, "no such file", value=name)
        return Response(contents[name], media_type=TYPES[PurePath(name).suffix])


# ---- what OpenAPI says of requests and errors -----------------------------------------------------------------------


def bodies(served: Served) -> dict[str, dict[str, Any]]:
    """What OpenAPI says of the body of each route, by the route's name."""
    rows = example_rows(served.preparation, 2)
    question = served.questions[0] if served.questions else "Next admission: heart failure?"
    # in a CSV, a cell holds one value: the first of a list
    cells = [{name: value[0] if isinstance(value, list) else value for name, value in row.items()} for row in rows]
    table = {"text/csv": {"schema": {"type": "string"}, "example": pl.DataFrame(cells).write_csv()}}
    return {
        "predict": _body(messages.PredictRequest, {"rows": rows, "model": served.name, "codes": True}, table),
        "explain": _body(messages.ExplainRequest, {"rows": rows[:1], "model": served.name}, table),
        "ask": _body(messages.AskRequest, {"rows": rows, "question": question, "model": served.name}, table),
    }


def _body(kind: type[BaseModel], example: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    schema = kind.model_json_schema()
    parts = schema.pop("$defs", {})
    text = json.dumps(schema)
    for name, part in parts.items():  # few and small: written where they are used
        text = text.replace(json.dumps({"$ref": f"#/$defs/{name}"}), json.dumps(part))
    content = {"application/json": {"schema": json.loads(text), "example": example}, **others}
    return {"requestBody": {"required": True, "content": content}}


async def _refused(request: Request, error: Exception) -> Response:
    """The reply to every error has the same form; what the client can fix is a 4xx."""
    if isinstance(error, HTTPException):
        remedy, headers = "see /openapi.json for the routes", dict(error.headers or {})
        error = RefusedError(error.status_code, str(error.detail), remedy=remedy, headers=headers)
    assert isinstance(error, TefmError)
    return error_reply(error)
