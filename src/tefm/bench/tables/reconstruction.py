"""Reconstruction of records from codes."""

from __future__ import annotations

from tefm.bench.data import CLINICAL
from tefm.bench.experiments import Lookup, Setup, joined, row
from tefm.bench.measurement import Figures
from tefm.bench.table import Column, Table
from tefm.bench.tables.common import FIDELITY, SHAPE, TITLES, recipe_title, table_of
from tefm.bench.tables.published import RECONSTRUCTION, STANDS_FOR
from tefm.bench.tokenizers import Recipe

ABOUT = f"""What the decoder reconstructs from the {SHAPE} codes of test records. *Slot accuracy* (the paper's "slot
AUC") is the share of slots reconstructed exactly, *all-mode* the same for always guessing the most common value. *±1*
also accepts the neighbouring bucket. *NMSE* is the squared error of slots scaled to [0, 1], where a wrong category
counts as 1. *Field accuracy* leaves out the flags of sets; *recall* and *precision* are those of the values present in
sets. *Utilisation* is the share of a level's entries that test records use, in the worst level. *Ceiling* is the AUROC
of LightGBM on the quantised latent of each sequence's last record, *raw slots* the same on the uncompressed record.
Task-aware codes were trained on a teacher that saw the labels of the training part, so they carry part of the
answer."""
COLUMNS = (
    *FIDELITY,
    Column("field_accuracy", "field accuracy", 3, "up"),
    Column("recall", "recall", 3, "up"),
    Column("precision", "precision", 3, "up"),
    Column("utilisation", "utilisation", 3, "up"),
    Column("unique", "distinct codes per record", 3),
    Column("ceiling", "ceiling", 3, "up"),
    Column("raw", "raw slots", 3),
)
RECIPES: tuple[Recipe, ...] = ("paper", "unsupervised", "task-aware")


def fidelity(figures: Figures) -> dict[str, float | None]:
    """The figures of a tokenizer."""
    collisions = figures["collisions"]
    return {
        **{name: figures["test"][name] for name in ("slot_accuracy", "mode_slot_accuracy", "close_accuracy", "nmse")},
        **{name: figures["test"][name] for name in ("field_accuracy", "recall", "precision")},
        "utilisation": min((level["utilisation"] for level in figures.get("test_use", ())), default=None),
        "collisions": collisions["collision_rate"],
        "unique": collisions["distinct_codes"] / collisions["records"],
    }


def ceiling(figures: Figures) -> dict[str, float | None]:
    """AUROC of LightGBM on codes and on raw slots."""
    return {"ceiling": figures["codes"]["auroc"], "raw": figures["raw"]["auroc"]}


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = []
    for data in (*setup.clinical, *setup.flows):
        for recipe in RECIPES:
            codes = [setup.codes(data, split, recipe) for split in setup.splits]
            keys = {"data": TITLES[data], "codes": recipe_title(recipe)}
            paper = RECONSTRUCTION.get(STANDS_FOR.get(data, "")) if recipe == "paper" else None
            line = row(keys, codes, lookup, fidelity, paper)
            if data in CLINICAL:
                line = joined(line, row(keys, map(setup.ceiling, codes), lookup, ceiling))
            rows.append(line)
    return table_of(setup, "reconstruction", "Reconstruction from codes", ABOUT, ("data", "codes"), COLUMNS, rows)
