"""Alignment: codes written from words."""

from __future__ import annotations

from typing import Literal

from tefm.bench.data import DIABETES
from tefm.bench.experiments import Lookup, Setup, row
from tefm.bench.measurement import Figures
from tefm.bench.predictions import Prediction, Tune
from tefm.bench.table import Column, Table
from tefm.bench.tables.common import SHAPE, TITLES, table_of
from tefm.bench.tables.published import ALIGNMENT, STANDS_FOR
from tefm.bench.tokenizers import Recipe

ABOUT = f"""Stage 2. The language model reads a test record in words and writes its {SHAPE} code, one level after
another (beam 4). The code is then decoded. *Slot accuracy* compares the decoded record with the original one; *upper
bound* is the slot accuracy of the record's own code, *all-mode* that of always guessing the most common value.
*Exact* is the share of codes written correctly, level by level. *Loss of the words* is the loss on a description
that follows the record's own code, *behind another code* the loss when it follows another record's code: the
difference is what the words take from the code. The paper's setting trains only the new rows, at 1e-3, for 3
epochs; on our codes the language model has six blocks, in the paper's whole recipe (its codes too) all of them."""
COLUMNS = (
    Column("slot_accuracy", "slot accuracy", 4, "up"),
    Column("close_accuracy", "±1", 4, "up"),
    Column("upper", "upper bound", 4),
    Column("mode", "all-mode", 4),
    Column("exact_a", "exact a", 3, "up"),
    Column("exact_b", "exact b", 3, "up"),
    Column("exact_c", "exact c", 3, "up"),
    Column("true", "loss of the words", 3, "down"),
    Column("other", "behind another code", 3),
)
#: Training sequences of the learning curve; None takes all.
CURVE = (100, 300, 1_000, None)
SETTINGS: tuple[tuple[Recipe, Literal["default", "paper"]], ...] = (
    ("unsupervised", "default"),
    ("unsupervised", "paper"),
    ("task-aware", "default"),
)


def aligned(setup: Setup, data: str, split: int, recipe: Recipe, align: Literal["default", "paper"]) -> Prediction:
    """A model aligned once, and fine-tuned from there in all the ways that tables need."""
    tunes: tuple[Tune, ...] = (setup.tune(data),)
    if data in DIABETES:
        tunes = tuple(setup.tune(data, sequences=count, seed=None if count is None else 1) for count in reversed(CURVE))
        tunes = (*setup.few(tunes), *([setup.tune(data, task="readmission")] if align == "default" else []))
    return setup.prediction(setup.codes(data, split, recipe), *tunes, align=align)


def quality(figures: Figures) -> dict[str, float | None]:
    """How well codes and words were aligned."""
    alignment = figures["alignment"]
    exact = dict(zip(("exact_a", "exact_b", "exact_c"), alignment["exact"], strict=False))
    return {
        "slot_accuracy": alignment["slot_accuracy"],
        "close_accuracy": alignment["close_accuracy"],
        "upper": alignment["upper_slot_accuracy"],
        "mode": alignment["mode_slot_accuracy"],
        "true": alignment["true_loss"],
        "other": alignment["shuffled_loss"],
        **exact,
    }


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = []
    for data in (*setup.clinical, *setup.flows):
        for recipe, align in SETTINGS[: 2 if data in setup.flows else None]:
            # the paper's setting takes long and does not work on a small backbone: one split shows it
            splits = setup.some_splits(data) if align == "default" else setup.splits[:1]
            predictions = [aligned(setup, data, split, recipe, align) for split in splits]
            keys = {"data": TITLES[data], "codes": recipe, "setting": "the paper's" if align == "paper" else "ours"}
            rows.append(row(keys, predictions, lookup, quality))
        keys = {"data": TITLES[data], "codes": "the paper's", "setting": "the paper's whole recipe"}
        papers = [setup.papers(data, split) for split in setup.splits]
        rows.append(row(keys, papers, lookup, quality, ALIGNMENT.get(STANDS_FOR[data])))
    return table_of(setup, "alignment", "Aligning codes and words", ABOUT, ("data", "codes", "setting"), COLUMNS, rows)
