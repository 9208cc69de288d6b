"""Curves and counts are those of scikit-learn, worked examples and the scores of the same predictions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import auc, precision_recall_curve, precision_score, recall_score, roc_curve

from tefm.scoring.breakdown import CURVES, POINTS, class_curve, ranking_curves, threshold_counts
from tefm.scoring.metrics import score

#: The example of scikit-learn's documentation.
P, POSITIVE = np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])


def test_golden_values_of_one_class() -> None:
    curve = class_curve(P, POSITIVE, P >= 0.3, "yes")
    assert curve.false_positive_rate == (0.0, 0.0, 0.5, 0.5, 1.0)
    assert curve.true_positive_rate == (0.0, 0.5, 0.5, 1.0, 1.0)
    assert curve.recall == (0.0, 0.5, 0.5, 1.0, 1.0)
    assert curve.precision == pytest.approx((1.0, 1.0, 0.5, 2 / 3, 0.5))
    assert (curve.auroc, curve.sequences) == (0.75, 2)
    assert curve.average_precision == pytest.approx(0.5 + 0.5 * 2 / 3)
    assert (curve.operating.false_positive_rate, curve.operating.recall) == (0.5, 1.0)
    assert curve.operating.precision == pytest.approx(2 / 3)


def test_nothing_predicted_has_no_precision() -> None:
    curve = class_curve(P, POSITIVE, P > 1, "yes")
    assert (curve.operating.recall, curve.operating.precision) == (0.0, None)


def test_a_long_curve_is_thinned_and_stays_the_same_curve() -> None:
    rng = np.random.default_rng(0)
    positive = rng.random(20_000) < 0.3
    p = np.clip(rng.normal(0.4 + 0.2 * positive, 0.2), 0, 1)
    curve = class_curve(p, positive, p >= 0.5, "yes")
    whole_x, whole_y, _ = roc_curve(positive, p)
    assert len(whole_x) > 10 * POINTS >= 10 * len(curve.false_positive_rate)
    assert auc(curve.false_positive_rate, curve.true_positive_rate) == pytest.approx(curve.auroc, abs=1e-3)
    assert (curve.false_positive_rate[0], curve.true_positive_rate[-1]) == (0.0, 1.0)
    precision, recall, _ = precision_recall_curve(positive, p)
    assert set(zip(curve.recall, curve.precision, strict=True)) <= set(zip(recall, precision, strict=True))
    grid = np.linspace(0, 1, 50)
    np.testing.assert_allclose(
        np.interp(grid, curve.false_positive_rate, curve.true_positive_rate),
        np.interp(grid, whole_x, whole_y),
        atol=0.02,
    )


@pytest.mark.parametrize("positive", [0, 1])
def test_of_two_classes_the_positive_one_has_a_curve(positive: int) -> None:
    p_SQ = np.stack([1 - P, P], axis=1)
    labels, predicted = POSITIVE.astype(int), (P >= 0.5).astype(int)
    (curve,) = ranking_curves(p_SQ, labels, predicted, ("no", "yes"), positive=positive)
    scores = score(p_SQ, labels, ("no", "yes"), positive=positive, resamples=0)
    assert curve.name == ("no", "yes")[positive]
    assert (curve.auroc, curve.average_precision) == (scores.auroc.value, scores.auprc.value)


def test_of_many_classes_the_most_frequent_ones() -> None:
    rng = np.random.default_rng(1)
    names = tuple(f"class {n}" for n in range(9))
    labels = rng.permutation(np.repeat(np.arange(8), [5, 40, 10, 35, 30, 25, 20, 15]))  # nothing is of the last class
    p_SQ = rng.dirichlet(np.ones(9), len(labels))
    p_SQ[np.arange(len(labels)), labels] += 0.3
    p_SQ /= p_SQ.sum(axis=1, keepdims=True)
    predicted = p_SQ.argmax(axis=1)
    shown = ranking_curves(p_SQ, labels, predicted, names)
    assert [curve.name for curve in shown] == [f"class {n}" for n in (1, 3, 4, 5, 6, 7)] and len(shown) == CURVES
    for number, curve in zip((1, 3, 4, 5, 6, 7), shown, strict=True):
        assert curve.operating.recall == pytest.approx(recall_score(labels == number, predicted == number))
        assert curve.operating.precision == pytest.approx(precision_score(labels == number, predicted == number))


def test_one_class_alone_has_no_curve() -> None:
    p_SQ = np.full((3, 2), 0.5)
    assert ranking_curves(p_SQ, np.zeros(3, dtype=int), np.zeros(3, dtype=int), ("no", "yes")) == ()


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.3, 0.5, 0.77, 1.0]), st.booleans()), min_size=1), st.data())
def test_counts_are_those_of_deciding_at_each_threshold(
    sequences: list[tuple[float, bool]], data: st.DataObject
) -> None:
    p, positive = (np.array(column) for column in zip(*sequences, strict=True))
    own = data.draw(st.floats(0, 1))
    counts = threshold_counts(p, positive, own)
    assert counts.thresholds[counts.own] == own
    assert list(counts.thresholds) == sorted(set(counts.thresholds)) and {0.0, 0.5, 1.0} <= set(counts.thresholds)
    for threshold, hits, alarms in zip(counts.thresholds, counts.true_positives, counts.false_positives, strict=True):
        called = p >= threshold
        assert (hits, alarms) == ((called & positive).sum(), (called & ~positive).sum())
    assert (counts.true_positives[0], counts.false_positives[0]) == (counts.positives, counts.negatives)
