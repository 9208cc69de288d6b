"""Smallest: how few slots give the same answer, how often, and how long it takes to find them."""

from __future__ import annotations

from tefm.bench.experiments import Lookup, Pick, Setup, joined, row
from tefm.bench.measurement import Figures
from tefm.bench.rationales import OURS, QUERYING
from tefm.bench.table import Column, Row, Table
from tefm.bench.tables.common import TITLES, table_of
from tefm.bench.tables.rationalization import measurements

ABOUT = """Features are added in the order of a ranking until the language model, shown only these, gives the same
answer with at least half of the evidence. *Passed* is the share of predictions that get there. The search continues
until the check passes, so every ranking passes for nearly every prediction that has any evidence, even a random one:
compare the number of slots instead. *Default* is the share of predictions that the model also makes for an
empty record; no features are shown for those. *Flips* is how often the answer changes when the rationale is removed.
*Accuracy, values shuffled* uses the same masks on values of other sequences; compare it with *commonest class*.
*Milliseconds* per sequence to rank its slots, all methods in one run on one machine, training not counted; KernelSHAP
and the greedy search ask the language model and were timed on a few sequences."""
COLUMNS = (
    Column("passed", "passed", 3, "up"),
    Column("default", "default", 3),
    Column("slots", "slots (median)", 1, "down"),
    Column("mean_slots", "slots (mean)", 1, "down"),
    Column("comprehensiveness", "comprehensiveness", 3, "up"),
    Column("flips", "flips", 3),
    Column("shuffled", "accuracy, values shuffled", 3),
    Column("commonest", "commonest class", 3),
    Column("milliseconds", "milliseconds", 2, "down"),
)


def _growth(method: str) -> Pick:
    def pick(figures: Figures) -> dict[str, float | None]:
        shuffled = figures["shuffled"] if method == OURS else {}
        return {**figures["growth"].get(method, {}), **{n: shuffled[n] for n in ("shuffled", "commonest") if shuffled}}

    return pick


def _time(method: str) -> Pick:
    return lambda figures: {"milliseconds": figures.get(method)}


def table(setup: Setup, lookup: Lookup) -> Table:
    rows: list[Row] = []
    for data in (*setup.clinical, *setup.flows):
        rationales = measurements(setup, data, compare=True)
        splits = [figures for figures in map(lookup, rationales) if figures is not None]
        methods = list(splits[0]["growth"]) if splits else [OURS]
        costs = [setup.cost(rationales[0])] if data in setup.clinical else []
        for method in (*methods, *(QUERYING if costs else ())):
            keys = {"data": TITLES[data], "method": method}
            growth, time = row(keys, rationales, lookup, _growth(method)), row(keys, costs, lookup, _time(method))
            rows.append(joined(growth, time))
    return table_of(setup, "smallest", "The smallest rationale", ABOUT, ("data", "method"), COLUMNS, rows)
