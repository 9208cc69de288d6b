"""Numbers as classes and back: buckets, quantiles of a distribution over them, the interval's coverage, scores."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Explained
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tefm.base.errors import SettingsError
from tefm.scoring.numbers import Buckets, NumberScores, PredictedNumbers, compare_numbers, in_order, margin_of
from tefm.tables.mappers import equal_frequency_edges

SEEDS = st.integers(0, 10_000)


def buckets_of(values: np.ndarray, count: int) -> Buckets:
    return Buckets.of(values, equal_frequency_edges(np.sort(values), count))


def drawn(seed: int, count: int = 600, *, whole: bool = False) -> np.ndarray:
    values = np.random.default_rng(seed).lognormal(1.5, 1.0, count)
    return np.round(values) if whole else values


@given(SEEDS, st.integers(3, 20), st.booleans())
def test_buckets_cover_all_labels_in_order_with_about_as_many_each(seed: int, count: int, whole: bool) -> None:
    values = drawn(seed, whole=whole)
    buckets = buckets_of(values, count)
    number = buckets.class_of(values)
    assert len(buckets.names) == len(set(buckets.names)) == len(np.unique(number)) <= count
    assert buckets.names == in_order(buckets.names[::-1])
    order = np.argsort(values, kind="stable")
    assert (np.diff(number[order]) >= 0).all()
    assert all(len(np.unique(number[values == value])) == 1 for value in np.unique(values))
    if not whole:  # no ties
        sizes = np.bincount(number)
        assert sizes.max() - sizes.min() <= 2


def test_ties_fill_a_bucket_and_few_values_make_few_buckets() -> None:
    values = np.array([0.0] * 90 + [1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    assert buckets_of(values, 5).names[:2] == ("≤ 0", "1–3")
    assert buckets_of(np.array([1.0, 2, 2, 3]), 10).names == ("≤ 1", "2", "≥ 3")
    assert buckets_of(np.linspace(-1, 1, 9), 3).names == ("≤ -0.5", "-0.25 to 0.25", "≥ 0.5")


@given(SEEDS, st.floats(0.02, 0.98))
def test_a_bucket_that_is_certain_has_the_quantiles_of_its_labels(seed: int, level: float) -> None:
    values = drawn(seed)
    buckets = buckets_of(values, 6)
    for number in range(6):
        own = values[buckets.class_of(values) == number]
        p = np.eye(6)[[number]]
        assert own.min() <= buckets.quantile(p, level)[0] <= own.max()
        assert buckets.predicted(p).mean_S[0] == pytest.approx(own.mean())
        assert buckets.quantile(p, 0.5)[0] == pytest.approx(np.quantile(own, 0.5))


def test_the_shares_of_training_give_its_quantiles_back() -> None:
    values = drawn(3, 5_000)
    buckets = buckets_of(values, 10)
    shares = np.bincount(buckets.class_of(values))[None] / len(values)
    for level in (0.1, 0.37, 0.5, 0.9):
        assert buckets.quantile(shares, level)[0] == pytest.approx(np.quantile(values, level), rel=0.02)
    assert buckets.predicted(shares).mean_S[0] == pytest.approx(values.mean())


def simulated(
    seed: int, count: int, sharpness: float, *, whole: bool = False
) -> tuple[np.ndarray, np.ndarray, Buckets]:
    """Numbers and probabilities of their buckets by a model that is wrong about its own error."""
    rng = np.random.default_rng(seed)
    middle = rng.gamma(2.0, 3.0, count)
    values = middle + rng.normal(0, 1 + 0.3 * middle)
    values = np.round(values).clip(min=1) if whole else values
    buckets = buckets_of(values, 10)
    centre = np.array([np.mean(of) for of in buckets.points])
    logits = -(((middle[:, None] - centre) / (1 + 0.3 * middle[:, None])) ** 2) * sharpness
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True), values, buckets


@given(SEEDS, st.sampled_from([0.05, 0.5, 4.0]), st.booleans())
def test_the_conformal_interval_holds_its_share_however_wrong_the_model_is(
    seed: int, sharpness: float, whole: bool
) -> None:
    p, values, buckets = simulated(seed, 6_000, sharpness, whole=whole)
    fitted = buckets.conformal(p[:2_000], values[:2_000])
    predicted = fitted.predicted(p[2_000:])
    held = (predicted.low_S <= values[2_000:]) & (values[2_000:] <= predicted.high_S)
    assert 0.75 < held.mean() < 0.86  # 0.8, up to five standard errors


def test_on_average_over_many_small_validation_parts_the_interval_holds_at_least_its_share() -> None:
    """The promise of conformal intervals, for any number of validation sequences."""
    p, values, buckets = simulated(1, 40_000, 2.0)
    held = []
    for start in range(0, 39_000, 60):
        fitted = buckets.conformal(p[start : start + 30], values[start : start + 30])
        new = slice(start + 30, start + 60)
        predicted = fitted.predicted(p[new])
        held.append(((predicted.low_S <= values[new]) & (values[new] <= predicted.high_S)).mean())
    assert 0.79 < np.mean(held) < 0.84


def test_whole_numbers_are_spread_for_the_interval_and_no_amount_is_below_zero() -> None:
    buckets = buckets_of(np.repeat([0.0, 1, 2, 3], 25), 4)
    predicted = buckets.predicted(np.array([[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]))
    assert predicted.median_S.tolist() == [1.0, 0.0]
    assert predicted.low_S == pytest.approx([0.6, 0.0]) and predicted.high_S == pytest.approx([1.4, 0.4])


def test_so_few_sequences_promise_nothing() -> None:
    few = PredictedNumbers(*np.zeros((4, 3)))
    assert margin_of(few, np.arange(3.0), 0.8) is None
    assert margin_of(PredictedNumbers(*np.zeros((4, 4))), np.arange(4.0), 0.8) == 3.0


def test_the_median_stays_inside_an_interval_that_shrinks() -> None:
    narrowed = PredictedNumbers(np.array([2.0]), np.array([2.0]), np.array([1.0]), np.array([9.0])).widened(-4.0)
    assert (narrowed.low_S, narrowed.high_S) == (2.0, 5.0)


def test_scores_are_those_of_the_numbers() -> None:
    predicted = PredictedNumbers(*np.array([[1.0, 4.0], [1.0, 5.0], [0.0, 3.0], [2.0, 6.0]]))
    scores = NumberScores.of(predicted, np.array([2.0, 8.0]), 0.8).to_dict()
    found = {name: of["value"] for name, of in scores.items() if isinstance(of, dict)}
    pinball = np.mean([[0.1 * 2, 0.1 * 5], [0.5 * 1, 0.5 * 4], [0.0, 0.9 * 2]])
    expected = {"mae": 2.5, "rmse": np.sqrt(5.0), "pinball": pinball, "coverage": 0.5, "width": 2.5}
    assert found == pytest.approx(expected)
    worse = PredictedNumbers(predicted.median_S + 1, *[predicted.low_S] * 3)
    verdict = compare_numbers({"worse": worse, "better": predicted}, np.array([0.0, 3.0]))
    assert verdict.models == ("better", "worse") and verdict.difference.value == pytest.approx(1.0)


def test_a_threshold_is_the_nearest_cut(explained: Explained) -> None:
    buckets = buckets_of(np.arange(1.0, 31.0), 3)
    assert buckets.above().names == ("at most 20", "more than 20")  # the median is 15.5
    cuts = buckets.above(100)
    assert cuts.names == ("at most 20", "more than 20")
    assert buckets.groups(cuts) == (0, 0, 1) and in_order(cuts.names) == cuts.names
    explained(SettingsError, lambda: buckets.above(float("nan")), "a threshold is a number", "nan")


def test_stored_buckets_are_checked() -> None:
    body = buckets_of(drawn(0), 4).model_dump(mode="json")
    assert Buckets.model_validate(body).model_dump(mode="json") == body
    points = [*body["points"]]
    wrong = {
        "upper": [*body["upper"][1:], body["upper"][0]],
        "names": body["names"][:2],
        "points": points[::-1],
        "means": [float("nan")] * 4,
        "margin": float("inf"),
        "interval": 1.5,
    }
    for name, value in wrong.items():
        with pytest.raises(ValidationError):
            Buckets.model_validate({**body, name: value})
