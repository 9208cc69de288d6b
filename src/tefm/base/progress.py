"""How far the work is. The library logs under `tefm`; the command line shows that log, and a live bar on a terminal.

A *job* (a whole fit) is made of *stages* with an expected share of the time each; a stage runs one loop or several.
Stages and loops are nested tasks of rich's progress, so that at any time the share done and the time left are those of
the whole job.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, Task, TextColumn
from rich.segment import Segment

log = logging.getLogger("tefm")
#: Characters that a terminal obeys; tabs and the ends of lines are none.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Terminal(Console):
    """A console that passes on no control characters of texts: names and identifiers come from anyone's table."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The pieces that are printed; colours are styles of theirs."""
        for piece in super().render(renderable, options):
            yield piece if piece.is_control else piece._replace(text=_CONTROL.sub(" ", piece.text))


#: Results go to stdout, everything about the work itself to stderr.
out = Terminal()
err = Terminal(stderr=True)

Advance = Callable[..., None]
#: Seconds between two log lines about how far the work is.
LOG_EVERY = 60.0


class Work(Progress):
    """What is under way: a task per stage of the job, as long as its time, and one per running loop inside of it.

    A task for the whole is the only visible one, and that on a terminal only.
    """

    def __init__(self, console: Console | None = None) -> None:
        columns = (BarColumn(bar_width=24), TextColumn("{task.description}"))
        super().__init__(
            *columns, console=console, transient=True, disable=console is None, get_time=lambda: time.monotonic()
        )
        self.part = ""
        self.clear()

    def clear(self) -> None:
        """Forget all stages and loops."""
        for task in self.tasks:
            self.remove_task(task.id)
        self.whole: Task | None = None
        self.stages: dict[str, Task] = {}
        self.stage: Task | None = None
        #: the running loops, each inside of the one before
        self.loops: list[Task] = []
        self.logged = time.monotonic()

    def add(self, title: str, total: float | None, **fields: Any) -> Task:
        self.add_task(title, total=total, visible=False, **fields)
        return self.tasks[-1]

    def begin(self, shares: Mapping[str, float | None]) -> None:
        """A job of these stages; one of None has no known end."""
        self.clear()
        self.whole = self.add("", 1.0)
        self.stages = {name: self.add(name, share, loops=1, loops_ended=0) for name, share in shares.items()}

    @property
    def inside(self) -> float:
        """The share of the current stage that is done."""
        if self.stage is None:
            return 0.0
        running = [min(1.0, task.completed / max(task.total, 1)) for task in self.loops if task.total is not None][:1]
        ended: int = self.stage.fields["loops_ended"]
        expected: int = self.stage.fields["loops"]
        return min(1.0, (ended + sum(running)) / max(expected, ended + len(running)))

    @property
    def done(self) -> float | None:
        """The share of the job that is done; it never falls. None where the job has no known end."""
        totals = [task.total for task in self.stages.values()]
        if self.whole is None or None in totals:
            return None
        running = 0.0 if self.stage is None else (self.stage.total or 0.0) * self.inside
        share = (sum(task.completed for task in self.stages.values()) + running) / sum(filter(None, totals))
        self.whole.completed = max(self.whole.completed, min(1.0, share))
        return self.whole.completed

    @property
    def text(self) -> str:
        """The progress in words, with the time left at the pace so far."""
        done, left = self.done, ""
        if done and self.whole is not None:
            seconds = (self.whole.elapsed or 0.0) * (1 - done) / done
            for loop in self.loops[:1]:  # its own pace is known, whatever share of the job it was expected to take
                if loop.total is not None and loop.completed:
                    seconds = max(seconds, (loop.elapsed or 0.0) * (loop.total / loop.completed - 1))
            left = f", about {duration(seconds)} left"
        current = self.loops[-1] if self.loops else self.stage
        what = "" if current is None else current.description
        return what if done is None else f"{done:.0%} done{left}: {what}"

    def show(self) -> None:
        """Move the bar; where there is none, log a line every minute."""
        if self.whole is None:
            return
        if not self.disable:
            self.update(self.whole.id, visible=True, description=self.text)
        elif time.monotonic() - self.logged >= LOG_EVERY:
            self.logged = time.monotonic()
            log.info(self.text)


