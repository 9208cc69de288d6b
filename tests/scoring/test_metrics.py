"""Every metric against scikit-learn's, intervals against closed forms, and input that is refused."""

from __future__ import annotations

import json
import math
import time
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import Explained
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, average_precision_score, brier_score_loss, f1_score, roc_auc_score

from tefm.base.errors import InputError, SettingsError
from tefm.scoring import metrics, weighted
from tefm.scoring.metrics import Predicted, auroc, paired_difference, score


def draw(classes: int, seed: int, n: int = 40) -> tuple[NDArray[Any], NDArray[Any]]:
    """Probabilities with many ties, and labels that hold every class."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, n)])
    chances = rng.dirichlet(np.ones(classes), len(labels)).round(1) + 0.1
    return chances / chances.sum(axis=1, keepdims=True), labels


def average_precision(scores: NDArray[Any], positive: NDArray[Any], weights: NDArray[Any]) -> float:
    return float(weighted.average_precision(scores, positive.astype(bool), weights[None].astype(float))[0])


def names(classes: int) -> tuple[str, ...]:
    return tuple("abcdefgh"[:classes])


# ---- single numbers -------------------------------------------------------------------------------------------------

#: Few values, so that many are equal; some extreme.
SCORES = st.sampled_from([-np.inf, -3.0, 0.0, 0.25, 0.5, 1e9])


@given(st.lists(st.tuples(SCORES, st.booleans(), st.integers(0, 3)), min_size=1, max_size=30))
def test_ranking_metrics_are_scikit_learns(rows: list[tuple[float, bool, int]]) -> None:
    """A weight counts a sequence so often; scikit-learn gets it repeated."""
    scores, positive, weights = (np.array(column) for column in zip(*rows, strict=True))
    repeated, truth = np.repeat(scores, weights), np.repeat(positive, weights)
    if truth.all() or not truth.any():
        assert math.isnan(auroc(scores, positive, weights))
        assert math.isnan(average_precision(scores, positive, weights))
        return
    repeated = repeated.clip(-1e9)  # scikit-learn takes no infinite scores; the order is the same
    assert auroc(scores, positive, weights) == pytest.approx(roc_auc_score(truth, repeated))
    assert average_precision(scores, positive, weights) == pytest.approx(average_precision_score(truth, repeated))
    assert auroc(repeated, truth) == pytest.approx(roc_auc_score(truth, repeated))


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 2, st.integers(1, 3)), min_size=1, max_size=30))
def test_f1_is_scikit_learns(rows: list[tuple[int, int, int]]) -> None:
    labels, predicted, weights = (np.array(column) for column in zip(*rows, strict=True))
    expected = f1_score(labels, predicted, average="macro", sample_weight=weights)
    assert weighted.macro_f1(labels, predicted, 5, weights[None])[0] == pytest.approx(expected)
    ones_1N = np.ones((1, len(labels)))
    assert weighted.macro_f1(labels, predicted, 5, ones_1N)[0] == pytest.approx(
        f1_score(labels, predicted, average="macro")
    )


def test_weights_below_one() -> None:
    labels, predicted, scores = np.array([0, 1, 1]), np.array([1, 1, 0]), np.array([0.5, 0.7, 0.2])
    weights = np.array([0.2, 0.5, 0.1])
    f1_R = weighted.macro_f1(labels, predicted, 2, np.stack([weights, 10 * weights]))
    assert f1_R[0] == pytest.approx(f1_R[1])
    expected = average_precision_score(labels, scores, sample_weight=weights)
    assert average_precision(scores, labels, weights) == pytest.approx(expected)


# ---- a whole model --------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_scores_are_scikit_learns(classes: int, seed: int) -> None:
    p, labels = draw(classes, seed)
    got = score(p, labels, names(classes), resamples=0)
    one_hot = np.eye(classes)[labels]
    ranked = [1] if classes == 2 else range(classes)
    assert got.auroc.value == pytest.approx(np.mean([roc_auc_score(one_hot[:, c], p[:, c]) for c in ranked]))
    assert got.auprc.value == pytest.approx(np.mean([average_precision_score(one_hot[:, c], p[:, c]) for c in ranked]))
    assert got.accuracy.value == pytest.approx(accuracy_score(labels, p.argmax(axis=1)))
    assert got.macro_f1.value == pytest.approx(f1_score(labels, p.argmax(axis=1), average="macro"))
    brier = brier_score_loss(labels, p[:, 1]) if classes == 2 else ((p - one_hot) ** 2).sum(axis=1).mean()
    assert got.brier.value == pytest.approx(brier)


@settings(max_examples=25)
@given(st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_a_resample_is_scored_as_if_it_were_the_data(classes: int, seed: int) -> None:
    """Counts stand for sequences drawn that often, also where a class was not drawn at all."""
    p, labels = draw(classes, seed, n=12)
    rows = np.random.default_rng(seed).integers(0, len(labels), len(labels))
    counts = np.bincount(rows, minlength=len(labels))[None].astype(float)
    weighted, repeated = (Predicted.of(p[pick], labels[pick], None, 1) for pick in (slice(None), rows))
    ones = np.ones((1, len(rows)))
    for name, measure in metrics.METRICS.items():
        expected, got = measure(repeated, ones)[0], measure(weighted, counts)[0]
        assert got == pytest.approx(expected, nan_ok=True), name


def test_calibration_error_by_hand() -> None:
    p = np.array([[0.05, 0.95], [0.04, 0.96], [0.45, 0.55], [0.9, 0.1]])
    got = score(p, np.array([1, 0, 1, 0]), names(2), resamples=0)
    # 0.95 and 0.96 share the last bin: (0.95 + 0.96 − 1) / 4; 0.55 and 0.9 have their own
    assert got.ece.value == pytest.approx((0.91 + 0.45 + 0.1) / 4)


def test_calibrated_probabilities_have_next_to_no_calibration_error() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(size=20_000)
    labels = (rng.uniform(size=20_000) < p).astype(int)
    assert score(np.stack([1 - p, p], axis=1), labels, names(2), resamples=0).ece.value < 0.01
    sure = (p > 0.5).astype(float)  # 75% right, 100% sure
    assert score(np.stack([1 - sure, sure], axis=1), labels, names(2), resamples=0).ece.value == pytest.approx(
        0.25, abs=0.01
    )


def test_the_positive_class_is_the_second_one_by_default() -> None:
    p, labels = draw(2, 0)
    first, second = (score(p, labels, names(2), positive=c, resamples=0) for c in (0, 1))
    assert first.auroc.value == pytest.approx(second.auroc.value)
    assert first.auprc.value == pytest.approx(average_precision_score(labels == 0, p[:, 0]))
    assert first.auprc.value != pytest.approx(second.auprc.value)


def test_given_predictions_count_instead_of_the_most_probable_class() -> None:
    p, labels = draw(2, 1)
    got = score(p, labels, names(2), predicted_N=labels, resamples=50)
    assert (got.accuracy.value, got.accuracy.low, got.macro_f1.value) == (1, 1, 1)
    assert got.auroc == score(p, labels, names(2), resamples=50).auroc


def test_the_interval_of_the_accuracy_is_the_binomial_one() -> None:
    labels = np.zeros(400, dtype=int)
    p = np.where(np.arange(400)[:, None] < 300, [0.8, 0.2], [0.2, 0.8])
    got = score(p, labels, names(2)).accuracy
    half = 1.96 * math.sqrt(0.75 * 0.25 / 400)
    assert got.value == 0.75
    assert (got.low, got.high) == (pytest.approx(0.75 - half, abs=0.006), pytest.approx(0.75 + half, abs=0.006))


def test_the_interval_of_the_auroc_is_hanley_and_mcneils() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 400)
    p = 1 / (1 + np.exp(-rng.normal(size=800) - labels))
    got = score(np.stack([1 - p, p], axis=1), labels, names(2)).auroc
    auc = got.value
    q1, q2 = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    error = np.sqrt((auc * (1 - auc) + 399 * (q1 - auc**2) + 399 * (q2 - auc**2)) / 400**2)
    assert got.high - got.low == pytest.approx(2 * 1.96 * error, rel=0.15)
    assert got.low < auc < got.high


def test_one_class_has_no_ranking_but_an_accuracy() -> None:
    p, _ = draw(2, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = score(p, np.ones(len(p), dtype=int), names(2), resamples=20)
    assert math.isnan(got.auroc.value) and math.isnan(got.auprc.low)
    assert 0 < got.accuracy.value < 1
    body = json.loads(json.dumps(got.to_dict(), allow_nan=False))
    assert body["auroc"] == {"value": None, "low": None, "high": None}
    assert body["classes"] == ["a", "b"] and body["n"] == len(p)


def test_resamples_without_the_rare_class_are_skipped() -> None:
    p = np.full((30, 2), 0.5)
    p[0] = 0.1, 0.9
    labels = (np.arange(30) == 0).astype(int)  # about a third of the resamples miss it
    got = score(p, labels, names(2), resamples=300).auroc
    assert (got.value, got.low, got.high) == (1, 1, 1)


def test_same_seed_same_scores_whatever_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    p, labels = draw(3, 0)
    once = score(p, labels, names(3), resamples=30, seed=4)
    monkeypatch.setattr(weighted, "CHUNK_CELLS", 7 * len(labels))
    assert score(p, labels, names(3), resamples=30, seed=4) == once
    assert score(p, labels, names(3), resamples=30, seed=5) != once


def test_a_thousand_resamples_are_fast() -> None:
    p, labels = draw(2, 0, n=654)
    started = time.perf_counter()
    score(p, labels, names(2))
    assert time.perf_counter() - started < 2


# ---- two models -----------------------------------------------------------------------------------------------------


def test_a_paired_difference_is_narrower_than_two_intervals() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 600)
    shared = rng.normal(size=600) + labels
    a, b = (1 / (1 + np.exp(-shared - worse * rng.normal(size=600))) for worse in (0.0, 0.5))
    a, b = (np.stack([1 - p, p], axis=1) for p in (a, b))
    difference = paired_difference("auroc", Predicted.of(a, labels), Predicted.of(b, labels), seed=1)
    of_a, of_b = (score(p, labels, names(2)).auroc for p in (a, b))
    assert difference.value == pytest.approx(of_a.value - of_b.value)
    assert difference.low > 0  # a is better, and that shows
    assert of_a.low < of_b.high  # although the single intervals overlap
    back = paired_difference("auroc", Predicted.of(b, labels), Predicted.of(a, labels), seed=1)
    assert (back.value, back.low) == (pytest.approx(-difference.value), pytest.approx(-difference.high))


def test_a_model_does_not_differ_from_itself(explained: Explained) -> None:
    p, labels = draw(3, 0)
    model = Predicted.of(p, labels)
    for name in metrics.METRICS:
        same = paired_difference(name, model, model, resamples=10)
        assert (same.value, same.low, same.high) == (0, 0, 0)
    changed = paired_difference("accuracy", Predicted.of(p, labels, labels), model, resamples=10)
    assert changed.value == pytest.approx(1 - (p.argmax(axis=1) == labels).mean())
    explained(SettingsError, lambda: paired_difference("auc", model, model), "'auc'", "auroc")  # type: ignore[arg-type]


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [[math.nan, 0.5], [1.2, -0.2], [2.0, 3.0], [math.inf, 0.0]])
def test_what_is_no_probability(row: list[float], explained: Explained) -> None:
    p, labels = draw(2, 0)
    p[3] = row
    explained(InputError, lambda: score(p, labels, names(2)), "1 of 42", "row 4", str(row[1]), "Calibration")


def test_shapes_and_numbers_that_do_not_fit(explained: Explained) -> None:
    p, labels = draw(3, 0)
    explained(InputError, lambda: score(p, labels[1:], names(3)), "43 sequences", "(42,)")
    explained(InputError, lambda: score(p, labels, names(2)), "3 probabilities", "2 classes")
    explained(InputError, lambda: score(p, labels - 1, names(3)), "from 0 to 2", "-1")
    explained(InputError, lambda: score(p, labels, names(3), predicted_N=labels + 1), "predictions", "3")
    explained(InputError, lambda: score(p, labels.astype(str), names(3)), "class numbers")
    explained(InputError, lambda: score(p[:0], labels[:0], names(3)), "(0, 3)")
    explained(SettingsError, lambda: score(p, labels, names(3), positive=3), "0 to 2")


def test_half_precision_is_forgiven() -> None:
    p, labels = draw(3, 0)
    assert score(p.astype(np.float16), labels, names(3), resamples=0).n == len(labels)
