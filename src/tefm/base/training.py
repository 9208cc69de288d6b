"""What long computations share: threads, items made ahead, the best state so far, and what a later run resumes from.

A fit keeps its stages in folders, each named after everything it depends on. With other settings, the stages that do
not depend on them are found again and the others start afresh: nothing is in the way, and nothing has to be deleted.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from tefm.base.errors import ArtefactError, SettingsError, failing_as
from tefm.base.files import replacing
from tefm.base.progress import note

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Threads of a fit that must not depend on the machine.
THREADS = 1
#: Rows of a table for each thread that fits trees.
ROWS_PER_THREAD = 20_000
#: What calls that run side by side may take together, in bytes.
MEMORY = 1 << 31


@contextmanager
def reproducible(wanted: bool = True) -> Iterator[None]:
    """Sums in one order: one thread, for torch and for every library with threads of its own, and fixed algorithms.

    >>> with reproducible():
    ...     torch.get_num_threads()
    1
    """
    if not wanted:
        yield
        return
    from threadpoolctl import threadpool_limits

    threads, fixed = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with threadpool_limits(THREADS):
        torch.set_num_threads(THREADS)
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(fixed)
            torch.set_num_threads(threads)


@contextmanager
def threads_for(rows: int) -> Iterator[None]:
    """Limit OpenMP, which trees use, to the threads that a table with this number of rows keeps busy.

    Trees on few rows have thousands of short parts, after each of which all threads wait for the slowest: where another
    program takes a core, two threads take ten times as long as one.
    """
    from threadpoolctl import ThreadpoolController

    openmp = ThreadpoolController().select(user_api="openmp")
    allowed = [library["num_threads"] for library in openmp.info()]
    with openmp.limit(limits=min([1 + rows // ROWS_PER_THREAD, *allowed])):
        yield


def side_by_side(calls: Sequence[Callable[[], Result]], memory: int) -> Iterator[Result]:
    """The results of calls in their order; as many run at once as there are threads, which they share.

    It is for calls of libraries that release Python's lock; each takes this `memory`.

    >>> list(side_by_side([lambda: 1, lambda: 2], memory=1))
    [1, 2]
    """
    from threadpoolctl import ThreadpoolController

    threads = torch.get_num_threads()
    workers = min(threads, len(calls), 1 + MEMORY // max(1, memory))
    if workers < 2:
        yield from (call() for call in calls)
        return
    openmp = ThreadpoolController().select(user_api="openmp")
    # the limit is one of the thread that sets it
    with ThreadPoolExecutor(workers, initializer=lambda: openmp.limit(limits=threads // workers)) as pool:
        yield from pool.map(lambda call: call(), calls)


def ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Items in their order, each made in a second thread while the one before is in use.

    >>> list(ahead(range(3)))
    [0, 1, 2]
    """
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(max_workers=1) as worker:
        upcoming = worker.submit(next, iterator, end)
        while (item := upcoming.result()) is not end:
            upcoming = worker.submit(next, iterator, end)
            yield item  # type: ignore[misc]  # not the end


@dataclass
class KeepBest:
    """The state with the lowest validation loss so far.

    >>> best = KeepBest()
    >>> [best.offer(step, loss, {"w": torch.tensor([step])}) for step, loss in [(10, 0.5), (20, 0.4), (30, 0.6)]]
    [True, True, False]
    >>> best.step, best.state["w"].item(), best.exhausted(30, patience=10), best.exhausted(25, patience=10)
    (20, 20, True, False)
    """

    loss: float = math.inf
    step: int = 0
    state: dict[str, Tensor] = field(default_factory=dict)

    def offer(self, step: int, loss: float, state: Mapping[str, Tensor]) -> bool:
        """Keep a copy of this state if its loss is the lowest; says whether it was."""
        if not loss < self.loss:
            return False
        self.loss, self.step = loss, step
        self.state = {name: value.detach().to("cpu", copy=True) for name, value in state.items()}
        return True

    def exhausted(self, step: int, *, patience: int) -> bool:
        """Whether the last improvement is at least `patience` steps ago."""
        return bool(self.state) and step - self.step >= patience


@dataclass
class History:
    """A record of one training run: its steps, losses and time."""

    #: steps that were planned
    steps: int = 0
    #: the last step that was made: fewer than planned when training stopped early
    stopped_at: int = 0
    #: the step with the lowest validation loss
    best_step: int = 0
    #: the step that an interrupted run resumed from; 0 for a run in one go
    resumed_from: int = 0
    #: of a language model: how often the learning rate was halved, because the loss was not a finite number
    slowed: int = 0
    #: of a tokenizer: how many entries of the codebooks were replaced, because they were not used
    replaced: int = 0
    #: (step, training loss per target token)
    loss: list[tuple[int, float]] = field(default_factory=list)
    #: (step, validation loss)
    validation: list[tuple[int, float]] = field(default_factory=list)
    seconds: float = 0.0


def adamw(parameters: Any, *, device: torch.device, **settings: Any) -> torch.optim.AdamW:
    """AdamW, in one pass over the weights instead of a dozen where torch can on this device."""
    return torch.optim.AdamW(parameters, fused=device.type in ("cpu", "cuda"), **settings)


# ---- resuming -------------------------------------------------------------------------------------------------------


def stage_folder(work: Path | None, stage: str, depends_on: Callable[[], Mapping[str, Any]]) -> Path | None:
    """The folder of a stage that depends on these values; None when nothing is to be kept, and nothing is hashed."""
    if work is None:
        return None
    values = {name: str(value) for name, value in depends_on().items()}
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    folder = work / f"{stage}-{digest[:12]}"
    if folder.is_dir():
        note(f"resuming from {folder}")
    return folder


def identity(*values: Any) -> str:
    """A hash of arrays, texts and lists of texts.

    >>> identity(np.arange(3), None) == identity(np.arange(3), None) != identity(np.arange(3), ["a"])
    True
    """
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray) and value.dtype != object:
            digest.update(f"{value.dtype}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        else:
            texts = list(value) if isinstance(value, (np.ndarray, list, tuple)) else [value]
            digest.update(json.dumps([None if text is None else str(text) for text in texts]).encode())
    return digest.hexdigest()


def save_checkpoint(path: Path, fingerprint: str, body: Mapping[str, Any]) -> None:
    """Write a checkpoint; one that is there stays until the new one is whole."""
    with replacing(path) as temporary:
        try:
            torch.save({"fingerprint": fingerprint, **body}, temporary)
        except RuntimeError as error:  # torch says neither which file nor why
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error


def load_checkpoint(path: Path, fingerprint: str, *, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read the checkpoint of a run; one of other data or settings is refused."""
    problem, remedy = "this checkpoint cannot be read", "delete it to start again"
    with failing_as(Exception, problem, error=ArtefactError, file=path, remedy=remedy):  # whatever the unpickler met
        body: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        belongs_to = body.pop("fingerprint")
    if belongs_to != fingerprint:
        raise SettingsError(
            "this checkpoint belongs to other data or other settings",
            file=path,
            remedy="delete it to start again, or use the table and settings it was made with",
        )
    return body
