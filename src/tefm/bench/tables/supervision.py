"""Supervision: codes that saw a label, and codes that saw none, on that task and on another."""

from __future__ import annotations

from tefm.bench.experiments import Ask, Plan, row, tuned
from tefm.bench.table import Table
from tefm.bench.tables.common import JUDGED, PREDICTION, RECIPES, TITLES, made_of
from tefm.bench.tables.prediction import baseline

ABOUT = f"""Task-aware codes saw which training patients died. What does that cost on a question they were not made
for: is the patient readmitted within 30 days? {JUDGED} With `masked_copies: 1` (the default), the model also learns
from copies with a random part kept, in the same number of steps; the check of rationales needs it. Splits are drawn
from the same patients: of the deaths in each test part of splits 20 to 25, 24% to 33% are in a test part of splits 10
to 12. The validation parts of splits 20 and 21 were used to choose the features of the baselines."""


def table(plan: Plan, ask: Ask) -> Table:
    rows = []
    for data in (name for name in plan.data if name == "diabetes130"):
        for task, copies in (("mortality", 1), ("mortality", 0), ("readmission", 0)):
            for recipe in RECIPES:
                codes = [plan.codes(data, split, recipe) for split in plan.splits]
                tunes = () if copies else (plan.tune(data, task=None if task == "mortality" else task),)
                keys = {"data": TITLES[data], "task": task, "model": f"{recipe} codes, masked copies {copies}"}
                rows.append(row(keys, [plan.reading(code, *tunes) for code in codes], ask, tuned()))
            if copies:
                continue
            asked = [plan.baseline(data, split, "lightgbm", task) for split in plan.splits]
            rows.append(row({"data": TITLES[data], "task": task, "model": "LightGBM on slots"}, asked, ask, baseline))
    return made_of(
        plan, "supervision", "Codes with and without the label", ABOUT, ("data", "task", "model"), PREDICTION, rows
    )
