"""Databases and clusters: is memory bounded, are results equal, and how fast is it?

    python benchmarks/scale.py --rows 1000000 10000000

1. Memory: the peak of a child process that encodes a table from PostgreSQL, and from Parquet, per number of rows. The
   same codes must come out of both. The server runs on this machine (needs PostgreSQL's binaries).
2. Ray: codes and predictions (of four rows each) per second without Ray and with 1 and 2 workers, and whether they are
   equal.
   The rate counts from the first result on; how long that takes is `start_seconds`.
3. On paper: a billion rows on 16 nodes, from the rates of 2.

Writes benchmarks/results/scale.json. Parts can be measured one by one (`--only memory`); the others keep their figures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from tefm.base.files import write_json
from tefm.base.progress import note, shown
from tefm.codes.tokenizer import RecordTokenizer, encode_to_parquet, encoded
from tefm.model.estimator import TEFM
from tefm.tables.chunks import write_frames
from tefm.tables.readers.table import open_table
from tefm.tables.schema import Schema

HERE = Path(__file__).parent
RESULT = HERE / "results" / "scale.json"
#: One patient has four records, one after another; all values follow from the number of the row.
TABLE = """
CREATE TABLE stays AS SELECT i AS id, i / 4 AS patient, (i * 7919) % 83 + 17 AS age,
(i * 104729) % 1000 / 10.0 AS lactate, 'ward ' || (i * 31) % 12 AS ward,
'drug ' || (i * 7) % 40 || ';drug ' || (i * 13) % 40 AS drugs,
CASE WHEN (i / 4 * 17) % 10 < 3 THEN 'yes' ELSE 'no' END AS died FROM generate_series(0::bigint, {rows} - 1) AS i
"""
SCHEMA = Schema.from_yaml("""
entity: patient
label: died
ignore: [id]
fields: {age: number, lactate: number, ward: category, drugs: {kind: set, delimiter: ;}}
""")
#: Rows that are made at a time.
CHUNK = 250_000
#: The cluster that is only calculated.
ROWS_PER_RESULT = {"encode": 1, "predict": 4}
NODES, WORKERS_PER_NODE, BILLION = 16, 16, 1_000_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="of the memory part")
    parser.add_argument("--encoded", type=int, default=1_000_000, help="rows that Ray encodes")
    parser.add_argument("--predicted", type=int, default=40_000, help="rows that Ray predicts")
    parser.add_argument("--backbone", default="smollm2-135m")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--only", choices=("memory", "ray", "paper"))
    parser.add_argument("--database", help="address of a server of `postgres_server.py` that has the table already")
    parser.add_argument("--json", type=Path, default=RESULT)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(*arguments.child)
        return
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, shown():
        if arguments.only in (None, "memory"):
            figures = memory(Path(folder), arguments.rows, arguments.database)
            save({"memory": {"machine": machine(), **figures}}, arguments.json)
        if arguments.only in (None, "ray"):
            figures = on_ray(Path(folder), arguments)
            save({"ray": {"machine": machine(), **figures}}, arguments.json)
        if arguments.only != "memory":
            save({"on_paper": on_paper(json.loads(arguments.json.read_text())["ray"])}, arguments.json)
    print(arguments.json.read_text())


def save(parts: dict[str, Any], target: Path) -> None:
    """Replace these parts of the stored results."""
    before = json.loads(target.read_text()) if target.exists() else {}
    write_json(target, {**before, **parts})


def machine() -> dict[str, Any]:
    packages = ("tefm", "torch", "polars", "pyarrow", "ray", "adbc-driver-postgresql")
    return {
        "arch": platform.machine(),
        "cores": os.cpu_count(),
        # other work on the machine makes everything slower, and the rates of two runs differ
        "load": os.getloadavg()[0],
        "versions": {package: version(package) for package in packages},
    }


def small_tokenizer(folder: Path, **settings: Any) -> Path:
    """A tokenizer that has seen few rows: its speed is that of any other of its size."""
    tokenizer = RecordTokenizer(steps=30, **settings).fit(made_here(4_000), SCHEMA, task_aware=False)
    return tokenizer.save(folder / "tokenizer")


def made_here(stop: int, start: int = 0) -> pl.DataFrame:
    """The rows that `TABLE` makes."""
    i = pl.int_range(start, stop, dtype=pl.Int64)
    return pl.select(
        id=i,
        patient=i // 4,
        age=(i * 7919) % 83 + 17,
        lactate=(i * 104729) % 1000 / 10.0,
        ward=pl.format("ward {}", (i * 31) % 12),
        drugs=pl.format("drug {};drug {}", (i * 7) % 40, (i * 13) % 40),
        died=pl.when((i // 4 * 17) % 10 < 3).then(pl.lit("yes")).otherwise(pl.lit("no")),
    )


# ---- 1. memory ----------------------------------------------------------------------------------------------------


def memory(folder: Path, sizes: list[int], database: str | None = None) -> dict[str, Any]:
    """For each size: peak and time of encoding from the database and from Parquet, and whether the codes are equal."""
    sys.path.append(str(HERE.parent / "tests"))
    from support.postgres_server import PASSWORD, execute, server  # the server that the tests use

    os.environ["PGPASSWORD"] = PASSWORD
    server = server if database is None else lambda: nullcontext(database)
    # a small network: what is measured is the way of the rows
    tokenizer = small_tokenizer(folder, levels=2, entries=16, latent=8, hidden=16, recipe="paper")
    found = []
    with server() as address:
        if database is None:
            note(f"making {max(sizes):,} rows in PostgreSQL")
            execute(address, TABLE.format(rows=max(sizes)))
            execute(address, "ALTER TABLE stays ADD PRIMARY KEY (id)")
        for rows in sizes:
            query = f"SELECT * FROM stays WHERE id < {rows} ORDER BY id"
            table = folder / f"{rows}.parquet"
            write_frames((made_here(min(start + CHUNK, rows), start) for start in range(0, rows, CHUNK)), table)
            database = in_child(tokenizer, address, query, folder / f"{rows}-database.parquet")
            parquet = in_child(tokenizer, str(table), "", folder / f"{rows}-parquet.parquet")
            codes = [pl.scan_parquet(folder / f"{rows}-{name}.parquet") for name in ("database", "parquet")]
            columns = [name for name in codes[0].collect_schema().names() if name.startswith("code_")]
            equal = all(codes[0].select(c).collect().equals(codes[1].select(c).collect()) for c in columns)
            found.append({"rows": rows, "postgresql": database, "parquet": parquet, "equal": equal})
            note(f"{rows:,} rows: {found[-1]}")
    growth = {name: found[-1][name]["peak_mib"] / found[0][name]["peak_mib"] for name in ("postgresql", "parquet")}
    return {"sizes": found, "growth": growth}


def in_child(tokenizer: Path, table: str, query: str, out: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", str(tokenizer), table, query, str(out)]
    figures: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return figures


def child(tokenizer: str, table: str, query: str, out: str) -> None:
    loaded = RecordTokenizer.load(tokenizer, device="cpu")
    before, started = peak_mib(), time.perf_counter()
    rows = encode_to_parquet(loaded, table, out, query=query or None)
    seconds = time.perf_counter() - started
    figures = {"seconds": seconds, "rows_per_second": rows / seconds, "peak_mib": peak_mib(), "peak_mib_before": before}
    print(json.dumps(figures))


def peak_mib() -> float:
    """The largest resident size of this process so far; `ru_maxrss` of a child begins with the peak of its parent."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# ---- 2. Ray -------------------------------------------------------------------------------------------------------


