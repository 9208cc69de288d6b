"""Running parts on a Ray cluster: an existing one by its address, or one on this machine that ends with the work.

Results come back in the order of the table. Ray replaces a worker that dies and gives its part to another; a part's
result counts only when it is complete, so nothing is lost or doubled.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import polars as pl

from tefm.base.errors import InputError, MissingExtraError, SettingsError
from tefm.base.progress import note, progress
from tefm.cluster.plan import Plan
from tefm.cluster.workers import BUCKET, FIRST, PART, REPLACEMENT, OnBuckets, OnParts, to_buckets, told

#: Memory for results and shuffled rows on a cluster of this machine; what is more goes to the disk.
OBJECT_STORE = 1 << 30


@dataclass(frozen=True)
class Engine:
    """Where the work is done."""

    #: of an existing cluster, such as ray://host:10001 or auto; None for one on this machine
    address: str | None = None
    #: as many as there are GPUs, or CPUs without any, when left out
    workers: int | None = None
    object_store: int = OBJECT_STORE

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise SettingsError("at least one worker is needed", value=self.workers, remedy="--workers 2")


@contextmanager
def running(engine: Engine) -> Iterator[Any]:
    """Ray, connected; a cluster that was started here ends here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray's makers are not told what runs here
    os.environ.setdefault("RAY_worker_niceness", "0")  # its 15 starves workers on a machine that does something else
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtraError("the Ray engine needs the package ray", remedy="pip install 'tefm[ray]'") from error
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if ray.is_initialized():
        yield ray
        return
    if engine.address is not None:
        try:
            ray.init(address=engine.address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(
                f"cannot connect to the Ray cluster: {str(error).splitlines()[0]}",
                value=engine.address,
                remedy="check the address with `ray status`, or leave --address out for a cluster on this machine",
            ) from error
    else:
        cores = engine.workers or len(os.sched_getaffinity(0))
        # one more than workers: reading and shuffling need room beside them
        ray.init(num_cpus=cores + 1, include_dashboard=False, object_store_memory=engine.object_store, **quiet)
    try:
        with redirect_stdout(sys.stderr):  # where Ray prints that a worker died; stdout is for results
            yield ray
    finally:
        ray.shutdown()


def run(
    engine: Engine, plan: Plan, make: Callable[[str | None], Any], title: str, *, like: bool = True
) -> Iterator[tuple[int, pl.DataFrame]]:
    """The results of a plan in the order of the table, each with the number of its part.

    `make(device)` makes a worker, on the machine where it works. With `like`, all parts get the types of the whole
    table; otherwise those of their file.
    """
    with running(engine) as ray:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        context.execution_options.preserve_order = True
        context.execution_options.verbose_progress = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        workers = min(engine.workers or gpus or max(1, int(resources.get("CPU", 1)) - 1), max(1, len(plan.parts)))
        parts = _several(len(plan.parts), "part")
        note(f"{title} with Ray: {parts} of {plan.rows:,} rows, {_several(workers, 'worker')}")
        options: dict[str, Any] = {
            "compute": ray.data.ActorPoolStrategy(size=workers),
            "num_cpus": 1,
            **({"num_gpus": min(1.0, gpus / workers)} if gpus else {}),
        }
        device = "cuda" if gpus else None
        data = _dataset(ray, plan, lambda: make(device), options, like)
        done, replacements = 0, set[str]()
        with progress(title, plan.rows) as advance, _explaining():
            for block in data.iter_batches(batch_size=None, batch_format="pyarrow"):
                frame = pl.DataFrame(block)
                replacements.update(frame[REPLACEMENT].drop_nulls().unique())
                number = int(frame[PART][0])
                rows = min(plan.rows, (number + 1) * plan.rows // len(plan.parts))
                if not plan.buckets and rows > done:
                    advance(rows - done)
                    done = rows
                yield number, frame.drop(PART, REPLACEMENT, *([FIRST] if plan.buckets else []))
        if replacements:
            many = len(replacements) > 1
            again = "were replaced; their parts" if many else "was replaced; its parts"
            note(f"{_several(len(replacements), 'worker')} died and {again} were done again")


def _dataset(ray: Any, plan: Plan, make: Callable[[], Any], options: dict[str, Any], like: bool) -> Any:
    items = [{"number": number, "part": pickle.dumps(part)} for number, part in enumerate(plan.parts)]
    parts = ray.data.from_items(items, override_num_blocks=len(items))
    empty = plan.table.head(0) if like else None
    if not plan.buckets:
        return parts.map_batches(OnParts, fn_constructor_args=(make, empty), batch_size=1, **options)
    shuffle = {"like": plan.table.head(0), "entity": plan.entity, "buckets": plan.buckets}
    rows = parts.map_batches(to_buckets, fn_kwargs=shuffle, batch_size=1, num_cpus=1)
    groups = rows.groupby(BUCKET, num_partitions=plan.buckets)
    results = groups.map_groups(OnBuckets, fn_constructor_args=(make, plan.entity), batch_format="pyarrow", **options)
    return results.sort(FIRST)


@contextmanager
def _explaining() -> Iterator[None]:
    """An error of ours that a worker met is ours again; others of Ray stay what they are."""
    try:
        yield
    except Exception as error:
        ours = told(str(error))
        if ours is None:
            raise
        raise ours from None


def _several(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
