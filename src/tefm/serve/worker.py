"""The thread that owns the models. Requests wait in three lanes; predictions of all clients are answered in batches.

Questions in words are answered in parts, and before each part the predictions that have come in meanwhile.
Explanations run one at a time, and each yields to new predictions before every question to the model. Equal requests
that wait are answered together; an explanation that will probably not end within its timeout is refused at once.
"""

from __future__ import annotations

import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from tefm.base.errors import TefmError
from tefm.base.progress import log
from tefm.explain.explanation import Explanation
from tefm.explain.reasons import Question
from tefm.serve.limits import Metrics, ServeSettings
from tefm.serve.messages import AnswerInWords, InternalError, Prediction, RefusedError
from tefm.serve.rows import Rows, with_row
from tefm.serve.served import Served

Lane = Literal["predict", "ask", "explain"]
#: Rows per batch of predictions; a larger request is a batch of its own.
BATCH_ROWS = 256
#: The part of the timeout that explanations are expected to fill, at most: their times vary (those of the demo's model
#: by 29% of the mean, as a standard deviation), and so does the measured pace.
FILLED = 0.75
#: Seconds to explain a sequence, as long as none was explained: more than the demo's model takes on two cores.
FIRST_PACE = 5.0


class BusyError(RefusedError):
    """The queue has no room; come back after this number of seconds."""

    def __init__(self, seconds: float) -> None:
        self.retry_after = max(1, math.ceil(seconds))
        super().__init__(
            429,
            "too many requests are waiting",
            remedy=f"try again in {self.retry_after} s",
            headers={"Retry-After": str(self.retry_after)},
        )


@dataclass(eq=False)
class Job:
    """A request that waits for its answer."""

    lane: Lane
    served: Served
    rows: Rows
    #: resolved by the worker; cancelled by whoever no longer waits for it
    future: Future[Any] = field(default_factory=Future)
    arrived: float = field(default_factory=lambda: time.monotonic())
    question: Question | None = None
    #: questions in words: to be answered, or of which one is to be explained
    texts: tuple[str, ...] = ()
    anyway: bool = False
    #: sequences to explain (while it is explained, those that are left), and all that the explanations depend on
    sequences: int = 0
    content: Hashable = None
    #: when the current sequence was begun
    begun: float = 0.0


