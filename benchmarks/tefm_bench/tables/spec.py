"""A table as data: its words, its columns and its lines; one engine lays all of them out.

A line says which measurements it shows, one per split, and how their figures become columns. What a table needs is
what its lines look up, so that nothing has to be listed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tefm_bench.experiments import Setup
from tefm_bench.measurement import Figures, Measurement
from tefm_bench.predictions import Prediction, Tune
from tefm_bench.table import Column, Figure, Row, Table
from tefm_bench.tables.published import ON
from tefm_bench.tokenizers import Codes, Recipe

#: Finds the figures of a measurement, None if it has not been made.
Lookup = Callable[[Measurement], Figures | None]
#: Picks the values of a line, by column name, from the figures of one measurement.
Pick = Callable[[Figures], Mapping[str, float | None]]

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


# ---- tables and lines -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A line of a table: the values of its keys, and measurements (one per split) with what they show."""

    keys: tuple[str, ...]
    shows: tuple[tuple[Iterable[Measurement], Pick], ...]
    #: the paper's figures
    published: Mapping[str, float] | None = None

    def row(self, titles: Sequence[str], lookup: Lookup) -> Row:
        """The line with its figures; splits that have not been measured are left out."""
        figures = {}
        for measurements, pick in self.shows:
            splits = [pick(measured) for one in measurements if (measured := lookup(one)) is not None]
            for name in dict.fromkeys(name for values in splits for name in values):
                values = tuple(float(value) for picked in splits if (value := picked.get(name)) is not None)
                if values:
                    figures[name] = Figure(values)
        return Row(dict(zip(titles, self.keys, strict=True)), figures, self.published or {})


@dataclass(frozen=True)
class TableSpec:
    """A table of the benchmark; `table` lays it out from what was measured so far."""

    name: str
    title: str
    #: Markdown: what was measured on what, how to read it
    about: str
    #: titles of the keys of the lines, in order
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    #: the lines of a run; a few tables look at figures to know their lines, and lay out rows themselves
    lines: Callable[[Setup, Lookup], Iterable[Line | Row]]
    #: rows that sum up the others
    summary: Callable[[Sequence[Row]], Iterable[Row]] | None = None
    #: made of user tables: `--data` names their folder
    of_users: bool = False
    #: made only when named: it takes a GPU, or is scored once
    on_request: bool = False

    def table(self, setup: Setup, lookup: Lookup) -> Table:
        """The table, without rows that have neither a measured nor a published figure."""
        lines = self.lines(setup, lookup)
        rows = [line.row(self.keys, lookup) if isinstance(line, Line) else line for line in lines]
        rows += [] if self.summary is None else self.summary(rows)
        filled = tuple(row for row in rows if row.figures or row.published)
        published = ON if any(row.published for row in filled) else ""
        made = {"data": setup.data, "splits": setup.splits, "backbones": setup.backbones, "quick": setup.quick}
        return Table(self.name, self.title, self.about, self.keys, self.columns, filled, published, made)

    def needs(self, setup: Setup) -> list[Measurement]:
        """The measurements of the table: those that it looks up when it is laid out without any figures."""
        needed: dict[str, Measurement] = {}

        def lookup(measurement: Measurement) -> None:
            needed.setdefault(measurement.key, measurement)

        self.table(setup, lookup)
        return list(needed.values())


# ---- where lines are measured -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A data set and a recipe of codes; the lines of most tables vary something there."""

    setup: Setup
    data: str
    recipe: Recipe

    @property
    def keys(self) -> tuple[str, str]:
        return TITLES[self.data], self.recipe

    @property
    def is_clinical(self) -> bool:
        return self.data in self.setup.clinical

    def codes(self, *, some: bool = False, **settings: Any) -> list[Codes]:
        """The tokenizer of each split; `some`: of the first only for flows, where a table varies many things."""
        splits = self.setup.some_splits(self.data) if some else self.setup.splits
        return [self.setup.codes(self.data, split, self.recipe, **settings) for split in splits]

    def tune(self, **changes: Any) -> Tune:
        return self.setup.tune(self.data, **changes)

    def predictions(self, *tunes: Tune, some: bool = False, **changes: Any) -> list[Prediction]:
        """The model of each split on these codes."""
        return [self.setup.prediction(code, *tunes, **changes) for code in self.codes(some=some)]


def places(setup: Setup, names: Iterable[str], recipes: Iterable[Recipe] = RECIPES) -> Iterator[Place]:
    """Every recipe on every data set."""
    recipes = tuple(recipes)
    yield from (Place(setup, data, recipe) for data in names for recipe in recipes)


# ---- what lines show --------------------------------------------------------------------------------------------


def scores(figures: Mapping[str, Any], part: str = "test") -> dict[str, float | None]:
    """The metrics of a part, without their intervals."""
    names = ("accuracy", "macro_f1", "auroc", "auprc", "brier", "ece")
    return {name: figures[part][name]["value"] for name in names}


def tuned(number: int = 0) -> Pick:
    """Picks the metrics and tokens of one of the tunes of a prediction."""

    def pick(figures: Figures) -> dict[str, float | None]:
        tune = figures["tunes"][number]
        return {**scores(tune), "tokens": tune["tokens"]}

    return pick


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
