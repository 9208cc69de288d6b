"""Pretraining ablation: does aligning codes with words first help?"""

from __future__ import annotations

from tefm.bench.experiments import Ask, Plan, row, tuned
from tefm.bench.table import Table
from tefm.bench.tables.alignment import aligned
from tefm.bench.tables.common import JUDGED, PREDICTION, TITLES, made_of
from tefm.bench.tables.published import PRETRAINING, STANDS_FOR
from tefm.bench.tokenizers import Recipe

ABOUT = f"""The same fine-tuning, starting from an aligned model and from one that was not aligned. {JUDGED} The
paper's figures are shown next to the unsupervised codes, which are its setting. For flows, they repeat the paper's
rows for C64 and C128, so they show no effect of alignment."""


def table(plan: Plan, ask: Ask) -> Table:
    rows = []
    for data in (*plan.clinical, *plan.flows):
        recipes: tuple[Recipe, ...] = ("unsupervised",) if data in plan.flows else ("unsupervised", "task-aware")
        for recipe in recipes:
            paper = PRETRAINING[STANDS_FOR[data]] if recipe == "unsupervised" else None
            splits = plan.some_splits(data)
            plain = [plan.reading(plan.codes(data, split, recipe), plan.tune(data)) for split in splits]
            after = [aligned(plan, data, split, recipe, "default") for split in splits]
            for number, (words, asked) in enumerate((("aligned first", after), ("not aligned", plain))):
                keys = {"data": TITLES[data], "codes": recipe, "model": words}
                rows.append(row(keys, asked, ask, tuned(), {"accuracy": paper[number]} if paper else None))
    return made_of(plan, "pretraining", "Alignment before tuning", ABOUT, ("data", "codes", "model"), PREDICTION, rows)
