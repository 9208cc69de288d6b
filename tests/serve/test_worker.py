"""The worker: batches, three lanes, a bounded queue, requests that nobody waits for any longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import stays
from fastapi.testclient import TestClient
from support.serving import client_of, rows_of, until

from tefm.base.progress import log
from tefm.explain.reasons import Question
from tefm.model.estimator import TEFM
from tefm.serve.limits import Metrics, ServeSettings
from tefm.serve.messages import RefusedError
from tefm.serve.rows import Rows
from tefm.serve.served import PredictionsOrError, Served
from tefm.serve.worker import BusyError, Worker


class Watched(Served):
    """A real model that notes what it is asked, and can be held up."""

    def __init__(self, model: TEFM) -> None:
        super().__init__("stays", model)
        self.batches: list[int] = []
        self.let_go = threading.Event()
        self.let_go.set()
        self.reached = threading.Event()

    def predict(self, tables: Sequence[Rows]) -> list[PredictionsOrError]:
        self.reached.set()
        assert self.let_go.wait(30)
        self.batches.append(len(tables))
        return super().predict(tables)


@pytest.fixture
def watched(fitted: TEFM) -> Watched:
    return Watched(fitted)


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker(ServeSettings(queue=8, batch_ms=50), Metrics())
    yield worker
    worker.close()


def rows(watched: Watched, seed: int = 3) -> Rows:
    return watched.reader.of_records(rows_of(1, seed=seed))


def test_requests_that_come_together_share_a_batch(worker: Worker, watched: Watched) -> None:
    futures = [worker.predict(watched, rows(watched, seed)) for seed in range(8)]
    worker.start()
    answers = [future.result(30) for future in futures]
    assert watched.batches == [8]
    for seed, (answered,) in enumerate(answers):
        alone = watched.model.predict_proba(rows_of(1, seed=seed))[0]
        assert list(answered.probabilities.values()) == pytest.approx(alone, abs=1e-5)


def test_a_full_queue_is_busy_until_there_is_room(worker: Worker, watched: Watched) -> None:
    futures = [worker.predict(watched, rows(watched)) for _ in range(8)]
    with pytest.raises(BusyError) as busy:
        worker.predict(watched, rows(watched))
    assert 1 <= busy.value.retry_after <= 60
    assert worker.forget(futures[0]) and futures[0].cancelled()
    last = worker.predict(watched, rows(watched))
    worker.start()
    assert last.result(30)
    assert watched.batches == [8]
    assert not worker.forget(last)


def test_predictions_do_not_wait_for_an_explanation(worker: Worker, watched: Watched) -> None:
    """Predictions that come while an explanation is under way are answered before it ends."""
    explained = worker.explain(watched, watched.reader.of_records(rows_of(3)), Question())
    order: list[str] = []
    explained.add_done_callback(lambda _: order.append("explained"))
    worker.start()
    answered = 0
    while not explained.done() and answered < 15:
        worker.predict(watched, rows(watched, answered)).result(30)
        order.append("predicted")
        answered += 1
    assert len(explained.result(60)) == 3
    assert order.count("predicted") >= 3 and order.index("explained") >= 3
    right = watched.model.explain(rows_of(3))
    assert [one.conclusion for one in explained.result()] == [one.conclusion for one in right]


def test_predictions_do_not_wait_for_questions(fitted_with_questions: TEFM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions that come while many questions are answered are answered before the last of these."""
    monkeypatch.setattr("tefm.serve.served.AT_ONCE", 3)
    served, order = Served("stays", fitted_with_questions), list[str]()
    worker = Worker(ServeSettings(), Metrics())
    many, texts = served.reader.of_records(rows_of(8)), ["Next stay: statin?", "Will it rain?", "And snow?"]
    begun = threading.Event()
    ask = served.ask

    def asking(rows: Rows, questions: Sequence[str], pause: Callable[[], None], **settings: Any) -> Any:
        def pausing() -> None:
            if not begun.is_set():  # now it has begun: a prediction comes
                begun.set()
                predicted.append(worker.predict(served, served.reader.of_records(rows_of(1))))
                predicted[0].add_done_callback(lambda _: order.append("predicted"))
            pause()

        return ask(rows, questions, pausing, **settings)

    predicted: list[Any] = []
    monkeypatch.setattr(served, "ask", asking)
    asked = worker.ask(served, many, texts)
    asked.add_done_callback(lambda _: order.append("asked"))
    worker.start()
    answers = asked.result(60)
    assert predicted[0].result(60) and order == ["predicted", "asked"]
    right = fitted_with_questions.ask(stays(8, seed=3), texts)
    assert [one.question for one in answers] == right["question"].to_list()
    assert [one.p for one in answers] == pytest.approx(right["p(yes)"].to_list(), abs=1e-5)
    worker.close()


def test_questions_that_nobody_waits_for_are_given_up(fitted_with_questions: TEFM) -> None:
    worker = Worker(ServeSettings(timeout=0.01), Metrics())
    served = Served("stays", fitted_with_questions)
    asked = worker.ask(served, served.reader.of_records(rows_of(1)), ["Will it rain?"])
    time.sleep(0.05)
    worker.start()
    with pytest.raises(RefusedError, match="longer"):
        asked.result(30)
    worker.close()


def test_what_was_accepted_is_answered_at_the_end(watched: Watched) -> None:
    worker = Worker(ServeSettings(), Metrics())
    futures = [worker.predict(watched, rows(watched, seed)) for seed in range(20)]
    explained = worker.explain(watched, rows(watched), Question())
    worker.start()
    worker.close()
    assert all(future.done() for future in futures) and explained.done()
    assert not worker.alive


def test_a_bug_is_logged_without_the_records(
    worker: Worker, watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: Served, tables: Sequence[Rows]) -> Any:
        raise RuntimeError(f"bad row {tables[0].frame.rows()}")

    monkeypatch.setattr(Watched, "predict", broken)
    monkeypatch.setattr(log, "propagate", True)
    future = worker.predict(watched, watched.reader.of_records([{**rows_of(1)[0], "ward": "secret ward"}]))
    worker.start()
    assert type(future.exception(30)).__name__ == "InternalError"
    assert "RuntimeError" in caplog.text and "secret" not in caplog.text


# ---- through the API ------------------------------------------------------------------------------------------------


def test_429_503_and_504(watched: Watched) -> None:
    watched.let_go.clear()
    with client_of(watched, queue=2, timeout=0.6) as client, ThreadPoolExecutor(8) as pool:
        body = {"rows": rows_of(1)}

        def ask() -> Any:
            return client.post("/v1/predict", json=body)

        first = pool.submit(ask)  # held up inside of the model
        assert watched.reached.wait(10)
        waiting = [pool.submit(ask) for _ in range(2)]
        until(lambda: _queued(client) == 2)
        refused = ask()
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        assert "try again" in refused.json()["error"]["remedy"]
        assert first.result(10).status_code == 504
        for one in waiting:
            response = one.result(10)
            assert response.status_code == 503 and "dropped" in response.json()["error"]["problem"]
        assert _queued(client) == 0
        watched.let_go.set()
        assert ask().status_code == 200
        assert watched.batches == [1, 1]  # those that were dropped were never asked


def _queued(client: TestClient) -> float:
    text = client.get("/metrics").text
    return float(next(line for line in text.splitlines() if line.startswith('tefm_queue{lane="predict"}')).split()[-1])
