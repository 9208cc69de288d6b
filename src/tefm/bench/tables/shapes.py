"""Shapes: K levels of C entries, from what comes back to what is predicted."""

from __future__ import annotations

from collections.abc import Mapping

from tefm.bench.experiments import Ask, Plan, joined, row, tuned
from tefm.bench.table import Column, Row, Table
from tefm.bench.tables.alignment import quality
from tefm.bench.tables.common import FIDELITY, JUDGED, PREDICTION, TITLES, made_of
from tefm.bench.tables.published import SHAPES, SHAPES_ALIGNED, SHAPES_PREDICTED, STANDS_FOR
from tefm.bench.tables.reconstruction import ceiling, fidelity
from tefm.bench.tokenizers import Codes, Recipe

ABOUT = f"""The paper's ablation of K and C. Each line has all three parts: reconstruction, codes written from words
(*aligned*, one split) and prediction. {JUDGED} The paper's accuracy and macro F1 are shown next to the unsupervised
codes. *Collisions* is the share of test records whose code also belongs to a different record. The lines "as the paper
trains" test whether the paper's drop at K3-C512 (82.1 to 73.0) comes from rows that are hardly trained: plain codes,
all 30 blocks, new rows from the mean of the vocabulary, no alignment, 5 epochs at 1e-5."""
COLUMNS = (
    *FIDELITY,
    Column("utilisation", "utilisation", 3, "up"),
    Column("collisions", "collisions", 3, "down"),
    Column("ceiling", "ceiling", 3, "up"),
    Column("aligned", "aligned slot accuracy", 4, "up"),
    *PREDICTION[:4],
)
RECIPES: tuple[Recipe, ...] = ("unsupervised", "task-aware")


def _published(stands_for: str, shape: tuple[int, int]) -> Mapping[str, float]:
    kept = SHAPES.get(stands_for, {}).get(shape, ())
    names = ("slot_accuracy", "close_accuracy", "nmse", "collisions", "utilisation")
    found = dict(zip(names, kept, strict=False))
    if shape in SHAPES_ALIGNED.get(stands_for, {}):
        found["aligned"] = SHAPES_ALIGNED[stands_for][shape]
    if shape in SHAPES_PREDICTED.get(stands_for, {}):
        found["accuracy"], found["macro_f1"] = SHAPES_PREDICTED[stands_for][shape]
    return found


def _line(plan: Plan, ask: Ask, data: str, recipe: Recipe, shape: tuple[int, int]) -> Row:
    levels, entries = shape
    codes = [plan.codes(data, split, recipe, levels=levels, entries=entries) for split in plan.some_splits(data)]
    keys = {"data": TITLES[data], "codes": recipe, "K": str(levels), "C": str(entries)}
    published = _published(STANDS_FOR[data], shape) if recipe == "unsupervised" else None
    lines = [row(keys, codes, ask, fidelity, published), row(keys, map(plan.reading, codes), ask, tuned())]
    if data in plan.clinical:
        lines.append(row(keys, map(plan.ceiling, codes), ask, ceiling))
    if recipe == "unsupervised" and data in plan.clinical:
        aligned = [plan.reading(code, plan.tune(data), align="default") for code in codes[:1]]
        lines.append(row(keys, aligned, ask, lambda found: {"aligned": quality(found)["slot_accuracy"]}))
    return joined(*lines)


def _as_the_paper(plan: Plan, ask: Ask, data: str, entries: int) -> Row:
    tune = plan.tune(data, style="full", preset="paper")
    codes: list[Codes] = [plan.codes(data, split, "paper", entries=entries) for split in plan.splits]
    keys = {"data": TITLES[data], "codes": "as the paper trains", "K": "3", "C": str(entries)}
    asked = [plan.reading(code, tune, whole=True, start="mean") for code in codes]
    return joined(row(keys, codes, ask, fidelity), row(keys, asked, ask, tuned()))


def table(plan: Plan, ask: Ask) -> Table:
    rows = []
    for data in (*plan.clinical, *plan.flows):
        shapes = plan.few(tuple(SHAPES[STANDS_FOR[data]]))
        recipes = RECIPES if data in plan.clinical else RECIPES[:1]
        rows += [_line(plan, ask, data, recipe, shape) for recipe in recipes for shape in shapes]
    for data in plan.clinical:
        rows += [_as_the_paper(plan, ask, data, entries) for entries in plan.few((64, 128, 256, 512))]
    return made_of(plan, "shapes", "Shapes: K levels of C entries", ABOUT, ("data", "codes", "K", "C"), COLUMNS, rows)
