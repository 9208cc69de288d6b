"""Learning curve: how many labelled sequences it takes."""

from __future__ import annotations

from tefm.bench.data import DIABETES
from tefm.bench.experiments import Lookup, Setup, row, tuned
from tefm.bench.table import Table
from tefm.bench.tables.alignment import CURVE, aligned
from tefm.bench.tables.common import PREDICTION, PROTOCOL, RECIPES, TITLES, table_of

ABOUT = f"""Fine-tuning (stage 3) on a subset of the training sequences. The codes were still learned from the
records of all training sequences, and task-aware codes from all their labels. {PROTOCOL}"""


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = []
    counts = setup.few(tuple(reversed(CURVE)))
    for data in (name for name in setup.data if name in DIABETES):
        for recipe in RECIPES:
            tunes = [setup.tune(data, sequences=count, seed=None if count is None else 1) for count in counts]
            plain = [setup.prediction(setup.codes(data, split, recipe), *tunes) for split in setup.splits]
            after = [aligned(setup, data, split, recipe, "default") for split in setup.splits]
            for title, predictions in (("not aligned", plain), ("aligned first", after)):
                for number, count in reversed(list(enumerate(counts))):
                    keys = {"data": TITLES[data], "codes": recipe, "model": title}
                    keys["sequences"] = "all" if count is None else f"{count:,}"
                    rows.append(row(keys, predictions, lookup, tuned(number)))
    return table_of(
        setup, "curve", "Few labelled sequences", ABOUT, ("data", "codes", "model", "sequences"), PREDICTION, rows
    )
