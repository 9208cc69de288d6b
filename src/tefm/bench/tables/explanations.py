"""Explanations: how precise the features are that each method names, by the same check."""

from __future__ import annotations

from collections.abc import Iterator

from tefm.bench.experiments import Lookup, Pick, Setup, joined, row
from tefm.bench.explanations import Ahead, summary
from tefm.bench.feature_lists import METHODS, OURS, SIZES, Effort
from tefm.bench.measurement import Figures
from tefm.bench.table import Column, Row, Table
from tefm.bench.tables.common import RECIPES, table_of
from tefm.bench.user_tables import USER_TABLES

#: The tables that are measured; a quick run takes those with several records per sequence.
EXPLAINED = ("diabetes130_mortality", "unsw_nb15", "bpic2012")
QUICK = ("diabetes130_mortality", "bpic2012")
COMPARED = SIZES[1:]
EFFORT = Effort()
ABOUT = f"""A model fitted by the code of `tefm fit` with its defaults answers {EFFORT.sequences} test sequences of each
seed, drawn at random among those whose answer is not a default one (an answer that nearly everyone gets needs no
features; *default answers* is their share of the test sequences). Every method names features of the same sequences, as
sets that count as at most 1, 3, 5 and 10 features; the whole value of a set counts as many as it has members.
*Precision* is the share of {EFFORT.donors} look-alikes with the same answer: they share the features, have everything
else from another training sequence, and the language model answers. Their donors are the half of the stored training
sequences that no method uses. *Verified* means that one of the four sets has a precision of at least 0.9, by an exact
interval whose level accounts for the four sets; *size* and *coverage* (the share of the stored training sequences that
have the features) are medians over the smallest set that passes. *Flips* is how often the answer changes when only the
features are replaced. *Settled by tefm explain* is the product's own verdict, and *opposite verified* how often the
features of a sequence verify the next most probable answer by the same check. *Questions* are look-alikes that the
language model answers for one explanation (ours: to find and check a set; the effects on the card take more); *seconds*
are the median for one explanation, for ours with the whole card. What a method learns beforehand is not counted.

*Ours ahead* is the precision of our set minus that of the method's, on the same sequences of all seeds, with a 95%
interval from a bootstrap over sequences.

Methods that rank slots name their first features. *SHAP* and *integrated gradients* explain the surrogate that the
paper's extractor learns with, where a slot that is left out is absent; *dual fidelity* and *prediction fidelity* are
that extractor, learned from {EFFORT.masks["questions"] // 3:,} training sequences of a model that was fitted without
masked copies, as is the default. The *log-odds table* knows only how often training sequences with a value have the
answer as their label. *Anchors* is the beam search of its authors, over our look-alikes; it stops at a set that it
finds precise enough, however small, and after {EFFORT.anchor_questions:,} questions takes the best so far. *KernelSHAP*
replaces features by the values of {EFFORT.kernel_donors} donors, {EFFORT.kernel_samples} times. The *search on the
language model* is ours with the model in place of the surrogate, on {EFFORT.greedy_donors} donors: an upper reference.
These three explain at most {EFFORT.queried} sequences per seed, and begin no further one after {EFFORT.patience:.0f}
seconds; *sequences* says how many there were. A method whose library is missing has 0."""
COLUMNS = (
    Column("sequences", "sequences", 0),
    *(Column(f"precision_{size}", f"precision at {size}", 3, "up") for size in SIZES),
    Column("verified", "verified", 2, "up"),
    Column("size", "size", 1, "down"),
    Column("coverage", "coverage", 4),
    *(Column(f"flips_{size}", f"flips at {size}", 2, "up") for size in COMPARED),
    Column("settled", "settled by tefm explain", 2, "up"),
    Column("opposite", "opposite verified", 2, "down"),
    Column("default", "default answers", 2),
    Column("questions", "questions", 0, "down"),
    Column("seconds", "seconds", 2, "down"),
    *(
        column
        for size in COMPARED
        for column in (
            Column(f"ahead_{size}", f"ours ahead at {size}", 3),
            Column(f"low_{size}", "from", 3),
            Column(f"high_{size}", "to", 3),
        )
    ),
)


def _pick(method: str) -> Pick:
    return lambda figures: summary(figures, method)


def _ahead(figures: Figures) -> dict[str, float | None]:
    parts = (("ahead", "value"), ("low", "low"), ("high", "high"))
    return {f"{name}_{size}": figures[f"{size}"][of] for size in COMPARED for name, of in parts} if figures else {}


def _rows(setup: Setup, lookup: Lookup) -> Iterator[Row]:
    tables = [name for name in (QUICK if setup.quick else EXPLAINED) if not setup.only or name in setup.only]
    for name in tables:
        for recipe in RECIPES[:1] if setup.quick else RECIPES:
            runs = tuple(setup.explanation_run(name, seed, recipe) for seed in setup.seeds)
            for method in METHODS:
                keys = {"table": USER_TABLES[name].title, "codes": recipe, "method": method}
                rows = [row(keys, runs, lookup, _pick(method))]
                if method != OURS:
                    rows.append(row(keys, [Ahead(runs=runs, method=method)], lookup, _ahead))
                yield joined(*rows)


def table(setup: Setup, lookup: Lookup) -> Table:
    keys = ("table", "codes", "method")
    return table_of(setup, "explanations", "Explanations", ABOUT, keys, COLUMNS, _rows(setup, lookup))
