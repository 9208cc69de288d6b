"""Hierarchy: records that share more of a code are more alike."""

from __future__ import annotations

from tefm.bench.experiments import Lookup, Pick, Setup, row
from tefm.bench.measurement import Figures
from tefm.bench.table import Column, Table
from tefm.bench.tables.common import SHAPE, TITLES, recipe_title, table_of
from tefm.bench.tables.published import HIERARCHY, STANDS_FOR
from tefm.bench.tables.reconstruction import RECIPES

ABOUT = f"""Euclidean distance between two test records (slots scaled to [0, 1]) that share the first one, two or three
numbers of their {SHAPE} code (*intra*) and between two that do not (*inter*), over up to 5,000 pairs each, with the
standard deviation over the pairs, as the paper prints it; ± is over the splits. The smaller the ratio, the more alike
are records with the same prefix. Distances depend on the number of slots and their scale, so only the ratios compare
with the paper's."""
COLUMNS = (
    Column("intra", "intra distance", 3, "down"),
    Column("intra_sd", "SD of intra pairs", 3),
    Column("inter", "inter distance", 3),
    Column("inter_sd", "SD of inter pairs", 3),
    Column("ratio", "ratio", 3, "down"),
)
PREFIXES = ("a", "a+b", "a+b+c")


def _prefix(level: int) -> Pick:
    def pick(figures: Figures) -> dict[str, float | None]:
        distances = figures["hierarchy"][level]
        return {
            "intra": distances["intra_mean"],
            "intra_sd": distances["intra_std"],
            "inter": distances["inter_mean"],
            "inter_sd": distances["inter_std"],
            "ratio": distances["ratio"],
        }

    return pick


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = []
    for data in (*setup.clinical, *setup.flows):
        for recipe in RECIPES:
            codes = [setup.codes(data, split, recipe) for split in setup.splits]
            for level, prefix in enumerate(PREFIXES):
                keys = {"data": TITLES[data], "codes": recipe_title(recipe)}
                paper = HIERARCHY[level] if recipe == "paper" and STANDS_FOR.get(data) == "clinical" else None
                rows.append(row({**keys, "prefix": prefix}, codes, lookup, _prefix(level), paper))
    return table_of(setup, "hierarchy", "Codes as a hierarchy", ABOUT, ("data", "codes", "prefix"), COLUMNS, rows)
