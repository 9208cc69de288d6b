"""Running parts on a Ray cluster: an existing one by its address, or one on this machine that ends with the work.

Results come back in the order of the table. Ray replaces a worker that dies; a part counts only when it is complete, so
nothing is lost or doubled.

A `Plan` says which rows go to a worker together: parts of a table that no sequence crosses, however many workers.

- Without entities, and for windows of rows in order, a part is a fixed number of rows.
- Where the rows of an entity follow each other, a part ends between two entities. It may lie in two files.
- Where they do not, rows go to buckets by a hash of their entity: a shuffle.
"""

from __future__ import annotations

import base64
import logging
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from tefm.base.errors import InputError, SettingsError, TefmError, extra, failing_as
from tefm.base.progress import note, progress
from tefm.tables.chunks import is_grouped, whole_sequences
from tefm.tables.grouping import times_of
from tefm.tables.readers.arrow import PARQUET_ENDINGS, open_rows, rows_in
from tefm.tables.readers.table import Table, open_table, table_files
from tefm.tables.schema import Schema
from tefm.tables.words import text_of

#: Memory for results and shuffled rows on a cluster of this machine; what is more goes to the disk.
OBJECT_STORE = 1 << 30
#: Columns beside those of the result: the part that a row is from, the sequence's first row, and the process.
PART, FIRST, REPLACEMENT = "__part", "__first", "__worker"
#: Columns of rows on their way to a bucket.
ROW, BUCKET = "__row", "__bucket"
#: In a result of some sequences of a part only, the number of the sequence in it that each row is about.
SEQUENCE = "__sequence"

