"""Scores of a group are those of its sequences alone."""

from __future__ import annotations

import numpy as np
import pytest

from tefm.scoring.breakdown import confusion, difference_between, scores_by_group, wilson
from tefm.scoring.metrics import auroc


def test_a_group_is_scored_by_itself() -> None:
    rng = np.random.default_rng(0)
    group, positive = rng.integers(0, 3, 300), rng.random(300) < 0.4
    p = np.clip(rng.normal(0.4 + 0.2 * positive, 0.2), 0, 1)
    correct = (p >= 0.5) == positive
    names = ("a", "b", "c", "never")
    measured = scores_by_group(group, names, correct, p_S=p, positive_S=positive, least=20)
    assert [scores.name for scores in measured] == ["a", "b", "c"], "a group without sequences is left out"
    for number, scores in enumerate(measured):
        inside = group == number
        assert scores.sequences == inside.sum()
        assert scores.accuracy == wilson(float(correct[inside].mean()), int(inside.sum()))
        assert scores.positive == pytest.approx(positive[inside].mean())
        assert scores.auroc is not None
        assert scores.auroc.value == pytest.approx(auroc(p[inside], positive[inside]))
        assert scores.auroc.low < scores.auroc.value < scores.auroc.high


def test_small_groups_and_groups_of_one_class() -> None:
    group, positive = np.repeat([0, 1], [20, 19]), np.repeat([True, False], [20, 19])
    large, small = scores_by_group(
        group, ("large", "small"), np.ones(39, dtype=bool), p_S=np.full(39, 0.5), positive_S=positive, least=20
    )
    assert large.accuracy is not None and large.positive == 1.0
    assert large.auroc is None, "one class cannot be ranked"
    assert (small.sequences, small.accuracy, small.positive, small.auroc) == (19, None, None, None)


def test_the_difference_between_groups_hardly_depends_on_tiny_ones() -> None:
    correct = np.repeat([True, False], [100, 100])
    halves = np.repeat([0, 1], [100, 100])
    tiny = np.where(np.arange(200) == 199, 1, 0)
    assert difference_between(halves, correct) == 0.25
    assert 0 < difference_between(tiny, correct) < 0.01


def test_a_confusion_matrix_by_hand() -> None:
    matrix = confusion(np.array([0, 0, 1, 1, 1]), np.array([0, 2, 1, 1, 0]), ("a", "b", "c"))
    assert matrix.counts == ((1, 0, 1), (1, 2, 0), (0, 0, 0))


def test_beyond_some_classes_the_rarest_are_taken_together() -> None:
    labels = np.repeat(np.arange(20), np.arange(40, 20, -1))
    names = tuple(f"attack {n}" for n in range(20))
    matrix = confusion(labels, (labels + 1) % 20, names, most=11)
    assert matrix.classes == (*names[:11], "others")
    assert sum(map(sum, matrix.counts)) == len(labels)
    assert matrix.counts[10][11] == 30 and matrix.counts[11][0] == 21, "the last class is taken for the first"
