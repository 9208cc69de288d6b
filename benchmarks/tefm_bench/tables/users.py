"""Tables that users bring: the defaults on each of them, trees beside, patients set aside, one model across domains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tefm_bench.domain_runs import DomainDifference, ExtendRun, JointRun
from tefm_bench.experiments import Setup
from tefm_bench.measurement import Figures
from tefm_bench.table import Column, Figure, Row
from tefm_bench.table_runs import (
    LANGUAGE,
    MOST,
    OURS,
    SAMPLED,
    TOGETHER,
    TREES,
    BaselineRun,
    BesideRun,
    Difference,
    ModelRun,
    predicted_of,
)
from tefm_bench.tables.spec import Line, Lookup, Pick, TableSpec, scores
from tefm_bench.user_tables import ALL_TABLES, DOMAINS, HELD_OUT, USER_TABLES

NOTES = "\n".join(
    f"- **{table.title}:** {table.note}{'' if table.note.endswith('?') else '.'}" for table in USER_TABLES.values()
)
METRICS = {"auroc": "AUROC", "accuracy": "accuracy", "macro_f1": "macro F1"}


def score_columns(ahead: str) -> Iterator[Column]:
    """The scores, and how far each is ahead of a reference, with its interval; `ahead` is the title of that."""
    yield from (Column(name, title, 3, "up") for name, title in METRICS.items())
    for name, title in METRICS.items():
        yield Column(f"{name}_ahead", f"{ahead} ({title})", 3)
        yield Column(f"{name}_low", "from", 3)
        yield Column(f"{name}_high", "to", 3)


COLUMNS = (
    *score_columns("ahead of LightGBM"),
    Column("tokens", "tokens", 1, "down"),
    Column("share", "language model's share", 2),
)
#: Fits of each split, from different seeds; tabular models are fitted once, and stand for both.
FITS = 2
#: The lines of one fit: what is read of it, and the title.
OURS_ALONE_AND_TOGETHER = {TOGETHER: "TEFM", LANGUAGE: "TEFM, language model alone", TREES: "trees alone"}
LIGHTGBM = "LightGBM"
BASELINES = {
    "lightgbm": LIGHTGBM,
    "xgboost": "XGBoost",
    "logistic": "logistic regression",
    "majority": "majority class",
}
#: Left out of a quick run: they always learn for as long.
SLOW = ("gru", "set-transformer")
Runs = Sequence[ModelRun | BesideRun | BaselineRun]
#: The title of a line, the name of the method in its runs, and one run per fit.
Method = tuple[str, str, Runs]


# ---- every table ------------------------------------------------------------------------------------------------


def methods_of(
    setup: Setup, table: str, baselines: Mapping[str, str] = BASELINES, *, sample: bool = True
) -> Iterator[Method]:
    """Every line of a table, as many runs as fits."""
    fits = [setup.beside_run(table, seed, fit=fit, sample=sample) for seed in setup.seeds for fit in range(FITS)]
    for method, title in OURS_ALONE_AND_TOGETHER.items():
        yield title, method, fits
    for model, title in baselines.items():
        if not (setup.quick and model in SLOW):
            yield title, model, baseline_runs(setup, table, model, sample=sample)


def baseline_runs(setup: Setup, table: str, model: str, *, sample: bool = True) -> list[BaselineRun]:
    """A tabular model beside every fit."""
    return [setup.baseline_run(table, seed, model, sample=sample) for seed in setup.seeds for _ in range(FITS)]


def scores_of(method: str, test: str) -> Pick:
    """The scores of a method on a test."""

    def pick(figures: Figures) -> dict[str, float | None]:
        chosen = scores(figures["methods"][method][test], "scores")
        own = {LANGUAGE: ("tokens",), TOGETHER: ("tokens", "share")}.get(method, ())
        return {**{name: chosen[name] for name in METRICS}, **{name: figures[name] for name in own}}

    return pick


def ahead_of(figures: Figures) -> dict[str, float | None]:
    """The differences to a reference, with their intervals."""
    parts = (("ahead", "value"), ("low", "low"), ("high", "high"))
    return {f"{name}_{part}": figures[name][bound] for name in METRICS for part, bound in parts}


def lines_of(setup: Setup, name: str, methods: Iterable[Method], tests: Iterable[str]) -> Iterator[Line]:
    """Every method on a user table: its scores, and how far it is ahead of LightGBM, in each of these tests."""
    table, methods = ALL_TABLES[name], list(methods)
    reference = tuple(baseline_runs(setup, name, "lightgbm"))
    for test in tests:
        title = table.other_title if test == "other" else table.title
        for line, method, runs in methods:
            shows: list[Any] = [({run.key: run for run in runs}.values(), scores_of(method, test))]
            if line != LIGHTGBM:
                ahead = Difference(runs=tuple(runs), method=method, reference_runs=reference, test=test, refitted=True)
                shows.append(([ahead], ahead_of))
            yield Line((title, line), tuple(shows))


def _lines(setup: Setup, _: Lookup) -> Iterator[Line]:
    for name, table in USER_TABLES.items():
        if not setup.only or name in setup.only:
            tests = ("test", "other") if table.other else ("test",)
            yield from lines_of(setup, name, methods_of(setup, name), tests)


def _mean_rows(rows: Sequence[Row]) -> Iterator[Row]:
    """The mean difference to LightGBM over the tables of which every line was measured, for every line."""
    incomplete = {r.keys["table"] for r in rows if "auroc_ahead" not in r.figures and r.keys["method"] != LIGHTGBM}
    rows = [r for r in rows if r.keys["table"] not in incomplete]
    for line in dict.fromkeys(r.keys["method"] for r in rows):
        figures = {}
        for name in METRICS:
            column = f"{name}_ahead"
            values = [r.figures[column].mean for r in rows if r.keys["method"] == line and column in r.figures]
            if values:
                figures[column] = Figure(tuple(values))
        yield Row({"table": "mean over the tables", "method": line}, figures)


USERS = TableSpec(
    name="tables",
    title="User tables",
    keys=("table", "method"),
    columns=COLUMNS,
    lines=_lines,
    summary=_mean_rows,
    of_users=True,
    about=f"""\
