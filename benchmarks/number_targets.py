"""Numbers as targets: the remaining time of a case, the days of a stay, against LightGBM's quantile regression.

    python benchmarks/number_targets.py --data FOLDER [--table "BPIC 2012, remaining time" …] [--seeds 3] [--fits 2]
        [--workers 1] [--json FILE]

FOLDER holds `bpic2012` and `physionet2012` as `tefm_bench tables` reads them. Fits have the defaults of `tefm fit`; a
seed draws the split, and every split is fitted several times. LightGBM is the one that `tefm fit` compares with: a
quantile regression of the same labels, chosen on the same validation part. The errors are in days.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tefm_bench.measurement import add_results
from tefm_bench.sequence_tables import icu_stays, loans_up_to_one_event
from tefm_bench.user_table import file_of

from tefm.datasets.diabetes130 import diabetes130
from tefm.model.estimator import TEFM
from tefm.model.run import TaskTable, fit_frames
from tefm.model.task import Task
from tefm.tables.readers.table import open_table
from tefm.tables.schema import Schema

RESULTS = Path("benchmarks/results/number_targets.json")
#: Sequences that are fitted on, validated on and tested on, at most.
MOST = 8_000


def loans(folder: Path) -> tuple[pl.DataFrame, Schema]:
    """Days from an event of a loan application, drawn at random, to its last event."""
    frame = loans_up_to_one_event(folder).drop("next")
    case = "application"
    last = pl.col("ends") - pl.col("time").last().over(case)
    frame = frame.with_columns(days_left=(last.dt.total_seconds() / 86_400).round(3)).drop("ends")
    return frame, _schema(frame, entity=case, time="time", label="days_left")


def admissions(folder: Path) -> tuple[pl.DataFrame, Schema]:
    """Days of a patient's last admission, from its other fields and the admissions before."""
    dataset = diabetes130(balanced=False)
    fields = tuple(field for field in dataset.schema.fields if "time_in_hospital" not in field.source)
    label = {"column": "time_in_hospital", "kind": "number"}
    ignored = tuple(name for name in (*dataset.schema.ignore, dataset.schema.label) if name)
    settings = {**dict(dataset.schema), "fields": fields, "label": label, "ignore": ignored}
    return dataset.frame, Schema.model_validate(settings)


def stays(folder: Path) -> tuple[pl.DataFrame, Schema]:
    """Days of an ICU patient in hospital, from the first 48 hours in 4-hour windows."""
    outcomes = pl.read_parquet(file_of(folder, "physionet2012/Outcomes-a.parquet"))
    known = outcomes.filter(pl.col("Length_of_stay") > 0).select("RecordID", days=pl.col("Length_of_stay"))
    frame = icu_stays(folder, "a", 4).drop("death").join(known, on="RecordID", maintain_order="left")
    return frame, _schema(frame, entity="RecordID", time="hour", label="days")


TABLES: Mapping[str, Callable[[Path], tuple[pl.DataFrame, Schema]]] = {
    "BPIC 2012, remaining time": loans,
    "Diabetes130, length of stay": admissions,
    "PhysioNet 2012, length of stay": stays,
}


def _schema(frame: pl.DataFrame, **roles: str) -> Schema:
    return Task.from_yaml(json.dumps({"table": "table", **roles})).schema_for(open_table(frame))


def measured(name: str, folder: Path, seed: int, fit: int, most: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The errors of one fit and of LightGBM on the same test sequences."""
    frame, schema = TABLES[name](folder)
    entities = frame[schema.entity].unique(maintain_order=True)
    chosen = entities.gather(np.random.default_rng(seed).permutation(len(entities))[:most])
    frame = frame.filter(pl.col(schema.entity).is_in(chosen.implode()))
    task = Task.from_yaml(json.dumps({"table": name, "split": {"seed": seed}}))
    began = time.perf_counter()
    model = TEFM(schema, seed=seed + 1_000 * fit, explanations="none", **settings)
    outcome = fit_frames({"": TaskTable.of_frame(model, frame, task.split)})[""]
    figures = {"tefm": outcome.test.to_dict(), "lightgbm": dict(outcome.baselines["lightgbm"]["test_calibrated"])}
    return {
        "table": name,
        "seed": seed,
        "fit": fit,
        **{who: {metric: of["value"] for metric, of in scores.items() if isinstance(of, dict) and "value" in of}
           for who, scores in figures.items()},
        "tokens": outcome.test.tokens_mean,
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the user tables")
    parser.add_argument("--table", action="append", choices=list(TABLES), help="only this one; repeatable")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--fits", type=int, default=2, help="fits of each split")
    parser.add_argument("--sequences", type=int, default=MOST)
    parser.add_argument("--quick", action="store_true", help="quick fits")
    parser.add_argument("--workers", type=int, default=1, help="fits at once, one thread each")
    parser.add_argument("--json", type=Path, default=RESULTS, help="results are added to this file")
    arguments = parser.parse_args()
    settings = {"quick": True} if arguments.quick else {}
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    jobs = [
        (name, arguments.data, seed, fit, arguments.sequences, settings)
        for seed in seeds
        for fit in range(arguments.fits)
        for name in arguments.table or TABLES
    ]
    add_results(arguments.json, measured, jobs, ("table", "seed", "fit"), workers=arguments.workers)


if __name__ == "__main__":
    main()
