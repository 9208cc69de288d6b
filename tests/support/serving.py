"""What the tests of the server share: a client inside the test process, and a real server as a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from conftest import stays
from fastapi.testclient import TestClient

from tefm.model.estimator import TEFM
from tefm.serve.limits import ServeSettings
from tefm.serve.protect import Keys
from tefm.serve.routes import create_app
from tefm.serve.served import Served

LOOPBACK = "http://127.0.0.1"


def rows_of(patients: int = 5, seed: int = 3) -> list[dict[str, Any]]:
    """Stays that the model has not seen, as JSON rows without the label."""
    return stays(patients, seed=seed).drop("died").to_dicts()


@contextmanager
def client_of(*models: TEFM | Served, keys: list[str] | None = None, **settings: Any) -> Iterator[TestClient]:
    """A client of a server that runs in this process."""
    served = [one if isinstance(one, Served) else Served(f"model{i}", one) for i, one in enumerate(models)]
    app = create_app(served, ServeSettings.checked(settings), Keys(keys or []))
    with TestClient(app, base_url=LOOPBACK, raise_server_exceptions=False) as client:
        yield client


@contextmanager
def listening(served: Served) -> Iterator[int]:
    """The port of a server in a thread of this process."""
    opened = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app([served]), log_config=None))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield opened.getsockname()[1]
    server.should_exit = True
    thread.join(30)


@dataclass
class Process:
    """A running `tefm serve`."""

    popen: subprocess.Popen[str]
    port: int
    lines: list[str] = field(default_factory=list)

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, timeout: float = 60
    ) -> tuple[int, dict[str, str], Any]:
        """One request on a connection of its own: status, headers and JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            content = None if body is None else body if isinstance(body, str | bytes) else json.dumps(body)
            given = {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, content, given)
            response = connection.getresponse()
            text = response.read()
            is_json = response.headers.get_content_type() == "application/json"
            return response.status, dict(response.headers), json.loads(text) if is_json else text.decode()
        finally:
            connection.close()

    def stop(self, sig: int = signal.SIGTERM, timeout: float = 60) -> tuple[int, str]:
        """Send a signal and wait for the end: the exit status, and everything that went to stderr."""
        self.popen.send_signal(sig)
        _, rest = self.popen.communicate(timeout=timeout)
        return self.popen.returncode, "".join(self.lines) + rest


@contextmanager
def process_of(*arguments: object) -> Iterator[Process]:
    """`tefm serve` on a free port."""
    popen = subprocess.Popen(
        [sys.executable, "-m", "tefm.cli", "serve", *map(str, arguments), "--port", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
    )
    lines: list[str] = []
    try:
        assert popen.stderr is not None
        for line in popen.stderr:
            lines.append(line)
            if found := re.search(r"listening on http://[^ ]*:(\d+)", line):
                yield Process(popen, int(found[1]), lines)
                break
        else:
            raise AssertionError("".join(lines))
    finally:
        if popen.poll() is None:
            popen.kill()
            popen.communicate()


def saved(model: TEFM, folder: Path) -> Path:
    return model.save(folder / "stays")


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
