"""Shapes: K levels of C entries, from reconstruction to prediction."""

from __future__ import annotations

from collections.abc import Mapping

from tefm.bench.experiments import Lookup, Setup, joined, row, tuned
from tefm.bench.measurement import Figures
from tefm.bench.table import Column, Row, Table
from tefm.bench.tables.alignment import quality
from tefm.bench.tables.common import FIDELITY, PREDICTION, PROTOCOL, TITLES, table_of
from tefm.bench.tables.published import SHAPES, SHAPES_ALIGNED, SHAPES_PREDICTED, STANDS_FOR
from tefm.bench.tables.reconstruction import ceiling, fidelity
from tefm.bench.tokenizers import Codes, Recipe

ABOUT = f"""The paper's ablation of K and C. Each line has all three parts: reconstruction, codes written from words
(*aligned*, one split) and prediction. {PROTOCOL} The paper's accuracy and macro F1 are shown next to the unsupervised
codes. *Collisions* is the paper's rate, one minus the distinct codes per test record; records that are equal share a
code and count too. *Utilisation* is the share of a level's entries that test records use, in the worst level. The
lines "as the paper trains" test whether the paper's drop at K3-C512 (82.1 to 73.0) comes from rows that are hardly
trained: plain codes, all 30 blocks, new rows from the mean of the vocabulary, no alignment, 5 epochs at 1e-5."""
COLUMNS = (
    *FIDELITY,
    Column("utilisation", "utilisation", 3, "up"),
    Column("collisions", "collisions", 3, "down"),
    Column("ceiling", "ceiling", 3, "up"),
    Column("aligned", "aligned slot accuracy", 4, "up"),
    Column("aligned_close", "aligned ±1", 4, "up"),
    *PREDICTION[:4],
)
RECIPES: tuple[Recipe, ...] = ("unsupervised", "task-aware")


def _published(stands_for: str, shape: tuple[int, int]) -> Mapping[str, float]:
    names = ("slot_accuracy", "close_accuracy", "nmse", "collisions", "utilisation")
    published = dict(zip(names, SHAPES.get(stands_for, {}).get(shape, ()), strict=False))
    if shape in SHAPES_ALIGNED.get(stands_for, {}):
        published["aligned"], published["aligned_close"] = SHAPES_ALIGNED[stands_for][shape]
    if shape in SHAPES_PREDICTED.get(stands_for, {}):
        published["accuracy"], published["macro_f1"] = SHAPES_PREDICTED[stands_for][shape]
    return published


def _line(setup: Setup, lookup: Lookup, data: str, recipe: Recipe, shape: tuple[int, int]) -> Row:
    levels, entries = shape
    codes = [setup.codes(data, split, recipe, levels=levels, entries=entries) for split in setup.some_splits(data)]
    keys = {"data": TITLES[data], "codes": recipe, "K": str(levels), "C": str(entries)}
    published = _published(STANDS_FOR[data], shape) if recipe == "unsupervised" else None
    lines = [row(keys, codes, lookup, fidelity, published), row(keys, map(setup.prediction, codes), lookup, tuned())]
    if data in setup.clinical:
        lines.append(row(keys, map(setup.ceiling, codes), lookup, ceiling))
    if recipe == "unsupervised":
        aligned = [setup.prediction(code, setup.tune(data), align="default") for code in codes[:1]]
        lines.append(row(keys, aligned, lookup, _aligned))
    return joined(*lines)


def _aligned(figures: Figures) -> dict[str, float | None]:
    measured = quality(figures)
    return {"aligned": measured["slot_accuracy"], "aligned_close": measured["close_accuracy"]}


def _as_the_paper(setup: Setup, lookup: Lookup, data: str, entries: int) -> Row:
    tune = setup.tune(data, style="full", preset="paper")
    codes: list[Codes] = [setup.codes(data, split, "paper", entries=entries) for split in setup.splits]
    keys = {"data": TITLES[data], "codes": "as the paper trains", "K": "3", "C": str(entries)}
    predictions = [setup.prediction(code, tune, whole=True, start="mean") for code in codes]
    return joined(row(keys, codes, lookup, fidelity), row(keys, predictions, lookup, tuned()))


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = []
    for data in (*setup.clinical, *setup.flows):
        shapes = setup.few(tuple(SHAPES[STANDS_FOR[data]]))
        recipes = RECIPES if data in setup.clinical else RECIPES[:1]
        rows += [_line(setup, lookup, data, recipe, shape) for recipe in recipes for shape in shapes]
    for data in setup.clinical:
        rows += [_as_the_paper(setup, lookup, data, entries) for entries in setup.few((64, 128, 256, 512))]
    return table_of(setup, "shapes", "Shapes: K levels of C entries", ABOUT, ("data", "codes", "K", "C"), COLUMNS, rows)
