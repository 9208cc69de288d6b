"""Levels: one to eight numbers per record."""

from __future__ import annotations

from tefm.bench.experiments import Lookup, Setup, joined, row, tuned
from tefm.bench.table import Column, Table
from tefm.bench.tables.common import FIDELITY, PREDICTION, PROTOCOL, RECIPES, TITLES, table_of
from tefm.bench.tables.reconstruction import ceiling, fidelity

ABOUT = f"""More numbers per record keep more of it and cost one token each. C = 128. {PROTOCOL}"""
COLUMNS = (
    *FIDELITY,
    Column("field_accuracy", "field accuracy", 3, "up"),
    Column("recall", "recall", 3, "up"),
    Column("ceiling", "ceiling", 3, "up"),
    *PREDICTION[:4],
)
LEVELS = (1, 2, 3, 4, 6, 8)


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = []
    for data in setup.clinical:
        for recipe in RECIPES:
            for levels in setup.few(LEVELS):
                codes = [setup.codes(data, split, recipe, levels=levels, entries=128) for split in setup.splits]
                keys = {"data": TITLES[data], "codes": recipe, "K": str(levels)}
                rows.append(
                    joined(
                        row(keys, codes, lookup, fidelity),
                        row(keys, map(setup.ceiling, codes), lookup, ceiling),
                        row(keys, map(setup.prediction, codes), lookup, tuned()),
                    )
                )
    return table_of(setup, "levels", "Numbers per record", ABOUT, ("data", "codes", "K"), COLUMNS, rows)
