"""User tables with trees beside the language model: `beside: trees`."""

from __future__ import annotations

from collections.abc import Iterator

from tefm.bench.experiments import Lookup, Setup
from tefm.bench.table import Column, Table
from tefm.bench.table_runs import LANGUAGE, MOST, TOGETHER, TREES
from tefm.bench.tables.common import table_of
from tefm.bench.tables.users import COLUMNS, LIGHTGBM, NOTES, QUICK, Line, rows_of

ABOUT = f"""What `beside: trees` brings on the tables of `tefm bench tables`, with the same sequences in the same parts:
boosted trees that read the fields answer beside the language model, with one line more in the task file. *Together* is
that model. *Language model alone* is the same fit without its trees, which is what `tefm fit` gives by default, and
*trees alone* is what they answer by themselves; both are calibrated on the validation part, as all models are. Trees
have one setting for every table. The share of the language model in the answers is the one with the smallest loss on
the validation part. LightGBM chooses among six settings, between the last record and the history, and between slots and
raw values, on the validation part. *Ahead of LightGBM* is the difference on the same test sequences, on average over
the seeds, with a 95% interval from a paired bootstrap over test sequences. Tables with more than {MOST:,} sequences are
sampled to {MOST:,}, unless `--whole` was given. The last lines are the mean and the spread over the tables, whose
number is in the column *splits*.

{NOTES}"""
TITLES = {TOGETHER: "together", LANGUAGE: "language model alone", TREES: "trees alone"}


def _lines(setup: Setup, table: str) -> Iterator[Line]:
    if setup.quick and table not in QUICK:
        return
    runs = [setup.beside_run(table, seed) for seed in setup.seeds]
    yield from ((title, method, runs) for method, title in TITLES.items())
    yield LIGHTGBM, "lightgbm", [setup.baseline_run(table, seed, "lightgbm") for seed in setup.seeds]


def table(setup: Setup, lookup: Lookup) -> Table:
    columns = (*COLUMNS, Column("share", "language model's share", 2))
    rows = rows_of(setup, lookup, _lines)
    return table_of(setup, "beside", "Trees beside the language model", ABOUT, ("table", "method"), columns, rows)
