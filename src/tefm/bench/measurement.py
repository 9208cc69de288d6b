"""The bench: measurements are made once, kept as JSON, and shared by the tables that ask for them.

A `Measurement` says everything its figures depend on, so its hash names its file: a run that was killed goes on where
it was, and two tables that ask for the same thing get the same figures. What a measurement stands on (a tokenizer, a
tuned model) is a measurement too, made before it.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tefm.base.errors import TefmError
from tefm.base.files import write_json
from tefm.base.progress import note, progress
from tefm.base.settings import Settings
from tefm.bench.data import Sources

Found = dict[str, Any]


class Measurement(Settings):
    """Something that can be measured; its settings are all that the figures depend on."""

    KIND: ClassVar[str]

    @property
    def key(self) -> str:
        """The name of its files: a hash of what differs from the defaults."""
        body = json.dumps(self.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
        return f"{self.KIND}-{hashlib.sha256(body.encode()).hexdigest()[:16]}"

    def needs(self) -> tuple[Measurement, ...]:
        """What is made before it."""
        return ()

    def measure(self, bench: Bench) -> Found:
        """The figures."""
        raise NotImplementedError

    def left(self, bench: Bench) -> bool:
        """Whether what others stand on is there; a folder of large files may have been cleared."""
        return True

    @property
    def said(self) -> str:
        """One line about it, for a person who watches."""
        return f"{self.KIND} {json.dumps(self.model_dump(mode='json', exclude_defaults=True))}"


@dataclass(frozen=True)
class Bench:
    """A folder of measurements, and the data they are made on."""

    folder: Path
    sources: Sources

    def path(self, asked: Measurement) -> Path:
        return self.folder / "done" / f"{asked.key}.json"

    def kept(self, asked: Measurement) -> Path:
        """Where a measurement leaves what others stand on."""
        return self.folder / "kept" / asked.key

    def found(self, asked: Measurement) -> Found | None:
        """The figures, when they have been measured."""
        path = self.path(asked)
        return json.loads(path.read_text(encoding="utf-8"))["found"] if path.exists() else None

    def stands(self, asked: Measurement) -> bool:
        """Whether others can stand on it."""
        return self.path(asked).exists() and asked.left(self)

    def measure(self, asked: Measurement) -> Found:
        """The figures, measured now, with what they stand on where that is missing."""
        for needed in asked.needs():
            if not self.stands(needed):
                self.measure(needed)
        started = time.perf_counter()
        found = asked.measure(self)
        seconds = round(time.perf_counter() - started, 1)
        body = {"kind": asked.KIND, "asked": asked.model_dump(mode="json"), "seconds": seconds, "found": found}
        write_json(self.path(asked), {**body, "made": made()})
        return found

    def run(self, wanted: Iterable[Measurement], *, workers: int = 1) -> list[tuple[Measurement, TefmError]]:
        """Measure what is missing; gives back what could not be measured, and why.

        One measurement that fails for want of files or packages does not keep the others from being made.
        """
        missing = self.missing(wanted)
        failed: list[tuple[Measurement, TefmError]] = []
        with progress("measuring", len(missing)) as advance:
            for asked, error in self._outcomes(missing, workers):
                note(f"{'could not measure' if error else 'measured'} {asked.said}")
                failed += [(asked, error)] if error else []
                advance(1, note=asked.KIND)
        return failed

    def missing(self, wanted: Iterable[Measurement]) -> list[Measurement]:
        """What is not there yet, each behind what it stands on."""
        found: dict[str, Measurement] = {}

        def visit(asked: Measurement) -> None:
            if asked.key not in found:
                for needed in asked.needs():
                    if not self.stands(needed):
                        visit(needed)
                found[asked.key] = asked

        for asked in wanted:
            if not self.path(asked).exists():
                visit(asked)
        return list(found.values())

    def _outcomes(self, missing: list[Measurement], workers: int) -> Iterator[tuple[Measurement, TefmError | None]]:
        if workers == 1:
            for asked in missing:
                yield asked, _attempt(self, asked)
            return
        waiting, unmade = list(missing), {asked.key for asked in missing}
        running: dict[Future[TefmError | None], Measurement] = {}
        # spawned, because a GPU does not survive a fork
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            while waiting or running:
                ready = [asked for asked in waiting if not unmade.intersection(n.key for n in asked.needs())]
                for asked in ready[: workers - len(running)]:
                    waiting.remove(asked)
                    running[pool.submit(_attempt, self, asked)] = asked
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    asked = running.pop(done)
                    unmade.discard(asked.key)
                    yield asked, done.result()


def _attempt(bench: Bench, asked: Measurement) -> TefmError | None:
    import torch

    try:
        bench.measure(asked)
    except TefmError as error:
        return error
    except torch.OutOfMemoryError:
        return TefmError("the GPU's memory does not suffice for so many at a time", remedy="fewer --workers")
    return None


def made() -> dict[str, Any]:
    """Versions and machine."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch

    from tefm.base.version import __version__

    versions = {"tefm": __version__, "python": platform.python_version(), "torch": torch.__version__}
    for package in ("transformers", "peft", "scikit-learn", "lightgbm", "xgboost"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    return {"versions": versions, "device": device, "cores": os.cpu_count()}
