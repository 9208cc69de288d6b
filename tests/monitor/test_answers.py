"""The class shares of a batch without labels, checked against labels drawn from its probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from tefm.monitor.observe import class_shares, reweighted


def drawn(n: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated probabilities of two classes at equal shares, for sequences with another share of positives."""
    rng = np.random.default_rng(seed)
    label_S = (rng.random(n) < share).astype(np.int64)
    x_S = rng.normal(1.5 * label_S)
    p_S = 1 / (1 + np.exp(1.5**2 / 2 - 1.5 * x_S))
    return np.stack([1 - p_S, p_S], axis=1), label_S


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
