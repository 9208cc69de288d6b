"""The clients of benchmarks/serve.py count what they should."""

from __future__ import annotations

import asyncio
import runpy
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import stays
from support.serving import listening

from tefm.model.estimator import TEFM
from tefm.serve.served import Served

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "serve.py"


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setitem(sys.modules, "serve_benchmark", sys.modules[__name__])  # its dataclasses look their module up
    return runpy.run_path(str(SCRIPT), run_name="serve_benchmark")


@pytest.fixture
def port(fitted: TEFM) -> Iterator[int]:
    with listening(Served("stays", fitted)) as port:
        yield port


def test_clients_count_answers_and_failures(parts: dict[str, Any], port: int, tmp_path: Path) -> None:
    stays(30, seed=3).drop("died").write_csv(tmp_path / "rows.csv")
    bodies = parts["bodies_of"](tmp_path / "rows.csv", "patient")
    assert len(bodies) == 30
    right = parts["Load"](port, "/v1/predict", bodies, 0.5)
    asyncio.run(right.run(4))
    assert right.failures == 0 and right.statuses == {200: len(right.latencies)}
    wrong = parts["Load"](port, "/v1/nothing", bodies, 0.1)
    asyncio.run(wrong.run(2))
    assert wrong.failures == len(wrong.latencies) > 0
    with socket.create_server(("127.0.0.1", 0)) as closed:
        free = closed.getsockname()[1]
    nobody = parts["Load"](free, "/v1/predict", bodies, 0.1)
    asyncio.run(nobody.run(2))
    assert nobody.failures == nobody.refused == 2


def test_clients_come_back_when_the_server_was_busy(parts: dict[str, Any]) -> None:
    replies = [b"429 Busy\r\nRetry-After: 0", *(3 * [b"200 OK"])]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number, reply in enumerate(replies):
            await reader.readuntil(b"body")
            connection = b"close" if number == len(replies) - 1 else b"keep-alive"
            writer.write(b"HTTP/1.1 " + reply + b"\r\nConnection: " + connection + b"\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def ask() -> Any:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            load = parts["Load"](server.sockets[0].getsockname()[1], "/v1/explain", [b"body"], 30)
            reader, writer = await asyncio.open_connection("127.0.0.1", load.port)
            while await load._ask(reader, writer, time.perf_counter() + 30):
                pass
            writer.close()
            return load

    load = asyncio.run(ask())
    assert load.statuses == {429: 1, 200: 3} and load.failures == 0
    assert len(load.latencies) == 3
