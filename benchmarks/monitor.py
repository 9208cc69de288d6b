"""Monitoring: false alarms on batches without drift, and how many planted drifts are found and named.

    python benchmarks/monitor.py [--data nsl_kdd=KDDTrain+.parquet] [--model FOLDER] [--batches 200] [--json FILE]

The model is fitted once, on a fifth of the embedded Diabetes130 patients (or of another table), with its first block
only: what is measured is the monitor, not the model. Batches come from held-out sequences and have no labels. In the
same run, the usual alternative: a test per column (Kolmogorov and Smirnov for numbers, chi-squared for the rest, and
one for the model's probability), with Bonferroni's correction and, as Evidently and NannyML do by default, without it.
It gets the same records, one of each sequence.
A row of the results is replaced by one of the same data; the others stay.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import chi2_contingency, ks_2samp
from tefm_bench.measurement import environment

from tefm.datasets import diabetes130
from tefm.explain.counts import exact_share
from tefm.model.estimator import TEFM
from tefm.model.run import split_parts
from tefm.model.task import Split
from tefm.monitor.causes import Cause
from tefm.monitor.monitor import Watcher
from tefm.monitor.observe import Arrivals, Observed, observe
from tefm.monitor.reference import MonitorReference
from tefm.pipeline.prepare import records_of
from tefm.tables.infer import infer_schema
from tefm.tables.readers.table import open_table
from tefm.tables.records import Records
from tefm.tables.schema import Schema
from tefm.tables.sequences import Sequences

RESULTS = Path("benchmarks/results/monitor.json")
SPLIT = Split(shares=(0.2, 0.3, 0.5))
#: Test sequences that batches without drift and with a label shift are drawn from, and those that drift is planted in.
POOL, PLANTED = 8_000, 2_500
#: A planted shift, in standard deviations of a number; the share of the records that get another category, a new one,
#: or none; how many times the odds of the positive class are.
SHIFT, OTHER, NEW, MISSING, ODDS = 0.5, 0.25, 0.03, 0.1, (12.0, 4.0)
#: What numbers are multiplied by: field after field, in turn.
FACTORS = (1000.0, 10.0, 24.0, 0.001, 60.0, 2.20462)
WORD = "never seen before"

Named = Callable[[tuple[Cause, ...]], bool]


@dataclass(frozen=True, eq=False)
class Data:
    """Held-out sequences of a table, and a model fitted on others."""

    name: str
    model: TEFM
    #: of the test part, a sample in random order
    test: Records

    @property
    def schema(self) -> Schema:
        return self.model.preparation.schema


def load(name: str, path: str | None, folder: Path) -> Data:
    """The data, and a model: fitted where it is not there yet."""
    if name == "diabetes130":
        dataset = diabetes130(balanced=False)
        frame, schema, settings = dataset.frame, dataset.schema, {"balance": "train", "prompt": "mortality"}
    elif name == "nsl_kdd":
        table = open_table(path).frame().drop("difficulty", strict=False)
        label = "class" if "class" in table.columns else "label"
        kind = pl.when(pl.col(label) == "normal").then(pl.lit("normal")).otherwise(pl.lit("attack"))
        frame = table.with_columns(kind.alias(label))
        schema, settings = infer_schema(open_table(frame, name=name), label=label), {"prompt": "intrusion"}
    else:
        raise SystemExit(f"no such data: {name}")
    model = TEFM(schema, quick=True, layers=1, **settings)  # type: ignore[arg-type]
    records = records_of(frame, schema, model.config)
    parts, _ = split_parts(model.config, records.sequences, SPLIT)
    if not folder.is_dir():
        training, validation = (records.part(parts == part).frame for part in ("train", "validation"))
        model.fit(training, validation=validation).save(folder)
    model = TEFM.load(folder)
    test = np.random.default_rng(0).permutation(np.flatnonzero(parts == "test"))[:POOL]
    return Data(name, model, records.select(test))


def draw(
    sequences: Sequences, rows: int, rng: np.random.Generator, weight_S: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Sequences with about so many rows, at random and each once; with weights, some of them more often."""
    p = None if weight_S is None else weight_S / weight_S.sum()
    order = rng.choice(
        len(sequences), size=len(sequences) if p is None else int((weight_S > 0).sum()), replace=False, p=p
    )
    return order[: max(1, int(np.searchsorted(np.cumsum(sequences.lengths[order]), rows, side="right")))]


