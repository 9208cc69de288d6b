"""Prompts: the paper's wording, and as few tokens as possible."""

from __future__ import annotations

from tefm.bench.experiments import Lookup, Setup, row, tuned
from tefm.bench.table import Table
from tefm.bench.tables.common import PREDICTION, PROTOCOL, RECIPES, TITLES, table_of
from tefm.language.prompts import Style

ABOUT = f"""*Full* asks in the paper's words inside the chat template; *compact* asks in one word after the codes.
{PROTOCOL}"""
STYLES: tuple[Style, ...] = ("compact", "full")


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = []
    for data in (*setup.clinical, *setup.flows):
        for recipe in RECIPES:
            codes = [setup.codes(data, split, recipe) for split in setup.splits]
            for style in STYLES:
                keys = {"data": TITLES[data], "codes": recipe, "prompt": style}
                predictions = [setup.prediction(code, setup.tune(data, style=style)) for code in codes]
                rows.append(row(keys, predictions, lookup, tuned()))
    return table_of(setup, "prompts", "Prompts", ABOUT, ("data", "codes", "prompt"), PREDICTION, rows)
