"""Planted sequences: tables whose label has one known cause, and how much of it a fit with the defaults finds.

    python benchmarks/planted.py [--cause order …] [--seeds 5] [--sequences 4000] [--workers 1] [--json FILE]

Each record has an event, a number and a quiet second number; nothing else tells the label. 3% of the labels are
exchanged, so no model can be right more often than 97% in the long run: the limit of a table is the accuracy that the
cause itself has on its test sequences. LightGBM is the one that `tefm fit` compares with: it chooses among six settings
and among features of the last record, of the history and of the order.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tefm_bench.measurement import add_results

from tefm.model.estimator import TEFM
from tefm.model.run import fit_frame
from tefm.model.task import Split
from tefm.tables.schema import Schema

RESULTS = Path("benchmarks/results/planted.json")
EVENTS = np.array(["admission", "scan", "visit", "call", "test", "transfer"])
NOISE, TESTED = 0.03, 2_000
SCHEMA = (
    "{record: record, entity: who, time: day, label: outcome, %s fields: {event: category, x: number, y: number%s}}"
)

#: The events and numbers of a sequence, the hours since the record before each, and the group of its entity.
Planted = tuple[np.ndarray, np.ndarray, np.ndarray, int]


def drawn(rng: np.random.Generator, longest: int) -> Planted:
    """A sequence in which nothing is planted yet."""
    length = longest if longest > 100 else int(rng.integers(12, longest + 1))
    return (
        rng.integers(2, len(EVENTS), length),
        rng.normal(size=length),
        rng.integers(1, 49, length),
        int(rng.integers(2)),
    )


def _order(rng: np.random.Generator, sequence: Planted, yes: bool) -> Planted:
    """The last admission came after the last scan."""
    events, *others = sequence
    places = np.sort(rng.choice(len(events), 4, replace=False))
    events[places] = (1, 0, 1, 0) if yes else (0, 1, 0, 1)
    return events, *others


def _trend(rng: np.random.Generator, sequence: Planted, yes: bool) -> Planted:
    """The number rose over the last eight records."""
    _, x, *_ = sequence
    x[-8:] = np.sort(rng.normal(size=8))[:: 1 if yes else -1] + rng.normal(0, 0.3, 8)
    return sequence


def _count(rng: np.random.Generator, sequence: Planted, yes: bool) -> Planted:
    """Three or more admissions within the last eight records; before them, there are as many either way."""
    events, *_ = sequence
    events[rng.choice(8, int(rng.integers(3, 5)) if yes else int(rng.integers(0, 2)), replace=False) - 8] = 0
    events[rng.choice(len(events) - 8, min(3, len(events) - 8), replace=False)] = 0
    return sequence


def _within(rng: np.random.Generator, sequence: Planted, yes: bool) -> Planted:
    """A scan within six hours of the admission before it; both always follow each other."""
    events, _, hours, _ = sequence
    place = int(rng.integers(1, len(events)))
    events[[place - 1, place]] = 0, 1
    hours[place] = rng.integers(1, 6) if yes else rng.integers(8, 49)
    return sequence


def _static(rng: np.random.Generator, sequence: Planted, yes: bool) -> Planted:
    """An admission, and the entity is of the second group."""
    events, *others, _ = sequence
    admitted, group = (True, 1) if yes else ((True, 0), (False, 1), (False, 0))[int(rng.integers(3))]
    events[int(rng.integers(len(events)))] = 0 if admitted else 2
    return events, *others, group


def _first(_: np.random.Generator, sequence: Planted, yes: bool) -> Planted:
    """The first record is an admission, and not a scan; both come later too."""
    sequence[0][[0, 4, 8]] = (0, 0, 1) if yes else (1, 0, 1)
    return sequence


def _repeated(rng: np.random.Generator, sequence: Planted, yes: bool) -> Planted:
    """One event comes twice in a row, somewhere."""
    events, *_ = sequence
    for place in range(1, len(events)):
        while events[place] == events[place - 1]:
            events[place] = rng.integers(2, len(EVENTS))
    if yes:
        place = int(rng.integers(1, len(events)))
        events[place] = events[place - 1]
    return sequence


def _early(rng: np.random.Generator, sequence: Planted, yes: bool) -> Planted:
    """Of 300 records, one of the first ten is an admission."""
    if yes:
        sequence[0][int(rng.integers(10))] = 0
    return sequence


#: How a cause is planted, and the most records of a sequence.
CAUSES: Mapping[str, tuple[Callable[[np.random.Generator, Planted, bool], Planted], int]] = {
    "order of two events": (_order, 24),
    "trend": (_trend, 24),
    "count within a window": (_count, 24),
    "one event soon after another": (_within, 24),
    "fields of the entity with an event": (_static, 24),
    "first record": (_first, 24),
    "repeated values": (_repeated, 24),
    "early in 300 records": (_early, 300),
}


def planted(cause: str, sequences: int, seed: int) -> tuple[pl.DataFrame, float]:
    """A table, and the share of its labels that the cause gives."""
    rng, (plant, longest) = np.random.default_rng(seed), CAUSES[cause]
    frames, right = [], 0
    for who in range(sequences):
        yes = bool(rng.random() < 0.5)
        events, x, hours, group = plant(rng, drawn(rng, longest), yes)
        said = yes ^ (rng.random() < NOISE)
        right += said == yes
        seconds = np.cumsum(hours) * 3_600 + int(rng.integers(86_400 * 300))
        frames.append(
            pl.DataFrame(
                {"event": EVENTS[events], "x": x, "y": rng.normal(size=len(x)), "seconds": seconds}
            ).with_columns(who=pl.lit(f"e{who}"), sex=pl.lit("fm"[group]), outcome=pl.lit("yes" if said else "no"))
        )
    start = pl.lit("2024-01-01 00:00:00").str.to_datetime()
    table = pl.concat(frames).with_columns(day=start + pl.duration(seconds=pl.col("seconds"))).drop("seconds")
    return table.with_columns(x=pl.col("x").round(3), y=pl.col("y").round(3)), right / sequences


def measured(cause: str, seed: int, sequences: int, tested: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a fit with the defaults and LightGBM find of a cause."""
    frame, limit = planted(cause, sequences + tested, seed)
    schema = Schema.from_yaml(SCHEMA % ("static: [sex],", ", sex: category"))
    share = tested / (sequences + tested)
    began = time.perf_counter()
    model = TEFM(schema, seed=seed, explanations="none", **settings)
    outcome = fit_frame(model, frame, Split(shares=(0.9 * (1 - share), 0.1 * (1 - share), share), seed=seed))
    other = {name: figures["test_calibrated"] for name, figures in outcome.baselines.items()}
    return {
        "cause": cause,
        "seed": seed,
        "limit": limit,
        **{name: getattr(outcome.test.scores, name).value for name in ("accuracy", "auroc")},
        **{
            f"lightgbm {name}": other["lightgbm"][name]["value"]
            for name in ("accuracy", "auroc")
            if "lightgbm" in other
        },
        "tokens": outcome.test.tokens_mean,
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cause", action="append", choices=list(CAUSES), help="only this one; repeatable")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--sequences", type=int, default=4_000, help="that are fitted on, a tenth of them for validation"
    )
    parser.add_argument("--tested", type=int, default=TESTED)
    parser.add_argument("--quick", action="store_true", help="quick fits")
    parser.add_argument("--workers", type=int, default=1, help="fits at once, one thread each")
    parser.add_argument("--json", type=Path, default=RESULTS, help="results are added to this file")
    arguments = parser.parse_args()
    settings = {"quick": True} if arguments.quick else {}
    # of each seed, the longest sequences first: they take longest
    causes = sorted(arguments.cause or CAUSES, key=lambda cause: -CAUSES[cause][1])
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    jobs = [(cause, seed, arguments.sequences, arguments.tested, settings) for seed in seeds for cause in causes]
    add_results(arguments.json, measured, jobs, ("cause", "seed"), workers=arguments.workers)


if __name__ == "__main__":
    main()
