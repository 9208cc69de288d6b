"""Buckets: how finely numbers are cut."""

from __future__ import annotations

from tefm.bench.experiments import Ask, Plan, joined, row, tuned
from tefm.bench.table import Column, Table
from tefm.bench.tables.common import FIDELITY, JUDGED, PREDICTION, TITLES, made_of
from tefm.bench.tables.reconstruction import ceiling, fidelity
from tefm.bench.tokenizers import Recipe

ABOUT = f"""The paper does not say how many buckets a number has. More buckets are harder to reconstruct exactly, so
slot accuracy falls by itself: compare it with all-mode, and look at the predictions. {JUDGED}"""
COLUMNS = (
    *FIDELITY,
    Column("ceiling", "ceiling", 3, "up"),
    Column("raw", "raw slots", 3),
    *PREDICTION[1:4],
)
EDGES = (3, 5, 10, 20, 40)


def table(plan: Plan, ask: Ask) -> Table:
    rows = []
    for data in (*plan.clinical, *plan.flows):
        recipe: Recipe = "task-aware" if data in plan.clinical else "unsupervised"
        for buckets in plan.few(EDGES):
            codes = [plan.codes(data, split, recipe, buckets) for split in plan.some_splits(data)]
            keys = {"data": TITLES[data], "codes": recipe, "B": str(buckets)}
            lines = [row(keys, codes, ask, fidelity)]
            if data in plan.clinical:
                lines.append(row(keys, map(plan.ceiling, codes), ask, ceiling))
                lines.append(row(keys, map(plan.reading, codes), ask, tuned()))
            rows.append(joined(*lines))
    return made_of(plan, "buckets", "Buckets per number", ABOUT, ("data", "codes", "B"), COLUMNS, rows)