def part_of(observed: Observed, chosen: NDArray[Any]) -> Observed:
    """Some sequences, without their labels."""
    return unlabelled((observed[0].part(chosen), observed[1].part(chosen)))


def unlabelled(observed: Observed) -> Observed:
    none = np.full(len(observed[1]), -1)
    return replace(observed[0], label_S=none), replace(observed[1], label_S=none)


# ---- planted drifts -------------------------------------------------------------------------------------------------


def plantable(data: Data) -> dict[str, list[str]]:
    """The fields that each kind of drift can be planted in: with values in most records, and not constant."""
    frame = data.test.frame[data.test.sequences.rows]
    fields: dict[str, list[str]] = {"number": [], "category": []}
    for f in data.schema.fields:
        if f.kind == "number":
            values = frame[f.source[0]].cast(pl.Float64, strict=False)
            if (values.fill_null(0) != 0).mean() >= 0.2 and (values.std() or 0) > 0:
                fields["number"].append(f.name)
        elif f.kind == "category":
            words = frame[f.source[0]].cast(pl.String)
            absent = [*data.schema.missing, *f.absent]
            present = words.filter(words.is_not_null() & ~words.str.to_lowercase().is_in([a.lower() for a in absent]))
            shares = present.value_counts(sort=True, normalize=True)["proportion"]
            if len(present) >= 0.5 * len(words) and len(shares) > 1 and shares[1] >= 0.05:
                fields["category"].append(f.name)
    return fields


def some(rows: int, share: float, rng: np.random.Generator) -> pl.Series:
    return pl.Series(rng.random(rows) < share)


