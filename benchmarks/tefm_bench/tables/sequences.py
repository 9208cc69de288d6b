"""Tables whose sequences are the subject: our model beside sequence models, trees, and counting."""

from __future__ import annotations

from collections.abc import Iterator

from tefm_bench.experiments import Setup
from tefm_bench.sequence_tables import SEQUENCE_TABLES
from tefm_bench.table_runs import SAMPLED
from tefm_bench.tables.spec import Line, Lookup, TableSpec
from tefm_bench.tables.users import BASELINES, COLUMNS, FITS, lines_of, methods_of
from tefm_bench.user_tables import ALL_TABLES, DEMO

#: The tables, by name: windows of hours, cases of an event log, admissions.
NAMES = (*SEQUENCE_TABLES, "bpic2012", "diabetes130_readmission", DEMO)
READ_SEQUENCES = {"gru": "GRU on slots", "set-transformer": "transformer on slots"}
COUNTING = {"counting": "counting the last values"}
#: Tables without a category whose values could be counted.
NUMBERS_ONLY = ("icu_4h", "icu_1h")


def _lines(setup: Setup, _: Lookup) -> Iterator[Line]:
    for name in NAMES:
        if not setup.only or name in setup.only:
            baselines = BASELINES | READ_SEQUENCES | ({} if name in NUMBERS_ONLY else COUNTING)
            tests = ("other",) if ALL_TABLES[name].other else ("test",)
            yield from lines_of(setup, name, methods_of(setup, name, baselines), tests)


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
explanations; no setting is chosen per table. Seeds draw the split (and the sample of at most {SAMPLED:,} sequences),
and every split has {FITS} fits of our model; figures are the mean ± sample standard deviation (n − 1) over splits and
fits. *TEFM* answers with its language model and boosted trees on the fields, weighted on the validation part; *language
model alone* and *trees alone* are the two parts of the same fit. LightGBM, XGBoost and logistic regression choose among
six settings and among features of the last record, of the history, and (where validation says so) of the order;
LightGBM also between slots and raw values. The GRU and the transformer read the same slots as our codes and choose
among six settings. *Counting* gives the class frequencies after the last one to three values of a category.
*Ahead of LightGBM* is the difference on the same test sequences, on average, with a 95% interval from a nested
bootstrap: test sequences and fits are drawn, so that the interval holds what another fit would have given. *Splits*
counts fits. Tables without a line have not been measured with this code.

{NOTES}
- **CIC-IDS2017 in windows** is left out: there is nothing to compare. By time, 428 of the last 434 windows of ten flows
  hold an attack; in a random split LightGBM finds those that do with an AUROC of 0.999 (measured by hand).""",
)
