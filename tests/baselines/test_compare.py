"""All baselines on one split: what is chosen on validation, what the test part may change, and what is refused."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import Explained
from planted import visits

from tefm.base.errors import InputError, MissingExtraError, SettingsError
from tefm.baselines import boosted, set_transformer
from tefm.baselines.compare import BaselineData, evaluate_baselines
from tefm.baselines.tabular import evaluate_tabular

ALL = ("majority", "tfidf", "logistic", "xgboost", "lightgbm", "set-transformer")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two settings each."""
    monkeypatch.setattr(set_transformer, "DROPOUTS", (0.1,))
    monkeypatch.setattr(boosted, "RATES", (0.1,))
    monkeypatch.setattr(boosted, "LEAVES", (15, 7))
    monkeypatch.setattr(boosted, "DEPTHS", (4, 3))


def test_every_model_finds_what_the_first_record_says() -> None:
    data = visits()
    got = evaluate_baselines(data, models=ALL, kinds=("last", "flat"), resamples=50, device="cpu", steps=60)
    assert list(got) == list(ALL)
    kinds = {name: result["kind"] for name, result in got.items()}
    read = {"majority": "nothing", "tfidf": "text", "set-transformer": "records"}
    assert kinds == {name: read.get(name, "flat") for name in ALL}
    for name, result in got.items():
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
    assert json.loads(json.dumps(got, allow_nan=False)) == got


def test_the_last_record_alone_knows_nothing() -> None:
    got = evaluate_baselines(visits(), models=("logistic",), kinds=("last", "history"), resamples=0)["logistic"]
    assert got["kind"] == "history"
    assert max(tried["auroc"] for tried in got["tried"] if tried["kind"] == "last") < 0.7


@pytest.mark.parametrize("name", ALL)
def test_test_labels_change_nothing_but_the_test_scores(name: str) -> None:
    data = visits(300)
    of_test = data.parts == "test"
    turned = np.where(of_test, np.where(data.labels == "died", "alive", "died"), data.labels).astype(object)
    results: list[dict[str, Any]] = []
    for labels in (data.labels, turned):
        of = replace(data, labels=labels)
        results.append(
            evaluate_baselines(of, models=(name,), kinds=("flat",), resamples=0, device="cpu", steps=60)[name]
        )
    right, wrong = (result.pop("test")["auroc"]["value"] for result in results)
    for result in results:
        result.pop("test_calibrated")
        result.pop("seconds")
    assert results[0] == results[1]
    assert wrong == pytest.approx(1 - right)


def test_records_outside_the_split_change_nothing() -> None:
    data = visits(300)
    labels = data.labels.copy()
    labels[::7] = None
    known = np.array([label is not None for label in labels])
    got = evaluate_baselines(replace(data, labels=labels), models=("logistic", "tfidf"), kinds=("flat",), resamples=0)
    for result in got.values():
        assert result["test"]["n"] == (known & (data.parts == "test")).sum()
        assert result["test"]["auroc"]["value"] > 0.95


def test_tabular_is_the_same_comparison() -> None:
    data = visits(300)
    args = data.slots_ND, data.layout, data.sequences, data.labels, data.parts
    old = evaluate_tabular(*args, ("last", "flat"), positive=0, resamples=0, seed=3)
    new = evaluate_baselines(
        data, models=("lightgbm", "logistic"), kinds=("last", "flat"), positive=0, resamples=0, seed=3
    )
    for result in (*old.values(), *new.values()):
        result.pop("seconds")
    assert old == new


def test_a_class_that_only_validation_has() -> None:
    data = visits(300)
    labels = data.labels.copy()
    labels[np.flatnonzero(data.parts == "validation")[:5]] = "moved"
    got = evaluate_baselines(
        replace(data, labels=labels), models=ALL, kinds=("flat",), resamples=0, device="cpu", steps=60
    )
    for result in got.values():
        assert result["test"]["classes"] == ["alive", "died", "moved"]
        assert result["validation"]["n"] == 60


def test_a_missing_model_is_an_error_or_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tabpfn", None)
    data = visits(100)
    with pytest.raises(MissingExtraError, match="TabPFN"):
        evaluate_baselines(data, models=("majority", "tabpfn"), resamples=0)
    assert list(evaluate_baselines(data, models=("majority", "tabpfn"), resamples=0, skip_missing=True)) == ["majority"]


def test_what_is_refused(explained: Explained) -> None:
    data = visits(50)

    def refused(kind: type[Any], changed: BaselineData, *parts: str, **options: Any) -> None:
        explained(kind, lambda: evaluate_baselines(changed, **{"models": ("logistic",), **options}), *parts)

    refused(SettingsError, data, "'lightgmb'", "lightgbm", models=("lightgmb",))
    refused(SettingsError, data, "no features", kinds=())
    refused(InputError, replace(data, texts=None), "no texts", "tfidf", models=("tfidf",))
    refused(InputError, replace(data, texts=["one"]), "50 sequences, but 1 texts")
    refused(InputError, replace(data, slots_ND=data.slots_ND[:, :2]), "2 slots, not 3")
    lives = np.where(data.parts == "train", "alive", data.labels)
    refused(InputError, replace(data, labels=lives), "train part", "1 classes")
    no_test = np.where(data.parts == "test", "train", data.parts)
    refused(InputError, replace(data, parts=no_test), "test part", "0 classes")
    other = np.where(data.parts == "validation", "moved", data.labels)
    refused(InputError, replace(data, labels=other), "validation part", "0 classes of the train part")
