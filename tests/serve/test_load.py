"""The clients of benchmarks/serve.py count what they should."""

from __future__ import annotations

import asyncio
import runpy
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import stays
from serve.serving import listening

from tefm.model import TEFM
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
