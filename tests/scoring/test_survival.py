"""Times until an event: the curve, completed times and concordance, against what is known of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tefm.scoring.survival import Followed, Survival, concordance


def followed(count: int = 3_000, seed: int = 0) -> tuple[np.ndarray, Followed]:
    """Exponential times with mean 10, of which about half are censored."""
    rng = np.random.default_rng(seed)
    times_S, ends_S = rng.exponential(10, count), rng.uniform(0, 25, count)
    return times_S, Followed(np.minimum(times_S, ends_S), times_S <= ends_S)


def test_the_curve_is_that_of_the_distribution_in_spite_of_censoring() -> None:
    curve = Survival.of(followed()[1])
    at = np.array([2.0, 5.0, 10.0, 20.0])
    np.testing.assert_allclose(curve.after(at), np.exp(-at / 10), atol=0.03)
    assert Survival.checked(curve.model_dump(mode="json")) == curve


def test_completed_times_are_later_and_have_the_true_distribution() -> None:
    times_S, known = followed()
    completed_S = Survival.of(known).completed(known)
    assert (completed_S[known.observed_S] == known.times_S[known.observed_S]).all()
    assert (completed_S >= known.times_S).all() and completed_S.max() <= known.times_S.max()
    assert np.median(completed_S) == pytest.approx(np.median(times_S), rel=0.06)
    assert np.median(known.times_S) < 0.8 * np.median(times_S), "censored times as they are would be too short"


def test_a_missing_time_stays_missing() -> None:
    known = Followed(np.array([1.0, np.nan, 3.0]), np.array([True, False, False]))
    assert np.isnan(Survival.of(known).completed(known)).tolist() == [False, True, False]


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.integers(1, 4)), min_size=2, max_size=8))
def test_concordance_counts_the_pairs_whose_order_is_known(rows: list[tuple[int, bool, int]]) -> None:
    right = known = 0.0
    for time, observed, predicted in rows:
        for other_time, other_observed, other in rows:
            if observed and (time < other_time or (time == other_time and not other_observed)):
                known += 1
                right += 0.5 + 0.5 * float(np.sign(other - predicted))
    times, seen, told = (np.array(column) for column in zip(*rows, strict=True))
    value = concordance(told.astype(float), Followed(times.astype(float), seen), resamples=0).value
    assert value == pytest.approx(right / known) if known else np.isnan(value)
