"""The patients set aside: scored once, by models fitted on the others."""

from __future__ import annotations

import numpy as np

from tefm.bench.experiments import Lookup, Pick, Setup, row, scores
from tefm.bench.measurement import Figures
from tefm.bench.table import Column, Table
from tefm.bench.table_runs import OURS, predicted_of
from tefm.bench.tables.common import table_of
from tefm.bench.tables.users import BASELINES, lines_of
from tefm.bench.user_tables import HELD_OUT

ABOUT = """A fifth of the Diabetes130 patients, chosen by a hash of their numbers, takes no part in any training,
validation or test of the tables that are measured from now on; settings were chosen, and earlier tables measured,
before they were set aside. Here the models are fitted with the defaults of `tefm fit` on the other four
fifths (a seed splits these patients and starts the models) and scored on the patients set aside: does the last
admission end in death? AUROC, average precision and ECE are at their natural prevalence. Our language model is trained
on as many survivors as deaths, and its probabilities are put back to the shares of all patients (`balance: train`);
the tabular models learn from all patients. *Balanced accuracy*
is the mean of the shares of deaths and of survivors that are predicted correctly: the accuracy to expect with as many
survivors as deaths, as in the other tables."""
COLUMNS = (
    Column("auroc", "AUROC", 3, "up"),
    Column("auprc", "average precision", 3, "up"),
    Column("ece", "ECE", 3, "down"),
    Column("balanced", "balanced accuracy", 3, "up"),
)
#: Our model and the tabular ones; the codes alone are for development.
METHODS = (OURS, *(model for model in BASELINES if model != "majority"))


def _pick(method: str) -> Pick:
    def pick(figures: Figures) -> dict[str, float | None]:
        metrics = scores(figures["methods"][method]["other"], "scores")
        predicted = predicted_of(figures, method, "other")
        right_N = predicted.predicted_N == predicted.labels_N
        shares = [right_N[predicted.labels_N == label].mean() for label in np.unique(predicted.labels_N)]
        return {name: metrics[name] for name in ("auroc", "auprc", "ece")} | {"balanced": float(np.mean(shares))}

    return pick


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = [
        row({"data": "Diabetes130, patients set aside", "method": title}, runs, lookup, _pick(method))
        for title, method, runs in lines_of(setup, HELD_OUT, sample=False)
        if method in METHODS and "unsupervised" not in title
    ]
    return table_of(setup, "heldout", "Patients set aside", ABOUT, ("data", "method"), COLUMNS, rows)
