"""The features of sequences by hand, the tabular models on planted data, and what they refuse."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import Explained
from hypothesis import given
from hypothesis import strategies as st

from tefm.baselines import tabular
from tefm.baselines.tabular import (
    Tabular,
    evaluate_tabular,
    feature_kinds,
    lightgbm,
    log_loss,
    logistic,
    sequence_features,
)
from tefm.errors import InputError, MissingExtraError, SettingsError
from tefm.records.layout import Layout, Slot
from tefm.records.sequences import Sequences

LAYOUT = Layout((Slot("ward", "category", 5), Slot("age", "number", 10), Slot("dx", "flag", 1, "428")))


def sequences_of(lengths: Any, rows: Any = None, labels: Any = None) -> Sequences:
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = np.arange(starts[-1]) if rows is None else np.asarray(rows)
    ids = np.array([f"s{i}" for i in range(len(lengths))], dtype=object)
    return Sequences(rows, starts, ids, labels, starts[1:])


# ---- features -------------------------------------------------------------------------------------------------------


def test_features_by_hand() -> None:
    x = np.array([[5, 10, 1], [1, 2, 0], [3, 4, 0]], dtype=np.uint8)
    sequences = sequences_of([2, 1], rows=[2, 0, 1])  # records 2 then 0, and record 1
    assert sequence_features(x, sequences, LAYOUT, kind="last").tolist() == [[5, 10, 1], [1, 2, 0]]
    history = sequence_features(x, sequences, LAYOUT, kind="history")
    np.testing.assert_allclose(history, [[5, 10, 1, 0.8, 0.7, 0.5, 2], [1, 2, 0, 0.2, 0.2, 0, 1]], rtol=1e-6)
    flat = sequence_features(x, sequences, LAYOUT, kind="flat")
    assert flat.tolist() == [[3, 4, 0, 5, 10, 1], [0, 0, 0, 1, 2, 0]]
    assert feature_kinds(LAYOUT, 7, kind="history") == ("category", "number", "flag", *["number"] * 4)
    assert feature_kinds(LAYOUT, 6, kind="flat") == ("category", "number", "flag") * 2


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
def test_features_are_those_of_each_sequence_alone(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, LAYOUT.sizes_D + 1, size=(sum(lengths) + 3, 3)).astype(np.uint8)
    sequences = sequences_of(lengths, rows=rng.permutation(len(x))[: sum(lengths)])
    of_kind = {kind: sequence_features(x, sequences, LAYOUT, kind=kind) for kind in ("last", "history", "flat")}
    for i in range(len(sequences)):
        records = x[sequences[i]]
        np.testing.assert_array_equal(of_kind["last"][i], records[-1])
        np.testing.assert_allclose(of_kind["history"][i, 3:6], (records / LAYOUT.sizes_D).mean(axis=0), rtol=1e-5)
        assert of_kind["history"][i, -1] == len(records)
        padding, kept = np.split(of_kind["flat"][i], [(max(lengths) - len(records)) * 3])
        assert not padding.any()
        np.testing.assert_array_equal(kept.reshape(-1, 3), records)


# ---- models ---------------------------------------------------------------------------------------------------------


def planted(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Wards 2 and 5 are the dangerous ones: an order of the wards says little."""
    rng = np.random.default_rng(seed)
    x = rng.integers(1, LAYOUT.sizes_D + 1, size=(n, 3)).astype(np.uint8)
    risk = np.where(np.isin(x[:, 0], (2, 5)), 3.0, -3.0) + 0.2 * (x[:, 1] - 5)
    return x, (rng.uniform(size=n) < 1 / (1 + np.exp(-risk))).astype(np.int64)


