"""Tallies: every thing is counted once, and things that are alike count for less."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tefm.monitor.tally import Tally

RNG = np.random.default_rng(0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(-1, 1)), min_size=1, max_size=60))
def test_everything_is_counted_once(things: list[tuple[int, int, int]]) -> None:
    cell_M, unit_M, group_M = np.array(things).T
    tally = Tally.of("x", "values", cell_M, unit_M, group_M, 5, 2)
    assert tally.total == len(things)
    assert tally.counts_J.tolist() == np.bincount(cell_M, minlength=5).tolist()
    assert tally.counts_GJ[2].sum() == (group_M == -1).sum()
    assert tally.effect >= 1.0


def test_independent_things_have_no_design_effect() -> None:
    cell_M = RNG.integers(0, 4, 2_000)
    none = np.zeros(2_000, dtype=np.int64)
    assert Tally.of("x", "values", cell_M, np.arange(2_000), none, 4, 2).effect == 1.0
    # units of two independent things are as good
    assert Tally.of("x", "values", cell_M, np.arange(2_000) // 2, none, 4, 2).effect == pytest.approx(1.0, abs=0.1)


def test_copies_of_a_thing_count_as_one() -> None:
    cell_U = RNG.integers(0, 4, 1_000)
    tally = Tally.of("x", "values", np.repeat(cell_U, 3), np.repeat(np.arange(1_000), 3), np.zeros(3_000, int), 4, 2)
    assert tally.effect == pytest.approx(3.0, rel=0.01)
