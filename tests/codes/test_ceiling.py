"""The code ceiling on planted data, its scores against scikit-learn's, and what it refuses."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from tefm.base.errors import InputError, MissingExtraError
from tefm.codes.doctor import auroc_with_error, ceiling

N = 3000
RNG = np.random.default_rng(0)
A, B = RNG.integers(0, 16, N), RNG.integers(0, 16, N)
TRAIN = np.arange(N) < 2000
TEST = ~TRAIN
RAW = np.stack([A, B], axis=1).astype(np.uint8)
LABELS = np.where(A + B > 15, "died", "alive")


def test_codes_that_carry_half_of_the_signal() -> None:
    """The label is a sum of two slots; the codes contain one of them, under shuffled names."""
    codes = RNG.permutation(16)[A][:, None]
    noise = RNG.integers(0, 16, (N, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a user sees none of LightGBM's or scikit-learn's warnings
        scores = ceiling({"raw slots": RAW, "codes": codes, "noise": noise}, LABELS, TRAIN, TEST)
    assert list(scores) == ["raw slots", "codes", "noise"]
    raw, coded, guess = scores.values()
    assert raw.auroc > 0.99 and raw.accuracy > 0.95 and raw.macro_f1 > 0.95
    best = roc_auc_score(LABELS[TEST] == "died", A[TEST])  # the best possible with one slot
    assert coded.auroc == pytest.approx(best, abs=0.01)
    assert 0.75 < coded.auroc < 0.90
    assert guess.auroc == pytest.approx(0.5, abs=4 * guess.auroc_se)
    assert 0 < raw.auroc_se < coded.auroc_se < guess.auroc_se < 0.03
    assert (raw.train_records, raw.test_records) == (2000, 1000)
    assert json.loads(json.dumps(asdict(raw))) == asdict(raw)


def test_same_seed_same_score() -> None:
    once, twice = (ceiling({"raw": RAW}, LABELS, TRAIN, TEST, seed=1)["raw"] for _ in range(2))
    assert once == twice


def test_several_classes() -> None:
    labels = np.digitize(A + B, [10, 20])
    scores = ceiling({"raw": RAW, "half": RAW[:, :1]}, labels, TRAIN, TEST)
    assert scores["raw"].auroc > 0.99 > 0.9 > scores["half"].auroc > 0.7


def test_rows_outside_both_parts_do_not_count() -> None:
    """A class that only occurs among the validation rows is not missing from the others."""
    labels, valid = LABELS.copy().astype(object), np.arange(N) < 200
    labels[valid] = "unknown"
    assert ceiling({"raw": RAW}, labels, TRAIN & ~valid, TEST)["raw"].train_records == 1800


def test_a_class_missing_from_either_part() -> None:
    everyone_lives_at_first = np.where(TRAIN, "alive", LABELS)
    with pytest.raises(InputError, match=r"1 of 2 classes .* training rows \[value 'died'\]"):
        ceiling({"raw": RAW}, everyone_lives_at_first, TRAIN, TEST)
    with pytest.raises(InputError, match="test rows"):
        ceiling({"raw": RAW}, np.where(TEST, "alive", LABELS), TRAIN, TEST)
    with pytest.raises(InputError, match="1 classes"):
        ceiling({"raw": RAW}, np.zeros(N), TRAIN, TEST)


def test_rows_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="'raw' has 10 rows, but there are 3000 labels"):
        ceiling({"raw": RAW[:10]}, LABELS, TRAIN, TEST)
    with pytest.raises(InputError, match="1000 records are in both the training and the test rows"):
        ceiling({"raw": RAW}, LABELS, TRAIN | TEST, TEST)


def test_without_lightgbm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tefm\[doctor\]'"):
        ceiling({"raw": RAW}, LABELS, TRAIN, TEST)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_auroc_is_scikit_learns(classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, 40)])
    probabilities = rng.dirichlet(np.ones(classes), len(labels)).round(1) + 0.1  # rounded: many ties
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    expected = roc_auc_score(labels, probabilities[:, 1] if classes == 2 else probabilities, multi_class="ovr")
    assert auroc_with_error(probabilities, labels, seed)[0] == pytest.approx(expected)


def test_bootstrap_error_is_hanley_and_mcneils() -> None:
    """Their closed form for the standard error of an AUROC, on normal scores one deviation apart."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 400)
    score = rng.normal(size=800) + labels
    auc, error = auroc_with_error(np.stack([-score, score], axis=1), labels, seed=0)
    q1, q2 = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    expected = np.sqrt((auc * (1 - auc) + 399 * (q1 - auc**2) + 399 * (q2 - auc**2)) / 400**2)
    assert error == pytest.approx(expected, rel=0.2)
