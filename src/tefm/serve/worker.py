"""The thread that owns the models. Requests wait in two lanes; predictions of all clients are answered in batches.

Explanations take their turn when no prediction waits, one at a time. Each asks the model many questions, and before
every one of them the predictions that have come in meanwhile are answered, so that nobody waits for an explanation.
"""

from __future__ import annotations

import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from tefm.base.errors import TefmError
from tefm.base.progress import log
from tefm.rationale.explanation import Explanation
from tefm.rationale.reasons import Question
from tefm.serve.metrics import Metrics
from tefm.serve.rows import Rows
from tefm.serve.served import Answered, AskedAbout, Served
from tefm.serve.settings import ServeSettings

Lane = Literal["predict", "explain"]


class BusyError(Exception):
    """The queue is full; come back in so many seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the queue is full, retry after {retry_after} s")
        self.retry_after = retry_after


class InternalError(Exception):
    """A bug: what went wrong is in the log, without the records."""


@dataclass(eq=False)
class Job:
    """A request that waits for its answer."""

    lane: Lane
    served: Served
    rows: int
    #: resolved by the worker; cancelled by whoever no longer waits for it
    future: Future[Any] = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)
    #: one table per part that must not mix with the others
    tables: tuple[Rows, ...] = ()
    question: Question | None = None
    #: questions in words: to be answered, or of which one is to be explained
    texts: tuple[str, ...] = ()


class Worker:
    """Two bounded lanes and the thread that empties them."""

    def __init__(self, settings: ServeSettings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self._lanes: dict[Lane, deque[Job]] = {"predict": deque(), "explain": deque()}
        #: seconds per request of each lane, lately
        self._pace: dict[Lane, float] = {"predict": 0.01, "explain": 1.0}
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tefm-worker", daemon=True)

    # ---- for the event loop -----------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Answer everything that was accepted, then end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def waiting(self, lane: Lane) -> int:
        return len(self._lanes[lane])

    def predict(self, served: Served, tables: Iterable[Rows]) -> Future[list[list[Answered]]]:
        """Have the rows of a request answered: a list per table, which shares no sequence with the others."""
        parts = tuple(tables)
        return self._submit(Job("predict", served, sum(part.height for part in parts), tables=parts))

    def ask(self, served: Served, rows: Rows, texts: Iterable[str]) -> Future[list[AskedAbout]]:
        """Have questions in words answered, about the sequences of a request."""
        return self._submit(Job("predict", served, rows.height, tables=(rows,), texts=tuple(texts)))

    def explain(
        self, served: Served, rows: Rows, question: Question, text: str | None = None
    ) -> Future[list[Explanation]]:
        """Have the sequences of a request explained; with `text`, the answers to this question in words."""
        texts = () if text is None else (text,)
        return self._submit(Job("explain", served, rows.height, tables=(rows,), question=question, texts=texts))

    def forget(self, future: Future[Any]) -> bool:
        """Drop a request that nobody waits for; False if the worker has begun with it."""
        with self._changed:
            for name, lane in self._lanes.items():
                for job in lane:
                    if job.future is future:
                        lane.remove(job)
                        self.metrics.waiting(name, len(lane))
                        future.cancel()
                        return True
        return False

    def _submit(self, job: Job) -> Future[Any]:
        with self._changed:
            lane = self._lanes[job.lane]
            rows = sum(other.rows for other in lane) if len(lane) else 0
            if len(lane) >= self.settings.queue or (lane and rows + job.rows > self.settings.waiting_rows):
                raise BusyError(min(60, max(1, math.ceil(len(lane) * self._pace[job.lane]))))
            lane.append(job)
            self.metrics.waiting(job.lane, len(lane))
            self._changed.notify_all()
        return job.future

    # ---- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not any(self._lanes.values()) and not self._closed:
                    self._changed.wait()
                if not any(self._lanes.values()):
                    return
            if batch := self._batch(patient=True):
                self._predict(batch)
            elif job := self._next_explanation():
                self._explain(job)

    def _batch(self, *, patient: bool) -> list[Job]:
        """Predictions that are answered together; the first one waits a little for others if we are `patient`."""
        lane, settings = self._lanes["predict"], self.settings
        with self._changed:
            while patient and lane and not self._closed and sum(job.rows for job in lane) < settings.batch_rows:
                left = lane[0].arrived + settings.batch_milliseconds / 1_000 - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            batch: list[Job] = []
            rows = 0
            while lane and (not batch or rows + lane[0].rows <= settings.batch_rows):
                job = lane.popleft()
                if job.future.set_running_or_notify_cancel():
                    batch.append(job)
                    rows += job.rows
            self.metrics.waiting("predict", len(lane))
        return batch

    def _next_explanation(self) -> Job | None:
        with self._changed:
            lane = self._lanes["explain"]
            while lane:
                job = lane.popleft()
                self.metrics.waiting("explain", len(lane))
                if job.future.set_running_or_notify_cancel():
                    return job
        return None

    def _predict(self, batch: list[Job]) -> None:
        started = time.monotonic()
        for job in batch:
            if job.texts:
                self._ask(job)
        for served in dict.fromkeys(job.served for job in batch if not job.texts):
            jobs = [job for job in batch if job.served is served and not job.texts]
            tables = [rows for job in jobs for rows in job.tables]
            try:
                outcomes = iter(served.predict(tables))
            except Exception as error:
                self._failed(jobs, error)
                continue
            for job in jobs:
                results = [next(outcomes) for _ in job.tables]
                errors = [result for result in results if isinstance(result, TefmError)]
                if errors:
                    job.future.set_exception(errors[0])
                else:
                    job.future.set_result(results)
        self._done("predict", len(batch), sum(job.rows for job in batch), time.monotonic() - started)

    def _ask(self, job: Job) -> None:
        try:
            answers = job.served.ask(job.tables[0], job.texts, self.settings.max_answers)
        except TefmError as error:
            job.future.set_exception(error)
        except Exception as error:
            self._failed([job], error)
        else:
            job.future.set_result(answers)

    def _explain(self, job: Job) -> None:
        assert job.question is not None
        started, given_away = time.monotonic(), 0.0

        def pause() -> None:
            nonlocal given_away
            before = time.monotonic()
            if batch := self._batch(patient=False):
                self._predict(batch)
                given_away += time.monotonic() - before

        deadline = job.arrived + self.settings.explain_timeout
        try:
            slots = job.served.to_explain(job.tables[0], self.settings.max_explanations)
            explanations: list[Explanation] = []
            for number in range(len(slots)):
                if time.monotonic() > deadline:
                    break  # the client has its 504 already
                pause()
                text = job.texts[0] if job.texts else None
                explanations.append(job.served.explain(slots.select([number]), job.question, pause, text))
        except TefmError as error:
            job.future.set_exception(error)
        except Exception as error:
            self._failed([job], error)
        else:
            job.future.set_result(explanations)
        self._done("explain", 1, job.rows, time.monotonic() - started - given_away)

    def _done(self, lane: Lane, requests: int, rows: int, seconds: float) -> None:
        self._pace[lane] = 0.8 * self._pace[lane] + 0.2 * seconds / requests
        self.metrics.batch(lane, requests, rows, seconds)

    def _failed(self, jobs: list[Job], error: Exception) -> None:
        log.error(f"internal error while answering:\n{where(error)}")
        for job in jobs:
            job.future.set_exception(InternalError())


def where(error: BaseException) -> str:
    """The kind of an error and where it happened, without its message, which may hold values of records."""
    return "".join(traceback.format_tb(error.__traceback__)) + type(error).__name__
