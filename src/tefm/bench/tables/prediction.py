"""Prediction: what a language model answers from codes, from text, and what others answer."""

from __future__ import annotations

from collections.abc import Iterable

from tefm.bench.experiments import Ask, Plan, row, scores, tuned
from tefm.bench.measurement import Found, Measurement
from tefm.bench.predictions import named
from tefm.bench.table import Row, Table
from tefm.bench.tables.common import JUDGED, PREDICTION, RECIPES, TITLES, made_of
from tefm.bench.tables.published import BACKBONES, BASELINES, STANDS_FOR

ABOUT = f"""In-hospital death at the last admission, classes balanced, split by patient. {JUDGED}
*Tokens* counts a sequence with its question, without the answer. *Codes* lines are what `tefm fit` does by default
(K3-C128, with masked copies). Task-aware codes were trained on a teacher that saw the labels of all training patients;
everything else, LightGBM included, saw the labels of the balanced training patients only (Diabetes130: 81,150
admissions against about 2,600 patients). Each baseline has a small grid of settings, chosen on validation, and reads
the last record or the history. TinyLlama's weights were de-quantised from 2 bits. Lines without splits are the
paper's, for models whose weights were not available."""
#: What the baselines are called.
OTHERS = {
    "majority": "majority class",
    "tfidf": "TF-IDF + logistic regression on text",
    "logistic": "logistic regression on slots",
    "xgboost": "XGBoost on slots",
    "lightgbm": "LightGBM on slots",
    "set-transformer": "Set Transformer over records",
    "tabpfn": "TabPFN on slots",
}


def baseline(found: Found) -> dict[str, float | None]:
    return scores(found, "test_calibrated")


def methods(plan: Plan, ask: Ask, data: str) -> list[Row]:
    """Every line of a data set: ours by backbone, the same backbone on text, the baselines, the paper's."""
    rows: list[Row] = []

    def add(method: str, asked: Iterable[Measurement]) -> None:
        rows.append(row({"data": TITLES[data], "method": method}, asked, ask, tuned()))

    for backbone in plan.backbones:
        name, cut = _called(plan, backbone), plan.layers(backbone) is not None
        for recipe in RECIPES:
            codes = [plan.codes(data, split, recipe) for split in plan.splits]
            add(f"{name} on {recipe} codes", [plan.reading(code, backbone=backbone) for code in codes])
            if cut and data in plan.clinical:
                whole = [plan.reading(code, backbone=backbone, whole=True) for code in codes]
                add(f"{_whole(backbone)} on {recipe} codes", whole)
        if backbone == plan.backbones[0]:
            add(f"{name} on text", [plan.text(data, split) for split in plan.splits])
            if cut and data in plan.clinical:
                add(f"{_whole(backbone)} on text", [plan.text(data, split, whole=True) for split in plan.splits])
    for model, method in OTHERS.items():
        paper = BASELINES.get(model) if data in plan.clinical else None
        others = [plan.baseline(data, split, model) for split in plan.splits]
        published = dict(zip(("accuracy", "macro_f1"), paper, strict=True)) if paper else None
        rows.append(row({"data": TITLES[data], "method": method}, others, ask, baseline, published))
    for name, forms in BACKBONES.get(STANDS_FOR.get(data, ""), {}).items():
        for form, figures in zip(("text", "codes"), forms, strict=True):
            published = dict(zip(("tokens", "accuracy", "macro_f1"), figures, strict=True))
            rows.append(Row({"data": TITLES[data], "method": f"{name} on {form}"}, {}, published))
    return rows


def _called(plan: Plan, backbone: str) -> str:
    layers = plan.layers(backbone)
    return f"{named(backbone)} ({layers} blocks)" if layers else _whole(backbone)


def _whole(backbone: str) -> str:
    return f"{named(backbone)} (whole)"


def table(plan: Plan, ask: Ask) -> Table:
    rows = [line for data in plan.clinical for line in methods(plan, ask, data)]
    return made_of(plan, "prediction", "Prediction", ABOUT, ("data", "method"), PREDICTION, rows)
