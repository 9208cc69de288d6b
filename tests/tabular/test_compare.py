"""Baselines on one split: what validation chooses, what the test part may change, and what is refused."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import Explained
from hypothesis import given
from hypothesis import strategies as st
from support.planted import check_test_labels_change_only_test_scores, evaluate_baselines, visits

from tefm.base.errors import InputError, MissingExtraError, SettingsError
from tefm.scoring.decision import Decision
from tefm.tables.layout import Layout, Slot
from tefm.tables.schema import Schema
from tefm.tables.sequences import Sequences
from tefm.tables.vectorise import Vectoriser, raw_values
from tefm.tabular import baselines, learners
from tefm.tabular.baselines import TABULAR, BaselineData
from tefm.tabular.inputs import RecordSlots, sequence_features


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two settings for LightGBM."""
    monkeypatch.setattr(learners, "RATES", (0.1,))
    monkeypatch.setattr(learners, "LEAVES", (15, 7))


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


def test_a_missing_package_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    data = visits(100)
    with pytest.raises(MissingExtraError, match="LightGBM"):
        evaluate_baselines(data, resamples=0)


def test_what_is_refused(explained: Explained) -> None:
    data = visits(50)

    def refused(kind: type[Any], changed: BaselineData, *parts: str, **options: Any) -> None:
        explained(kind, lambda: evaluate_baselines(changed, **{"models": ("logistic",), **options}), *parts)

    refused(SettingsError, data, "no features", kinds=())
    refused(InputError, replace(data, texts=["one"]), "50 sequences, but 1 texts")
    refused(InputError, replace(data, slots_ND=data.slots_ND[:, :2]), "2 slots, not 3")
    lives = np.where(data.parts == "train", "alive", data.labels)
    refused(InputError, replace(data, labels=lives), "train part", "1 classes")
    no_test = np.where(data.parts == "test", "train", data.parts)
    refused(InputError, replace(data, parts=no_test), "test part", "0 classes")
    other = np.where(data.parts == "validation", "moved", data.labels)
    refused(InputError, replace(data, labels=other), "validation part", "0 classes of the train part")


# ---- raw values, and a search on a sample ----------------------------------------------------------------------------


def test_raw_values_by_hand() -> None:
    frame = pl.DataFrame(
        {"age": [30.5, None, 41.0], "ward": ["b", "a", "new"], "icu": [1, 0, 1], "drugs": ["x;y", "x", None]}
    )
    schema = Schema.from_yaml(
        "fields: {age: number, ward: category, icu: flag, drugs: {kind: set, delimiter: ;, count: false}}"
    )
    train = np.array([True, True, False])
    vectoriser = Vectoriser.fit(frame.filter(pl.Series(train)), schema)
    x, layout = raw_values(frame, vectoriser, vectoriser.transform(frame), train)
    assert [slot.kind for slot in layout.slots] == ["number", "category", "flag", "flag", "flag"]
    np.testing.assert_array_equal(x[:, 0], np.array([30.5, np.nan, 41.0], dtype=np.float32))
    np.testing.assert_array_equal(x[:, 1], [1, 0, np.nan])  # a word that the training records lack is absent
    assert x[:, 2:].tolist() == [[1, 1, 1], [0, 1, 0], [1, 0, 0]]
    both = RecordSlots(x, layout, Sequences(np.array([0, 1, 2]), np.array([0, 2, 3])))
    history = sequence_features(both, "history").x_NF
    np.testing.assert_allclose(history[:, 5], [30.5, 41.0])  # absent values do not count in a mean
    np.testing.assert_array_equal(np.isnan(sequence_features(both, "flat").x_NF[1, :5]), True)


def fine_ages(n: int = 600) -> BaselineData:
    """Visits whose label is decided by decimals of a number, which no bucket shows."""
    data, rng = visits(n), np.random.default_rng(1)
    age = rng.uniform(size=3 * n)
    raw = np.stack([age, rng.uniform(size=3 * n)], axis=1).astype(np.float32)
    raw[::5, 1] = np.nan
    labels = np.where(age[2::3] * 4 % 1 > 0.5, "died", "alive").astype(object)
    layout = Layout((Slot("age", "number", 1), Slot("other", "number", 1)))
    return replace(data, labels=labels, raw=(raw, layout))


def test_trees_choose_raw_values_where_these_say_more() -> None:
    results = evaluate_baselines(fine_ages(), resamples=0)
    assert results["lightgbm"]["kind"].startswith("raw ")
    assert results["lightgbm"]["test"]["auroc"]["value"] > 0.9
    assert {tried["kind"] for tried in results["lightgbm"]["tried"]} == {"last", "history", "raw last", "raw history"}
    assert {tried["kind"] for tried in results["logistic"]["tried"]} == {"last", "history"}


def test_a_large_comparison_is_searched_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    data = fine_ages()
    sizes: list[int] = []

    def spied(train: Any, validation: Any, task: Any) -> Any:
        chosen = learners.fit_lightgbm(train, validation, task)
        sizes.append(len(train.inputs))
        return chosen

    spied_on = {"lightgbm": replace(TABULAR["lightgbm"], fit=spied)}
    monkeypatch.setattr(baselines, "SEARCHED", 400)
    monkeypatch.setattr(baselines, "FEWEST_SEARCHED", 100)
    result = baselines.fit_baselines(data, spied_on, resamples=0)["lightgbm"].figures
    assert sizes == [200] * 4 + [200] + [360]  # four kinds, the settings of the best one, and all sequences
    assert len(result["tried"]) == 4 + 2
    assert (result["kind"], result["train"]) == ("raw last", 360)
    settled = {name: result["settings"][name] for name in ("num_leaves", "learning_rate")}
    best = max((tried for tried in result["tried"][4:]), key=lambda tried: (tried["auroc"], -tried["log_loss"]))
    assert settled.items() <= best.items()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=200), st.integers(5, 100), st.integers(0, 9))
def test_a_sample_has_every_class(labels: list[int], most: int, seed: int) -> None:
    sample = baselines.stratified_sample(np.array(labels), most, seed)
    assert len(sample) == len(set(sample.tolist())) == min(most, len(labels))
    assert set(np.array(labels)[sample]) == set(labels)


def test_the_decision_and_the_population_are_those_of_our_model() -> None:
    data = visits(400)
    deaths = np.flatnonzero((data.labels == "died") & (data.parts != "train"))
    data = data.select(np.setdiff1d(np.arange(400), deaths[10:]))  # rare outside of training
    settings: dict[str, Any] = {"models": ("logistic",), "kinds": ("last",), "resamples": 0}
    plain = evaluate_baselines(data, **settings)["logistic"]
    moved = evaluate_baselines(data, decision=Decision("f1"), shares=(0.9, 0.1), **settings)["logistic"]
    assert (plain["calibration"]["rule"], moved["calibration"]["rule"]) == ("accuracy", "f1")
    assert plain["calibration"]["bias"] == [] and len(moved["calibration"]["bias"]) == 2
    assert moved["test_calibrated"]["brier"]["value"] < plain["test_calibrated"]["brier"]["value"]
    assert moved["test_calibrated"]["auroc"] == plain["test_calibrated"]["auroc"]
