"""How far the work is. The library logs under `tefm`; the command line shows that log, and a live bar on a terminal.

A *job* (a whole fit) is made of *stages* with an expected share of the time each; a stage runs one loop or several.
`expect` replaces the expected shares by measured times.
Loops report their steps here, so that at any time the share done and the time left are those of the whole job.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

log = logging.getLogger("tefm")
#: Results go to stdout, everything about the work itself to stderr.
out = Console()
err = Console(stderr=True)

Advance = Callable[..., None]
#: Seconds between two log lines about how far the work is.
LOG_EVERY = 60.0
#: From this share of a stage on, the time that it has taken says how long the rest will take.
PACE_KNOWN = 0.05


def note(text: str) -> None:
    """One line about the work."""
    log.info(stage_name(text, _part))


def warn(text: str) -> None:
    """One line about what is odd."""
    log.warning(stage_name(text, _part))


# ---- the whole job ----------------------------------------------------------------------------------------------


@dataclass
class _Job:
    """What is known about the progress of everything that is under way."""

    #: expected share of the time of each stage, 1 in all; empty when nobody has said what the whole job is
    shares: Mapping[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    logged: float = field(default_factory=time.monotonic)
    #: how long all stages will take, where that was measured
    seconds: float | None = None
    #: shares of the stages that have ended
    ended: float = 0.0
    stage: str | None = None
    stage_started: float = 0.0
    #: loops that the current stage is expected to run, and those that have ended
    loops: int = 1
    loops_ended: int = 0
    #: the running loop: what it does, its share done, words about it
    title: str = ""
    loop: float | None = None
    detail: str = ""
    highest: float = 0.0

    @property
    def done(self) -> float | None:
        """The share of the job that is done; it never falls. None where the job has no known end."""
        if self.stage is None and not self.shares:
            return self.loop
        share = self.shares.get(self.stage or "", 0.0)
        self.highest = max(self.highest, min(1.0, self.ended + share * self.inside))
        return self.highest

    @property
    def inside(self) -> float:
        """The share of the current stage that is done."""
        loops = max(self.loops, self.loops_ended + (self.loop is not None))
        return min(1.0, (self.loops_ended + (self.loop or 0.0)) / loops)

    @property
    def seconds_left(self) -> float | None:
        """The rest of this stage at its own pace, and the later ones as measured; before that, at the job's pace."""
        now, done = time.monotonic(), self.done
        if self.seconds is not None and self.stage is not None and self.inside >= PACE_KNOWN:
            later = max(0.0, 1 - self.ended - self.shares[self.stage])
            return (now - self.stage_started) * (1 - self.inside) / self.inside + later * self.seconds
        return (now - self.started) * (1 - done) / done if done else None

    @property
    def text(self) -> str:
        """How far it is, in words."""
        done, seconds = self.done, self.seconds_left
        far = "" if done is None else f"{done:.0%} done"
        left = "" if seconds is None else f", about {duration(seconds)} left"
        what = f"{self.title}, {self.detail}" if self.detail else self.title
        return f"{far}{left}: {what}" if far else what


