"""The application: our own routes, those of other servers' clients, probes, the page. `create_app` joins them."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from tefm import __version__
from tefm.base.errors import InputError, TefmError
from tefm.explain.cards import rendered
from tefm.explain.explanation import Explanation, to_json
from tefm.explain.reasons import Question
from tefm.model.ask import RECORDED
from tefm.serve.limits import ServeSettings
from tefm.serve.messages import (
    AnswerInWords,
    AskOptions,
    AskReply,
    AskRequest,
    Classified,
    ClassifyReply,
    ClassifyRequest,
    Documented,
    ErrorReply,
    Explained,
    ExplainOptions,
    ExplainReply,
    ExplainRequest,
    InvocationsReply,
    InvocationsRequest,
    ModelInfo,
    ModelsReply,
    Prediction,
    PredictOptions,
    PredictReply,
    PredictRequest,
    Record,
    Status,
    Usage,
    columns_of,
    errors,
    example_rows,
)
from tefm.serve.protect import Keys, Protect
from tefm.serve.rows import REQUEST, Rows
from tefm.serve.served import Answered, AskedAbout, Served
from tefm.serve.service import RefusedError, Service, error_reply, is_csv, of_tefm, parsed
from tefm.serve.worker import InternalError

#: Example rows that the page offers.
EXAMPLES = 6
#: The files of the page and their types.
PAGE = {
    "page.css": "text/css",
    "card.css": "text/css",
    "dom.js": "text/javascript",
    "page.js": "text/javascript",
    "records.js": "text/javascript",
    "what_if.js": "text/javascript",
    "questions.js": "text/javascript",
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
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    documented = Documented(next(iter(service.models.values())))
    _explain_errors(app)
    _own_routes(app, service, documented)
    _compatible_routes(app, service, documented)
    _probes(app, service)
    _page(app)
    app.add_middleware(Protect, service=service, keys=keys or Keys([]))
    return app


def json_reply(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body.model_dump_json(), status, headers, "application/json")


# ---- our own routes ---------------------------------------------------------------------------------------------


def _own_routes(app: FastAPI, service: Service, documented: Documented) -> None:
    settings, worker = service.settings, service.worker

    @app.post("/v1/predict", responses=errors(PredictReply), openapi_extra=documented.predict, tags=["tefm"])
    @app.post("/v1/models/{model}/predict", responses=errors(PredictReply), include_in_schema=False)
    async def predict(request: Request, model: str | None = None) -> Response:
        """The class of each sequence and the probability of every class."""
        asked, served, rows = await service.request(request, model, PredictOptions, PredictRequest)
        (answered,) = await service.answer(request, lambda: worker.predict(served, [rows]), settings.timeout)
        predictions = [prediction(served, one, codes=asked.codes) for one in answered]
        service.count(served, answered)
        return json_reply(PredictReply(model=served.name, predictions=predictions))

    @app.post("/v1/explain", responses=errors(ExplainReply), openapi_extra=documented.explain, tags=["tefm"])
    @app.post("/v1/models/{model}/explain", responses=errors(ExplainReply), include_in_schema=False)
    async def explain(request: Request, model: str | None = None) -> Response:
        """Why the model predicts these classes: features that settle the answer, evidence for and against."""
        asked, served, rows = await service.request(request, model, ExplainOptions, ExplainRequest)
        question = Question.checked(asked.model_dump(include={"of_class", "precision", "most"}))
        found = await service.answer(
            request, lambda: worker.explain(served, rows, question, asked.question), settings.explain_timeout
        )
        for one in found:
            service.metrics.explanations.labels(served.name, one.verdict).inc()
        explanations = [explained(one, html=asked.html) for one in found]
        return json_reply(ExplainReply(model=served.name, explanations=explanations))

    @app.post("/v1/ask", responses=errors(AskReply), openapi_extra=documented.ask, tags=["tefm"])
    @app.post("/v1/models/{model}/ask", responses=errors(AskReply), include_in_schema=False)
    async def ask(request: Request, model: str | None = None) -> Response:
        """The probability of yes for questions in words, each with what answers to it are worth."""
        asked, served, rows = await service.request(request, model, AskOptions, AskRequest)
        questions = [asked.question] if isinstance(asked.question, str) else asked.question
        if not questions:
            raise RefusedError(422, "there is no question", remedy='write {"question": …}')
        found = await service.answer(request, lambda: worker.ask(served, rows, questions), settings.timeout)
        return json_reply(AskReply(model=served.name, answers=[answer for one in found for answer in answers_of(one)]))

    @app.get("/v1/models", responses=errors(ModelsReply), tags=["tefm"])
    async def models() -> Response:
        """The models that are served, with the columns that they read."""
        return json_reply(ModelsReply(data=[info(served) for served in service.models.values()]))


def prediction(served: Served, answered: Answered, *, codes: bool) -> Prediction:
    probabilities = dict(zip(served.classes, answered.probabilities, strict=True))
    return Prediction(
        id=answered.name,
        rows=list(answered.rows),
        predicted=answered.predicted,
        p=probabilities[answered.predicted],
        probabilities=probabilities,
        codes=[list(code) for code in answered.codes] if codes else None,
    )


def answers_of(about: AskedAbout) -> list[AnswerInWords]:
    """The answers to one question, each with what it is worth."""
    asked = about.asked
    return [
        AnswerInWords(
            id=name,
            question=asked.text,
            p=p,
            known=asked.known,
            auroc=asked.figure.auroc,
            auroc_low=asked.figure.low,
            auroc_high=asked.figure.high,
            worth=asked.worth,
            remark=RECORDED if is_recorded else None,
        )
        for name, p, is_recorded in zip(about.names, asked.p_S.tolist(), asked.recorded_S.tolist(), strict=True)
    ]


def explained(explanation: Explanation, *, html: bool) -> Explained:
    return Explained(
        id=explanation.sequence,
        predicted=explanation.answer.says,
        p=explanation.answer.p,
        probabilities=explanation.answer.probabilities,
        verdict=explanation.verdict,
        conclusion=explanation.conclusion,
        explanation=to_json(explanation),
        html=rendered("explanation.html", explanation=explanation, anchor="") if html else None,
    )


def info(served: Served) -> ModelInfo:
    """What a client needs to know of a model."""
    preparation, fitted = served.preparation, served.fitted
    schema = preparation.schema
    return ModelInfo(
        id=served.name,
        title=preparation.title,
        classes=list(fitted.classes),
        positive=fitted.classes[fitted.positive],
        label=schema.label,
        record=schema.record,
        sequence=preparation.sequence_noun,
        entity=None if preparation.config.window else schema.entity,
        time=schema.time,
        window=preparation.config.window,
        explains=served.explains,
        questions=served.questions,
        columns=columns_of(preparation),
        example=example_rows(preparation, EXAMPLES),
    )


# ---- routes that other servers' clients know: vLLM's /classify, MLflow's /invocations -------------------------------


def _compatible_routes(app: FastAPI, service: Service, documented: Documented) -> None:
    settings, worker = service.settings, service.worker

    @app.post("/classify", responses=errors(ClassifyReply), openapi_extra=documented.classify, tags=["vLLM"])
    async def classify(request: Request) -> Response:
        """vLLM's classification: a label and the probabilities of all classes for each input."""
        body = await service.body(request)
        asked = await service.read(body, lambda: parsed(ClassifyRequest, body))
        served = service.named(asked.model)
        tables = await service.read(body, lambda: [served.reader.of_records(one) for one in inputs(asked)])
        service.check_rows(request, *tables)
        answered = await service.answer(request, lambda: worker.predict(served, tables), settings.timeout)
        for number, sequences in enumerate(answered):
            if len(sequences) != 1:
                raise InputError(
                    f"input {number} holds {len(sequences)} sequences",
                    file=REQUEST,
                    column=served.preparation.schema.entity,
                    remedy=f"give the records of one {served.preparation.sequence_noun} per input, or use /v1/predict",
                )
        sequences = [one for (one,) in answered]
        service.count(served, sequences)
        data = [
            Classified(index=index, label=one.predicted, probs=list(one.probabilities), num_classes=len(served.classes))
            for index, one in enumerate(sequences)
        ]
        tokens = sum(_tokens(one) for one in sequences)
        reply = ClassifyReply(
            id=f"classify-{uuid.uuid4().hex}",
            created=int(time.time()),
            model=served.name,
            data=data,
            usage=Usage(prompt_tokens=tokens, total_tokens=tokens),
        )
        return Response(reply.model_dump_json(), media_type="application/json")

    @app.post("/invocations", responses=errors(InvocationsReply), openapi_extra=documented.invocations, tags=["MLflow"])
    @app.post("/v1/models/{model}/invocations", responses=errors(InvocationsReply), include_in_schema=False)
    async def invocations(request: Request, model: str | None = None) -> Response:
        """MLflow's scoring of `dataframe_split`, `dataframe_records` or a CSV, with the columns of `predict_table`."""
        body = await service.body(request)
        served = service.named(model or request.query_params.get("model"))
        if is_csv(request):
            rows = await service.read(body, lambda: served.reader.of_csv(body))
        else:
            given = await service.read(body, lambda: parsed(InvocationsRequest, body))
            rows = await service.read(body, lambda: dataframe(served, given))
        service.check_rows(request, rows)
        (answered,) = await service.answer(request, lambda: worker.predict(served, [rows]), settings.timeout)
        service.count(served, answered)
        reply = InvocationsReply(predictions=[row(served, one) for one in answered])
        return Response(reply.model_dump_json(), media_type="application/json")


