"""Learning curve: how many labelled sequences it takes."""

from __future__ import annotations

from tefm.bench.experiments import Ask, Plan, row, tuned
from tefm.bench.table import Table
from tefm.bench.tables.alignment import CURVE, aligned
from tefm.bench.tables.common import JUDGED, PREDICTION, RECIPES, TITLES, made_of

ABOUT = f"""Fine-tuning (stage 3) on a subset of the training sequences. The codes were still learned from the
records of all training sequences, and task-aware codes from all their labels. {JUDGED}"""


def table(plan: Plan, ask: Ask) -> Table:
    rows = []
    counts = plan.few(tuple(reversed(CURVE)))
    for data in (name for name in plan.data if name == "diabetes130"):
        for recipe in RECIPES:
            tunes = [plan.tune(data, sequences=count, seed=None if count is None else 1) for count in counts]
            plain = [plan.reading(plan.codes(data, split, recipe), *tunes) for split in plan.splits]
            after = [aligned(plan, data, split, recipe, "default") for split in plan.splits]
            for words, asked in (("not aligned", plain), ("aligned first", after)):
                for number, count in reversed(list(enumerate(counts))):
                    keys = {"data": TITLES[data], "codes": recipe, "model": words}
                    keys["sequences"] = "all" if count is None else f"{count:,}"
                    rows.append(row(keys, asked, ask, tuned(number)))
    return made_of(
        plan, "curve", "Few labelled sequences", ABOUT, ("data", "codes", "model", "sequences"), PREDICTION, rows
    )
