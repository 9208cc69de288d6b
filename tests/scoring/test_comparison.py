"""A planted difference between two models is told, chance is not, and a confusion matrix counts everybody once."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tefm.scoring.breakdown import confusion
from tefm.scoring.metrics import Predicted, compare


def predictions(labels: np.ndarray, noise: float, seed: int, classes: int = 2, positive: int = 1) -> Predicted:
    """Probabilities around the true class, the blurrier the more noise."""
    logits = 2 * np.eye(classes)[labels] + noise * np.random.default_rng(seed).normal(size=(len(labels), classes))
    p = np.exp(logits)
    return Predicted.of(p / p.sum(axis=1, keepdims=True), labels, logits.argmax(axis=1), positive)


@pytest.mark.parametrize(("classes", "metric"), [(2, "AUROC"), (4, "accuracy")])
def test_the_better_model_is_named(classes: int, metric: str) -> None:
    labels = np.arange(400) % classes
    sharp, blurred = (predictions(labels, noise, seed, classes) for seed, noise in enumerate((1.0, 3.0)))
    verdict = compare({"blurred": blurred, "sharp": sharp})
    assert verdict is not None
    assert (verdict.better, verdict.models, verdict.metric) == ("sharp", ("sharp", "blurred"), metric)
    assert verdict.values[0] - verdict.values[1] == pytest.approx(verdict.difference.value)
    assert verdict.sentence.startswith(f"sharp is better here: {metric} 0.")
    assert json.loads(json.dumps(verdict.to_dict()))["better"] == "sharp"


def test_chance_is_no_difference() -> None:
    """Models as good as each other: in one case of twenty, chance still tells one apart."""
    labels = np.arange(200) % 2
    told = 0
    for seed in range(30):
        first, second = (predictions(labels, 3.0, number) for number in (2 * seed, 2 * seed + 1))
        verdict = compare({"first": first, "second": second}, resamples=200)
        assert verdict is not None
        told += verdict.better is not None
    assert told <= 6
    same = compare({"first": first, "second": first})
    assert same is not None and same.better is None
    assert same.sentence.startswith("No significant difference in AUROC:")


def test_the_positive_class_makes_no_difference_to_who_is_better() -> None:
    labels = np.arange(300) % 2
    verdicts = [
        compare({"a": predictions(labels, 2.0, 0, 2, positive), "b": predictions(labels, 4.0, 1, 2, positive)})
        for positive in (0, 1)
    ]
    assert verdicts[0] == verdicts[1]


def test_one_class_cannot_be_compared() -> None:
    labels = np.zeros(30, dtype=np.int64)
    assert compare({"a": predictions(labels, 1.0, 0), "b": predictions(labels, 1.0, 1)}) is None


@given(st.integers(2, 20), st.integers(1, 60), st.integers(1, 14), st.integers(0, 2**32 - 1))
def test_everybody_is_counted_once(classes: int, n: int, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, predicted = rng.integers(classes, size=(2, n))
    got = confusion(labels, predicted, [f"class {number}" for number in range(classes)], most=most)
    counts = np.array(got.counts)
    assert counts.sum() == n
    assert counts.shape == (len(got.classes),) * 2 == (min(classes, most + 1),) * 2
    if classes <= most:
        assert np.trace(counts) == (labels == predicted).sum()
        np.testing.assert_array_equal(counts.sum(axis=1), np.bincount(labels, minlength=classes))
    else:
        assert got.classes[-1] == "others"
        smallest_kept = min(counts.sum(axis=1)[:-1])
        left_out = [name for name in range(classes) if f"class {name}" not in got.classes]
        assert max(np.bincount(labels, minlength=classes)[left_out]) <= smallest_kept