def inputs(asked: ClassifyRequest) -> list[list[Record]]:
    """The records of each input."""
    given = [asked.input] if isinstance(asked.input, dict) else asked.input
    if not given:
        raise RefusedError(422, "there is no input", remedy="give a record, or a list of records")
    return [[one] if isinstance(one, dict) else one for one in given]


def dataframe(served: Served, given: InvocationsRequest) -> Rows:
    """The rows of MLflow's request."""
    split, records = given.dataframe_split, given.dataframe_records
    if (split is None) == (records is None):
        raise RefusedError(
            422,
            "the request needs one of `dataframe_split` and `dataframe_records`",
            remedy='{"dataframe_records": [{…}]} or {"dataframe_split": {"columns": […], "data": [[…]]}}',
        )
    if split is not None:
        return served.reader.of_split(split.columns, split.data)
    return served.reader.of_records(records or [])


def row(served: Served, answered: Answered) -> dict[str, Any]:
    """A prediction with the columns of `predict_table`."""
    noun = served.preparation.sequence_noun
    columns: dict[str, Any] = {
        "records": len(answered.rows),
        "predicted": answered.predicted,
        **{f"p({name})": p for name, p in zip(served.classes, answered.probabilities, strict=True)},
    }
    return {noun: answered.name, **{name if name != noun else f"{name}_": cell for name, cell in columns.items()}}


