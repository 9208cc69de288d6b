"""Requests per second of `tefm serve`, against the same model behind a plain endpoint, in the same run.

    python benchmarks/serve.py --model MODEL --rows ROWS.csv [--seconds 8] [--json FILE]

The plain endpoint is what one writes first: FastAPI, a lock, `model.predict_table` and `model.explain` per request.
Clients keep their connections and ask for one sequence at a time, each a different one as long as there are any; the
order of the servers is turned round from one number of clients to the next. A client that is refused with 429 comes
back when Retry-After says so; that is no failure, and is counted apart. Everything stays on 127.0.0.1.

At the end, SIGTERM under the load of the most clients: what the server accepted, it must have answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

RESULTS = Path("benchmarks/results/serve.json")
SERVERS = {
    "tefm serve": ["-m", "tefm.cli", "serve", "{model}", "--port", "0", "--no-access-log"],
    "tefm serve, no memory": ["-m", "tefm.cli", "serve", "{model}", "--port", "0", "--no-access-log", "--no-remember"],
    "plain": [__file__, "--plain", "--model", "{model}"],
}
#: Requests of one measurement, at most.
MOST = 20_000


# ---- the plain endpoint -------------------------------------------------------------------------------------------


def serve_plainly(folder: str) -> None:
    """One request at a time."""
    import socket

    import uvicorn
    from fastapi import FastAPI

    from tefm.model.estimator import TEFM

    model, lock, app = TEFM.load(folder), threading.Lock(), FastAPI()

    @app.post("/v1/predict")
    def predict(body: dict[str, Any]) -> Any:
        with lock:
            return {"predictions": model.predict_table(body["rows"]).to_dicts()}

    @app.post("/v1/explain")
    def explain(body: dict[str, Any]) -> Any:
        with lock:
            return {"explanations": [one.to_json() for one in model.explain(body["rows"])]}

    listening = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    print(f"listening on http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run(sockets=[listening])


@dataclass
class Running:
    """A server as a process."""

    popen: subprocess.Popen[str]
    port: int

    @property
    def cpu_seconds(self) -> float:
        times = Path(f"/proc/{self.popen.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(name: str, model: str) -> Iterator[Running]:
    command = [sys.executable, *(part.format(model=model) for part in SERVERS[name])]
    popen = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert popen.stderr is not None
        port = next(int(found[1]) for line in popen.stderr if (found := re.search(r"listening on .*:(\d+)", line)))
        yield Running(popen, port)
    finally:
        if popen.poll() is None:
            popen.terminate()
            popen.communicate(timeout=60)


# ---- the clients --------------------------------------------------------------------------------------------------


@dataclass
class Load:
    """Clients that ask until the time is up, or until the server no longer listens."""

    port: int
    path: str
    bodies: list[bytes]
    seconds: float
    #: where the next request is taken from
    next: int = 0
    latencies: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    #: no answer, or half of one
    broken: int = 0
    #: connections that were refused: the server was gone
    refused: int = 0
    until_gone: bool = False
    most: int = MOST

    async def run(self, clients: int) -> float:
        """Returns how long it took."""
        started = time.perf_counter()
        await asyncio.gather(*(self._client(started + self.seconds) for _ in range(clients)))
        return time.perf_counter() - started

    async def _client(self, end: float) -> None:
        while self._goes_on(end):
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                self.refused += 1
                return
            try:
                while self._goes_on(end) and await self._ask(reader, writer, end):
                    pass
            finally:
                writer.close()

    def _goes_on(self, end: float) -> bool:
        return (self.until_gone or time.perf_counter() < end) and self.next < self.most

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, end: float) -> bool:
        """One request, and the time until the next one is welcome; False where the connection ends."""
        body = self.bodies[self.next % len(self.bodies)]
        self.next += 1
        head = f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        started = time.perf_counter()
        try:
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = re.search(rb"content-length: (\d+)", answer)
            assert length is not None, answer
            await reader.readexactly(int(length[1]))
        except (OSError, asyncio.IncompleteReadError):
            self.broken += 1
            return False
        status = int(answer.split()[1])
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status == 429:
            retry_after = re.search(rb"retry-after: (\d+)", answer)
            assert retry_after is not None, answer
            await asyncio.sleep(max(0.0, min(int(retry_after[1]), end - time.perf_counter())))
        else:
            self.latencies.append(time.perf_counter() - started)
        return b"connection: close" not in answer

    @property
    def failures(self) -> int:
        statuses = sum(count for status, count in self.statuses.items() if status not in (200, 429))
        return self.broken + self.refused + statuses


async def warm_up(load: Load) -> None:
    """The first answers of a process are slow, whatever they are."""
    reader, writer = await asyncio.open_connection("127.0.0.1", load.port)
    for _ in load.bodies:
        assert await load._ask(reader, writer, math.inf)
    writer.close()


def measure(server: Running, path: str, bodies: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """Requests per second and latencies of one server under one load."""
    before = server.cpu_seconds
    load = Load(server.port, path, bodies, seconds)
    took = asyncio.run(load.run(clients))
    p50, p95, p99 = np.percentile(load.latencies, [50, 95, 99]) if load.latencies else (0.0, 0.0, 0.0)
    return {
        "requests": len(load.latencies),
        "failures": load.failures,
        "busy": load.statuses.get(429, 0),
        "per_second": load.statuses.get(200, 0) / took,
        "p50_ms": 1_000 * float(p50),
        "p95_ms": 1_000 * float(p95),
        "p99_ms": 1_000 * float(p99),
        "cpu_ms_per_request": 1_000 * (server.cpu_seconds - before) / max(1, len(load.latencies)),
        "load": os.getloadavg()[0],
    }


def stop_under_load(name: str, model: str, bodies: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """SIGTERM while all clients ask: what was accepted, what was answered, and what the clients saw."""
    with running(name, model) as server:
        load = Load(server.port, "/v1/predict", bodies, seconds, until_gone=True)

        async def both() -> None:
            asking = asyncio.create_task(load.run(clients))
            await asyncio.sleep(seconds)
            server.popen.send_signal(signal.SIGTERM)
            await asking

        asyncio.run(both())
        _, errors = server.popen.communicate(timeout=60)
        counts = re.search(r"stopped: ([\d,]+) requests accepted, ([\d,]+) answered", errors)
        assert counts is not None, errors
        accepted, answered = (int(count.replace(",", "")) for count in counts.groups())
    return {
        "clients": clients,
        "accepted": accepted,
        "answered": answered,
        "received": sum(load.statuses.values()),
        "lost": accepted - load.statuses.get(200, 0),
        "exit_status": server.popen.returncode,
    }


# ---- everything ---------------------------------------------------------------------------------------------------


def bodies_of(rows: Path, entity: str | None, seed: int = 0) -> list[bytes]:
    """A request per sequence, in a random order."""
    table = pl.read_parquet(rows) if rows.suffix == ".parquet" else pl.read_csv(rows, infer_schema=False)
    parts = table.partition_by(entity, maintain_order=True) if entity else list(table.iter_slices(1))
    order = np.random.default_rng(seed).permutation(len(parts))
    return [json.dumps({"rows": parts[i].to_dicts()}).encode() for i in order]


def main(given: argparse.Namespace) -> None:
    from tefm_bench.measurement import environment

    from tefm.model.bundle import load_preparation

    bodies = bodies_of(given.rows, load_preparation(Path(given.model)).schema.entity)
    result: dict[str, Any] = {
        "machine": {**environment(), "command": shlex.join(["python", *sys.argv])},
        "sequences": len(bodies),
        "predict": {},
        "explain": {},
    }
    tasks = [("predict", given.clients, list(SERVERS)), ("explain", given.explain_clients, ["tefm serve", "plain"])]
    for task, numbers, names in tasks:
        for turn, clients in enumerate(numbers):
            for name in names if turn % 2 == 0 else names[::-1]:
                with running(name, given.model) as server:
                    warm = min(3 if task == "explain" else 50, len(bodies) // 2)
                    asyncio.run(warm_up(Load(server.port, f"/v1/{task}", bodies[-warm:], given.seconds)))
                    figures = measure(server, f"/v1/{task}", bodies[:-warm], clients, given.seconds)
                result[task].setdefault(str(clients), {})[name] = figures
                print(task, clients, name, json.dumps({k: round(v, 1) for k, v in figures.items()}), flush=True)
        for by_name in result[task].values():
            plain = by_name["plain"]["per_second"]
            for figures in by_name.values():
                figures["times_plain"] = figures["per_second"] / plain if plain else None
    result["sigterm"] = stop_under_load("tefm serve", given.model, bodies, max(given.clients), min(5.0, given.seconds))
    print(json.dumps(result["sigterm"]))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a model that explains")
    parser.add_argument("--rows", type=Path, help="table of sequences to ask for, CSV or Parquet")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--explain-clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--plain", action="store_true", help="be the plain endpoint")
    given = parser.parse_args()
    if given.plain:
        serve_plainly(given.model)
    else:
        main(given)
