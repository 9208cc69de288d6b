"""Pretraining ablation: does aligning codes with words first help?"""

from __future__ import annotations

from tefm.bench.experiments import Lookup, Setup, row, tuned
from tefm.bench.table import Table
from tefm.bench.tables.alignment import aligned
from tefm.bench.tables.common import PREDICTION, PROTOCOL, TITLES, table_of
from tefm.bench.tables.published import PRETRAINING, STANDS_FOR
from tefm.bench.tokenizers import Recipe

ABOUT = f"""The same fine-tuning, starting from an aligned model and from one that was not aligned. {PROTOCOL} The
paper's figures are shown next to the unsupervised codes, which are its setting. For flows, they repeat the paper's
rows for C64 and C128, so they show no effect of alignment."""


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = []
    for data in (*setup.clinical, *setup.flows):
        recipes: tuple[Recipe, ...] = ("unsupervised",) if data in setup.flows else ("unsupervised", "task-aware")
        for recipe in recipes:
            paper = PRETRAINING[STANDS_FOR[data]] if recipe == "unsupervised" else None
            splits = setup.some_splits(data)
            plain = [setup.prediction(setup.codes(data, split, recipe), setup.tune(data)) for split in splits]
            after = [aligned(setup, data, split, recipe, "default") for split in splits]
            for number, (title, predictions) in enumerate((("aligned first", after), ("not aligned", plain))):
                keys = {"data": TITLES[data], "codes": recipe, "model": title}
                rows.append(row(keys, predictions, lookup, tuned(), {"accuracy": paper[number]} if paper else None))
    return table_of(
        setup, "pretraining", "Alignment before tuning", ABOUT, ("data", "codes", "model"), PREDICTION, rows
    )