def on_ray(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    from tefm.cluster.engine import Engine, plan_rows, run
    from tefm.cluster.work import OnRay, encode_part

    tokenizer = small_tokenizer(folder)
    table = in_files(made_here(arguments.encoded), folder / "encoded")
    loaded = RecordTokenizer.load(tokenizer, device="cpu")
    encode = compared(
        "encode",
        lambda: encoded(loaded, open_table(table)),
        lambda workers: (
            frame
            for _, frame in run(
                Engine(workers=workers),
                plan_rows(table, 1 << 17),
                lambda gpu: partial(encode_part, RecordTokenizer.load(tokenizer, device=gpu), False),
                "encoding",
            )
        ),
    )
    model = TEFM(
        SCHEMA,
        backbone=arguments.backbone,
        layers=arguments.layers,
        codes={"steps": 30},
        task_aware=False,
        tune={"steps": 10},
        explanations="none",
        align="none",
    ).fit(made_here(4_000))
    saved = model.save(folder / "model")
    table = in_files(made_here(arguments.predicted), folder / "predicted")
    predict = compared(
        "predict",
        lambda: model.predict_batches(table),
        lambda workers: OnRay(Engine(workers=workers), saved, str(table), rows=arguments.predicted // 8).predict(),
    )
    settings = {"backbone": arguments.backbone, "layers": arguments.layers}
    return {"encode": encode, "predict": {**settings, **predict}}


def in_files(frame: pl.DataFrame, folder: Path, files: int = 8) -> Path:
    folder.mkdir()
    bounds = [frame.height * number // files for number in range(files + 1)]
    for number, (start, stop) in enumerate(pairwise(bounds)):
        frame[start:stop].write_parquet(folder / f"{number:02}.parquet")
    return folder


def compared(name: str, local: Any, ray: Any) -> dict[str, Any]:
    """Without Ray, and with one and two workers: rates, and whether all rows are equal."""
    frames, figures = measured(local())
    result: dict[str, Any] = {"rows": frames.height, "local": figures}
    for workers in (1, 2):
        others, figures = measured(ray(workers))
        result[f"workers_{workers}"] = {
            **figures,
            "equal_rows": equal_rows(frames, others),
            "largest_difference": largest_difference(frames, others),
        }
        note(f"{name}, {workers} workers: {result[f'workers_{workers}']}")
    result["scaling"] = result["workers_2"]["rows_per_second"] / result["workers_1"]["rows_per_second"]
    return result


def measured(frames: Iterator[pl.DataFrame]) -> tuple[pl.DataFrame, dict[str, float]]:
    started = time.perf_counter()
    parts, first = [], 0.0
    for frame in frames:
        first = first or time.perf_counter() - started
        parts.append(frame)
    seconds = time.perf_counter() - started
    later = sum(part.height for part in parts[1:])
    rate = later / (seconds - first) if len(parts) > 1 else parts[0].height / seconds
    return pl.concat(parts), {"seconds": seconds, "start_seconds": first, "rows_per_second": rate}


def equal_rows(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    """Whether identifiers, codes and classes are equal, in the same order."""
    exact = [name for name, dtype in one.schema.items() if not dtype.is_float()]
    return one.select(exact).equals(other.select(exact))


def largest_difference(one: pl.DataFrame, other: pl.DataFrame) -> float:
    """Of probabilities."""
    floats = [name for name, dtype in one.schema.items() if dtype.is_float()]
    return max((float((one[name] - other[name]).abs().max()) for name in floats), default=0.0)  # type: ignore[arg-type]


# ---- 3. on paper --------------------------------------------------------------------------------------------------


def on_paper(ray: dict[str, Any]) -> dict[str, Any]:
    """Hours for a billion rows: the rate of one worker, times the workers, times what a second worker added here.

    A prediction is for a patient, that is for four rows.
    """
    result: dict[str, Any] = {"nodes": NODES, "workers_per_node": WORKERS_PER_NODE, "rows": BILLION}
    for name in ("encode", "predict"):
        one, efficiency = ray[name]["workers_1"]["rows_per_second"], min(1.0, ray[name]["scaling"] / 2)
        rate = one * ROWS_PER_RESULT[name] * NODES * WORKERS_PER_NODE * efficiency
        result[name] = {"rows_per_second": rate, "efficiency": efficiency, "hours": BILLION / rate / 3600}
    return result


if __name__ == "__main__":
    main()