def planted(
    kind: str, number: int, data: Data, frame: pl.DataFrame, fields: dict[str, list[str]], rng: np.random.Generator
) -> tuple[pl.DataFrame, str, Named]:
    """A frame with a drift, the field that it is in, and whether causes name it."""
    rows = frame.height

    def only(*kinds: str) -> Named:
        return lambda causes: {c.field for c in causes} == {field} and any(c.kind in kinds for c in causes)

    if kind == "shift" and number % 2 == 0:
        field = fields["number"][number // 2 % len(fields["number"])]
        column = frame[data.schema.field(field).source[0]]
        values = column.cast(pl.Float64, strict=False)
        moved = values + SHIFT * float(values.std() or 0)  # type: ignore[arg-type]
        whole = bool((values.drop_nulls() == values.drop_nulls().round()).all())
        return frame.with_columns((moved.ceil() if whole else moved).alias(column.name)), field, only("shift", "new")
    if kind in ("shift", "new"):
        field = fields["category"][number // 2 % len(fields["category"])]
        name = data.schema.field(field).source[0]
        second = frame[name].cast(pl.String).value_counts(sort=True)[name].drop_nulls()[1]
        word, share = (second, OTHER) if kind == "shift" else (WORD, NEW)
        changed = pl.when(some(rows, share, rng)).then(pl.lit(word)).otherwise(pl.col(name).cast(pl.String))
        named = (
            only("shift")
            if kind == "shift"
            else _one(lambda c: c.kind == "new" and c.field == field and WORD in c.sentence)
        )
        return frame.with_columns(changed.alias(name)), field, named
    if kind == "unit":
        place = number % len(fields["number"])
        field, factor = fields["number"][place], FACTORS[place % len(FACTORS)]
        name = data.schema.field(field).source[0]
        named = _one(lambda c: c.kind == "unit" and c.field == field and abs(c.factor / factor - 1) < 0.03)  # type: ignore[operator]
        return frame.with_columns(pl.col(name).cast(pl.Float64, strict=False) * factor), field, named
    both = fields["number"] + fields["category"]
    field = both[number % len(both)]
    name = data.schema.field(field).source[0]
    gone = pl.when(some(rows, MISSING, rng)).then(None).otherwise(pl.col(name)).alias(name)
    return frame.with_columns(gone), field, _one(lambda c: c.kind == "missing" and c.field == field)


def _one(right: Callable[[Cause], bool]) -> Named:
    return lambda causes: len(causes) == 1 and right(causes[0])


# ---- the usual alternative ------------------------------------------------------------------------------------------


def column_tests(schema: Schema, batch: Observed, reference: Observed, positive: int) -> dict[str, float]:
    """A p-value per column, and one for the model's probability."""
    p_values = {"": float(ks_2samp(batch[1].p_SQ[:, positive], reference[1].p_SQ[:, positive]).pvalue)}
    for f in schema.fields:
        for name in f.source:
            new, old = (observed[0].frame[name] for observed in (batch, reference))
            if f.kind == "number":
                numbers = [of.cast(pl.Float64, strict=False).drop_nulls().to_numpy() for of in (new, old)]
                p = float(ks_2samp(*numbers).pvalue) if all(map(len, numbers)) else 0.0
            else:
                words = pl.concat(
                    [
                        of.cast(pl.String).fill_null("").to_frame(name).with_columns(new=pl.lit(which))
                        for which, of in (("a", new), ("b", old))
                    ]
                )
                counts = words.pivot("new", index=name, values="new", aggregate_function=pl.len()).fill_null(0)
                table = counts.select("a", "b").to_numpy()
                p = float(chi2_contingency(table).pvalue) if len(table) > 1 else 1.0
            p_values[f.name] = min(p, p_values.get(f.name, 1.0))
    return p_values


# ---- counting -------------------------------------------------------------------------------------------------------


class Counts:
    """How many batches raised an alarm, and how many were named, by us and by tests per column."""

    def __init__(self) -> None:
        self.batches, self.seconds = 0, 0.0
        self.counts = dict.fromkeys(("alarms", "named", "bonferroni", "bonferroni_named", "uncorrected"), 0)
        self.wrong: list[str] = []

    def add(self, causes: tuple[Cause, ...], named: bool, p_values: dict[str, float], field: str | None) -> None:
        self.batches += 1
        smallest = min(p_values, key=lambda name: p_values[name])
        alarm = p_values[smallest] * len(p_values) <= 0.05
        self.counts["alarms"] += bool(causes)
        self.counts["named"] += named
        self.counts["bonferroni"] += alarm
        self.counts["bonferroni_named"] += alarm and smallest == field
        self.counts["uncorrected"] += p_values[smallest] <= 0.05
        if not named:
            self.wrong.append(f"{field}: " + ("; ".join(cause.sentence for cause in causes) or "no alarm"))

    def result(self, planted: bool) -> dict[str, Any]:
        kept = self.counts if planted else {k: v for k, v in self.counts.items() if "named" not in k}
        exact = {name: exact_share(count, self.batches) for name, count in kept.items()}
        shares = {name: {"share": of.value, "interval": [of.low, of.high]} for name, of in exact.items()}
        return {
            "batches": self.batches,
            "cpu_seconds_per_batch": self.seconds / self.batches,
            **shares,
            "not_named" if planted else "false_alarms": self.wrong[:20],
        }


def measure(data: Data, batches: int, rows: int, kinds: list[str]) -> dict[str, Any]:
    """Every kind of batch."""
    model = data.model
    fitted, preparation, stored = model.fitted, model.preparation, model.reference_
    assert stored is not None and preparation.vectoriser is not None
    answerer = fitted.answerer.remembering()
    began = time.perf_counter()
    pool = observe(fitted, preparation, Arrivals.whole(data.test), answerer)
    print(f"{len(data.test)} test sequences answered in {time.perf_counter() - began:.0f} s", flush=True)
    positive, fields = fitted.positive, plantable(data)
    # the columns are compared with raw records, of sequences that no batch has
    half = len(data.test) // 2
    usual = part_of(pool, np.arange(half, len(data.test)))
    free = data.test.select(np.arange(half))
    results: dict[str, Any] = {}

    def run(kind: str, made: Iterator[tuple[Observed, Watcher, Observed, Named, str | None]]) -> None:
        counts = Counts()
        for batch, watcher, compared, named, field in made:
            started = time.process_time()
            _, _, diagnosis = watcher.diagnosed(batch, watcher.reference.whole)
            counts.seconds += time.process_time() - started
            p_values = column_tests(data.schema, batch, compared, positive)
            counts.add(diagnosis.causes, named(diagnosis.causes), p_values, field)
            if counts.batches % 20 == 0:
                print(kind, counts.batches, counts.counts, flush=True)
        results[kind] = counts.result(kind[:4] != "none")
        print(json.dumps({kind: results[kind]}), flush=True)

    positives: dict[float, list[float]] = {odds: [] for odds in ODDS}

    def nothing(causes: tuple[Cause, ...]) -> bool:
        return not causes

    def without(size: int) -> Iterator[tuple[Observed, Watcher, Observed, Named, str | None]]:
        for number in range(batches):
            rng = np.random.default_rng((1, size, number))
            watcher = Watcher(fitted, preparation, stored, seed=number)
            yield part_of(pool, draw(free.sequences, size, rng)), watcher, usual, nothing, None

    def redrawn() -> Iterator[tuple[Observed, Watcher, Observed, Named, str | None]]:
        for number in range(batches):
            order = np.random.default_rng((2, number)).permutation(len(data.test))
            taken = int(np.searchsorted(np.cumsum(data.test.sequences.lengths[order]), rows, side="right"))
            kept = order[taken:]
            old = pool[0].part(kept), pool[1].part(kept[: len(stored.whole.answers)])
            assert preparation.vectoriser is not None, "codes come from slots"
            reference = MonitorReference.of(old, fitted, preparation.vectoriser, stored.scale.seen)
            yield part_of(pool, order[:taken]), Watcher(fitted, preparation, reference, seed=number), old, nothing, None

    def labels(odds: float) -> Iterator[tuple[Observed, Watcher, Observed, Named, str | None]]:
        weight_S = np.where(pool[1].label_S == positive, odds, 1.0)
        for number in range(batches):
            chosen = draw(data.test.sequences, rows, np.random.default_rng((3, number)), weight_S)
            positives[odds].append(float((pool[1].label_S[chosen] == positive).mean()))
            others = np.setdiff1d(np.arange(len(data.test)), chosen)[::2]
            watcher = Watcher(fitted, preparation, stored, seed=number)
            yield part_of(pool, chosen), watcher, part_of(pool, others), _one(lambda c: c.kind == "labels"), ""

    def drift(kind: str) -> Iterator[tuple[Observed, Watcher, Observed, Named, str | None]]:
        base = free.select(np.arange(min(PLANTED, len(free))))
        for number in range(batches):
            rng = np.random.default_rng((4, ("shift", "new", "unit", "missing").index(kind), number))
            chosen = base.part(draw(base.sequences, rows, rng))
            changed, field, named = planted(kind, number, data, chosen.frame, fields, rng)
            arrivals = Arrivals.whole(replace(chosen, frame=changed, known=[]))
            seen = observe(fitted, preparation, arrivals, answerer, seed=number)
            yield unlabelled(seen), Watcher(fitted, preparation, stored, seed=number), usual, named, field

    made: dict[str, Callable[[], Iterator[tuple[Observed, Watcher, Observed, Named, str | None]]]] = {
        "labels": lambda: labels(ODDS[0]),
        "labels, smaller": lambda: labels(ODDS[1]),
        "none": lambda: without(rows),
        "none, other reference": redrawn,
        "none, 100 rows": lambda: without(100),
        **{kind: partial(drift, kind) for kind in ("new", "unit", "shift", "missing")},
    }
    for kind in kinds or made:
        run(kind, made[kind]())
    return {
        "data": data.name,
        "model": f"{fitted.config.backbone}, first {fitted.config.layers} block, quick fit",
        "reference": {"sequences": len(stored.whole.answers), "records": stored.whole.records},
        "rows": rows,
        "fields": {"in_all": len(data.schema.fields), **{kind: len(names) for kind, names in fields.items()}},
        "sizes": {"shift_sd": SHIFT, "other": OTHER, "new": NEW, "missing": MISSING, "odds": ODDS, "factors": FACTORS},
        "positives": {
            "usual": float((pool[1].label_S == positive).mean()),
            **{f"odds times {odds:g}": float(np.mean(shares)) for odds, shares in positives.items() if shares},
        },
        "results": results,
    }


def add(row: dict[str, Any], path: Path) -> None:
    """Put a row into the results, in the place of one of the same data; kinds that were not measured again stay."""
    rows = json.loads(path.read_text())["rows"] if path.is_file() else {}
    before = rows.get(row["data"], {})
    row |= {name: {**before.get(name, {}), **row.get(name, {})} for name in ("results", "positives")}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"rows": {**rows, row["data"]: row}}, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="diabetes130", help="diabetes130 (embedded), or nsl_kdd=FILE")
    parser.add_argument("--model", type=Path, help="folder of the model, fitted where it is not there yet")
    parser.add_argument("--batches", type=int, default=200, help="of each kind")
    parser.add_argument("--rows", type=int, default=1_000, help="rows of a batch")
    parser.add_argument("--kinds", nargs="*", default=[], help="kinds of batches; all when left out")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the results, which this run is added to")
    given = parser.parse_args()
    name, _, path = given.data.partition("=")
    folder = given.model or Path("runs/monitor") / name
    measured = measure(load(name, path or None, folder), given.batches, given.rows, given.kinds)
    command = shlex.join(["python", *sys.argv])
    add({**measured, "machine": {**environment(), "command": command}}, given.json)
