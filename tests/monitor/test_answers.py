"""What probabilities say without labels, checked against labels drawn from them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from tefm.monitor.observe import class_shares, expected, expected_auroc, reweighted
from tefm.scoring.metrics import auroc


def drawn(n: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated probabilities of two classes at equal shares, for sequences with another share of positives."""
    rng = np.random.default_rng(seed)
    label_S = (rng.random(n) < share).astype(np.int64)
    x_S = rng.normal(1.5 * label_S)
    p_S = 1 / (1 + np.exp(1.5**2 / 2 - 1.5 * x_S))
    return np.stack([1 - p_S, p_S], axis=1), label_S


def test_the_expected_figures_are_those_of_the_labels() -> None:
    p_SQ, label_S = drawn(40_000, 0.5, 0)
    estimate = expected(p_SQ, p_SQ.argmax(axis=1), positive=1)
    assert estimate.auroc.value == pytest.approx(auroc(p_SQ[:, 1], label_S == 1), abs=0.01)
    assert estimate.accuracy.value == pytest.approx((p_SQ.argmax(axis=1) == label_S).mean(), abs=0.01)


def test_the_interval_holds_what_labels_show() -> None:
    inside, batches = 0, 40
    for seed in range(batches):
        p_SQ, label_S = drawn(200, 0.5, seed)
        interval = expected(p_SQ, p_SQ.argmax(axis=1), positive=1, seed=seed).auroc
        inside += interval.low <= auroc(p_SQ[:, 1], label_S == 1) <= interval.high
    assert inside >= binom.ppf(0.001, batches, 0.95)


def test_the_interval_of_a_large_batch_is_narrow() -> None:
    p_SQ, _ = drawn(50_000, 0.5, 1)
    interval = expected(p_SQ, p_SQ.argmax(axis=1), positive=1).accuracy
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * np.sqrt(0.77 * 0.23 / 50_000), rel=0.25)


def test_expected_auroc_counts_every_pair() -> None:
    p_S = np.random.default_rng(2).random(30).round(1)
    above = (p_S[:, None] > p_S) + 0.5 * (p_S[:, None] == p_S)
    pairs = p_S[:, None] * (1 - p_S) * (1 - np.eye(30))
    assert expected_auroc(p_S) == pytest.approx(float((pairs * above).sum() / pairs.sum()))
    assert np.isnan(expected_auroc(np.ones(5)))


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_class_shares_are_found(share: float) -> None:
    p_SQ, label_S = drawn(5_000, share, 3)
    estimate = class_shares(p_SQ, (0.5, 0.5))
    assert abs(estimate.shares[1] - label_S.mean()) < 3 * estimate.errors[1]
    assert estimate.errors[0] == pytest.approx(estimate.errors[1])
    assert 0.002 < estimate.errors[1] < 0.05


def test_class_shares_of_several_classes() -> None:
    rng = np.random.default_rng(4)
    shares = np.array([0.6, 0.3, 0.1])
    label_S = rng.choice(3, 8_000, p=shares)
    x_S3 = rng.normal(size=(8_000, 3)) + 2 * np.eye(3)[label_S]
    p_SQ = np.exp(2 * x_S3) / np.exp(2 * x_S3).sum(axis=1, keepdims=True)
    estimate = class_shares(p_SQ, (1 / 3, 1 / 3, 1 / 3))
    assert np.abs(np.array(estimate.shares) - shares).max() < 0.03
    assert reweighted(p_SQ, shares * 3).sum(axis=1) == pytest.approx(np.ones(8_000))