What a user gets who writes the shortest task file. Each table goes through the code of `tefm fit` with
its defaults, without explanations. No setting is chosen per table; the defaults themselves were chosen on the
validation part of another split (seed 0) of UNSW-NB15, NSL-KDD, Adult, BPIC 2012 and Diabetes130. All methods have
the same sequences in the same parts, and the same labels: a patient has one, in the last admission. (In windows of
flows our codes also learn from the labels of single flows, of which a window has the first that is an attack.)
A seed draws the sample and the split, and every split has {FITS} fits of our model; figures are the mean ± sample
standard deviation (n − 1) over splits and fits. Tables
with more than {SAMPLED:,} sequences are sampled to {SAMPLED:,}. AUROC is that of the positive class; with several
classes, the mean of one against the rest.
*TEFM* is what a fit with the defaults answers: its language model and boosted trees on the fields, weighted. *Language
model alone* and *trees alone* are the two parts of the same fit, each calibrated on the validation part. The language
model's share in the answers is the one with the smallest loss on the validation part.
*Ahead of LightGBM* is the difference to LightGBM on the same test sequences, on average, with a 95% interval from a
nested bootstrap: test sequences and fits are drawn, so that the interval holds what another fit would have given.
Tabular models learn from all labelled training sequences; each chooses among six settings, among the last record, the
history and (where sequences have three records and more) the order, and (trees) between slots and raw values, on the
validation part. *Splits* counts fits. Where a method has fewer of them than the others, no difference is given, and
tables without a line have not been measured with this code. The last lines are the mean and the spread over the tables
with a difference, whose number is in the column *splits*.

{NOTES}""",
)


# ---- patients set aside -----------------------------------------------------------------------------------------


def _pick(method: str) -> Pick:
    def pick(figures: Figures) -> dict[str, float | None]:
        metrics = scores(figures["methods"][method]["other"], "scores")
        predicted = predicted_of(figures, method, "other")
        right_N = predicted.predicted_N == predicted.labels_N
        shares = [right_N[predicted.labels_N == label].mean() for label in np.unique(predicted.labels_N)]
        return {name: metrics[name] for name in ("auroc", "auprc", "ece")} | {"balanced": float(np.mean(shares))}

    return pick


def _held_out(setup: Setup, _: Lookup) -> Iterator[Line]:
    """Our model and the tabular ones; the codes alone are for development."""
    for title, method, runs in methods_of(setup, HELD_OUT, sample=False):
        if method not in (TREES, "majority"):
            shown = {run.key: run for run in runs}.values()
            yield Line(("Diabetes130, patients set aside", title), ((shown, _pick(method)),))


ASIDE = TableSpec(
    name="heldout",
    title="Patients set aside",
    keys=("data", "method"),
    columns=(
        Column("auroc", "AUROC", 3, "up"),
        Column("auprc", "average precision", 3, "up"),
        Column("ece", "ECE", 3, "down"),
        Column("balanced", "balanced accuracy", 3, "up"),
    ),
    lines=_held_out,
    of_users=True,
    on_request=True,
    about="""\
