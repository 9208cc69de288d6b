"""What training loops share: the best state so far, and a checkpoint that belongs to one run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tefm.base.errors import ArtefactError, SettingsError
from tefm.base.files import replacing

#: Threads of a fit that must not depend on the machine.
THREADS = 1
#: Rows of a table for each thread that fits trees.
ROWS_PER_THREAD = 20_000


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
    """As many OpenMP threads as a table of so many rows keeps busy, for trees.

    Trees on few rows have thousands of short parts, after each of which all threads wait for the slowest: where another
    program takes a core, two threads take ten times as long as one.
    """
    from threadpoolctl import ThreadpoolController

    openmp = ThreadpoolController().select(user_api="openmp")
    allowed = [library["num_threads"] for library in openmp.info()]
    with openmp.limit(limits=min([1 + rows // ROWS_PER_THREAD, *allowed])):
        yield


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


def adamw(parameters: Any, *, device: torch.device, **settings: Any) -> torch.optim.AdamW:
    """AdamW, in one pass over the weights instead of a dozen where torch can on this device."""
    return torch.optim.AdamW(parameters, fused=device.type in ("cpu", "cuda"), **settings)


def save_checkpoint(path: Path, fingerprint: str, body: Mapping[str, Any]) -> None:
    """Write a checkpoint; one that is there stays until the new one is whole."""
    with replacing(path) as temporary:
        torch.save({"fingerprint": fingerprint, **body}, temporary)


def load_checkpoint(path: Path, fingerprint: str, *, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read the checkpoint of a run; one of other data or settings is refused."""
    try:
        body: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        belongs_to = body.pop("fingerprint")
    except Exception as error:  # torch raises whatever the unpickler met
        raise ArtefactError("this checkpoint cannot be read", file=path, remedy="delete it to start again") from error
    if belongs_to != fingerprint:
        raise SettingsError(
            "this checkpoint belongs to other data or other settings",
            file=path,
            remedy="delete it to start again, or use the table and settings it was made with",
        )
    return body