def duration(seconds: float) -> str:
    """
    >>> duration(42), duration(200), duration(9_000)
    ('42 s', '3 min', '2 h 30 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


_job: _Job | None = None
_part = ""
_bar: tuple[Progress, TaskID] | None = None


@contextmanager
def job(shares: Mapping[str, float]) -> Iterator[None]:
    """Everything inside is one job of these stages; a job inside of another is a part of that."""
    global _job
    if _job is not None:
        yield
        return
    total = sum(shares.values())
    _job = _Job({name: share / total for name, share in shares.items()})
    try:
        yield
    finally:
        _job = None


def expect(seconds: Mapping[str, float]) -> None:
    """Say how long stages of the running job will take, as measured before they start.

    Logs the time of the whole job. Stages that were not measured keep their share relative to those that were.
    """
    measured = sum(seconds.values())
    if _job is None or not measured:
        return
    shares = {**_job.shares}
    known = sum(share for name, share in shares.items() if name in seconds) or 1.0
    total = measured * sum(shares.values()) / known
    _job.shares = {name: seconds.get(name, share * measured / known) / total for name, share in shares.items()}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    _job.seconds = total
    log.info(f"about {duration(total)} on {cores} core{'s' if cores > 1 else ''}, from a few timed steps")


@contextmanager
def in_part(name: str) -> Iterator[None]:
    """The stages inside belong to a part of the job, like a domain: their titles begin with its name."""
    global _part
    before, _part = _part, name
    try:
        yield
    finally:
        _part = before


def stage_name(stage: str, of_part: str) -> str:
    """The name of a stage of a part, as the shares of a job have it."""
    return f"{of_part}: {stage}" if of_part else stage


@contextmanager
def stage(name: str, title: str, *, loops: int = 1) -> Iterator[None]:
    """A stage of the job: logs its title, and counts its share as done when it ends."""
    name, title = stage_name(name, _part), stage_name(title, _part)
    log.info(title)
    current = _job
    if current is None or name not in current.shares:
        yield
        return
    current.stage, current.loops, current.loops_ended, current.title = name, loops, 0, title
    current.stage_started = time.monotonic()
    yield
    current.ended += current.shares[name]
    current.stage = None


@contextmanager
def progress(what: str, total: int | None, *, done: int = 0, show: bool = True) -> Iterator[Advance]:
    """A loop of `total` steps; call the given function with a number of steps and a note.

    >>> with progress("counting", 3, show=False) as advance:
    ...     advance(1, note="loss 0.5")
    """
    global _job
    if not show:
        yield lambda steps=1, note=None: None
        return
    outermost = _job is None
    current = _job = _job or _Job()
    outer = current.title, current.loop, current.detail
    current.title, current.detail, steps_done = what, "", done
    current.loop = None if total is None else done / max(total, 1)

    def advance(steps: int = 1, note: str | None = None) -> None:
        nonlocal steps_done
        steps_done += steps
        current.loop = None if total is None else min(1.0, steps_done / max(total, 1))
        count = f"{steps_done:,} of {total:,}" if total is not None else f"{steps_done:,}"
        current.detail = f"{count}, {note}" if note else count
        _refresh(current)

    _refresh(current)
    try:
        yield advance
    finally:
        current.title, current.loop, current.detail = outer
        if outer[1] is None:  # a loop inside of another does not end it
            current.loops_ended += 1
        if outermost:
            _job = None
        _refresh(_job, between_loops=True)


def _refresh(current: _Job | None, *, between_loops: bool = False) -> None:
    """Move the bar; where there is none, log a line every minute."""
    if _bar is not None:
        bar, task = _bar
        if current is None:
            bar.update(task, visible=False)
        else:
            bar.update(task, visible=True, completed=current.done or 0.0, description=current.text)
    elif current is not None and not between_loops and time.monotonic() - current.logged >= LOG_EVERY:
        current.logged = time.monotonic()
        log.info(current.text)


# ---- the command line -------------------------------------------------------------------------------------------


class _Lines(logging.Handler):
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
def shown(*, on_stdout: bool = False) -> Iterator[None]:
    """Show the log while a command runs: with a live bar on a terminal, as plain lines in a file.

    `on_stdout` is for commands whose output is a log for people: redirected to a file, it holds the progress too.
    """
    global _bar
    to_file = on_stdout and not sys.stdout.isatty()
    handler = _Lines(out if to_file else err)
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    columns = (BarColumn(bar_width=24), TextColumn("{task.description}"))
    try:
        if not err.is_terminal:
            yield
            return
        with Progress(*columns, console=err, transient=True) as bar:
            _bar = bar, bar.add_task("", total=1.0, visible=False)
            yield
    finally:
        _bar = None
        log.removeHandler(handler)
        log.setLevel(before)
