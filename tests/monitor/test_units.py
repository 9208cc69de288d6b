"""Broken units: a factor is found, a shift is not taken for one."""

from __future__ import annotations

import numpy as np
import pytest

from tefm.monitor.causes import broken_unit
from tefm.monitor.tally import Tally
from tefm.tables.mappers import NumberMapper

RNG = np.random.default_rng(0)
USUAL = RNG.gamma(3.0, 20.0, 5_000)
MAPPER = NumberMapper.fit("x", USUAL, 32)


def tally(values: np.ndarray) -> Tally:
    inside = values[(values >= MAPPER.low[0]) & (values <= MAPPER.high[-1])]
    cells = MAPPER.forward(inside).astype(np.int64) - 1
    none = np.zeros(len(cells), dtype=np.int64)
    return Tally.of("x", "values", cells, np.arange(len(cells)), none, len(MAPPER.middle), 2, ordered=True)


def factor(values: np.ndarray) -> float | None:
    return broken_unit(values, MAPPER, tally(values), tally(USUAL))


@pytest.mark.parametrize("times", [1000.0, 0.001, 10.0, 24.0, 2.20462, 1 / 18.0182, 5.5])
def test_a_factor_is_found(times: float) -> None:
    new = RNG.gamma(3.0, 20.0, 800)
    assert factor(new * times) == pytest.approx(times, rel=0.1)


def test_usual_factors_are_exact() -> None:
    assert factor(RNG.gamma(3.0, 20.0, 300) * 1000) == 1000.0


def test_other_changes_are_no_unit() -> None:
    new = RNG.gamma(3.0, 20.0, 800)
    assert factor(new) is None
    assert factor(new + 40) is None
    assert factor(np.full(800, 60.0)) is None
    assert factor(np.zeros(800)) is None
    assert factor(np.where(RNG.random(800) < 0.5, new, new * 1000)) is None


def test_counts_stay_whole() -> None:
    """Most are 0, and the buckets of the others are wide: only whole numbers tell 60 from 100."""
    usual = RNG.poisson(0.6, 5_000).astype(np.float64)
    mapper, new = NumberMapper.fit("x", usual, 32), RNG.poisson(0.6, 800).astype(np.float64)
    cells = mapper.forward(usual).astype(np.int64) - 1
    none = np.zeros(len(cells), dtype=np.int64)
    reference = Tally.of("x", "values", cells, np.arange(len(cells)), none, len(mapper.middle), 2, ordered=True)
    assert broken_unit(new * 60, mapper, reference, reference) == 60.0
    assert broken_unit(new, mapper, reference, reference) is None
