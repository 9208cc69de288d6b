"""One model with several domains against a model for each: memory, start-up time, files.

    python benchmarks/domains.py [--model FOLDER --bundles FOLDER FOLDER …] [--repeats 3] [--json FILE]

Every way is a new process that loads the models and answers two made-up records of each domain: the model with domains,
all bundles in one process (as `tefm serve a b c d` does), and each bundle in a process of its own. Memory is what the
process has resident beyond its imports, time is that of loading and answering. Without folders, small models of four
made-up domains are fitted first: what they answer means nothing, but their sizes are those of the default backbone.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tefm_bench.measurement import environment

from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.model.domains import Domains
from tefm.model.estimator import TEFM
from tefm.model.run import TaskTable, fit_frames
from tefm.model.task import Split
from tefm.tables.schema import Schema

RESULTS = Path("benchmarks/results/domains.json")
RECORDS = ("admission", "flow", "payment", "visit")
#: Runs in a new process; the folders are its arguments.
LOADS = """
import json, sys, time
from pathlib import Path
from tefm.model.bundle import domains_of
from tefm.model.domains import Domains
from tefm.model.estimator import TEFM
from tefm.serve.describe import example_rows
import torch, transformers, tefm.language.smollm2, tefm.language.classifier
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / (1 << 20)

before, started, models = resident(), time.perf_counter(), []
for folder in sys.argv[1:]:
    domains = domains_of(Path(folder))
    models += [TEFM.load(folder, device="cpu")] if domains is None else Domains.load(folder, device="cpu").values()
for model in models:
    model.predict_table(example_rows(model.preparation, 2))
print(json.dumps({"seconds": time.perf_counter() - started, "mebibytes": resident() - before}))
"""


def small_models(folder: Path, backbone: str) -> tuple[Path, list[Path]]:
    """A model of four domains, and four models; a few steps each."""
    rng = np.random.default_rng(0)
    tables = {}
    for record in RECORDS:
        kind = rng.choice(["a", "b", "c"], 200)
        frame = pl.DataFrame(
            {
                f"{record} size": rng.integers(0, 99, 200),
                f"{record} kind": kind,
                "label": np.where(kind == "a", "yes", "no"),
            }
        )
        fields = {f"{record} size": "number", f"{record} kind": "category"}
        schema = Schema.from_yaml(json.dumps({"record": record, "label": "label", "fields": fields}))
        tables[record] = schema, frame

    def table_of(record: str) -> TaskTable:
        schema, frame = tables[record]
        settings: dict[str, Any] = {"codes": {"steps": 20}, "tune": {"steps": 1}, "explanations": "none"}
        return TaskTable.of_frame(TEFM(schema, backbone=backbone, device="cpu", **settings), frame, Split())

    together = {record: table_of(record) for record in RECORDS}
    fit_frames(together, compare=False)
    joint = Domains({record: table.model for record, table in together.items()}).save(folder / "joint")
    bundles = []
    for record in RECORDS:
        table = table_of(record)
        fit_frames({"": table}, compare=False)
        bundles.append(table.model.save(folder / record))
    return joint, bundles


def loaded(folders: list[Path], repeats: int) -> dict[str, float]:
    """The medians over some processes that load these folders."""
    runs = []
    for _ in range(repeats):
        done = subprocess.run(
            [sys.executable, "-c", LOADS, *map(str, folders)], capture_output=True, text=True, check=True
        )
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def disk(folder: Path) -> float:
    """Mebibytes of the files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / (1 << 20)


def measure(model: Path, bundles: list[Path], repeats: int) -> dict[str, Any]:
    """Every way, and its ratio to the model with domains."""
    each = [loaded([bundle], repeats) for bundle in bundles]
    ways = {
        "one model with domains": {**loaded([model], repeats), "disk": disk(model)},
        "all bundles in one process": {**loaded(bundles, repeats), "disk": sum(map(disk, bundles))},
        "a process per bundle": {name: sum(one[name] for one in each) for name in ("seconds", "mebibytes")}
        | {"disk": sum(map(disk, bundles))},
    }
    first = ways["one model with domains"]
    for way in ways.values():
        way |= {f"times_{name}": way[name] / first[name] for name in ("seconds", "mebibytes", "disk")}
    return ways


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder of a model with domains")
    parser.add_argument("--bundles", type=Path, nargs="+", help="folders of models of the same domains")
    parser.add_argument("--backbone", default=SMOLLM2, help="of the models that are made when no folders are given")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if (arguments.model is None) != (arguments.bundles is None):
        parser.error("give both --model and --bundles, or none of them")
    with tempfile.TemporaryDirectory() as folder:
        model, bundles = arguments.model, arguments.bundles
        if model is None:
            model, bundles = small_models(Path(folder), arguments.backbone)
        domains = len(bundles)
        ways = measure(model, bundles, arguments.repeats)
    for name, way in ways.items():
        print(
            f"{name}: {way['mebibytes']:,.0f} MiB ({way['times_mebibytes']:.2f}×), {way['seconds']:.1f} s "
            f"({way['times_seconds']:.2f}×), {way['disk']:,.0f} MiB on disk ({way['times_disk']:.2f}×)"
        )
    command = f"python {shlex.join(sys.argv)}"
    body = {"machine": environment(), "run": {"command": command, "domains": domains}, "ways": ways}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
