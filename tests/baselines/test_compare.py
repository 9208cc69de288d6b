"""Baselines on one split: what validation chooses, what the test part may change, and what is refused."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from baselines.planted import check_test_labels_change_only_test_scores, visits
from conftest import Explained

from tefm.base.errors import InputError, MissingExtraError, SettingsError
from tefm.baselines import boosted
from tefm.baselines.compare import TABULAR, BaselineData, evaluate_baselines


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two settings for LightGBM."""
    monkeypatch.setattr(boosted, "RATES", (0.1,))
    monkeypatch.setattr(boosted, "LEAVES", (15, 7))


def test_the_last_record_alone_has_no_signal() -> None:
    results = evaluate_baselines(visits(), models=("logistic",), kinds=("last", "history"), resamples=0)["logistic"]
    assert results["kind"] == "history"
    assert max(tried["auroc"] for tried in results["tried"] if tried["kind"] == "last") < 0.7


@pytest.mark.parametrize("name", TABULAR)
def test_test_labels_change_only_test_scores(name: str) -> None:
    check_test_labels_change_only_test_scores(evaluate_baselines, name)


def test_records_outside_the_split_change_nothing() -> None:
    data = visits(300)
    labels = data.labels.copy()
    labels[::7] = None
    labelled = np.array([label is not None for label in labels])
    results = evaluate_baselines(replace(data, labels=labels), models=("logistic",), kinds=("flat",), resamples=0)
    test = results["logistic"]["test"]
    assert test["n"] == (labelled & (data.parts == "test")).sum()
    assert test["auroc"]["value"] > 0.95


def test_records_outside_of_the_sequences_make_no_difference() -> None:
    """A fit hands over the records of its sequences only, numbered anew."""
    data = visits(300)
    used = replace(
        data,
        slots_ND=data.slots_ND[data.sequences.rows],
        sequences=data.sequences.with_values(np.arange(len(data.sequences.rows))),
    )
    spare = replace(
        data,
        slots_ND=np.concatenate([data.slots_ND[:7], data.slots_ND]),
        sequences=data.sequences.with_values(data.sequences.rows + 7),
    )
    tabular, results = (
        evaluate_baselines(given, kinds=("last", "flat"), positive=0, resamples=0, seed=3) for given in (used, spare)
    )
    assert list(tabular) == ["lightgbm", "logistic"]
    assert json.loads(json.dumps(tabular, allow_nan=False)) == tabular
    for result in (*tabular.values(), *results.values()):
        assert result.pop("seconds") > 0
    assert tabular == results


def test_a_missing_package_is_an_error_or_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    data = visits(100)
    with pytest.raises(MissingExtraError, match="LightGBM"):
        evaluate_baselines(data, resamples=0)
    assert list(evaluate_baselines(data, resamples=0, skip_missing=True)) == ["logistic"]


def test_what_is_refused(explained: Explained) -> None:
    data = visits(50)

    def refused(kind: type[Any], changed: BaselineData, *parts: str, **options: Any) -> None:
        explained(kind, lambda: evaluate_baselines(changed, **{"models": ("logistic",), **options}), *parts)

    refused(SettingsError, data, "'lightgmb'", "lightgbm", models=("lightgmb",))
    refused(SettingsError, data, "no features", kinds=())
    refused(InputError, replace(data, texts=["one"]), "50 sequences, but 1 texts")
    refused(InputError, replace(data, slots_ND=data.slots_ND[:, :2]), "2 slots, not 3")
    lives = np.where(data.parts == "train", "alive", data.labels)
    refused(InputError, replace(data, labels=lives), "train part", "1 classes")
    no_test = np.where(data.parts == "test", "train", data.parts)
    refused(InputError, replace(data, parts=no_test), "test part", "0 classes")
    other = np.where(data.parts == "validation", "moved", data.labels)
    refused(InputError, replace(data, labels=other), "validation part", "0 classes of the train part")