A fifth of the Diabetes130 patients, chosen by a hash of their numbers, was set aside on 16 November 2026, after
most settings (levels, entries, label weight, blocks, learning rate, prompt) had been chosen on all patients. Tables
measured since then leave them out of training, validation and test; a study outside of this project has fitted on
them once. There are few deaths among them, so an AUROC has a standard error of 0.012 (Hanley and McNeil, by hand), and
no paired intervals are given: a difference of a hundredth between two lines says nothing.
Here the models are fitted with the defaults of `tefm fit` on the other four
fifths (a seed splits these patients and starts the models) and scored on the patients set aside: does the last
admission end in death? AUROC, average precision and ECE are at their natural prevalence. Our language model is trained
on as many survivors as deaths, and its probabilities are put back to the shares of all patients (`balance: train`);
the tabular models learn from all patients. *Balanced accuracy*
is the mean of the shares of deaths and of survivors that are predicted correctly: the accuracy to expect with as many
survivors as deaths, as in the other tables.""",
)


# ---- one model across domains -----------------------------------------------------------------------------------

#: The domain that is added later.
LATER = "unsw_nb15"


def _single(setup: Setup, seed: int) -> tuple[ModelRun, ...]:
    # windows of consecutive rows: a sample of the rows would be other windows
    return tuple(
        setup.model_run(name, seed, sample="window" not in ALL_TABLES[name].task, align="none") for name in DOMAINS
    )


def joint_run(setup: Setup, seed: int) -> JointRun:
    """One model for all domains."""
    return JointRun(runs=_single(setup, seed))


def _extended(setup: Setup, seed: int) -> ExtendRun:
    runs = {run.table: run for run in _single(setup, seed)}
    added = runs.pop(LATER)
    return ExtendRun(runs=tuple(runs.values()), added=added)


def _domain_scores(name: str) -> Pick:
    def pick(figures: Figures) -> dict[str, float | None]:
        own = figures["domains"][name] if "domains" in figures else figures
        scores = own["methods"][OURS]["test"]["scores"]
        changed = figures.get("changed", {}).get(name)
        return {**{metric: scores[metric]["value"] for metric in METRICS}, "changed": changed}

    return pick


def _domains(setup: Setup, _: Lookup) -> Iterator[Line]:
    for number, name in enumerate(DOMAINS):
        title, pick = ALL_TABLES[name].title, _domain_scores(name)
        alone = tuple(_single(setup, seed)[number] for seed in setup.seeds)
        yield Line((title, "one model each"), ((alone, pick),))
        together = tuple(joint_run(setup, seed) for seed in setup.seeds)
        added = tuple(_extended(setup, seed) for seed in setup.seeds)
        later = "added later" if name == LATER else f"{ALL_TABLES[LATER].title} added later"
        for line, runs in (("one model for all", together), (later, added)):
            ahead = DomainDifference(table=name, runs=runs, reference_runs=alone)
            yield Line((title, line), ((runs, pick), ([ahead], ahead_of)))
        if name == LATER:
            ahead = DomainDifference(table=name, runs=added, reference_runs=together)
            yield Line((title, "added later, compared with one for all"), (([ahead], ahead_of),))


ACROSS_DOMAINS = TableSpec(
    name="domains",
    title="One model across domains",
    keys=("domain", "model"),
    columns=(*score_columns("ahead"), Column("changed", "changed", 9)),
    lines=_domains,
    of_users=True,
    on_request=True,
    about=f"""\
Four domains, in one language model and in one each: whether a patient's last admission ends in death
(Diabetes130), whether ten consecutive flows are an attack (DDoS, PortScan: 10,000 flows each of the corrected
CIC-IDS2017 sample), and which of ten classes a flow is (UNSW-NB15, sampled to {MOST:,} flows). All are fitted with the
defaults of `tefm fit` on a machine without GPU, where codes and words are not aligned, without explanations, on the
same sequences in the same parts; a seed draws the sample, the split and the model, and figures are the mean ± sample
standard deviation (n − 1) over the seeds. *One model for all* has one fine-tuning, with as many steps as those of the
four models together. *Added later* is `tefm extend`: the three other domains are fitted together, then UNSW-NB15 is
added. *Ahead* is the difference to the model of this domain alone, on the same test sequences, with a 95% interval from
a paired bootstrap over test sequences. *Changed* is the largest absolute change of a probability of a test sequence,
between before and after the domain was added.""",
)
