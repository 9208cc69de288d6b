"""Prediction: a language model on codes and on text, compared with other models."""

from __future__ import annotations

from collections.abc import Iterable

from tefm.bench.experiments import Lookup, Setup, row, scores, tuned
from tefm.bench.measurement import Figures, Measurement
from tefm.bench.predictions import title_of
from tefm.bench.table import Row, Table
from tefm.bench.tables.common import PREDICTION, PROTOCOL, RECIPES, TITLES, table_of
from tefm.bench.tables.published import BACKBONES, BASELINES, STANDS_FOR

ABOUT = f"""In-hospital death at the last admission, classes balanced, split by patient. {PROTOCOL} *Tokens* counts a
sequence with its question, without the answer. *Codes* lines are what `tefm fit` does by default (K3-C128, with masked
copies). Task-aware codes were trained on a teacher that saw the labels of all training patients; everything else,
LightGBM included, saw the labels of the balanced training patients only (Diabetes130: 81,150 admissions against about
2,600 patients). The *label head* is the linear layer that task-aware codes are trained with; it reads the last record
only. *The paper's whole recipe* runs all of its stages in sequence: its codes, its alignment (new rows alone, 3
epochs), its fine-tuning (all weights, 5 epochs at 1e-5) and its prompt. Each baseline has a small grid of settings,
chosen on validation, and reads the last record or the history. TinyLlama's weights were de-quantised from 2 bits.
Lines without splits are the paper's, for models whose weights were not available."""
PAPERS = "the paper's whole recipe"
LABEL_HEAD = "label head of the task-aware tokenizer, no language model"
#: The titles of the baselines.
BASELINE_TITLES = {
    "majority": "majority class",
    "tfidf": "TF-IDF + logistic regression on text",
    "logistic": "logistic regression on slots",
    "xgboost": "XGBoost on slots",
    "lightgbm": "LightGBM on slots",
    "set-transformer": "Set Transformer over records",
    "tabpfn": "TabPFN on slots",
}


def baseline(figures: Figures) -> dict[str, float | None]:
    """The calibrated test scores of a baseline."""
    return scores(figures, "test_calibrated")


def label_head(figures: Figures) -> dict[str, float | None]:
    return {"auroc": figures["auroc"]}


def methods(setup: Setup, lookup: Lookup, data: str) -> list[Row]:
    """Every row of a data set: each backbone on codes and on text, the paper's recipe, the label head, baselines."""
    rows: list[Row] = []

    def add(method: str, predictions: Iterable[Measurement]) -> None:
        rows.append(row({"data": TITLES[data], "method": method}, predictions, lookup, tuned()))

    for backbone in setup.backbones:
        name, cut = _title(setup, backbone), setup.layers(backbone) is not None
        for recipe in RECIPES:
            codes = [setup.codes(data, split, recipe) for split in setup.splits]
            add(f"{name} on {recipe} codes", [setup.prediction(code, backbone=backbone) for code in codes])
            if cut and data in setup.clinical:
                whole = [setup.prediction(code, backbone=backbone, whole=True) for code in codes]
                add(f"{_whole(backbone)} on {recipe} codes", whole)
        texts = [setup.text(data, split, backbone=backbone) for split in setup.splits]
        add(f"{name} on {_text(texts[0].limit)}", texts)
        if backbone == setup.backbones[0] and cut and data in setup.clinical:
            whole = [setup.text(data, split, whole=True) for split in setup.splits]
            add(f"{_whole(backbone)} on {_text(whole[0].limit)}", whole)
    if data in STANDS_FOR:
        add(f"{PAPERS}, {_whole(setup.backbones[0])}", [setup.papers(data, split) for split in setup.splits])
    codes = [setup.codes(data, split, "task-aware") for split in setup.splits]
    rows.append(row({"data": TITLES[data], "method": LABEL_HEAD}, map(setup.label_head, codes), lookup, label_head))
    for model, title in BASELINE_TITLES.items():
        paper = BASELINES.get(model) if data in setup.clinical else None
        baselines = [setup.baseline(data, split, model) for split in setup.splits]
        published = dict(zip(("accuracy", "macro_f1"), paper, strict=True)) if paper else None
        rows.append(row({"data": TITLES[data], "method": title}, baselines, lookup, baseline, published))
    for name, forms in BACKBONES.get(STANDS_FOR.get(data, ""), {}).items():
        for form, figures in zip(("text", "codes"), forms, strict=True):
            published = dict(zip(("tokens", "accuracy", "macro_f1"), figures, strict=True))
            rows.append(Row({"data": TITLES[data], "method": f"{name} on {form}"}, {}, published))
    return rows


def _text(limit: int | None) -> str:
    return "text" if limit is None else f"the last {limit:,} tokens of the text"


def _title(setup: Setup, backbone: str) -> str:
    layers = setup.layers(backbone)
    return f"{title_of(backbone)} ({layers} blocks)" if layers else _whole(backbone)


def _whole(backbone: str) -> str:
    return f"{title_of(backbone)} (whole)"


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = [line for data in setup.clinical for line in methods(setup, lookup, data)]
    return table_of(setup, "prediction", "Prediction", ABOUT, ("data", "method"), PREDICTION, rows)