class Worker:
    """Three bounded lanes and the thread that empties them."""

    def __init__(self, settings: ServeSettings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self._lanes: dict[Lane, deque[Job]] = {"predict": deque(), "ask": deque(), "explain": deque()}
        #: lately, seconds per request for predictions or answers, and per sequence that a model explained
        self._pace: dict[Lane, float] = {"predict": 0.01, "ask": 0.1}
        self._explain_pace: dict[Served, float] = {}
        #: the explanation under way
        self._running: Job | None = None
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

    def predict(self, served: Served, rows: Rows) -> Future[list[Prediction]]:
        """Have the rows of a request answered."""
        return self._submit(Job("predict", served, rows))

    def ask(
        self, served: Served, rows: Rows, texts: Iterable[str], *, anyway: bool = False
    ) -> Future[list[AnswerInWords]]:
        """Have questions in words answered, about the sequences of a request."""
        return self._submit(Job("ask", served, rows, texts=tuple(texts), anyway=anyway))

    def explain(
        self, served: Served, rows: Rows, question: Question, text: str | None = None
    ) -> Future[list[Explanation]]:
        """Have the sequences of a request explained; with `text`, the answers to this question in words."""
        texts = () if text is None else (text,)
        return self._submit(
            Job(
                "explain",
                served,
                rows,
                question=question,
                texts=texts,
                sequences=min(served.count(rows), self.settings.max_explanations),
                content=(served, question, texts, repr(rows.frame.to_dict(as_series=False))),
            )
        )

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
            rows, most = sum(other.rows.height for other in lane), max(self.settings.queue, 10 * self.settings.max_rows)
            full = len(lane) >= self.settings.queue or (lane and rows + job.rows.height > most)
            until_room = self._until_room(job) if job.lane == "explain" else 0.0
            if full or until_room > 0:
                self.metrics.refused.labels(job.lane).inc()
                raise BusyError(max(until_room, self._until_next(job.lane)))
            lane.append(job)
            self.metrics.waiting(job.lane, len(lane))
            self._changed.notify_all()
        return job.future

    def _until_room(self, job: Job) -> float:
        """Seconds until an explanation can be expected to end within its timeout, after those before it.

        Where none is before it, it is accepted, however long it takes.
        """
        waiting = {other.content: other for other in self._lanes["explain"]}
        if job.content in waiting:
            return 0.0  # answered with the other one
        before = self._until_next("explain") + sum(self._seconds(other) for other in waiting.values())
        over = before + self._seconds(job) - FILLED * self.settings.explain_timeout
        return min(before, max(0.0, over))

    def _until_next(self, lane: Lane) -> float:
        """Seconds until the next request leaves a lane."""
        if lane != "explain":
            return min(60.0, len(self._lanes[lane]) * self._pace[lane])
        return 0.0 if self._running is None else self._seconds(self._running)

    def _seconds(self, job: Job) -> float:
        """How long explanations are expected to take; the one under way may already have taken longer than usual."""
        pace, running = self._explain_pace.get(job.served, FIRST_PACE), self._running
        if running is not None and running.served is job.served:
            pace = max(pace, time.monotonic() - running.begun)
        return job.sequences * pace

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
            self._ask_next()
            if jobs := self._next_explanation():
                self._explain(jobs)

    def _batch(self, *, patient: bool) -> list[Job]:
        """Predictions that are answered together; the first one waits a little for others if we are `patient`."""
        lane = self._lanes["predict"]
        with self._changed:
            while patient and lane and not self._closed and sum(job.rows.height for job in lane) < BATCH_ROWS:
                left = lane[0].arrived + self.settings.batch_ms / 1_000 - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            batch: list[Job] = []
            rows = 0
            while lane and (not batch or rows + lane[0].rows.height <= BATCH_ROWS):
                job = lane.popleft()
                if job.future.set_running_or_notify_cancel():
                    batch.append(job)
                    rows += job.rows.height
            self.metrics.waiting("predict", len(lane))
        return batch

    def _next_explanation(self) -> list[Job]:
        """The request whose turn it is, and all that wait for the same explanation."""
        with self._changed:
            lane = self._lanes["explain"]
            same = [job for job in lane if job.content == lane[0].content]
            for job in same:
                lane.remove(job)
            self.metrics.waiting("explain", len(lane))
            jobs = [job for job in same if job.future.set_running_or_notify_cancel()]
            if jobs:
                jobs[0].begun = time.monotonic()
                self._running = jobs[0]
        return jobs

    def _predict(self, batch: list[Job]) -> None:
        started = time.monotonic()
        for served in dict.fromkeys(job.served for job in batch):
            jobs = [job for job in batch if job.served is served]
            self._settle(jobs, partial(served.predict, [job.rows for job in jobs]))
        seconds = time.monotonic() - started
        self._pace["predict"] = _lately(self._pace["predict"], seconds / len(batch))
        self.metrics.batch("predict", sum(job.rows.height for job in batch), seconds)

    def _predict_waiting(self) -> float:
        """Answer the predictions that wait; the seconds that it took."""
        started = time.monotonic()
        if batch := self._batch(patient=False):
            self._predict(batch)
        return time.monotonic() - started

    def _ask_next(self) -> None:
        """Answer the questions of one request, with predictions in between."""
        with self._changed:
            lane = self._lanes["ask"]
            job = lane.popleft() if lane else None
            self.metrics.waiting("ask", len(lane))
        if job is None or not job.future.set_running_or_notify_cancel():
            return
        started, given_away = time.monotonic(), 0.0

        def pause() -> None:
            nonlocal given_away
            given_away += self._predict_waiting()
            if time.monotonic() > job.arrived + self.settings.timeout:
                raise RefusedError(504, f"the answers took longer than {self.settings.timeout:g} s")

        self._settle([job], lambda: [job.served.ask(job.rows, job.texts, pause, anyway=job.anyway)])
        seconds = time.monotonic() - started
        self._pace["ask"] = _lately(self._pace["ask"], seconds)
        self.metrics.batch("ask", job.rows.height, seconds - given_away)

    def _explain(self, jobs: list[Job]) -> None:
        """Answer requests for the same explanation."""
        started, given_away = time.monotonic(), 0.0

        def pause() -> None:
            nonlocal given_away
            before = time.monotonic()
            self._predict_waiting()
            self._ask_next()
            given_away += time.monotonic() - before

        arrived = max(job.arrived for job in jobs)
        self._settle(jobs, lambda: [self._explanations(jobs[0], arrived, pause)] * len(jobs))
        self.metrics.batch("explain", jobs[0].rows.height, time.monotonic() - started - given_away)

    def _explanations(self, job: Job, arrived: float, pause: Callable[[], None]) -> list[Explanation]:
        assert job.question is not None
        explanations: list[Explanation] = []
        try:
            slots = job.served.to_explain(job.rows, self.settings.max_explanations)
            for number in range(len(slots)):
                begun = time.monotonic()
                if begun > arrived + self.settings.explain_timeout:
                    break  # the clients have their 504 already
                job.sequences, job.begun = len(slots) - number, begun
                pause()
                text = job.texts[0] if job.texts else None
                explanations.append(job.served.explain(slots.select([number]), job.question, pause, text))
                # with the predictions that were answered meanwhile: they delay the next explanations, too
                seconds = time.monotonic() - begun
                self._explain_pace[job.served] = _lately(self._explain_pace.get(job.served, seconds), seconds)
        finally:
            self._running = None
        return explanations

    def _settle(self, jobs: Sequence[Job], answer: Callable[[], Iterable[Any]]) -> None:
        """Resolve requests with the answer to each, which may be an error; one that is raised is of all of them."""
        try:
            outcomes = list(answer())
        except TefmError as error:
            outcomes = [error] * len(jobs)
        except Exception as error:
            log.error(f"internal error while answering:\n{where(error)}")
            outcomes = [InternalError()] * len(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if isinstance(outcome, TefmError):
                job.future.set_exception(with_row(outcome, job.rows))
            else:
                job.future.set_result(outcome)


def _lately(before: float, now: float) -> float:
    """A mean in which the last measurements count most."""
    return 0.8 * before + 0.2 * now


def where(error: BaseException) -> str:
    """The kind of an error and where it happened, without its message, which may hold values of records."""
    return "".join(traceback.format_tb(error.__traceback__)) + type(error).__name__
