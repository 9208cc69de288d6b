"""A real server as a process of its own: signals under load, a full queue, two models, kill -9."""

from __future__ import annotations

import http.client
import json
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import refused
from support.serving import Process, process_of, rows_of, saved

from tefm.base.files import read_manifest
from tefm.model.bundle import KIND
from tefm.model.estimator import TEFM

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(fitted: TEFM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(fitted, tmp_path_factory.mktemp("served"))


class Load:
    """Clients that ask again and again on connections that they keep, until the server is gone."""

    def __init__(self, server: Process, clients: int, body: dict[str, Any]) -> None:
        self.server, self.body = server, json.dumps(body)
        self.answers: Counter[int] = Counter()
        #: requests that were cut off in the middle of their answer
        self.cut_off = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
            try:
                connection.connect()
            except OSError:
                return  # the server no longer listens
            try:
                while True:
                    connection.request("POST", "/v1/predict", self.body, {"Content-Type": "application/json"})
                    response = connection.getresponse()
                    text = response.read()
                    with self._lock:
                        self.answers[response.status] += 1
                    assert response.status != 200 or json.loads(text)["predictions"]
                    if response.will_close:
                        break
            except http.client.IncompleteRead:
                with self._lock:
                    self.cut_off += 1
            except (OSError, http.client.HTTPException):
                pass  # not accepted any more; the server's own count says whether it was
            finally:
                connection.close()

    def wait_for(self, answers: int, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while self.answers.total() < answers:
            assert time.monotonic() < end, self.answers
            time.sleep(0.01)

    def end(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


def test_sigterm_under_load_loses_nothing(folder: Path) -> None:
    with process_of(folder, "--no-access-log") as server:
        load = Load(server, clients=8, body={"rows": rows_of(2)})
        load.wait_for(40)
        status, errors = server.stop(signal.SIGTERM)
        load.end()
    assert status == 0, errors
    assert set(load.answers) == {200} and load.cut_off == 0
    accepted, answered = re.search(r"stopped: ([\d,]+) requests accepted, ([\d,]+) answered", errors).groups()  # type: ignore[union-attr]
    assert accepted == answered
    assert int(answered.replace(",", "")) == load.answers.total()


@pytest.mark.all
def test_a_server_that_stops_says_so_and_still_answers(folder: Path) -> None:
    with process_of(folder, "--drain", "3") as server:
        assert server.request("GET", "/readyz")[0] == 200
        server.popen.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        status, headers, _ = server.request("GET", "/readyz")
        assert status == 503 and headers["connection"] == "close"
        assert server.request("GET", "/healthz")[0] == 200
        assert server.request("POST", "/v1/predict", {"rows": rows_of(1)})[0] == 200
        assert server.stop(signal.SIGTERM)[0] == 0  # a second signal does not wait


@pytest.mark.all
def test_a_full_queue_answers_429_and_everyone_else_200(folder: Path) -> None:
    with process_of(folder, "--queue", "1", "--no-access-log") as server:
        load = Load(server, clients=12, body={"rows": rows_of(20)})
        load.wait_for(120)
        _, text = server.stop(signal.SIGINT)
        load.end()
    assert set(load.answers) == {200, 429}, load.answers
    assert load.cut_off == 0 and "Traceback" not in text


@pytest.mark.all
def test_two_models_and_keys(folder: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a-key-of-sixteen-characters\n")
    with process_of(folder, f"second={folder}", "--api-key-file", keys, "--host", "0.0.0.0") as server:
        assert server.request("GET", "/v1/models")[0] == 401
        allowed = {"Authorization": "Bearer a-key-of-sixteen-characters"}
        status, _, reply = server.request("GET", "/v1/models", headers=allowed)
        assert status == 200 and [one["id"] for one in reply["data"]] == ["stays", "second"]
        body = {"rows": rows_of(1), "model": "second"}
        assert server.request("POST", "/v1/predict", body, allowed)[2]["model"] == "second"
        status, text = server.stop()
    assert status == 0 and "POST /v1/predict 200" in text and "p0" not in text


@pytest.mark.all
def test_kill_9_leaves_a_model_that_is_served_again(folder: Path) -> None:
    """In the midst of work, twice: the folder is unchanged, and the answers are the same."""
    body, first = {"rows": rows_of(3), "codes": True}, None
    before = sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))
    for attempt in range(2):
        with process_of(folder, "--no-access-log") as server:
            reply = server.request("POST", "/v1/predict", body)[2]
            first = first or reply
            assert reply == first
            load = Load(server, clients=4, body=body)
            load.wait_for(5 * attempt + 1)
            assert server.stop(signal.SIGKILL)[0] == -signal.SIGKILL
            load.end()
    assert sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*")) == before
    read_manifest(folder, KIND)


@pytest.fixture(scope="module")
def busy_port() -> Iterator[int]:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_what_cannot_be_served_is_one_message(folder: Path, tmp_path: Path, busy_port: int) -> None:
    assert "manifest" in refused("serve", tmp_path)
    assert "same name" in refused("serve", folder, folder)
    assert "cannot listen" in refused("serve", folder, "--port", busy_port)
    assert "no keys" in refused("serve", folder, "--api-key-file", _empty(tmp_path))


def _empty(folder: Path) -> Path:
    path = folder / "empty"
    path.write_text("")
    return path
