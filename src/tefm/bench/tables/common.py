"""Words and columns that several tables share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tefm.bench.experiments import Setup
from tefm.bench.table import Column, Row, Table
from tefm.bench.tables.published import ON
from tefm.bench.tokenizers import Recipe

#: The titles of the data sets.
TITLES = {
    "diabetes130-open": "Diabetes130",
    "diabetes130": "Diabetes130",
    "mimic3": "MIMIC-III",
    "ddos": "DDoS",
    "portscan": "PortScan",
    "attack": "attack type",
}
SHAPE = "K3-C128"
#: The two kinds of codes that are compared: learned with the label, and without it.
RECIPES: tuple[Recipe, ...] = ("task-aware", "unsupervised")

FIDELITY = (
    Column("slot_accuracy", "slot accuracy", 4, "up"),
    Column("mode_slot_accuracy", "all-mode", 4),
    Column("close_accuracy", "±1", 4, "up"),
    Column("nmse", "NMSE", 4, "down"),
)
PREDICTION = (
    Column("tokens", "tokens", 1, "down"),
    Column("accuracy", "accuracy", 3, "up"),
    Column("macro_f1", "macro F1", 3, "up"),
    Column("auroc", "AUROC", 3, "up"),
    Column("auprc", "AUPRC", 3, "up"),
    Column("brier", "Brier", 3, "down"),
    Column("ece", "ECE", 3, "down"),
)
PROTOCOL = (
    "Settings were chosen on validation parts. Each line is the mean ± sample standard deviation over the test parts of"
    " the splits; temperature and threshold come from the validation part."
)


def recipe_title(recipe: Recipe) -> str:
    """The title of a recipe."""
    return "the paper's objective" if recipe == "paper" else recipe


def table_of(
    setup: Setup,
    name: str,
    title: str,
    about: str,
    keys: Sequence[str],
    columns: Sequence[Column],
    rows: Iterable[Row],
) -> Table:
    """A table, without rows that have neither a measured nor a published figure."""
    filled = tuple(row for row in rows if row.figures or row.published)
    published = ON if any(row.published for row in filled) else ""
    made = {"data": setup.data, "splits": setup.splits, "backbones": setup.backbones, "quick": setup.quick}
    return Table(name, title, about, tuple(keys), tuple(columns), filled, published, made)
