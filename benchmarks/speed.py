"""Time and memory of fitting and predicting, each next to the same work without what makes it fast, in one run.

    python benchmarks/speed.py --kdd kddcup99.parquet [--parts step predict beside fit] [--json FILE]

1. step: seconds per fine-tuning step of SmolLM2's first six blocks, with the tokens in use and with all 49,152.
2. predict: rows per second and peak memory of `tefm predict` on a million single-row sequences of KDD99, from CSV to
   CSV; before, on fewer rows: every record is encoded, every prompt answered, and the table is whole in memory.
3. beside: the same without and with trees beside the language model (`beside: trees`), which read every distinct row.
4. fit: CPU minutes of a default fit of 1,200 patients of Diabetes130 (embedded), explanations included.

"before" runs in the same process or a process of its own with the old behaviour put back by `as_before`. Parts that a
run leaves out stay in the file as they were. All on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import torch
from tefm_bench.measurement import environment

from tefm.datasets.diabetes130 import diabetes130
from tefm.language.backbone import open_backbone
from tefm.language.config import TuneConfig
from tefm.language.prompts import Prompt, PromptWriter
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.language.tuning import Questions, ToLearn, tune
from tefm.language.vocabulary import CodeVocabulary, extend
from tefm.model.estimator import TEFM
from tefm.model.run import fit_frame
from tefm.model.task import Split
from tefm.pipeline.config import KEPT_LAYERS
from tefm.tables.chunks import write_frames
from tefm.tables.readers.table import open_table
from tefm.tables.sequences import Sequences

RESULTS = Path("benchmarks/results/speed.json")
PARTS = ("step", "predict", "beside", "fit")
#: Patients of the default fit, and the rows of the larger table.
PATIENTS, MILLION = 1_200, 1_000_000


@contextmanager
def as_before() -> Iterator[None]:
    """The old behaviour: the whole vocabulary is trained, nothing is computed once for equal inputs, one table."""

    def every(self: Any) -> tuple[Any, Any]:
        return np.arange(len(self)), np.arange(len(self))

    whole_vocabulary = nullcontext(partial(np.asarray, dtype=np.int64))
    with ExitStack() as stack:
        for module in ("tuning", "alignment"):
            name = f"tefm.language.{module}.rows_in_use"
            stack.enter_context(patch(name, lambda backbone, tokens: whole_vocabulary))
        unfused = partial(_unfused, torch.optim.AdamW)
        for module in ("language.training_loop", "codes.trainer", "rationale.surrogate", "rationale.extractor"):
            stack.enter_context(patch(f"tefm.{module}.adamw", unfused))
        stack.enter_context(patch("tefm.tables.sequences.Sequences.distinct", every))
        stack.enter_context(patch("tefm.codes.coder.distinct_rows", every))
        stack.enter_context(patch("tefm.language.classifier.REMEMBERED_ANSWERS", 0))
        stack.enter_context(
            patch("tefm.pipeline.prepare.whole_sequences", lambda table, *_, **__: iter([table.frame()]))
        )
        yield


def _unfused(optimiser: Any, weights: Any, *, device: Any, **settings: Any) -> Any:
    return optimiser(weights, **settings)


# ---- 1. a step ----------------------------------------------------------------------------------------------------


def measure_step(steps: int, rounds: int) -> dict[str, Any]:
    """The best of several rounds in which both take turns; wall time and CPU time of this process."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for name, how in (("before", as_before), ("after", nullcontext)):
            with how():
                seconds = _steps(steps)
            known = best.setdefault(name, seconds)
            best[name] = {kind: min(known[kind], seconds[kind]) for kind in seconds}
    return {"steps": steps, **best, "ratio": best["after"]["cpu_seconds"] / best["before"]["cpu_seconds"]}


def _steps(steps: int) -> dict[str, float]:
    backbone = open_backbone(SMOLLM2, layers=KEPT_LAYERS[SMOLLM2], device="cpu")
    ids = extend(backbone, CodeVocabulary.of("record", levels=3, entries=128))
    writer = PromptWriter(backbone.tokenizer, Prompt.preset("generic", "compact"), ("no", "yes"), ids)
    rng = np.random.default_rng(0)
    starts = np.arange(0, 2_049, 2)  # two records per sequence
    prompts = writer.of_codes(Sequences(rng.integers(0, 128, (2_048, 3)), starts))
    learned = ToLearn([Questions(prompts, rng.integers(0, 2, len(prompts)), writer.answers)], [])
    tune(backbone, ids.all, learned, TuneConfig(steps=1))
    cpu = time.process_time()
    history = tune(backbone, ids.all, learned, TuneConfig(steps=steps))
    return {"seconds": history.seconds / steps, "cpu_seconds": (time.process_time() - cpu) / steps}


# ---- 2. and 3. predictions ----------------------------------------------------------------------------------------


