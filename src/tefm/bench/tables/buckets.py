"""Buckets per number."""

from __future__ import annotations

from tefm.bench.experiments import Lookup, Setup, joined, row, tuned
from tefm.bench.table import Column, Table
from tefm.bench.tables.common import FIDELITY, PREDICTION, PROTOCOL, TITLES, table_of
from tefm.bench.tables.reconstruction import ceiling, fidelity
from tefm.bench.tokenizers import Recipe

ABOUT = f"""The paper does not say how many buckets a number has. More buckets are harder to reconstruct exactly, so
slot accuracy falls by itself: compare it with all-mode, and look at the predictions. {PROTOCOL}"""
COLUMNS = (
    *FIDELITY,
    Column("ceiling", "ceiling", 3, "up"),
    Column("raw", "raw slots", 3),
    *PREDICTION[1:4],
)
EDGES = (3, 5, 10, 20, 40)


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = []
    for data in (*setup.clinical, *setup.flows):
        recipe: Recipe = "task-aware" if data in setup.clinical else "unsupervised"
        for buckets in setup.few(EDGES):
            codes = [setup.codes(data, split, recipe, buckets) for split in setup.some_splits(data)]
            keys = {"data": TITLES[data], "codes": recipe, "B": str(buckets)}
            lines = [row(keys, codes, lookup, fidelity)]
            if data in setup.clinical:
                lines.append(row(keys, map(setup.ceiling, codes), lookup, ceiling))
                lines.append(row(keys, map(setup.prediction, codes), lookup, tuned()))
            rows.append(joined(*lines))
    return table_of(setup, "buckets", "Buckets per number", ABOUT, ("data", "codes", "B"), COLUMNS, rows)
