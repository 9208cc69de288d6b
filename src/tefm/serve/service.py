"""What all routes share: the models by name, reading a request, and waiting for its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from fastapi import Request as HttpRequest
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from tefm.base.errors import did_you_mean
from tefm.base.settings import first_error
from tefm.serve.limits import Metrics, ServeSettings
from tefm.serve.messages import RefusedError, Request
from tefm.serve.rows import Rows
from tefm.serve.served import Served
from tefm.serve.worker import Worker

Asked = TypeVar("Asked", bound=Request)
T = TypeVar("T")
#: Bodies from this size on are read outside of the event loop.
LARGE = 64 << 10


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

    # ---- reading ----------------------------------------------------------------------------------------------

    async def read(
        self, request: HttpRequest, kind: type[Asked], model: str | None = None
    ) -> tuple[Asked, Served, Rows]:
        """What a request asks, the model that it is for, and its rows; a large one does not keep others waiting.

        A model that the path names takes precedence over one in the body.
        """
        body, csv = await self._body(request), is_csv(request)

        def reading() -> tuple[Asked, Served, Rows]:
            asked = validated(kind, {"rows": [], **request.query_params} if csv else body)
            served = self._named(model or asked.model)
            if csv:
                return asked, served, served.reader.of_csv(body, absent=asked.absent)
            return asked, served, served.reader.of_records(asked.rows, absent=asked.absent)

        asked, served, rows = reading() if len(body) < LARGE else await asyncio.to_thread(reading)
        request.state.rows = rows.height  # for the log
        if rows.height > self.settings.max_rows:
            raise RefusedError(
                422,
                f"the request has {rows.height:,} rows, but at most {self.settings.max_rows:,} are allowed",
                remedy="send them in several requests, or use `tefm predict` for a whole table",
            )
        return asked, served, rows

    async def _body(self, request: HttpRequest) -> bytes:
        """The body of a request; a client that sends it too slowly is not waited for."""
        try:
            return await asyncio.wait_for(request.body(), self.settings.timeout)
        except ClientDisconnect:
            raise _client_gone() from None
        except TimeoutError:
            remedy = f"send it within {self.settings.timeout:g} s"
            raise RefusedError(408, "the body of the request did not arrive in time", remedy=remedy) from None

    def _named(self, name: str | None) -> Served:
        """The model of a request; the first one where it names none."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise RefusedError(404, "no such model", value=name, remedy=did_you_mean(name, self.models))
        return self.models[name]

    # ---- waiting ----------------------------------------------------------------------------------------------

    async def answer(self, request: HttpRequest, future: Future[T], timeout: float) -> T:
        """The worker's answer; 503 or 504 where waiting or answering took too long.

        A request whose client has gone is dropped, unless the worker has begun with it.
        """
        waiting, gone = asyncio.wrap_future(future), asyncio.ensure_future(_disconnected(request))
        either: list[asyncio.Future[Any]] = [waiting, gone]
        done, _ = await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if waiting in done:
            return waiting.result()
        waiting.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody asks for it any more
        dropped = self.worker.forget(future)
        if gone in done:
            raise _client_gone()
        if dropped:
            raise RefusedError(
                503,
                f"the request waited for {timeout:g} s and was dropped: the server is overloaded",
                remedy="try again later, or start the server with a longer --timeout",
                headers={"Retry-After": "5"},
            )
        raise RefusedError(
            504,
            f"the answer took longer than {timeout:g} s",
            remedy="send fewer rows at a time, or start the server with a longer --timeout",
        )


def _client_gone() -> RefusedError:
    """For the log: nobody reads the reply."""
    return RefusedError(499, "the client has closed the connection")


async def _disconnected(request: HttpRequest) -> None:
    """Returns when the client closes the connection; the body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def is_csv(request: HttpRequest) -> bool:
    """Whether the body is a CSV; anything that is neither CSV nor JSON is refused."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind in ("text/csv", "application/csv"):
        return True
    if kind in ("application/json", "text/json") or kind.endswith("+json"):
        return False
    raise RefusedError(
        415, "the body is neither JSON nor CSV", value=kind, remedy="set Content-Type: application/json or text/csv"
    )


def validated(kind: type[Asked], content: bytes | dict[str, Any]) -> Asked:
    """A JSON body, or the settings beside a CSV body, as this kind of request; an error names the setting."""
    try:
        return kind.model_validate_json(content) if isinstance(content, bytes) else kind.model_validate(content)
    except ValidationError as error:
        details, name = first_error(error)
        problem, remedy, value = f"{name}: {details['msg']}", None, details["input"]
        if details["type"] == "extra_forbidden":
            problem, remedy = f"unknown setting {name!r}", did_you_mean(name, kind.model_fields)
        elif details["type"] == "missing":
            problem, remedy = f"{name!r} is missing", f'write {{"{details["loc"][-1]}": …}}'
        elif details["type"] == "json_invalid":
            problem, remedy, value = f"the body is not valid JSON: {details['ctx']['error']}", "check the JSON", None
        scalar = value if isinstance(value, str | int | float) else None
        place = details["loc"]
        is_cell = len(place) > 2 and isinstance(place[1], int) and isinstance(place[2], str)  # ("rows", 3, "age", …)
        column = str(place[2]) if is_cell else None
        raise RefusedError(422, problem, column=column, value=scalar, remedy=remedy) from None