def measure_predict(kdd: Path, rows: int, rows_before: int, folder: Path) -> dict[str, Any]:
    frame = connections(kdd)
    few_steps(frame).save(folder / "model")
    shuffled = repeated(frame, rows)
    figures = {}
    for name, count in (("before", rows_before), ("after", rows)):
        table = folder / f"{name}.csv"
        shuffled.head(count).write_csv(table)
        figures[name] = child(name, "predict", folder / "model", table, folder / f"{name}-predictions.csv")
        figures[name] |= {"rows": count, "rows_per_second": count / figures[name]["seconds"]}
    same = pl.read_csv(folder / "before-predictions.csv").equals(
        pl.read_csv(folder / "after-predictions.csv").head(rows_before)
    )
    distinct = shuffled.n_unique()
    return {**figures, "distinct_rows": distinct, "predictions_before_and_after_equal": same}


def connections(kdd: Path) -> pl.DataFrame:
    return pl.read_parquet(kdd).with_columns(pl.col("label").eq("normal").cast(pl.String))


def few_steps(frame: pl.DataFrame, **settings: Any) -> TEFM:
    """A model that was hardly trained: it takes as long as any other."""
    model = TEFM(codes={"steps": 200}, tune={"steps": 20}, explanations="none", device="cpu", **settings)
    return model.fit(frame.sample(5_000, seed=0))


def repeated(frame: pl.DataFrame, rows: int) -> pl.DataFrame:
    """So many rows in random order, without the label."""
    enough = pl.concat([frame.drop("label")] * -(-rows // frame.height)).head(rows)
    return enough.sample(fraction=1.0, shuffle=True, seed=0)


def measure_beside(kdd: Path, rows: int, folder: Path) -> dict[str, Any]:
    frame, table = connections(kdd), folder / "table.csv"
    shuffled = repeated(frame, rows)
    shuffled.write_csv(table)
    figures: dict[str, Any] = {"rows": rows, "distinct_rows": shuffled.n_unique()}
    for name in ("none", "trees"):
        model = few_steps(frame, beside=name)
        model.save(folder / name)
        figures[name] = child("after", "predict", folder / name, table, folder / f"{name}.csv")
        figures[name]["rows_per_second"] = rows / figures[name]["seconds"]
    assert model.fitted.trees is not None
    ratio = figures["trees"]["rows_per_second"] / figures["none"]["rows_per_second"]
    return {**figures, "trees_grown": model.fitted.trees.count, "ratio": ratio}


def predict(model: str, table: str, out: str) -> None:
    write_frames(TEFM.load(model, device="cpu").predict_batches(open_table(table)), Path(out))


# ---- 4. a fit -----------------------------------------------------------------------------------------------------


def measure_fit() -> dict[str, Any]:
    figures = {name: child(name, "fit") for name in ("before", "after")}
    for figure in figures.values():
        figure["cpu_minutes"] = figure.pop("cpu_seconds") / 60
    return {"sequences": PATIENTS, **figures}


def fit() -> dict[str, Any]:
    data = diabetes130()
    assert data.schema.entity is not None
    patients = data.frame[data.schema.entity].unique().sort().sample(PATIENTS, seed=0)
    frame = data.frame.filter(pl.col(data.schema.entity).is_in(patients.implode()))
    model = TEFM(data.schema, device="cpu")
    outcome = fit_frame(model, frame, Split(), file="diabetes130")
    return {"test_auroc": outcome.test.scores.to_dict()["auroc"]["value"]}


# ---- a process of its own -----------------------------------------------------------------------------------------


def child(when: str, what: str, *arguments: object) -> dict[str, Any]:
    """Time, CPU time and peak memory of a new process."""
    command = [sys.executable, __file__, "--child", when, what, *map(str, arguments)]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result: dict[str, Any] = json.loads(told.splitlines()[-1])
    return result


def run_child(when: str, what: str, *arguments: str) -> None:
    started = time.perf_counter()
    with as_before() if when == "before" else nullcontext():
        result = (fit() if what == "fit" else predict(*arguments)) or {}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    result |= {"seconds": time.perf_counter() - started, "cpu_seconds": usage.ru_utime + usage.ru_stime}
    print(json.dumps({**result, "peak_mib": peak_mib()}))


def peak_mib() -> float | None:
    """The largest resident size of this process; `ru_maxrss` of a child would begin with the peak of its parent."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return None
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kdd", type=Path, help="kddcup99.parquet, for `predict` and `beside`")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--steps", type=int, default=10, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=MILLION)
    parser.add_argument("--rows-before", type=int, default=20_000, help="rows that are predicted the old way")
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        run_child(*given.child)
        return
    if {"predict", "beside"} & set(given.parts) and given.kdd is None:
        parser.error("--kdd is needed for `predict` and `beside`")
    result = json.loads(given.json.read_text()) if given.json.is_file() else {}
    for part in given.parts:
        with tempfile.TemporaryDirectory() as folder:
            if part == "step":
                figures = measure_step(given.steps, given.rounds)
            elif part == "predict":
                figures = measure_predict(given.kdd, given.rows, given.rows_before, Path(folder))
            elif part == "beside":
                figures = measure_beside(given.kdd, given.rows, Path(folder))
            else:
                figures = measure_fit()
        run = {"command": shlex.join(["python", *sys.argv]), "machine": environment(), "load": os.getloadavg()[0]}
        result[part] = {**figures, "run": {**run, "torch_threads": torch.get_num_threads()}}
        print(json.dumps({part: figures}), flush=True)
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
