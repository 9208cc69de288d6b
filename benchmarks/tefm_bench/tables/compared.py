"""Our figures beside published ones, read from the stored tables: nothing is measured for this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tefm_bench.experiments import Setup
from tefm_bench.table import Column, Figure, Row, Table
from tefm_bench.tables.spec import Lookup, TableSpec

RESULTS = Path(__file__).parents[3] / "results"
DATA = ("Diabetes130", "DDoS", "PortScan")
KEYS = ("data", "split", "metric", "method", "source")
ICU, HOURS = "PhysioNet 2012, death in hospital", {"ours": "4-hour", "hourly": "1-hour"}
NEXT, MOMENTS = "BPIC 2012, next activity", "by time, one random moment of every application"
EBES = "EBES (KDD 2025), 20 runs"
#: AUROC on set-b after training on set-a, by the name of our line where we have the same kind of model.
ON_SET_B = {
    "LightGBM": (0.858, "by hand, on aggregates; not published"),
    "GRU on slots": (0.846, f"{EBES}: GRU, ± 0.004"),
    "transformer on slots": (0.838, f"{EBES}: Transformer"),
    "MLEM": (0.846, EBES),
    "mTAND": (0.841, EBES),
    "CoLES": (0.840, EBES),
    "PrimeNet": (0.839, EBES),
    "Mamba": (0.835, EBES),
}
OURS = ("TEFM", "TEFM, language model alone", "trees alone", "LightGBM", "XGBoost", "logistic regression")
MODEL_CARD, COUNTING = {"accuracy": 0.774, "macro_f1": 0.637}, "counting the last values"
RECIPE = "the paper's whole recipe, SmolLM2-135M (whole)"
CODES, TEXT = "SmolLM2-135M (6 blocks) on task-aware codes", "SmolLM2-135M (whole) on text"
#: The paper's main figures: table, keys of our line, column; and the paper's line, where it is another one.
PAPERS: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    *(("reconstruction", (data, "the paper's objective"), "slot_accuracy", "") for data in DATA),
    *(("alignment", (data, "the paper's whole recipe"), "slot_accuracy", "") for data in DATA),
    ("hierarchy", ("Diabetes130", "the paper's objective", "a+b+c"), "ratio", ""),
    ("prediction", ("Diabetes130", CODES), "accuracy", "Qwen3-0.6B on codes"),
    ("prediction", ("Diabetes130", RECIPE), "accuracy", "Qwen3-0.6B on codes"),
    ("prediction", ("Diabetes130", TEXT), "accuracy", "Qwen3-0.6B on text"),
    ("prediction", ("Diabetes130", "LightGBM on slots"), "accuracy", ""),
    *(("crossdomain", (data, RECIPE), "accuracy", "Qwen3-0.6B on codes") for data in DATA[1:]),
    ("rationalization", ("Diabetes130", "all", "5%", "dual fidelity (the paper's)"), "accuracy", ""),
    ("rationalization", ("Diabetes130", "all", "5%", "SHAP"), "accuracy", ""),
    ("pretraining", ("Diabetes130", "unsupervised", "not aligned"), "accuracy", ""),
    ("pretraining", ("Diabetes130", "unsupervised", "aligned first"), "accuracy", ""),
    ("shapes", ("Diabetes130", "unsupervised", "3", "512"), "accuracy", ""),
)


def _row(keys: tuple[str, ...], **values: Figure | None) -> Row:
    return Row(dict(zip(KEYS, keys, strict=True)), {name: of for name, of in values.items() if of is not None})


def _sequences() -> tuple[Table, Mapping[tuple[str, str], Mapping[str, Figure]]]:
    """The table, and its figures by test and method."""
    table = Table.load(RESULTS / "sequences.json")
    return table, {(row.keys["table"], row.keys["method"]): row.figures for row in table.rows}


def _lines(setup: Setup, _: Lookup) -> Iterator[Row]:
    measured = _sequences()[1]
    for method in dict.fromkeys((*OURS, *ON_SET_B)):
        tests = {column: f"PhysioNet 2012, {hours} windows, set-b" for column, hours in HOURS.items()}
        aurocs = {column: measured.get((test, method), {}).get("auroc") for column, test in tests.items()}
        value, source = ON_SET_B.get(method, (None, "–"))
        theirs = None if value is None else Figure((value,))
        yield _row((ICU, "set-a → set-b", "AUROC", method, source), **aurocs, published=theirs)
    for column, title in (("accuracy", "accuracy"), ("macro_f1", "macro F1")):
        for method in (*OURS, COUNTING):
            yield _row((NEXT, MOMENTS, title, method, "–"), ours=measured.get((NEXT, method), {}).get(column))
        card = (NEXT, "by time, every prefix", title, "another model", "a model card")
        yield _row(card, published=Figure((MODEL_CARD[column],)))
    for name, keys, column, other in PAPERS:
        table = Table.load(RESULTS / f"{name}.json")
        wanted = (set(keys), {keys[0], other} if other else set(keys))
        ours, paper = (next(row for row in table.rows if names <= set(row.keys.values())) for names in wanted)
        title = next(of.title for of in table.columns if of.name == column)
        method = ", ".join(keys[1:]) + (f"; theirs {other}" if other else "")
        of_paper = (keys[0], "not the same data", title, method, f"the paper ([{name}]({name}.md))")
        yield _row(of_paper, ours=ours.figures[column], published=Figure((paper.published[column],)))


class ComparedSpec(TableSpec):
    """A table made of other tables: it is as old as `sequences`, and the paper's lines as old as theirs."""

    def table(self, setup: Setup, lookup: Lookup) -> Table:
        table = super().table(setup, lookup)
        made: dict[str, Any] = dict(_sequences()[0].made)
        kept = {name: of for name, of in made.items() if name in ("Splits", "Dates", "marks", "Machines", "Versions")}
        return replace(table, made={**table.made, "Command": "`python -m tefm_bench published`", **kept})


COMPARED = ComparedSpec(
    name="published",
    title="Beside published figures",
    keys=KEYS,
    columns=(Column("ours", "ours"), Column("hourly", "ours, 1-hour windows"), Column("published", "published")),
    lines=_lines,
    on_request=True,
    about="""\
Our figures and those that others have published, from the stored tables, without measuring. Read *split* first.

- **PhysioNet 2012** is the same split: fitted and chosen on set-a, scored on set-b ([our table](sequences.md)). *Ours*
  is in 4-hour windows. The published models were tuned, ours is a fit with the defaults. Set-b was looked at before,
  when settings for time fields were compared.
- **BPIC 2012, next activity** is not the same protocol: ours predicts at one random moment of every application, the
  published model after every event. Both are split by time. Compare ours with *counting*, not with theirs.
- **The paper's tables** are of other data (MIMIC-III, and the Friday files of the original CIC-IDS2017; ours are
  Diabetes130 and the corrected release) and were measured [with earlier code](earlier.md). SmolLM2-135M is
  compared with the smallest of the paper's models. All of their figures are in the tables that *source* names.""",
)
