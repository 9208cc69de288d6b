"""Records that share more of their code are more similar: planted clusters, hand-made pairs, empty prefixes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tefm_bench.prefixes import _pairs, hierarchy

from tefm.base.errors import InputError
from tefm.tables.layout import Layout, Slot


def test_the_ratio_falls_on_planted_clusters() -> None:
    """Clusters within clusters: the first level names the coarse one, the second the fine one, the third the record."""
    rng = np.random.default_rng(0)
    coarse, fine, own = rng.integers(0, 8, 4000), rng.integers(0, 8, 4000), rng.integers(0, 8, 4000)
    layout = Layout(tuple(Slot(f"s{i}", "number", 1000) for i in range(12)))
    centre, offset, noise = (rng.normal(size=shape) for shape in ((8, 12), (8, 8, 12), (8, 8, 8, 12)))
    spot = centre[coarse] + 0.5 * offset[coarse, fine] + 0.2 * noise[coarse, fine, own]
    x = np.clip(500 + 100 * spot, 1, 1000).astype(np.uint16)
    a, ab, abc = hierarchy(x, np.stack([coarse, fine, own], axis=1), layout)
    assert [row.prefix for row in (a, ab, abc)] == ["a", "a+b", "a+b+c"]
    assert a.ratio is not None and ab.ratio is not None and abc.ratio is not None
    assert 1 > a.ratio > 1.5 * ab.ratio > 0 == abc.ratio
    assert a.inter_mean == pytest.approx(abc.inter_mean, rel=0.15)
    assert (a.groups, ab.groups, abc.groups) == (8, 64, 512)
    assert json.loads(json.dumps(asdict(abc))) == asdict(abc)


def test_random_codes_group_nothing() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 11, (2000, 20)).astype(np.uint8)
    layout = Layout(tuple(Slot(f"s{i}", "number", 10) for i in range(20)))
    (row,) = hierarchy(x, rng.integers(0, 16, (2000, 1)), layout)
    assert row.ratio == pytest.approx(1, abs=0.02)


def test_golden_distances() -> None:
    """Two groups of two; all pairs inside a group are alike, so are all across: no chance is left."""
    layout = Layout((Slot("number", "number", 10), Slot("category", "category", 9), Slot("flag", "flag", 1)))
    x = np.array([[1, 1, 0], [4, 1, 0], [1, 9, 1], [4, 9, 1]], np.uint8)
    (row,) = hierarchy(x, np.array([[0], [0], [1], [1]]), layout, pairs=4000)
    assert (row.groups, row.partnered) == (2, 1.0)
    assert row.intra_mean == pytest.approx(0.3) and row.intra_std == pytest.approx(0)
    # across, category 1 and 9 are one mismatch (not 8), the flag another, the number 0 or 0.3 apart
    assert row.inter_mean == pytest.approx((2**0.5 + 2.09**0.5) / 2, abs=0.002)
    assert row.inter_std == pytest.approx((2.09**0.5 - 2**0.5) / 2, abs=0.002)


def test_prefixes_without_a_pair() -> None:
    layout = Layout((Slot("a", "number", 10),))
    x = np.array([[1], [5], [9]], np.uint8)
    together, apart = hierarchy(x, np.array([[0, 0], [0, 1], [0, 2]]), layout)
    assert together.intra_mean is not None and (together.inter_mean, together.ratio) == (None, None)
    assert (apart.intra_mean, apart.intra_std, apart.ratio, apart.partnered) == (None, None, None, 0.0)
    assert apart.inter_mean is not None


def test_same_seed_same_table() -> None:
    rng = np.random.default_rng(2)
    x, codes = rng.integers(0, 11, (300, 5)).astype(np.uint8), rng.integers(0, 4, (300, 2))
    layout = Layout(tuple(Slot(f"s{i}", "number", 10) for i in range(5)))
    assert hierarchy(x, codes, layout, seed=3) == hierarchy(x, codes, layout, seed=3)
    assert hierarchy(x, codes, layout, seed=3) != hierarchy(x, codes, layout, seed=4)


def test_records_and_codes_must_fit() -> None:
    with pytest.raises(InputError, match="2 records and 1 codes"):
        hierarchy(np.zeros((2, 1), np.uint8), np.zeros((1, 1), int), Layout((Slot("a", "flag", 1),)))


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=20), st.integers(0, 99))
def test_pairs_are_what_they_say(groups: list[int], seed: int) -> None:
    group_N = np.unique(groups, return_inverse=True)[1]
    left, right = _pairs(group_N, 50, np.random.default_rng(seed), same=True)
    assert (left != right).all() and (group_N[left] == group_N[right]).all()
    assert len(left) == (50 if (np.bincount(group_N) > 1).any() else 0)
    left, right = _pairs(group_N, 50, np.random.default_rng(seed), same=False)
    assert (group_N[left] != group_N[right]).all()
    assert len(left) == (50 if group_N.max() > 0 else 0)


@pytest.mark.parametrize("inside", [True, False])
def test_records_and_partners_are_drawn_evenly(inside: bool) -> None:
    """Groups of 2, 3 and 1 in mixed order: each record that has a partner comes up equally, and so do its partners."""
    group_N = np.array([1, 0, 2, 1, 0, 1])
    left, right = _pairs(group_N, 60_000, np.random.default_rng(0), same=inside)
    seen = Counter(zip(left.tolist(), right.tolist(), strict=True))
    partners = {i: [j for j in range(6) if i != j and (group_N[i] == group_N[j]) == inside] for i in range(6)}
    drawn = [i for i in partners if partners[i]]
    assert set(seen) == {(i, j) for i in drawn for j in partners[i]}
    for (i, _), times in seen.items():
        assert times == pytest.approx(60_000 / len(drawn) / len(partners[i]), rel=0.1)
