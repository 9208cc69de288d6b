"""All baselines by name, and what each of them is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tefm.base.errors import InputError, MissingExtraError, SettingsError, did_you_mean
from tefm.base.progress import note
from tefm.tabular.baselines import TABULAR, Baseline, BaselineData, Compared
from tefm.tabular.baselines import fit_baselines as fit_models
from tefm.tabular.inputs import Features, RecordSlots
from tefm_bench.baselines.counting import fit_counting
from tefm_bench.baselines.majority import fit_majority
from tefm_bench.baselines.recurrent import fit_recurrent
from tefm_bench.baselines.set_transformer import fit_set_transformer
from tefm_bench.baselines.tabpfn import fit_tabpfn
from tefm_bench.baselines.tfidf import fit_tfidf
from tefm_bench.baselines.xgboost import fit_xgboost

__all__ = ["BASELINES", "BaselineData", "evaluate_baselines", "fit_baselines"]


def _nothing(data: BaselineData, _: Sequence[str]) -> list[tuple[str, Any]]:
    return [("nothing", Features(np.zeros((len(data.labels), 0)), ()))]


def _records(data: BaselineData, _: Sequence[str]) -> list[tuple[str, Any]]:
    return [("records", RecordSlots(data.slots_ND, data.layout, data.sequences))]


def _texts(data: BaselineData, _: Sequence[str]) -> list[tuple[str, Any]]:
    if data.texts is None:
        raise InputError(
            "there are no texts to learn from", value="tfidf", remedy="give one text per sequence, or leave tfidf out"
        )
    return [("text", np.array(data.texts, dtype=object))]


BASELINES: Mapping[str, Baseline] = {
    "majority": Baseline(fit_majority, _nothing),
    "tfidf": Baseline(fit_tfidf, _texts),
    "logistic": TABULAR["logistic"],
    "xgboost": replace(TABULAR["lightgbm"], fit=fit_xgboost),
    "lightgbm": TABULAR["lightgbm"],
    "counting": Baseline(fit_counting, _records),
    "gru": Baseline(fit_recurrent, _records),
    "set-transformer": Baseline(fit_set_transformer, _records),
    "tabpfn": Baseline(fit_tabpfn),
}


def fit_baselines(
    data: BaselineData,
    *,
    models: Sequence[str] = tuple(BASELINES),
    available: Mapping[str, Baseline] = BASELINES,
    skip_missing: bool = False,
    **settings: Any,
) -> dict[str, Compared]:
    """Fit and score models on the same split, each by its name in `available`, as `tefm.tabular.baselines` does.

    With `skip_missing`, models whose package or weights are missing are skipped; otherwise that is an error.
    """
    for name in models:
        if name not in available:
            raise SettingsError("not a valid baseline", value=name, remedy=did_you_mean(name, available))
    results: dict[str, Compared] = {}
    for name in models:
        try:
            results |= fit_models(data, {name: available[name]}, **settings)
        except MissingExtraError as error:
            if not skip_missing:
                raise
            note(f"{name} skipped: {error.problem} → {error.remedy}")
    return results


def evaluate_baselines(data: BaselineData, **settings: Any) -> dict[str, dict[str, Any]]:
    """The figures of `fit_baselines`, by name."""
    return {name: compared.figures for name, compared in fit_baselines(data, **settings).items()}
