"""What a person sees while work goes on: progress on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

#: Tables and answers go to stdout, everything about the work itself to stderr.
out = Console()
err = Console(stderr=True)

Advance = Callable[..., None]
#: Seconds that the time left is estimated from: a step may take longer than the half minute that is usual.
SLOW = 300.0


def note(text: str) -> None:
    """A line about the work, for a person who watches."""
    if err.is_terminal:
        err.print(text, style="dim", highlight=False, markup=False)


@contextmanager
def progress(what: str, total: int | None, *, done: int = 0, show: bool = True) -> Iterator[Advance]:
    """A progress bar with the time left; call the given function with a number of steps and a note.

    >>> with progress("counting", 3, show=False) as advance:
    ...     advance(1, note="loss 0.5")
    """
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    shown = show and err.is_terminal
    with Progress(*columns, console=err, disable=not shown, transient=True, speed_estimate_period=SLOW) as bar:
        task = bar.add_task(what, total=total, completed=done, note="")

        def advance(steps: int = 1, note: str | None = None) -> None:
            if note is None:
                bar.advance(task, steps)
            else:
                bar.update(task, advance=steps, note=note)

        yield advance
