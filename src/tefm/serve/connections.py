"""Connections of clients: the headers of a request have a size and a time, and so many connections are open at once.

Where there are too many, the one that has waited longest with half a request goes, so that nobody locks others out.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tefm.serve.limits import CONNECTIONS, HEADER_BYTES, HEADER_SECONDS, ServeSettings

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
