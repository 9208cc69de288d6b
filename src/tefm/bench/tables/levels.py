"""Levels: up to eight numbers per record."""

from __future__ import annotations

from tefm.bench.experiments import Ask, Plan, joined, row, tuned
from tefm.bench.table import Column, Table
from tefm.bench.tables.common import FIDELITY, JUDGED, PREDICTION, RECIPES, TITLES, made_of
from tefm.bench.tables.reconstruction import ceiling, fidelity

ABOUT = f"""More numbers per record keep more of it and cost one token each. C = 128. {JUDGED}"""
COLUMNS = (
    *FIDELITY,
    Column("field_accuracy", "field accuracy", 3, "up"),
    Column("recall", "recall", 3, "up"),
    Column("ceiling", "ceiling", 3, "up"),
    *PREDICTION[:4],
)
LEVELS = (1, 2, 3, 4, 6, 8)


def table(plan: Plan, ask: Ask) -> Table:
    rows = []
    for data in plan.clinical:
        for recipe in RECIPES:
            for levels in plan.few(LEVELS):
                codes = [plan.codes(data, split, recipe, levels=levels, entries=128) for split in plan.splits]
                keys = {"data": TITLES[data], "codes": recipe, "K": str(levels)}
                rows.append(
                    joined(
                        row(keys, codes, ask, fidelity),
                        row(keys, map(plan.ceiling, codes), ask, ceiling),
                        row(keys, map(plan.reading, codes), ask, tuned()),
                    )
                )
    return made_of(plan, "levels", "Numbers per record", ABOUT, ("data", "codes", "K"), COLUMNS, rows)
