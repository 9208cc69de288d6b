"""The bench: each measurement is made once, stored as JSON, and shared by the tables that need it.

The settings of a `Measurement` are everything its figures depend on, so their hash names its file: an interrupted run
resumes, and two tables that need the same measurement get the same figures. What a measurement depends on (a
tokenizer, a fine-tuned model) is a measurement too, made before it.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from tefm.base.errors import TefmError
from tefm.base.files import write_json
from tefm.base.progress import note, progress
from tefm.base.settings import Settings
from tefm_bench.data import Sources
from tefm_bench.evidence import marks

#: What was measured, as it is stored: numbers and texts by name, nested.
Figures = dict[str, Any]


class Measurement(Settings):
    """Something that can be measured; its settings are everything that the figures depend on."""

    KIND: ClassVar[str]

    @property
    def changes(self) -> dict[str, Any]:
        """The settings that differ from the defaults."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @property
    def key(self) -> str:
        """The name of its files: a hash of the settings that differ from the defaults."""
        digest = hashlib.sha256(json.dumps(self.changes, sort_keys=True).encode()).hexdigest()
        return f"{self.KIND}-{digest[:16]}"

    @property
    def description(self) -> str:
        """One line for the log."""
        return f"{self.KIND} {json.dumps(self.changes)}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """What `--kind` may call it."""
        return (self.KIND,)

    def needs(self) -> tuple[Measurement, ...]:
        """The measurements it depends on, which are made first."""
        return ()

    def prepare(self, bench: Bench) -> None:
        """Write the arrays that the measurement reads, so that it can be made without the files of the data set."""

    def turn(self, bench: Bench) -> tuple[float, float]:
        """When it is started, if several are made at once: its split, then minus its size.

        With splits one after another, an interrupted run leaves whole splits; of a split, the longest come first.
        """
        return 0.0, 0.0

    def measure(self, bench: Bench) -> Figures:
        """The figures."""
        raise NotImplementedError

    def has_artefacts(self, bench: Bench) -> bool:
        """Whether the files that other measurements need still exist; large ones may have been deleted."""
        return True


@dataclass(frozen=True)
class Bench:
    """A folder of measurements, and the data they are made on."""

    folder: Path
    sources: Sources

    def path(self, measurement: Measurement) -> Path:
        """The file with the figures of a measurement."""
        return self.folder / "measurements" / f"{measurement.key}.json"

    def artefacts(self, measurement: Measurement) -> Path:
        """The folder with what a measurement leaves for others: a tokenizer, a fine-tuned model."""
        return self.folder / "artefacts" / measurement.key

    def figures(self, measurement: Measurement) -> Figures | None:
        """The figures of a measurement, None if it has not been made."""
        path = self.path(measurement)
        return json.loads(path.read_text(encoding="utf-8"))["figures"] if path.exists() else None

    def is_ready(self, measurement: Measurement) -> bool:
        """Whether measurements that depend on it can be made."""
        return self.path(measurement).exists() and measurement.has_artefacts(self)

    def measure(self, measurement: Measurement) -> Figures:
        """Make a measurement now, after those it depends on."""
        for needed in measurement.needs():
            if not self.is_ready(needed):
                self.measure(needed)
        started = time.perf_counter()
        figures = measurement.measure(self)
        body = {
            "kind": measurement.KIND,
            "settings": measurement.model_dump(mode="json"),
            "seconds": round(time.perf_counter() - started, 1),
            "figures": figures,
            "environment": environment(),
        }
        write_json(self.path(measurement), body)
        return figures

    def run(
        self, measurements: Iterable[Measurement], *, workers: int = 1, kinds: Collection[str] = ()
    ) -> list[tuple[Measurement, TefmError]]:
        """Make the missing measurements, of these kinds or all; returns those that failed, with the error.

        A measurement that fails because a file or a package is missing does not stop the others.
        """
        missing = self.missing(one for one in measurements if not kinds or set(kinds) & set(one.kinds))
        failed: list[tuple[Measurement, TefmError]] = []
        with progress("measuring", len(missing)) as advance:
            for measurement, error in self._attempts(missing, workers):
                note(f"{'could not measure' if error else 'measured'} {measurement.description}")
                failed += [(measurement, error)] if error else []
                advance(1, note=measurement.KIND)
        return failed

    def missing(self, measurements: Iterable[Measurement]) -> list[Measurement]:
        """The measurements yet to be made, each after those it depends on."""
        missing: dict[str, Measurement] = {}

        def visit(measurement: Measurement) -> None:
            if measurement.key not in missing:
                for needed in measurement.needs():
                    if not self.is_ready(needed):
                        visit(needed)
                missing[measurement.key] = measurement

        for measurement in measurements:
            if not self.path(measurement).exists():
                visit(measurement)
        return list(missing.values())

    def _attempts(self, missing: list[Measurement], workers: int) -> Iterator[tuple[Measurement, TefmError | None]]:
        """Each measurement as soon as it was attempted, with the error if it failed."""
        if workers == 1:
            for measurement in missing:
                yield measurement, _attempt(self, measurement)
            return
        waiting = sorted(missing, key=lambda measurement: measurement.turn(self))
        unfinished = {measurement.key for measurement in missing}
        running: dict[Future[TefmError | None], Measurement] = {}
        with pool_of(workers) as pool:
            while waiting or running:
                ready = [m for m in waiting if not unfinished.intersection(needed.key for needed in m.needs())]
                for measurement in ready[: workers - len(running)]:
                    waiting.remove(measurement)
                    running[pool.submit(_attempt, self, measurement)] = measurement
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    measurement = running.pop(done)
                    unfinished.discard(measurement.key)
                    failure = done.exception()
                    yield measurement, done.result() if failure is None else TefmError(f"it failed with {failure!r}")


def pool_of(workers: int) -> ProcessPoolExecutor:
    """Processes with one thread each; they are spawned, because a GPU does not survive a fork."""
    for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
        os.environ.setdefault(name, "1")  # read when a process starts
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """A process whose parent was killed would go on with what it measures, and nobody would store it."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a process of the pool"

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _attempt(bench: Bench, measurement: Measurement) -> TefmError | None:
    import torch

    try:
        bench.measure(measurement)
    except TefmError as error:
        return error
    except torch.OutOfMemoryError:
        return TefmError("the GPU ran out of memory", remedy="give fewer --workers")
    return None