def _tokens(answered: Answered) -> int:
    """The code tokens that the model reads; the words of the question are not counted."""
    return sum(map(len, answered.codes))


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
    folder = files("tefm.serve") / "page"
    index = (folder / "index.html").read_text(encoding="utf-8")
    contents = {name: (folder / name).read_text(encoding="utf-8") for name in PAGE if name != "card.css"}
    contents["card.css"] = rendered("style.css", scope=".tefm-card")

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(index, media_type="text/html")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        if name not in contents:
            raise RefusedError(404, "no such file", value=name)
        return Response(contents[name], media_type=PAGE[name])


# ---- errors -----------------------------------------------------------------------------------------------------


def _explain_errors(app: FastAPI) -> None:
    """Every error is a reply of the same form; what the client can mend is a 4xx."""

    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> Response:
        return json_reply(error.body, error.status, error.headers)

    @app.exception_handler(TefmError)
    async def wrong(request: Request, error: TefmError) -> Response:
        return json_reply(of_tefm(error), 422)

    @app.exception_handler(InternalError)
    async def internal(request: Request, error: InternalError) -> Response:
        return json_reply(error_reply("InternalError", "internal error", None, None, "see the server's log"), 500)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        body: ErrorReply = error_reply(
            "RefusedError", str(error.detail), None, None, "see /openapi.json for the routes"
        )
        return json_reply(body, error.status_code, dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        details = error.errors()[0]
        name = ".".join(map(str, details["loc"]))
        return json_reply(error_reply("InputError", f"{name}: {details['msg']}", None, None, None), 422)
