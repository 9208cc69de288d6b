"""Comparisons: batches without drift raise few alarms, whatever their size; planted differences raise one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, fisher_exact

from tefm.monitor.differences import LEVEL, Comparison, Pair, compare
from tefm.monitor.tally import Kind, Tally

#: Shares of the values of some fields: even, one rare, mostly one, very rare.
FIELDS = (
    [0.1] * 10, [0.4, 0.3, 0.2, 0.05, 0.05], [0.95, 0.05], [0.999, 0.001], [0.9] + [0.1 / 60] * 60, [0.5, 0.5],
    [0.25] * 4, [1 - 1e-4, 1e-4],
)  # fmt: skip


def tallies(units: int, seed: int, *, alike: int = 1, fields: tuple[list[float], ...] = FIELDS) -> list[Tally]:
    """Units of so many equal records, with dependent fields: the first ones are drawn from the same random number."""
    rng = np.random.default_rng(seed)
    common, made = rng.random(units), []
    for number, shares in enumerate(fields):
        ends = np.cumsum(shares)
        uniform = common if number < 3 else rng.random(units)
        cell = np.repeat(np.searchsorted(ends, uniform * ends[-1], side="right").clip(max=len(shares) - 1), alike)
        kind: Kind = "new" if number % 2 and len(shares) == 2 else "values"
        unit, group = np.repeat(np.arange(units), alike), np.zeros(units * alike, dtype=np.int64)
        made.append(Tally.of(str(number), kind, cell, unit, group, len(shares), 2, ordered=number == 0))
    return made


def alarm(comparison: Comparison) -> bool:
    return bool(comparison.alarms)


@pytest.mark.parametrize(
    ("units", "alike"),
    [(100, 1), *(pytest.param(*counts, marks=pytest.mark.all) for counts in ((20, 1), (700, 1), (300, 3)))],
)
def test_batches_without_drift_raise_few_alarms(units: int, alike: int) -> None:
    batches = 100
    found = sum(
        alarm(compare(tallies(units, 2 * n, alike=alike), tallies(2_000, 2 * n + 1, alike=alike), draws=300, seed=n))
        for n in range(batches)
    )
    # with 5% false alarms, more than this many have a chance of one in a thousand
    assert found <= binom.ppf(0.999, batches, LEVEL)


def test_a_small_reference_raises_few_alarms_too() -> None:
    found = sum(alarm(compare(tallies(700, 2 * n), tallies(300, 2 * n + 1), draws=300)) for n in range(100))
    assert found <= binom.ppf(0.999, 100, LEVEL)


def test_a_planted_difference_is_found_in_its_own_field() -> None:
    moved = ([0.4, 0.3, 0.12, 0.13, 0.05], *FIELDS[2:])
    others = 0
    for n in range(20):
        alarms = compare(tallies(1_000, n, fields=(FIELDS[0], *moved)), tallies(3_000, 1_000 + n)).alarms
        assert min(alarms, key=lambda one: one.p).subject == "1"
        others += len(alarms) > 1
    assert others <= binom.ppf(0.999, 20, LEVEL)


def test_something_never_seen_needs_more_than_one_occurrence() -> None:
    reference = Tally("x", "new", np.array([[5_000, 0], [0, 0], [0, 0]]))

    def adjusted(count: int) -> float:
        batch = Tally("x", "new", np.array([[1_000 - count, count], [0, 0], [0, 0]]))
        return compare([batch], [reference]).differences[0].adjusted

    assert adjusted(1) > LEVEL > adjusted(3)


def test_fewer_new_values_are_no_alarm() -> None:
    batch, reference = (
        Tally("x", "new", np.array([[n - k, k], [0, 0], [0, 0]])) for n, k in ((1_000, 0), (5_000, 500))
    )
    assert compare([batch], [reference]).differences[0].p == pytest.approx(1.0)
    as_missing = [Tally("x", "missing", tally.counts_GJ) for tally in (batch, reference)]
    assert compare(as_missing[:1], as_missing[1:]).alarms


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 60), st.integers(0, 60))
def test_two_cells_are_compared_exactly(a: int, b: int, c: int, d: int) -> None:
    pair = Pair.merged(np.array([a, b], float), np.array([c, d], float), 1.0, ordered=False)
    if pair is None:
        assert not (a + b and c + d and a + c and b + d)
        return
    expected = fisher_exact([[a, b], [c, d]]).pvalue
    assert pair.p_values(np.random.default_rng(0), 10)[0] == pytest.approx(expected, rel=1e-6)
    assert pair.approximate_p() == pytest.approx(expected, rel=1e-6)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 400)), min_size=3, max_size=40),
    st.booleans(),
    st.floats(1, 4),
)
def test_merging_cells_loses_nothing(counts: list[tuple[int, int]], ordered: bool, effect: float) -> None:
    a_J, b_J = np.array(counts, dtype=float).T
    pair = Pair.merged(a_J, b_J, effect, ordered=ordered)
    if pair is None:
        return
    assert pair.a_J.sum() == a_J.sum() and pair.b_J.sum() == b_J.sum()
    expected_J = (pair.a_J + pair.b_J) * a_J.sum() / (a_J.sum() + b_J.sum()) / effect
    assert expected_J.min() >= 5 - 1e-9
    assert np.isfinite(pair.statistic)


def test_the_same_seed_gives_the_same_result() -> None:
    batch, reference = tallies(200, 1), tallies(500, 2)
    assert compare(batch, reference, seed=3) == compare(batch, reference, seed=3)


def test_nothing_to_compare() -> None:
    empty = [Tally("x", "values", np.zeros((3, 4), dtype=np.int64))]
    assert compare(empty, tallies(10, 0)).differences == ()
    assert compare(empty, empty).differences[0].p == 1.0
