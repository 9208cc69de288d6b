"""What all routes share: the models by name, reading a request, and waiting for its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from tefm.base.errors import TefmError, did_you_mean
from tefm.base.settings import first_error
from tefm.serve.limits import Metrics, ServeSettings
from tefm.serve.messages import AskRequest, ErrorBody, ErrorReply, ExplainRequest, Options, PredictRequest
from tefm.serve.rows import Rows
from tefm.serve.served import Answered, Served
from tefm.serve.worker import BusyError, Worker

Model = TypeVar("Model", bound=BaseModel)
#: What a request asks besides its rows, and the same with its rows.
Asked = TypeVar("Asked", bound=Options)
Whole = TypeVar("Whole", bound=PredictRequest | ExplainRequest | AskRequest)
T = TypeVar("T")
#: Bodies from this size on are read outside of the event loop.
LARGE = 64 << 10


class RefusedError(Exception):
    """A request that is not answered: the status, what is wrong, and what to do."""

    def __init__(
        self,
        status: int,
        problem: str,
        *,
        column: str | None = None,
        value: object = None,
        remedy: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(problem)
        self.status, self.problem, self.column, self.value, self.remedy = status, problem, column, value, remedy
        self.headers = headers or {}

    @property
    def body(self) -> ErrorReply:
        return error_reply("RefusedError", self.problem, self.column, self.value, self.remedy)


def error_reply(kind: str, problem: str, column: str | None, value: object, remedy: str | None) -> ErrorReply:
    """The reply to a request that failed."""
    text = None if value is None else str(value)[:200]
    message = problem + (f" [column {column!r}]" if column else "") + (f"\n  → {remedy}" if remedy else "")
    name = kind.removesuffix("Error").lower() or "error"
    return ErrorReply(
        error=ErrorBody(type=name, message=message, problem=problem, column=column, value=text, remedy=remedy)
    )


def of_tefm(error: TefmError) -> ErrorReply:
    """An error of the library, as a reply; the path of a file is nobody's business."""
    return error_reply(type(error).__name__, error.problem, error.column, error.value, error.remedy)