def environment() -> dict[str, Any]:
    """Versions, the marks of the code, the day, and the machine."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch

    from tefm import __version__

    versions = {"tefm": __version__, "python": platform.python_version(), "torch": torch.__version__}
    for package in ("transformers", "peft", "scikit-learn", "lightgbm", "xgboost"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    day = datetime.now(UTC).date().isoformat()
    return {"versions": versions, "marks": marks(), "date": day, "device": device, "cores": os.cpu_count()}


def add_result(path: Path, found: Figures, keys: Sequence[str]) -> None:
    """Add a result of a script to its file, in the place of an older one with the same keys.

    The file also has the means of all results that share the first key.
    """
    stored = json.loads(path.read_text("utf-8"))["results"] if path.exists() else []

    def key(of: Figures) -> tuple[Any, ...]:
        return tuple(of[name] for name in keys)

    results = sorted([*(of for of in stored if key(of) != key(found)), found], key=key)
    first = keys[0]
    means = {
        name: {"results": len(same), **_means(same, without=keys)}
        for name in dict.fromkeys(of[first] for of in results)
        if (same := [of for of in results if of[first] == name])
    }
    body = {"command": shlex.join(sys.argv), "environment": environment(), "means": means, "results": results}
    write_json(path, body)


def add_results(
    path: Path, measured: Callable[..., Figures], jobs: Sequence[tuple[Any, ...]], keys: Sequence[str], *, workers: int
) -> None:
    """Measure the jobs of a script, several at once, and add each result to its file as it comes.

    With several workers, one that fails does not stop the others.
    """

    def add(found: Figures) -> None:
        print("RESULT", json.dumps(found), flush=True)
        add_result(path, found, keys)

    if workers == 1:
        for job in jobs:
            add(measured(*job))
        return
    with pool_of(workers) as pool:
        for done in as_completed([pool.submit(measured, *job) for job in jobs]):
            if (failure := done.exception()) is None:
                add(done.result())
            else:
                print("FAILED", repr(failure), flush=True)


def _means(figures: Sequence[Figures], without: Sequence[str] = ()) -> Figures:
    """The mean of every number, group by group."""
    return {
        name: _means([of[name] for of in figures])
        if isinstance(value, dict)
        else round(sum(of[name] for of in figures) / len(figures), 4)
        for name, value in figures[0].items()
        if name not in without
    }
