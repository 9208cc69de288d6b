"""The process of `tefm serve`: models are loaded, then the server listens; SIGTERM finishes what was accepted.

On SIGTERM or Ctrl-C, `/readyz` says no and replies close their connections; after `drain` seconds the server stops
listening, answers what it has accepted, and ends with status 0. A second signal ends it at once.

Headers and open connections are limited; with too many, the connection with the oldest incomplete request is closed.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tefm.base.errors import SettingsError, failing_as
from tefm.base.progress import log, logged_to
from tefm.model.bundle import domains_of
from tefm.model.domains import Domains
from tefm.model.estimator import TEFM
from tefm.serve.describe import example_rows
from tefm.serve.limits import CONNECTIONS, HEADER_BYTES, HEADER_SECONDS, ServeSettings
from tefm.serve.protect import Keys, check_host
from tefm.serve.routes import create_app
from tefm.serve.served import Served
from tefm.serve.service import Service


def load_models(given: Sequence[str], *, remember: bool = True, device: str | None = None) -> list[Served]:
    """The models of the command line: folders, each under the folder's name or as NAME=FOLDER.

    The domains of a folder are models of their own names, NAME-DOMAIN where a name is given; they share one language
    model.
    """
    models: dict[str, Served] = {}
    for text in given:
        for name, model in _loaded(text, device):
            if name in models:
                raise SettingsError("two models have the same name", value=name, remedy="give one as NAME=FOLDER")
            served = Served(name, model, remember=remember)
            served.warm_up(example_rows(served.preparation, 2))
            log.info(f"loaded {name}: {served.preparation.title}")
            models[name] = served
    return list(models.values())


def _loaded(text: str, device: str | None) -> list[tuple[str, TEFM]]:
    """The models of a folder with their names."""
    name, is_named, path = text.partition("=")
    if not is_named or Path(text).exists():
        name, path = Path(text).resolve().name, text
    if not name or "/" in name:
        raise SettingsError("not a valid name of a model", value=name, remedy="give NAME=FOLDER")
    folder = Path(path)
    if domains_of(folder) is None:
        return [(name, TEFM.load(folder, device=device))]
    prefix = f"{name}-" if name != folder.resolve().name else ""
    return [(f"{prefix}{domain}", model) for domain, model in Domains.load(folder, device=device).items()]


def run(
    models: Sequence[Served], *, host: str, port: int, settings: ServeSettings, keys: Keys, access_log: bool = True
) -> None:
    """Serve until a signal comes."""
    check_host(host, keys)
    app = create_app(models, settings, keys)
    listening = _listen(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # ours holds no query and no record
        server_header=False,
        proxy_headers=False,
        ws="none",
        http=Connection.limited_by(settings),
        timeout_keep_alive=75,
        lifespan="on",
    )
    service = app.state.service
    server = _Server(config, service)
    address = f"[{host}]" if ":" in host else host
    handler = logging.StreamHandler(sys.stderr)  # a plain one, since there is a line per request
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    with logged_to(handler, logging.INFO if access_log else logging.WARNING):
        # for people and scripts: where 0 was given, the system has chosen the port
        print(f"listening on http://{address}:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
        server.run(sockets=[listening])
        counts = f"{service.accepted:,} requests accepted, {service.answered:,} answered"
        print(f"stopped: {counts}", file=sys.stderr, flush=True)


class _Server(uvicorn.Server):
    """uvicorn with an orderly end."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self._stop_listening: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins the end, a second one hurries it; the process then ends with status 0."""
        if self._stop_listening is None:
            self.service.draining = True
            wait = self.service.settings.drain if sig == signal.SIGTERM else 0.0
            self._stop_listening = time.monotonic() + wait
        else:
            self.should_exit = self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        if self._stop_listening is not None and time.monotonic() >= self._stop_listening:
            self.should_exit = True
        return await super().on_tick(counter)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    problem, remedy = "cannot listen there: {reason}", "give another --port, or 0 for any free one"
    with failing_as((OSError, OverflowError), problem, error=SettingsError, value=f"{host}:{port}", remedy=remedy):
        return socket.create_server((host, port), family=family, backlog=2_048)


# ---- connections -----------------------------------------------------------------------------------------------------


#: Files that the server needs besides connections.
OTHER_FILES = 100


class Connection(HttpToolsProtocol):
    """uvicorn's connection with limits; `limited_by` makes the class that a server uses."""

    most: ClassVar[int] = CONNECTIONS
    most_bytes: ClassVar[int]
    seconds: ClassVar[float] = HEADER_SECONDS
    #: those whose request has not said all of its headers, the one that has waited longest first
    waiting: ClassVar[dict[Connection, asyncio.TimerHandle]]

    @classmethod
    def limited_by(cls, settings: ServeSettings, **limits: Any) -> type[Connection]:
        """The class for a server with these settings."""
        files = CONNECTIONS + OTHER_FILES
        with suppress(ImportError):  # Windows has no such limit
            import resource

            files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = max(16, min(CONNECTIONS, files - OTHER_FILES))
        # chunks of a body may be small, and then have more around them than in them
        most_bytes = 8 * settings.max_bytes + HEADER_BYTES
        return type("LimitedConnection", (cls,), {"waiting": {}, "most": most, "most_bytes": most_bytes, **limits})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.received = 0
        if len(self.connections) > self.most:
            ours = [other for other in self.connections if isinstance(other, Connection)]
            idle = [other for other in ours if other.cycle is not None and other.cycle.response_complete]
            next(iter((*self.waiting, *idle)), self).end()
        if not transport.is_closing():
            self.wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self.go_on()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self not in self.waiting and self.cycle is not None and self.cycle.response_complete:
            self.wait()  # for the headers of a further request
        self.received += len(data)
        super().data_received(data)
        if self.received > (HEADER_BYTES if self in self.waiting else self.most_bytes):
            self.end()

    def on_headers_complete(self) -> None:
        self.go_on()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.received = 0
        super().on_message_complete()

    def wait(self) -> None:
        """Wait for headers, until there is no time left."""
        self.waiting[self] = self.loop.call_later(self.seconds, self.end)

    def go_on(self) -> None:
        """The headers are there, or not expected any more."""
        if timer := self.waiting.pop(self, None):
            timer.cancel()

    def end(self) -> None:
        """Close the connection; there is no request that could be answered."""
        self.go_on()
        self.transport.abort()
