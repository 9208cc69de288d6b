"""Tables whose sequences are the subject: our model beside sequence models, trees, and counting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tefm_bench.experiments import Setup
from tefm_bench.sequence_tables import SEQUENCE_TABLES
from tefm_bench.table_runs import LANGUAGE, MOST, TOGETHER, Difference
from tefm_bench.tables.spec import Line, Lookup, TableSpec
from tefm_bench.tables.users import COLUMNS, LIGHTGBM, Method, ahead_of, scores_of
from tefm_bench.user_tables import ALL_TABLES

#: The tables, by name: windows of hours, cases of an event log, admissions.
NAMES = (*SEQUENCE_TABLES, "bpic2012", "diabetes130_readmission")
#: Fits of each split.
FITS = 2
BASELINES = {
    "lightgbm": LIGHTGBM,
    "xgboost": "XGBoost",
    "logistic": "logistic regression",
    "gru": "GRU on slots",
    "set-transformer": "transformer on slots",
    "counting": "counting the last values",
    "majority": "majority class",
}
#: Left out of a quick run: they always learn for as long.
SLOW = ("gru", "set-transformer")
#: Tables without a category whose values could be counted.
NUMBERS_ONLY = ("icu_4h", "icu_1h")


def methods_of(setup: Setup, table: str) -> Iterator[Method]:
    """Every line of a table, as many runs as fits: models that were fitted once stand for both."""
    fits = [setup.beside_run(table, seed, fit=fit) for seed in setup.seeds for fit in range(FITS)]
    yield "TEFM", LANGUAGE, fits
    yield "TEFM with trees", TOGETHER, fits
    for model, title in BASELINES.items():
        if not ((model == "counting" and table in NUMBERS_ONLY) or (setup.quick and model in SLOW)):
            yield title, model, [setup.baseline_run(table, seed, model) for seed in setup.seeds for _ in range(FITS)]


def _lines(setup: Setup, _: Lookup) -> Iterator[Line]:
    for name in NAMES:
        if setup.only and name not in setup.only:
            continue
        methods, table = list(methods_of(setup, name)), ALL_TABLES[name]
        reference = tuple(setup.baseline_run(name, seed, "lightgbm") for seed in setup.seeds for _ in range(FITS))
        for line, method, runs in methods:
            test = "other" if table.other else "test"
            shows: list[Any] = [({run.key: run for run in runs}.values(), scores_of(method, test))]
            if line != LIGHTGBM:
                ahead = Difference(runs=tuple(runs), method=method, reference_runs=reference, test=test, refitted=True)
                shows.append(([ahead], ahead_of))
            yield Line((table.other_title or table.title, line), tuple(shows))


NOTES = "\n".join(f"- **{ALL_TABLES[name].title}:** {ALL_TABLES[name].note}" for name in NAMES)
SEQUENCES = TableSpec(
    name="sequences",
    title="Sequences",
    keys=("table", "method"),
    columns=COLUMNS,
    lines=_lines,
    of_users=True,
    on_request=True,
    about=f"""\
Tables in which what came before may matter. Each goes through the code of `tefm fit` with its defaults, without
explanations; no setting is chosen per table. Seeds draw the split (and the sample of at most {MOST:,} sequences), and
every split has {FITS} fits of our model; figures are the mean ± sample standard deviation (n − 1) over splits and fits.
*TEFM with trees* is the same fit with `beside: trees`. LightGBM, XGBoost and logistic regression choose among six
settings and among features of the last record, of the history, and (where validation says so) of the order; LightGBM
also between slots and raw values. The GRU and the transformer read the same slots as our codes and choose among six
settings. *Counting* gives the class frequencies after the last one to three values of a category.
*Ahead of LightGBM* is the difference on the same test sequences, on average, with a 95% interval from a nested
bootstrap: test sequences and fits are drawn, so that the interval holds what another fit would have given. *Splits*
counts fits. Tables without a line have not been measured with this code.

{NOTES}""",
)
