"""Prompts: the paper's wording, and as few tokens as can be."""

from __future__ import annotations

from tefm.bench.experiments import Ask, Plan, row, tuned
from tefm.bench.table import Table
from tefm.bench.tables.common import JUDGED, PREDICTION, RECIPES, TITLES, made_of
from tefm.language.prompts import Style

ABOUT = f"""*Full* asks in the paper's words inside the chat template; *compact* asks in one word after the codes.
{JUDGED}"""
STYLES: tuple[Style, ...] = ("compact", "full")


def table(plan: Plan, ask: Ask) -> Table:
    rows = []
    for data in (*plan.clinical, *plan.flows):
        for recipe in RECIPES:
            codes = [plan.codes(data, split, recipe) for split in plan.splits]
            for style in STYLES:
                keys = {"data": TITLES[data], "codes": recipe, "prompt": style}
                asked = [plan.reading(code, plan.tune(data, style=style)) for code in codes]
                rows.append(row(keys, asked, ask, tuned()))
    return made_of(plan, "prompts", "Prompts", ABOUT, ("data", "codes", "prompt"), PREDICTION, rows)
