"""The lane of explanations: what is accepted, what is refused, what is dropped, and what is answered once."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from support.serving import client_of, listening, rows_of, until

from tefm.explain.reasons import Question
from tefm.model.estimator import TEFM
from tefm.serve import worker as worker_module
from tefm.serve.limits import Metrics, ServeSettings
from tefm.serve.rows import Rows
from tefm.serve.served import PredictionsOrError, Served
from tefm.serve.worker import FILLED, FIRST_PACE, BusyError, Worker
from tefm.tables.sequences import Sequences

TIMEOUT = 100.0
#: Explanations that fit into the timeout as long as none was measured.
FIT = int(FILLED * TIMEOUT / FIRST_PACE)


class Clock:
    """The clock of the worker; it can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


class Explaining(Served):
    """A model whose explanations take as long as the test wants, and can be held up."""

    def __init__(self, model: TEFM, clock: Clock) -> None:
        super().__init__("stays", model)
        self.clock = clock
        self.takes: Iterator[float] = itertools.repeat(0.0)
        self.explained: list[str] = []
        self.reached, self.let_go = threading.Event(), threading.Event()
        self.let_go.set()

    def explain(self, slots: Sequences, question: Question, pause: Callable[[], None], text: str | None = None) -> Any:
        self.reached.set()
        assert self.let_go.wait(30)
        self.clock.ahead += next(self.takes)
        self.explained.append(str(slots.names[0]))
        return self.explained[-1]

    def hold(self) -> None:
        self.reached.clear()
        self.let_go.clear()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(worker_module, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


@pytest.fixture
def served(fitted: TEFM, clock: Clock) -> Explaining:
    return Explaining(fitted, clock)


@pytest.fixture
def worker(served: Explaining) -> Iterator[Worker]:
    worker = Worker(ServeSettings(queue=64, explain_timeout=TIMEOUT), Metrics())
    yield worker
    served.let_go.set()
    worker.close()


def rows(served: Served, name: str, *others: str) -> Rows:
    (row,) = rows_of(1)[:1]
    return served.reader.of_records([{**row, "patient": patient} for patient in (name, *others)])


def submit(worker: Worker, served: Served, name: str, *others: str) -> Future[Any]:
    return worker.explain(served, rows(served, name, *others), Question())


def accepted(worker: Worker, served: Served, most: int) -> list[Future[Any]]:
    """The requests for different patients that are accepted, until one is refused."""
    futures: list[Future[Any]] = []
    try:
        for number in range(most):
            futures.append(submit(worker, served, f"other {number}"))
    except BusyError:
        pass
    return futures


def refused(worker: Worker, lane: str = "explain") -> float:
    return worker.metrics.registry.get_sample_value("tefm_refused_total", {"lane": lane}) or 0.0


# ---- what is accepted -----------------------------------------------------------------------------------------------


def test_what_cannot_end_in_time_is_refused_at_once(worker: Worker, served: Explaining) -> None:
    futures = [submit(worker, served, f"p{number}") for number in range(FIT)]
    with pytest.raises(BusyError) as busy:
        submit(worker, served, "one more")
    assert busy.value.retry_after == FIRST_PACE  # until there is room for one
    with pytest.raises(BusyError) as busy:
        submit(worker, served, "one more", "and", "another")
    assert busy.value.retry_after == 3 * FIRST_PACE  # each sequence counts
    assert (refused(worker), refused(worker, "predict")) == (2, 0)
    assert worker.forget(futures[3])
    submit(worker, served, "one more")


def test_predictions_are_not_refused_for_explanations(worker: Worker, served: Explaining) -> None:
    assert len(accepted(worker, served, 64)) == FIT
    answer = worker.predict(served, rows(served, "p"))
    worker.start()
    assert answer.result(30)


def test_all_that_is_accepted_ends_in_time(worker: Worker, served: Explaining, clock: Clock) -> None:
    """More come at once than fit into the timeout, and some take three times as long as others."""
    served.takes = itertools.cycle([1.5, 4.5, 3.0])
    worker.start()
    for number in range(6):  # the pace is measured
        submit(worker, served, f"p{number}").result(30)
    served.hold()
    begun, ends = clock.monotonic(), []
    first = submit(worker, served, "first")
    assert served.reached.wait(30)
    futures = [first, *accepted(worker, served, 64)]
    for future in futures:
        future.add_done_callback(lambda _: ends.append(clock.monotonic() - begun))
    served.let_go.set()
    for future in futures:
        future.result(30)
    assert 0.5 * TIMEOUT < max(ends) < TIMEOUT  # much of the time is used
    assert refused(worker) == 1


def test_a_slow_explanation_does_not_lock_others_out(worker: Worker, served: Explaining) -> None:
    served.takes = itertools.chain([2 * TIMEOUT], itertools.repeat(0.0))
    worker.start()
    submit(worker, served, "slow").result(30)
    served.hold()
    running = submit(worker, served, "p0")  # nobody is before it
    assert served.reached.wait(30)
    with pytest.raises(BusyError):
        submit(worker, served, "p1")
    served.let_go.set()
    running.result(30)
    for number in range(20):
        submit(worker, served, f"p{number}").result(30)
    served.hold()
    assert len(accepted(worker, served, FIT)) == FIT


def test_the_explanation_under_way_counts(worker: Worker, served: Explaining, clock: Clock) -> None:
    worker.start()
    submit(worker, served, "p0").result(30)  # quick
    served.hold()
    submit(worker, served, "p1")
    assert served.reached.wait(30)
    submit(worker, served, "p2")
    clock.ahead += 0.6 * TIMEOUT  # p1 takes long
    with pytest.raises(BusyError) as busy:
        submit(worker, served, "p3")
    assert busy.value.retry_after > 0.6 * TIMEOUT


# ---- turns ----------------------------------------------------------------------------------------------------------


def test_predictions_without_end_do_not_keep_an_explanation_waiting(
    worker: Worker, served: Explaining, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever predictions are answered, the next one waits already."""
    explanation, batches = submit(worker, served, "p0"), 0

    def predict(tables: Any) -> list[PredictionsOrError]:
        nonlocal batches
        batches += 1
        if batches < 50:
            worker.predict(served, tables[0])
        return [[] for _ in tables]

    monkeypatch.setattr(served, "predict", predict)
    at_the_end: list[int] = []
    explanation.add_done_callback(lambda _: at_the_end.append(batches))
    worker.predict(served, rows(served, "p1"))
    worker.start()
    assert explanation.result(30) == ["p0"]
    assert at_the_end[0] < 50


def test_the_same_explanation_is_made_once_for_all_who_wait(worker: Worker, served: Explaining) -> None:
    gone, *futures = [submit(worker, served, "p0") for _ in range(4)]
    others = [
        worker.explain(served, rows(served, "p0"), Question(precision=0.8)),
        worker.explain(served, rows(served, "p0"), Question(), "does the patient die?"),
        submit(worker, served, "p1"),
    ]
    assert worker.forget(gone)  # the others still want it
    worker.start()
    assert [future.result(30) for future in futures] == 3 * [["p0"]]
    assert [future.result(30) for future in others] == [["p0"], ["p0"], ["p1"]]
    assert served.explained == ["p0", "p0", "p0", "p1"]


def test_the_same_explanation_needs_no_room(worker: Worker, served: Explaining) -> None:
    assert len(accepted(worker, served, 64)) == FIT
    submit(worker, served, "other 0")
    assert worker.metrics.registry.get_sample_value("tefm_queue", {"lane": "explain"}) == FIT + 1


# ---- through the API ------------------------------------------------------------------------------------------------


def test_429_with_the_time_until_there_is_room(served: Explaining) -> None:
    served.hold()
    (row,) = rows_of(1)[:1]
    with client_of(served, explain_timeout=2.5 * FIRST_PACE) as client, ThreadPoolExecutor(4) as pool:

        def ask(patient: str) -> Any:
            return client.post("/v1/explain", json={"rows": [{**row, "patient": patient}]})

        first = pool.submit(ask, "p0")
        assert served.reached.wait(10)
        reply = ask("p1")
        assert reply.status_code == 429 and 1 <= int(reply.headers["retry-after"]) <= 2 * FIRST_PACE
        assert 'tefm_refused_total{lane="explain"} 1.0' in client.get("/metrics").text
        served.let_go.set()
        first.result(30)
    assert served.explained == ["p0"]


def test_an_explanation_that_nobody_waits_for_is_not_begun(served: Explaining) -> None:
    """The client closes its connection while its request waits."""
    served.hold()
    (row,) = rows_of(1)[:1]
    with listening(served) as port:

        def asking(patient: str) -> http.client.HTTPConnection:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            body = json.dumps({"rows": [{**row, "patient": patient}]})
            connection.request("POST", "/v1/explain", body, {"Content-Type": "application/json"})
            return connection

        def waiting() -> bytes:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read()
            connection.close()
            return next(line for line in text.splitlines() if line.startswith(b'tefm_queue{lane="explain"}'))

        first = asking("p0")
        assert served.reached.wait(10)
        gone = asking("p1")
        until(lambda: waiting().endswith(b" 1.0"))
        gone.close()
        until(lambda: waiting().endswith(b" 0.0"))
        first.close()  # begun, and ended
        served.let_go.set()
    assert served.explained == ["p0"]
