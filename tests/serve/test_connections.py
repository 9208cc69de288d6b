"""Clients that send half a request: headers without end, headers that never end, and too many connections."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from support.serving import until

from tefm.serve.limits import ServeSettings
from tefm.serve.server import Connection

REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def server(**limits: Any) -> Iterator[tuple[int, type[Connection]]]:
    """The port of a server with these limits, and the class of its connections."""
    opened = socket.create_server(("127.0.0.1", 0))
    limited = Connection.limited_by(ServeSettings(max_megabytes=0.001), **limits)
    running = uvicorn.Server(uvicorn.Config(app, http=limited, log_config=None, lifespan="off"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    until(lambda: running.started)
    yield opened.getsockname()[1], limited
    running.should_exit = True
    thread.join(30)
    assert not limited.waiting


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def answered(client: socket.socket) -> bool:
    client.sendall(REQUEST)
    return client.recv(1_000).startswith(b"HTTP/1.1 200")


def taken(client: socket.socket, part: bytes) -> int:
    """The bytes that are taken of what has no end, those in the buffers of the system among them."""
    sent = 0
    with suppress(ConnectionError):
        while sent < 50 << 20:
            sent += client.send(part)
    return sent


def test_headers_without_end_are_cut_off() -> None:
    with server() as (port, _), connected(port) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX: ")
        assert taken(client, b"x" * 65_536) < 20 << 20


def test_headers_that_never_end_are_not_waited_for() -> None:
    with server(seconds=0.3) as (port, _), connected(port) as client, connected(port) as silent:
        began = time.monotonic()
        try:
            client.sendall(b"GET / HTTP/1.1\r\n")
            for _ in range(20):
                client.sendall(b"X: y\r\n")
                time.sleep(0.1)
        except ConnectionError:
            pass
        assert is_closed(client) and is_closed(silent)
        assert time.monotonic() - began < 5
        with connected(port) as other:
            assert answered(other)
            time.sleep(0.6)  # between two requests there is more time
            assert answered(other)
            other.sendall(b"\r\n")
            assert is_closed(other)


def test_a_body_without_end_is_cut_off() -> None:
    with server() as (port, _), connected(port) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
        assert taken(client, b"X: " + b"x" * 9_000 + b"\r\n") < 20 << 20


def test_half_open_connections_do_not_lock_others_out() -> None:
    with server(most=20) as (port, limited):
        half = [connected(port) for _ in range(60)]
        for client in half[:20]:
            client.settimeout(20)
        with connected(port) as client:
            assert answered(client)
        assert len(limited.waiting) <= 20
        idle = [connected(port) for _ in range(25)]
        assert all(answered(client) for client in idle[20:])
        with connected(port) as client:
            assert answered(client)
        for client in (*half, *idle):
            client.close()
        until(lambda: not limited.waiting)


def test_a_server_has_the_limits() -> None:
    limited = Connection.limited_by(ServeSettings())
    assert 16 <= limited.most <= 1_000 and limited.most_bytes > 4 << 20
    assert limited.waiting is not Connection.limited_by(ServeSettings()).waiting