@pytest.mark.parametrize("fit", [lightgbm, logistic])
def test_a_model_learns_what_was_planted(fit: Any) -> None:
    (x, y), (vx, vy), (tx, ty) = (planted(n, seed) for seed, n in enumerate((800, 200, 1_000)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a user sees none of the libraries' warnings
        model: Tabular = fit(x, y, vx, vy, kinds=feature_kinds(LAYOUT, 3, kind="last"), classes=2, seed=0)
        p = model.predict_proba(tx)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p.argmax(axis=1) == ty).mean() > 0.9
    again = fit(x, y, vx, vy, kinds=feature_kinds(LAYOUT, 3, kind="last"), classes=2, seed=0)
    np.testing.assert_array_equal(again.predict_proba(tx), p)


def test_categories_need_to_be_told() -> None:
    """A linear model of the ward's number cannot tell wards 2 and 5 from the others."""
    (x, y), (vx, vy) = planted(800), planted(200, 1)
    told, untold = (
        log_loss(logistic(x, y, vx, vy, kinds=kinds, classes=2).predict_proba(vx), vy)
        for kinds in (("category", "number", "flag"), ("number", "number", "flag"))
    )
    assert told < 0.6 * untold


def test_lightgbm_stops_when_validation_says_so() -> None:
    (x, y), (vx, vy) = planted(300), planted(200, 1)
    kinds = feature_kinds(LAYOUT, 3, kind="last")
    fitted = lightgbm(x, y, vx, vy, kinds=kinds, classes=2)
    assert 0 < fitted.model.best_iteration_ < tabular.TREES - tabular.PATIENCE
    noise = lightgbm(x, y, vx, np.random.default_rng(0).integers(0, 2, 200), kinds=kinds, classes=2)
    assert noise.model.best_iteration_ < fitted.model.best_iteration_


def test_balanced_weighs_every_class_alike() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(1, 6, size=(2_000, 3)).astype(np.uint8), (rng.uniform(size=2_000) < 0.05).astype(np.int64)
    kinds = feature_kinds(LAYOUT, 3, kind="last")
    plain, balanced = (
        lightgbm(x, y, x[:200], y[:200], kinds=kinds, classes=2, balanced=b).predict_proba(x)[:, 1].mean()
        for b in (False, True)
    )
    assert plain == pytest.approx(0.05, abs=0.02)
    assert balanced > 4 * plain


@pytest.mark.parametrize("fit", [lightgbm, logistic])
def test_a_class_that_training_lacks_has_no_probability(fit: Any) -> None:
    x, y = planted(400)
    labels = np.where(y == 1, 2, 0)
    labels[-5:] = 1
    model = fit(x[:300], labels[:300], x[300:], labels[300:], kinds=feature_kinds(LAYOUT, 3, kind="last"), classes=4)
    p = model.predict_proba(x)
    assert p.shape == (400, 4)
    assert not p[:, [1, 3]].any()
    np.testing.assert_allclose(p.sum(axis=1), 1)


def test_without_lightgbm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    x, y = planted(50)
    with pytest.raises(MissingExtraError, match=r"pip install 'tefm\[doctor\]'"):
        lightgbm(x, y, x, y, kinds=("category", "number", "flag"), classes=2)


# ---- the comparison -------------------------------------------------------------------------------------------------


def visits(n: int = 600) -> tuple[Any, Sequences, Any, Any]:
    """Sequences of three records whose label is decided by the *first* one: the last record knows nothing."""
    rng = np.random.default_rng(0)
    x = rng.integers(1, LAYOUT.sizes_D + 1, size=(3 * n, 3)).astype(np.uint8)
    x[:, 2] -= 1
    x[::3, 2] = rng.integers(0, 2, n)
    labels = np.where(x[::3, 2] == 1, "died", "alive").astype(object)
    parts = np.array(["train", "train", "train", "validation", "test"] * (n // 5))
    return x, sequences_of([3] * n, labels=labels), labels, parts


def test_the_features_are_chosen_on_validation() -> None:
    x, sequences, labels, parts = visits()
    got = evaluate_tabular(x, LAYOUT, sequences, labels, parts, ("last", "history", "flat"), resamples=50)
    assert list(got) == ["lightgbm", "logistic"]
    for result in got.values():
        assert result["kind"] in ("history", "flat")
        assert result["validation"]["last"]["auroc"]["value"] < 0.7
        assert result["test"]["auroc"]["value"] > 0.95
        assert (result["train"], result["test"]["n"], result["test"]["classes"]) == (360, 120, ["alive", "died"])
        assert result["test_calibrated"]["auroc"]["value"] == pytest.approx(result["test"]["auroc"]["value"])
    assert json.loads(json.dumps(got, allow_nan=False)) == got


def test_test_labels_change_nothing_but_the_test_scores() -> None:
    x, sequences, labels, parts = visits()
    turned = np.where((parts == "test") & (labels == "died"), "alive", np.where(parts == "test", "died", labels))
    results = [
        evaluate_tabular(x, LAYOUT, sequences, of, parts, ("last", "flat"), models=("logistic",), resamples=0)[
            "logistic"
        ]
        for of in (labels, turned.astype(object))
    ]
    right, wrong = (result.pop("test")["auroc"]["value"] for result in results)
    for result in results:
        result.pop("test_calibrated")
    assert results[0] == results[1]
    assert wrong == pytest.approx(1 - right)


def test_sequences_without_a_label_are_left_out() -> None:
    x, sequences, labels, parts = visits()
    labels[::7] = None
    got = evaluate_tabular(x, LAYOUT, sequences, labels, parts, ("flat",), models=("logistic",), resamples=0)
    known = np.array([label is not None for label in labels])
    assert got["logistic"]["test"]["n"] == (known & (parts == "test")).sum()


def test_what_is_refused(explained: Explained) -> None:
    x, sequences, labels, parts = visits(50)
    explained(InputError, lambda: sequence_features(x[:, :2], sequences, LAYOUT, kind="last"), "2 slots, not 3")
    wrong: Any = "lasst"
    explained(SettingsError, lambda: sequence_features(x, sequences, LAYOUT, kind=wrong), "'lasst'", "history")
    everyone_lives = np.where(parts == "train", "alive", labels)
    explained(
        InputError, lambda: evaluate_tabular(x, LAYOUT, sequences, everyone_lives, parts), "train part", "1 classes"
    )
    no_test = np.where(parts == "test", "train", parts)
    explained(InputError, lambda: evaluate_tabular(x, LAYOUT, sequences, labels, no_test), "test part", "0 classes")
