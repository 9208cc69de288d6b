"""Resamples: their counts, what stays fixed, and standard errors against closed forms."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from conftest import Explained
from numpy.typing import NDArray

from tefm.base.errors import SettingsError
from tefm.scoring import weighted
from tefm.scoring.weighted import Interval, bootstrap, resample_counts

LABELS = np.array([0] * 6 + [2] * 3 + [1])


def test_a_resample_draws_as_many_sequences_as_there_are() -> None:
    counts = np.concatenate(list(resample_counts(10, resamples=50, seed=0)))
    assert counts.shape == (51, 10)
    assert (counts[0] == 1).all()
    assert (counts.sum(axis=1) == 10).all()
    assert len(np.unique(counts, axis=0)) > 40


def test_a_stratified_resample_keeps_the_size_of_each_class() -> None:
    counts = np.concatenate(list(resample_counts(10, resamples=50, seed=0, strata_N=LABELS)))
    assert counts.shape == (51, 10)
    for label, size in ((0, 6), (1, 1), (2, 3)):
        assert (counts[:, label == LABELS].sum(axis=1) == size).all()
    assert len(np.unique(counts, axis=0)) > 40


@pytest.mark.parametrize("strata", [None, LABELS])
def test_the_same_seed_draws_the_same_whatever_the_chunk(
    strata: NDArray[np.int64] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw(seed: int) -> Iterator[NDArray[np.float64]]:
        return resample_counts(10, 30, seed, strata_N=strata)

    whole = np.concatenate(list(draw(4)))
    monkeypatch.setattr(weighted, "CHUNK_CELLS", 70)
    chunks = list(draw(4))
    assert [len(chunk) for chunk in chunks] == [1, 7, 7, 7, 7, 2]
    np.testing.assert_array_equal(np.concatenate(chunks), whole)
    assert (np.concatenate(list(draw(5))) != whole).any()


def test_the_standard_error_of_a_mean() -> None:
    values = np.random.default_rng(0).normal(size=500)
    means = bootstrap(lambda counts: weighted.mean(values, counts), resample_counts(500, 1000, seed=0))
    assert means[0] == pytest.approx(values.mean())
    assert means[1:].std(ddof=1) == pytest.approx(values.std(ddof=1) / np.sqrt(500), rel=0.1)


def test_an_interval_without_resamples() -> None:
    interval = Interval.of(bootstrap(lambda counts: counts.sum(axis=1), resample_counts(3, 0, seed=0)))
    assert interval.value == 3
    assert interval.to_dict() == {"value": 3.0, "low": None, "high": None}


def test_a_negative_number_of_resamples(explained: Explained) -> None:
    explained(SettingsError, lambda: list(resample_counts(3, -1, seed=0)), "-1", "1,000")
