"""User tables: what `tefm fit` scores on tables that nobody tuned it for, compared with LightGBM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tefm.bench.experiments import Lookup, Pick, Setup, joined, row, scores
from tefm.bench.measurement import Figures
from tefm.bench.table import Column, Figure, Row, Table
from tefm.bench.table_runs import (
    CEILING,
    FUSED,
    HEAD,
    MOST,
    OURS,
    TOGETHER,
    BaselineRun,
    BesideRun,
    Difference,
    FusedRun,
    ModelRun,
)
from tefm.bench.tables.common import table_of
from tefm.bench.user_tables import USER_TABLES

NOTES = "\n".join(
    f"- **{table.title}:** {table.note}{'' if table.note.endswith('?') else '.'}" for table in USER_TABLES.values()
)
ABOUT = f"""What a user gets who writes the shortest task file. Each table goes through the code of `tefm fit` with
its defaults, without explanations. No setting is chosen per table; the defaults themselves were chosen on the
validation part of another split (seed 0) of UNSW-NB15, NSL-KDD, Adult, BPIC 2012 and Diabetes130. All methods have
the same sequences in the same parts. A seed draws the sample, the split and the model; figures are the mean ± sample
standard deviation (n − 1) over the seeds. Tables with more than {MOST:,} sequences are sampled to {MOST:,}, unless
`--whole` was given. AUROC is that of the positive class; with several classes, the mean of one against the rest.
*Ahead of LightGBM* is the difference to LightGBM on the same test sequences, on average over the seeds, with a 95%
interval from a paired bootstrap over test sequences; a sequence that several seeds test is drawn for all of them
together. *LightGBM on codes* is the code ceiling: LightGBM reads the quantised codes. The *label head* is the linear
layer that task-aware codes are trained with; a logistic regression on its outputs makes them probabilities. *TEFM and
LightGBM* is the geometric mean of both models' probabilities. Tabular models learn from all labelled training
sequences; each chooses among six settings, between the last record and the history, and (trees) between slots and raw
values, on the validation part. The last lines are the mean and the spread over the tables, whose number is in the
column *splits*.

{NOTES}"""
METRICS = {"auroc": "AUROC", "accuracy": "accuracy", "macro_f1": "macro F1"}


def score_columns(ahead: str) -> Iterator[Column]:
    """The scores, and how far each is ahead of a reference, with its interval; `ahead` is the title of that."""
    yield from (Column(name, title, 3, "up") for name, title in METRICS.items())
    for name, title in METRICS.items():
        yield Column(f"{name}_ahead", f"{ahead} ({title})", 3)
        yield Column(f"{name}_low", "from", 3)
        yield Column(f"{name}_high", "to", 3)


COLUMNS = (*score_columns("ahead of LightGBM"), Column("tokens", "tokens", 1, "down"))
LIGHTGBM = "LightGBM"
#: The methods that are our whole model.
WHOLE = (OURS, TOGETHER)
#: The lines of each table: the name of the method in its run, the title, and how the run is made.
MODELS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (OURS, "TEFM", {}),
    (OURS, "TEFM, unsupervised codes", {"task_aware": False}),
    (CEILING, "LightGBM on codes", {}),
    (CEILING, "LightGBM on unsupervised codes", {"task_aware": False}),
    (HEAD, "label head alone", {}),
)
BASELINES = {
    "lightgbm": LIGHTGBM,
    "xgboost": "XGBoost",
    "logistic": "logistic regression",
    "majority": "majority class",
}
#: The tables that have all lines in a quick run; the others have those that are fast.
QUICK = ("nsl_kdd", "adult")
Runs = Sequence[ModelRun | BesideRun | BaselineRun | FusedRun]
#: The title of a line, the name of the method in its runs, and one run per seed.
Line = tuple[str, str, Runs]


def lines_of(setup: Setup, table: str, *, sample: bool = True) -> Iterator[Line]:
    """Every line of a table."""
    small = setup.quick and table not in QUICK
    for method, title, settings in MODELS:
        if small and settings:
            continue
        yield title, method, [setup.model_run(table, seed, sample=sample, **settings) for seed in setup.seeds]
    for model, title in BASELINES.items():
        if small and model == "xgboost":
            continue
        yield title, model, [setup.baseline_run(table, seed, model, sample=sample) for seed in setup.seeds]
    yield (
        "TEFM and LightGBM",
        FUSED,
        [
            FusedRun(
                runs=(
                    setup.model_run(table, seed, sample=sample),
                    setup.baseline_run(table, seed, "lightgbm", sample=sample),
                )
            )
            for seed in setup.seeds
        ],
    )


def _scores(method: str, test: str) -> Pick:
    def pick(figures: Figures) -> dict[str, float | None]:
        chosen = scores(figures["methods"][method][test], "scores")
        values = {name: chosen[name] for name in METRICS}
        return {
            **values,
            **{name: figures[name] for name in ("tokens", "share") if method in WHOLE and name in figures},
        }

    return pick


def ahead(figures: Figures) -> dict[str, float | None]:
    """The differences to LightGBM, with their intervals."""
    parts = (("ahead", "value"), ("low", "low"), ("high", "high"))
    return {f"{name}_{part}": figures[name][bound] for name in METRICS for part, bound in parts}


def rows_of(setup: Setup, lookup: Lookup, lines_of: Callable[[Setup, str], Iterable[Line]]) -> list[Row]:
    """The lines of every user table, and their mean difference to LightGBM over the tables."""
    names = [name for name in USER_TABLES if not setup.only or name in setup.only]
    rows = [line for name in names for line in _rows(setup, lookup, name, list(lines_of(setup, name)))]
    return [*rows, *_mean_rows(rows)]


def _rows(setup: Setup, lookup: Lookup, name: str, lines: Sequence[Line]) -> Iterator[Row]:
    """Every line of a table, on its own test and on the other one."""
    table = USER_TABLES[name]
    reference = tuple(setup.baseline_run(name, seed, "lightgbm") for seed in setup.seeds)
    tests = {"test": table.title} | ({"other": table.other_title} if table.other else {})
    for test, title in tests.items():
        for line, method, runs in lines:
            keys = {"table": title, "method": line}
            rows = [row(keys, runs, lookup, _scores(method, test))]
            if line != LIGHTGBM:
                difference = Difference(runs=tuple(runs), method=method, reference_runs=reference, test=test)
                rows.append(row(keys, [difference], lookup, ahead))
            yield joined(*rows)


def _mean_rows(rows: Sequence[Row]) -> Iterator[Row]:
    """The mean difference to LightGBM over the tables, for every line."""
    for line in dict.fromkeys(r.keys["method"] for r in rows):
        figures = {}
        for name in METRICS:
            column = f"{name}_ahead"
            values = [r.figures[column].mean for r in rows if r.keys["method"] == line and column in r.figures]
            if values:
                figures[column] = Figure(tuple(values))
        yield Row({"table": "mean over the tables", "method": line}, figures)


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = rows_of(setup, lookup, lines_of)
    return table_of(setup, "tables", "User tables", ABOUT, ("table", "method"), COLUMNS, rows)