class Service:
    """The models, the worker and the limits of a server."""

    def __init__(self, models: Sequence[Served], settings: ServeSettings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.models = {served.name: served for served in models}
        self.worker = Worker(settings, self.metrics)
        #: whether the server has been told to stop
        self.draining = False
        #: requests that have come, and those whose last byte has gone out
        self.accepted = self.answered = 0

    @property
    def ready(self) -> bool:
        return self.worker.alive and not self.draining

    def named(self, name: str | None) -> Served:
        """The model of a request; the first one where it names none."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            remedy = did_you_mean(name, self.models)
            raise RefusedError(404, "no such model", value=name, remedy=remedy)
        return self.models[name]

    def count(self, served: Served, answered: Sequence[Answered]) -> None:
        """Count predictions by class."""
        for one in answered:
            self.metrics.predictions.labels(served.name, one.predicted).inc()

    # ---- reading ----------------------------------------------------------------------------------------------

    async def body(self, request: Request) -> bytes:
        """The body of a request; a client that sends it too slowly is not waited for."""
        try:
            return await asyncio.wait_for(request.body(), self.settings.timeout)
        except TimeoutError:
            remedy = f"send it within {self.settings.timeout:g} s"
            raise RefusedError(408, "the body of the request did not arrive in time", remedy=remedy) from None

    async def read(self, body: bytes, reading: Callable[[], T]) -> T:
        """What `reading` makes of the body; a large one does not keep other requests waiting."""
        return reading() if len(body) < LARGE else await asyncio.to_thread(reading)

    async def request(
        self, request: Request, model: str | None, options: type[Asked], whole: type[Whole]
    ) -> tuple[Asked | Whole, Served, Rows]:
        """What a request asks, the model that it is for, and its rows.

        With a CSV body the options are query parameters. A model that the path names goes before one of the options.
        """
        body = await self.body(request)
        if is_csv(request):
            asked = from_query(options, request)
            served = self.named(model or asked.model)
            rows = await self.read(body, lambda: served.reader.of_csv(body, absent=asked.absent))
            self.check_rows(request, rows)
            return asked, served, rows
        given = await self.read(body, lambda: parsed(whole, body))
        served = self.named(model or given.model)
        rows = await self.read(body, lambda: served.reader.of_records(given.rows, absent=given.absent))
        self.check_rows(request, rows)
        return given, served, rows

    def check_rows(self, request: Request, *tables: Rows) -> None:
        """Refuse more rows than allowed, and note their number for the log."""
        rows = sum(table.height for table in tables)
        request.state.rows = rows
        if rows > self.settings.max_rows:
            raise RefusedError(
                422,
                f"the request has {rows:,} rows, and {self.settings.max_rows:,} are allowed",
                remedy="send them in several requests, or use `tefm predict` for a whole table",
            )

    # ---- waiting ----------------------------------------------------------------------------------------------

    async def answer(self, request: Request, submit: Callable[[], Future[T]], timeout: float) -> T:
        """The worker's answer; 429 where the queue has no room, 503 or 504 where waiting or answering took too long.

        A request whose client has gone is dropped, unless the worker has begun with it.
        """
        try:
            future = submit()
        except BusyError as busy:
            raise RefusedError(
                429,
                "too many requests are waiting",
                remedy=f"try again in {busy.retry_after} s",
                headers={"Retry-After": str(busy.retry_after)},
            ) from None
        waiting, gone = asyncio.wrap_future(future), asyncio.ensure_future(_disconnected(request))
        either: list[asyncio.Future[Any]] = [waiting, gone]
        done, _ = await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if waiting in done:
            return waiting.result()
        waiting.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody asks for it any more
        dropped = self.worker.forget(future)
        if gone in done:
            raise RefusedError(499, "the client has closed the connection")  # for the log: nobody reads it
        if dropped:
            raise RefusedError(
                503,
                f"the request waited for {timeout:g} s and was dropped: the server has too much to do",
                remedy="try again later, or start the server with a longer --timeout",
                headers={"Retry-After": "5"},
            )
        raise RefusedError(
            504,
            f"the answer took longer than {timeout:g} s",
            remedy="send fewer rows at a time, or start the server with a longer --timeout",
        )


async def _disconnected(request: Request) -> None:
    """Returns when the client closes the connection; the body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()


def is_csv(request: Request) -> bool:
    """Whether the body is a CSV; anything that is neither CSV nor JSON is refused."""
    kind = content_type(request)
    if kind in ("text/csv", "application/csv"):
        return True
    if kind in ("application/json", "text/json") or kind.endswith("+json"):
        return False
    raise RefusedError(
        415, "the body is neither JSON nor CSV", value=kind, remedy="set Content-Type: application/json or text/csv"
    )


def parsed(kind: type[Model], body: bytes) -> Model:
    """A JSON body as this kind of request; the error names the setting."""
    return _valid(kind, lambda: kind.model_validate_json(body))


def from_query(kind: type[Model], request: Request) -> Model:
    """The query parameters of a request with a CSV body."""
    return _valid(kind, lambda: kind.model_validate(dict(request.query_params)))


def _valid(kind: type[Model], validate: Callable[[], Model]) -> Model:
    try:
        return validate()
    except ValidationError as error:
        details, name = first_error(error)
        problem, remedy, value = details["msg"], None, details["input"]
        if details["type"] == "extra_forbidden":
            problem, remedy = f"there is no setting {name!r}", did_you_mean(name, kind.model_fields)
        elif details["type"] == "missing":
            problem, remedy, value = f"{name!r} is missing", f'write {{"{details["loc"][-1]}": …}}', None
        elif details["type"] == "json_invalid":
            problem, remedy, value = f"the body is not valid JSON: {details['ctx']['error']}", "check the JSON", None
        else:
            problem = f"{name}: {problem}"
        scalar = value if isinstance(value, str | int | float) else None
        raise RefusedError(422, problem, column=_column_of(details["loc"]), value=scalar, remedy=remedy) from None


def _column_of(place: tuple[int | str, ...]) -> str | None:
    """The column, where a cell of a row is wrong: ("rows", 3, "age", …)."""
    is_cell = len(place) > 2 and isinstance(place[1], int) and isinstance(place[2], str)
    return str(place[2]) if is_cell else None
