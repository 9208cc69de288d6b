"""Supervision: codes learned with and without the label, on that task and on another."""

from __future__ import annotations

from tefm.bench.data import DIABETES
from tefm.bench.experiments import Lookup, Setup, row, tuned
from tefm.bench.table import Table
from tefm.bench.tables.common import PREDICTION, PROTOCOL, RECIPES, TITLES, table_of
from tefm.bench.tables.prediction import baseline

ABOUT = f"""Task-aware codes saw which training patients died. What does that cost on a question they were not made
for: is the patient readmitted within 30 days? {PROTOCOL} With `masked_copies: 1` (the default), the model also learns
from copies with a random part kept, in the same number of steps; the check of rationales needs it. Splits are drawn
from the same patients: of the deaths in each test part of splits 20 to 25, 24% to 33% are in a test part of splits 10
to 12. The validation parts of splits 20 and 21 were used to choose the features of the baselines."""


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = []
    for data in (name for name in setup.data if name in DIABETES):
        for task, copies in (("mortality", 1), ("mortality", 0), ("readmission", 0)):
            for recipe in RECIPES:
                codes = [setup.codes(data, split, recipe) for split in setup.splits]
                tunes = () if copies else (setup.tune(data, task=None if task == "mortality" else task),)
                keys = {"data": TITLES[data], "task": task, "model": f"{recipe} codes, masked copies {copies}"}
                rows.append(row(keys, [setup.prediction(code, *tunes) for code in codes], lookup, tuned()))
            if copies:
                continue
            baselines = [setup.baseline(data, split, "lightgbm", task) for split in setup.splits]
            rows.append(
                row({"data": TITLES[data], "task": task, "model": "LightGBM on slots"}, baselines, lookup, baseline)
            )
    return table_of(
        setup, "supervision", "Codes with and without the label", ABOUT, ("data", "task", "model"), PREDICTION, rows
    )
