"""Text beside codes: our model, its parts, and tabular models that read the same text."""

from __future__ import annotations

from typing import Any

from tefm.bench.baselines.embeddings import LIMIT
from tefm.bench.experiments import QUICK_CODES, QUICK_STEPS, Lookup, Setup, row
from tefm.bench.measurement import Figures
from tefm.bench.table import Column, Table
from tefm.bench.tables.common import table_of
from tefm.bench.text_runs import LANGUAGE, Line, TextRun
from tefm.bench.text_tables import TEXT_TABLES
from tefm.language.smollm2 import NAME as SMOLLM2

NOTES = "\n".join(
    f"- **{table.title}:** {table.note}{'' if table.note.endswith('?') else '.'}" for table in TEXT_TABLES.values()
)
ABOUT = f"""Free text beside the codes of its record, each column within its budget of tokens, fitted with the defaults
of `tefm fit`. All lines have the same rows in the same parts, 80% of them for training and 10% each for validation and
test. *Random body* reads the same with random weights in the language model: the difference is what pretraining adds.
*Trees beside* is `beside: trees`: boosted trees on the fields answer beside the language model, with the share that
validation gives it. *Text alone* is the same language model without fields, *codes alone* without text. LightGBM reads
the words as 200 components of TF-IDF or as the 1,000 words that say most about the label, logistic regression all words
and pairs of words; both also the fields, and validation chooses. *Sentence embeddings* are the mean hidden states of
the whole language model, before any fine-tuning, over the first {LIMIT} tokens. *TF-IDF + logistic regression* reads
the text alone. Other tabular models read the whole text, without budgets.

{NOTES}"""
COLUMNS = (
    Column("auroc", "AUROC", 3, "up"),
    Column("accuracy", "accuracy", 3, "up"),
    Column("macro_f1", "macro F1", 3, "up"),
    Column("tokens", "tokens", 1, "down"),
    Column("share", "language model's share", 2),
)
TITLES: dict[Line, str] = {
    "codes and text": "TEFM, codes and text",
    "trees beside": "TEFM, codes and text, trees beside",
    "random body": "TEFM, codes and text, random body",
    "text": "TEFM, text alone",
    "codes": "TEFM, codes alone",
    "lightgbm and text": "LightGBM on fields and TF-IDF",
    "lightgbm and embeddings": "LightGBM on fields and sentence embeddings",
    "logistic and text": "logistic regression on fields and TF-IDF",
    "tfidf": "TF-IDF + logistic regression",
    "lightgbm": "LightGBM on fields",
}


def run_of(setup: Setup, table: str, line: Line, seed: int) -> TextRun:
    settings: dict[str, Any] = {}
    if line in LANGUAGE or line == "lightgbm and embeddings":
        backbone = setup.backbones[0]
        settings = {} if backbone == SMOLLM2 else {"backbone": backbone}
        settings |= {"layers": 1, "codes": QUICK_CODES, "tune": QUICK_STEPS} if setup.quick else {}
    return TextRun(table=table, seed=seed, line=line, settings=settings)


def _scores(figures: Figures) -> dict[str, float | None]:
    scores = figures["scores"]
    values: dict[str, float | None] = {name: scores[name]["value"] for name in ("auroc", "accuracy", "macro_f1")}
    return {**values, **{name: figures[name] for name in ("tokens", "share") if name in figures}}


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = [
        row(
            {"table": of_table.title, "method": title},
            [run_of(setup, name, line, seed) for seed in setup.splits],
            lookup,
            _scores,
        )
        for name, of_table in TEXT_TABLES.items()
        for line, title in TITLES.items()
    ]
    return table_of(setup, "text", "Text beside codes", ABOUT, ("table", "method"), COLUMNS, rows)
