"""All baselines of the bench on one split: what each is given, what validation chooses, what the test part changes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from conftest import Explained
from support.planted import check_test_labels_change_only_test_scores, visits
from tefm_bench.baselines import set_transformer, xgboost
from tefm_bench.baselines.compare import BASELINES, evaluate_baselines

from tefm.base.errors import InputError, MissingExtraError, SettingsError
from tefm.tabular import learners
from tefm.tabular.baselines import TABULAR

pytestmark = pytest.mark.all

ALL = ("majority", "tfidf", "logistic", "xgboost", "lightgbm", "set-transformer")
#: Those that need several records, or categories.
OF_SEQUENCES = ("counting", "gru")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two settings each."""
    monkeypatch.setattr(set_transformer, "DROPOUTS", (0.1,))
    monkeypatch.setattr(learners, "RATES", (0.1,))
    monkeypatch.setattr(learners, "LEAVES", (15, 7))
    monkeypatch.setattr(xgboost, "RATES", (0.1,))
    monkeypatch.setattr(xgboost, "DEPTHS", (4, 3))


def test_every_model_finds_the_signal_in_the_first_record() -> None:
    data = visits()
    results = evaluate_baselines(data, models=ALL, kinds=("last", "flat"), resamples=50, device="cpu", steps=60)
    assert list(results) == list(ALL)
    kinds = {name: result["kind"] for name, result in results.items()}
    inputs = {"majority": "nothing", "tfidf": "text", "set-transformer": "records"}
    assert kinds == {name: inputs.get(name, "flat") for name in ALL}
    for name, result in results.items():
        test = result["test"]
        assert (result["train"], test["n"], test["classes"]) == (360, 120, ["alive", "died"])
        assert result["validation"]["n"] == 120
        if name == "majority":
            assert test["auroc"]["value"] == 0.5
            continue
        assert test["auroc"]["value"] > 0.95, name
        assert result["test_calibrated"]["auroc"]["value"] == pytest.approx(test["auroc"]["value"], abs=1e-3)
        best = max(tried["auroc"] for tried in result["tried"])
        assert result["validation"]["auroc"]["value"] == best
        assert result["seconds"] > 0
    assert json.loads(json.dumps(results, allow_nan=False)) == results


@pytest.mark.parametrize("name", [name for name in ALL if name not in TABULAR])
def test_test_labels_change_only_test_scores(name: str) -> None:
    check_test_labels_change_only_test_scores(evaluate_baselines, name)


def test_texts_without_a_label_change_nothing() -> None:
    data = visits(300)
    labels = data.labels.copy()
    labels[::7] = None
    labelled = np.array([label is not None for label in labels])
    test = evaluate_baselines(replace(data, labels=labels), models=("tfidf",), resamples=0)["tfidf"]["test"]
    assert test["n"] == (labelled & (data.parts == "test")).sum()
    assert test["auroc"]["value"] > 0.95


def test_a_class_that_only_validation_has() -> None:
    data = visits(300)
    labels = data.labels.copy()
    labels[np.flatnonzero(data.parts == "validation")[:5]] = "moved"
    results = evaluate_baselines(
        replace(data, labels=labels), models=ALL, kinds=("flat",), resamples=0, device="cpu", steps=60
    )
    for result in results.values():
        assert result["test"]["classes"] == ["alive", "died", "moved"]
        assert result["validation"]["n"] == 60


def test_all_baselines_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(BASELINES) == {*ALL, *OF_SEQUENCES, "tabpfn"}
    monkeypatch.setitem(sys.modules, "tabpfn", None)
    with pytest.raises(MissingExtraError, match="TabPFN"):
        evaluate_baselines(visits(100), models=("majority", "tabpfn"), resamples=0)
    results = evaluate_baselines(visits(100), models=("majority", "tabpfn"), resamples=0, skip_missing=True)
    assert list(results) == ["majority"]


def test_what_is_refused(explained: Explained) -> None:
    data = visits(50)
    explained(SettingsError, lambda: evaluate_baselines(data, models=("xgbost",)), "'xgbost'", "xgboost")
    no_texts = replace(data, texts=None)
    explained(InputError, lambda: evaluate_baselines(no_texts, models=("tfidf",)), "no texts", "tfidf")