#: What is done with a part of a table, which begins with this row of the whole table.
PartWork = Callable[[int, Table], pl.DataFrame]


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
    with extra("ray", "the Ray engine needs the package ray"):
        import ray
        import ray.data
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if ray.is_initialized():
        yield ray
        return
    if engine.address is not None:
        problem = "cannot connect to the Ray cluster: {reason}"
        remedy = "check the address with `ray status`, or leave --address out for a cluster on this machine"
        with failing_as((ConnectionError, ValueError, RuntimeError), problem, value=engine.address, remedy=remedy):
            ray.init(address=engine.address, **quiet)
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
    engine: Engine, plan: Plan, make: Callable[[str | None], PartWork], title: str, *, like: bool = True
) -> Iterator[tuple[int, pl.DataFrame]]:
    """The results of a plan in the order of the table, each with the number of its part.

    `make(device)` loads what the work needs, on the machine where it is done. With `like`, all parts get the types of
    the whole table; otherwise those of their file.
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
        with progress(title, plan.rows) as advance, explaining():
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


def _dataset(ray: Any, plan: Plan, make: Callable[[], PartWork], options: dict[str, Any], like: bool) -> Any:
    items = [{"number": number, "start": start, "stop": stop} for number, (start, stop) in enumerate(plan.parts)]
    parts = ray.data.from_items(items, override_num_blocks=len(items))
    empty = plan.table.head(0) if like else None
    if not plan.buckets:
        return parts.map_batches(OnParts, fn_constructor_args=(make, plan.files, empty), batch_size=1, **options)
    shuffle = {"files": plan.files, "like": plan.table.head(0), "entity": plan.entity, "buckets": plan.buckets}
    rows = parts.map_batches(to_buckets, fn_kwargs=shuffle, batch_size=1, num_cpus=1)
    groups = rows.groupby(BUCKET, num_partitions=plan.buckets)
    results = groups.map_groups(OnBuckets, fn_constructor_args=(make, plan.entity), batch_format="pyarrow", **options)
    return results.sort(FIRST)


def _several(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# ---- what workers do ------------------------------------------------------------------------------------------------


class OnParts:
    """A worker of parts in order: `batch` names one part, whose rows are read here."""

    def __init__(self, make: Callable[[], PartWork], files: list[tuple[str, int]], like: pl.DataFrame | None) -> None:
        self.work, self.files, self.like = make(), files, like

    def __call__(self, batch: dict[str, Any]) -> pa.Table:
        number, start, stop = (int(batch[name][0]) for name in ("number", "start", "stop"))
        with telling():
            return marked(self.work(start, open_rows(self.files, start, stop, self.like)), number)


class OnBuckets:
    """A worker of buckets: all rows of some entities, which the shuffle brought together."""

    def __init__(self, make: Callable[[], PartWork], entity: str) -> None:
        self.work, self.entity = make(), entity

    def __call__(self, batch: pa.Table) -> pa.Table:
        frame = pl.DataFrame(batch).sort(ROW)
        # sequences are in the order of their first rows
        first = frame[ROW].filter(text_of(frame[self.entity], ()).is_first_distinct())
        with telling():
            result = self.work(0, open_table(frame.drop(ROW, BUCKET)))
        numbers = result[SEQUENCE] if SEQUENCE in result.columns else pl.int_range(result.height, eager=True)
        return marked(result.with_columns(first.gather(numbers).alias(FIRST)), int(frame[BUCKET][0]))


def to_buckets(
    batch: dict[str, Any], *, files: list[tuple[str, int]], like: pl.DataFrame, entity: str, buckets: int
) -> pa.Table:
    """The rows of a part, each with the bucket that it goes to."""
    start, stop = (int(batch[name][0]) for name in ("start", "stop"))
    frame = open_rows(files, start, stop, like).frame()
    rows = pl.int_range(start, stop, dtype=pl.Int64, eager=True)
    bucket = (text_of(frame[entity], ()).hash() % buckets).cast(pl.Int64)
    return frame.with_columns(rows.alias(ROW), bucket.alias(BUCKET)).to_arrow()


@contextmanager
def telling() -> Iterator[None]:
    """An error of ours as text that `explaining` reads: of an exception in a worker, Ray brings back only its text."""
    try:
        yield
    except TefmError as error:
        raise RuntimeError(f"tefm<{base64.b64encode(pickle.dumps(error)).decode()}>") from None


@contextmanager
def explaining() -> Iterator[None]:
    """An error of ours that a worker met is ours again; others of Ray stay what they are."""
    try:
        yield
    except Exception as error:
        told = re.search(r"tefm<([\w+/=]+)>", str(error))
        if told is None:
            raise
        ours: TefmError = pickle.loads(base64.b64decode(told[1]))
        raise ours from None


def marked(frame: pl.DataFrame, number: int) -> pa.Table:
    """A result with the part that it is from, and the process that made it if it replaces one that died."""
    import ray

    context = ray.get_runtime_context()
    worker = f"{context.get_node_id()}:{os.getpid()}" if context.was_current_actor_reconstructed else None
    return frame.with_columns(pl.lit(number).alias(PART), pl.lit(worker, dtype=pl.String).alias(REPLACEMENT)).to_arrow()


# ---- parts of a table ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """All parts of a table."""

    table: Table
    #: its files with their numbers of rows
    files: list[tuple[str, int]]
    #: of each part, which one worker reads: its first row in the whole table, and the first one after it
    parts: list[tuple[int, int]]
    rows: int
    #: how many buckets the rows go to, and by which column, where entities are scattered; 0 otherwise
    buckets: int = 0
    entity: str = ""


def parquet_table(source: str | Path) -> tuple[Table, list[tuple[str, int]]]:
    """A Parquet file, folder or glob, and its files with their numbers of rows; nothing else can be cut into parts."""
    files = table_files(source)
    if not all(path.name.lower().endswith(PARQUET_ENDINGS) for path in files):
        raise SettingsError(
            "the Ray engine reads Parquet: a file, a folder or a glob",
            value=str(source),
            remedy="write the table as Parquet, or leave out --engine ray",
        )
    counts = [(str(path.absolute()), rows_in(path)) for path in files]
    return open_table(source), counts


def plan_rows(source: str | Path, rows: int) -> Plan:
    """Parts with at most `rows` rows, each from one file: for what is done record by record."""
    table, files = parquet_table(source)
    bounds = [0]
    for _, count in files:
        first, end = bounds[-1], bounds[-1] + count
        bounds += [*range(first + rows, end, rows), end] if count else []
    return Plan(table, files, list(pairwise(bounds)), bounds[-1])


def plan_sequences(source: str | Path, schema: Schema, *, window: int | None, rows: int) -> Plan:
    """Parts of about this many rows that no sequence crosses."""
    table, files = parquet_table(source)
    total = sum(count for _, count in files)
    if not total:
        raise InputError("the table has no rows", file=table.name, remedy="give a table with records")
    entity = schema.entity if window is None else None
    is_scattered = entity is not None and not is_grouped(table, entity)
    if entity is not None and not is_scattered:
        entities = Table(table.name, table.head(0).select(entity), table.batches)  # this column alone
        ends = np.cumsum([frame.height for frame in whole_sequences(entities, schema, rows=rows)])
        return Plan(table, files, list(pairwise([0, *ends.tolist()])), total)
    if window is not None and schema.time is not None:
        _refuse_disorder(table, schema)
    size = rows if window is None else max(1, rows // window) * window
    parts = list(pairwise([*range(0, total, size), total]))
    return Plan(table, files, parts, total, buckets=len(parts) if is_scattered else 0, entity=entity or "")


def _refuse_disorder(table: Table, schema: Schema) -> None:
    """Windows are made in the order of time: the files must have it already, a part knows only its own rows."""
    assert schema.time is not None
    before: pl.Series | None = None
    for frame in table.batches([schema.time]):
        times = times_of(frame, schema.time, schema, table.name)[0]
        joined = times if before is None else pl.concat([before, times])
        if not joined.is_sorted():
            raise InputError(
                "windows are made in the order of time, and the rows are not in this order",
                file=table.name,
                column=schema.time,
                remedy="sort the files by time, or leave out --engine ray",
            )
        before = times.tail(1)
