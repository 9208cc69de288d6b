"""Corroboration: does evidence outside the model support the features that explanations cite?"""

from __future__ import annotations

from tefm.bench.corroborations import summary
from tefm.bench.experiments import Lookup, Pick, Setup, row
from tefm.bench.feature_lists import OURS, RANDOM, SHAP
from tefm.bench.table import Column, Table
from tefm.bench.tables.common import RECIPES, table_of
from tefm.bench.user_tables import ALL_TABLES, MIMIC3

MORTALITY = "diabetes130_mortality"
ABOUT = """The explanations of the table *Explanations*, on data with published references. *Cited* are the features
whose effect a card measures; SHAP cites as many of each sequence, those with the largest values, and chance draws as
many, with random signs. *Supported*: among all training sequences, the answer was observed more often with the feature
than without it where the method says that the feature raises its probability, or less often where it says the opposite
(the 95% interval of the relative risk excludes 1); *contradicted*: the other way round; *unclear*: the interval
includes 1; *too few*: fewer than 20 sequences with it or without it. These are raw counts, so a contradiction can be
confounding.

*Agrees with the weights* is about all recorded diagnoses of the same sequences that have a weight in van Walraven's
score for death in hospital: whether the sign of their effect on the probability of death (for SHAP, of its value) is
that of the weight. An effect of zero does not agree. *Where certain* leaves out those whose effect, as we measure it,
has an interval that includes zero; it is the same selection for all methods."""
COLUMNS = (
    Column("cited", "cited", 0),
    Column("supported", "supported", 2, "up"),
    Column("contradicted", "contradicted", 2, "down"),
    Column("unclear", "unclear", 2),
    Column("too few", "too few", 2),
    Column("weighted", "weighted diagnoses", 0),
    Column("agrees", "agrees with the weights", 2, "up"),
    Column("agrees_certain", "where certain", 2, "up"),
)


def _pick(method: str) -> Pick:
    return lambda figures: summary(figures, method)


def table(setup: Setup, lookup: Lookup) -> Table:
    names = [MORTALITY] if not setup.only or MORTALITY in setup.only else []
    names += [MIMIC3] if "mimic3" in setup.data else []
    rows = [
        row(
            {"data": ALL_TABLES[name].title, "codes": recipe, "method": method},
            [setup.explanation_run(name, seed, recipe) for seed in setup.seeds],
            lookup,
            _pick(method),
        )
        for name in names
        for recipe in (RECIPES[:1] if setup.quick else RECIPES)
        for method in (OURS, SHAP, RANDOM)
    ]
    keys = ("data", "codes", "method")
    return table_of(setup, "corroboration", "Corroboration", ABOUT, keys, COLUMNS, rows)