_work = Work()


def note(text: str) -> None:
    """Log one line about the work."""
    log.info(stage_name(text, _work.part))


def warn(text: str) -> None:
    """Log one warning."""
    log.warning(stage_name(text, _work.part))


def duration(seconds: float) -> str:
    """
    >>> duration(42), duration(200), duration(9_000)
    ('42 s', '3 min', '2 h 30 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


# ---- jobs, stages and loops -----------------------------------------------------------------------------------------


@contextmanager
def job(shares: Mapping[str, float]) -> Iterator[None]:
    """Everything inside is one job of these stages; a job inside of another is a part of that."""
    if _work.whole is not None:
        yield
        return
    _work.begin(shares)
    try:
        yield
    finally:
        _work.clear()


@contextmanager
def in_part(name: str) -> Iterator[None]:
    """The stages inside belong to a part of the job, like a domain: their titles begin with its name."""
    before, _work.part = _work.part, name
    try:
        yield
    finally:
        _work.part = before


def stage_name(stage: str, of_part: str) -> str:
    """The name of a stage of a part, as the shares of a job have it."""
    return f"{of_part}: {stage}" if of_part else stage


@contextmanager
def stage(name: str, title: str, *, loops: int = 1) -> Iterator[None]:
    """A stage of the job: logs its title, and counts its share as done when it ends."""
    title = stage_name(title, _work.part)
    log.info(title)
    task = _work.stages.get(stage_name(name, _work.part))
    if task is None:
        yield
        return
    _work.reset(task.id, description=title, loops=loops, loops_ended=0)
    _work.stage = task
    yield
    task.completed, _work.stage = task.total or 0.0, None


@contextmanager
def progress(what: str, total: int | None, *, done: int = 0, show: bool = True) -> Iterator[Advance]:
    """A loop of `total` steps; call the given function with a number of steps and a note.

    >>> with progress("counting", 3, show=False) as advance:
    ...     advance(1, note="loss 0.5")
    """
    if not show:
        yield lambda steps=1, note=None: None
        return
    work = _work  # a generator that is abandoned inside of a loop may be closed after the command has ended
    outermost = work.whole is None
    if outermost:
        work.begin({what: None if total is None else 1.0})
        work.stage = work.stages[what]
    loop = work.add(what, total)
    loop.completed = done
    work.loops.append(loop)

    def advance(steps: int = 1, note: str | None = None) -> None:
        loop.completed += steps
        count = f"{loop.completed:,}" if total is None else f"{loop.completed:,} of {total:,}"
        loop.description = ", ".join(filter(None, (what, count, note)))
        work.show()

    work.show()
    try:
        yield advance
    finally:
        if loop in work.loops:  # else its job has ended before it
            work.loops.remove(loop)
            work.remove_task(loop.id)
            if work.stage is not None and not work.loops:  # a loop inside of another does not end it
                work.stage.fields["loops_ended"] += 1
            if outermost:
                work.clear()


# ---- the command line -----------------------------------------------------------------------------------------------


class LogLines(logging.Handler):
    """Log records as plain lines on a console, with the time of day off a terminal."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if not self.console.is_terminal:
            text = f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {text}"
        style = "yellow" if record.levelno >= logging.WARNING else "dim"
        self.console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def logged_to(handler: logging.Handler, level: int = logging.INFO) -> Iterator[None]:
    """Give the log from this level on to a handler, as long as the block runs."""
    before = log.level
    log.addHandler(handler)
    log.setLevel(level)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


@contextmanager
def shown(*, on_stdout: bool = False) -> Iterator[None]:
    """Show the log while a command runs: with a live bar on a terminal, as plain lines in a file.

    `on_stdout` is for commands whose output is a log for people: redirected to a file, it holds the progress too.
    """
    global _work
    before = _work
    try:
        with (
            logged_to(LogLines(out if on_stdout and not sys.stdout.isatty() else err)),
            Work(err if err.is_terminal else None) as _work,
        ):
            yield
    finally:
        _work = before
