"""From a ranking to a mask."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from conftest import Explained
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.rationale.masked_model import ABSENT, Of, Over, order_of, order_over, top_k
from tefm.tables.layout import Layout, Slot
from tefm.tables.sequences import Sequences

#: Two ordinary fields, then a set with its count and five flags.
LAYOUT = Layout(
    (
        Slot("age", "number", 9),
        Slot("ward", "category", 9),
        Slot("dx", "number", 9),
        *(Slot("dx", "flag", 1, code) for code in "abcde"),
    )
)
D = LAYOUT.width

methods = st.fixed_dictionaries(
    {
        "of": st.sampled_from(["all", "present"]),
        "over": st.sampled_from(["record", "sequence"]),
    }
)
shares = st.floats(0.01, 1.0)


@st.composite
def ranked(draw: st.DrawFn) -> tuple[NDArray[Any], Sequences]:
    """Scores with ties, and sequences with absent slots, empty records and even empty sequences."""
    lengths = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    records = sum(lengths)
    x_ND = rng.integers(1, 5, (records, D)) * (rng.random((records, D)) < rng.random((records, 1)) * 1.3 - 0.1)
    scores_ND = rng.integers(-3, 4, (records, D)) / 4
    return scores_ND, Sequences(x_ND.astype(np.uint8), np.concatenate([[0], np.cumsum(lengths)]))


@given(ranked(), methods, shares)
def test_only_present_slots_and_the_budget(
    ranking: tuple[NDArray[Any], Sequences], options: dict[str, Any], share: float
) -> None:
    scores_ND, sequences = ranking
    keep_ND = top_k(scores_ND, sequences, share, **options)
    present_ND = sequences.x_ND > 0
    assert not (keep_ND & ~present_ND).any()

    def budget(present_D: NDArray[np.bool_]) -> int:
        counted = present_D.sum() if options["of"] == "present" else D
        return int(min(max(1, round(share * counted)), present_D.sum()))

    expected_N = np.array([budget(present_D) for present_D in present_ND], dtype=np.int64)
    kept_N = keep_ND.sum(axis=1)
    if options["over"] == "record":
        assert kept_N.tolist() == expected_N.tolist()
    else:
        for a, b in pairwise(sequences.starts):
            assert kept_N[a:b].sum() == expected_N[a:b].sum()


@given(ranked(), methods, shares)
def test_selected_slots_rank_above_the_others(
    ranking: tuple[NDArray[Any], Sequences], options: dict[str, Any], share: float
) -> None:
    scores_ND, sequences = ranking
    keep_ND = top_k(scores_ND, sequences, share, **options)
    bounds = np.arange(len(keep_ND) + 1) if options["over"] == "record" else sequences.starts
    for a, b in pairwise(bounds):
        kept = scores_ND[a:b][keep_ND[a:b]]
        left = scores_ND[a:b][~keep_ND[a:b] & (sequences.x_ND[a:b] > 0)]
        assert kept.min(initial=np.inf) >= left.max(initial=-np.inf)


@given(ranked(), methods, shares, shares)
def test_a_smaller_share_is_part_of_a_larger_one(
    ranking: tuple[NDArray[Any], Sequences], options: dict[str, Any], share: float, other: float
) -> None:
    scores_ND, sequences = ranking
    small_ND, large_ND = (
        top_k(scores_ND, sequences, part, **options) for part in (min(share, other), max(share, other))
    )
    assert not (small_ND & ~large_ND).any()


@given(ranked(), methods)
def test_the_whole_share_is_everything(ranking: tuple[NDArray[Any], Sequences], options: dict[str, Any]) -> None:
    scores_ND, sequences = ranking
    keep_ND = top_k(scores_ND, sequences, 1.0, **options)
    assert (keep_ND == (sequences.x_ND > 0)).all()


@given(ranked(), shares, st.sampled_from(["all", "present"]))
def test_only_the_order_within_a_record_counts(ranking: tuple[NDArray[Any], Sequences], share: float, of: Of) -> None:
    scores_ND, sequences = ranking
    scale_N1 = np.arange(1, len(scores_ND) + 1)[:, None]
    other_ND = np.exp(2 * scores_ND) * scale_N1 - 7 * scale_N1
    keep_ND = top_k(scores_ND, sequences, share, of=of)
    assert (keep_ND == top_k(other_ND, sequences, share, of=of)).all()


@given(ranked(), st.sampled_from(["record", "sequence"]))
def test_places_run_without_gaps(ranking: tuple[NDArray[Any], Sequences], over: Over) -> None:
    scores_ND, sequences = ranking
    order_ND = order_over(scores_ND, sequences, over)
    assert ((order_ND == ABSENT) == (sequences.x_ND == 0)).all()
    bounds = np.arange(len(order_ND) + 1) if over == "record" else sequences.starts
    for a, b in pairwise(bounds):
        places = order_ND[a:b][sequences.x_ND[a:b] > 0]
        assert sorted(places.tolist()) == list(range(len(places)))


def test_the_first_of_equal_scores_wins() -> None:
    x_ND = np.ones((1, 200), dtype=np.uint8)
    x_ND[0, 1] = 0
    scores_ND = np.arange(200)[None] % 2  # the odd ones first, each kind in order
    order_D = order_of(scores_ND, x_ND)[0]
    assert order_D[3::2].tolist() == list(range(99))
    assert order_D[::2].tolist() == list(range(99, 199))


def test_the_lowest_score_comes_before_absent_slots() -> None:
    order_ND = order_of(np.array([[5.0, -np.inf, 1.0]]), np.array([[0, 2, 1]], dtype=np.uint8))
    assert order_ND.tolist() == [[ABSENT, 1, 0]]


def test_a_sequence_spends_where_scores_are_highest() -> None:
    sequences = Sequences(np.ones((3, 4), dtype=np.uint8), np.array([0, 2, 3]))
    scores_ND = np.array([[9, 8, 7, 6], [1, 2, 3, 4], [0, 0, 0, 1]])
    assert top_k(scores_ND, sequences, 0.5, over="record").sum(axis=1).tolist() == [2, 2, 2]
    keep_ND = top_k(scores_ND, sequences, 0.5, over="sequence")
    assert keep_ND.sum(axis=1).tolist() == [4, 0, 2]


def test_bad_settings_have_a_remedy(explained: Explained) -> None:
    sequences = Sequences(np.ones((1, D), dtype=np.uint8), np.array([0, 1]))
    scores_ND = np.zeros((1, D))
    for share in (0, -0.1, 1.5, 5):
        explained(SettingsError, lambda: top_k(scores_ND, sequences, share), share)
    scores_ND[0, 3] = np.nan
    explained(InputError, lambda: top_k(scores_ND, sequences, 0.5), "nan")


@pytest.mark.parametrize("over", ["record", "sequence"])
def test_many_records_are_fast(over: Over) -> None:
    """20,000 records of 250 slots; the bound is generous, a loop over records would still miss it."""
    rng = np.random.default_rng(0)
    x_ND = (rng.random((20_000, 250)) < 0.2).astype(np.uint8)
    sequences = Sequences(x_ND, np.append(np.arange(0, 20_000, 2), 20_000))
    scores_ND = rng.random(x_ND.shape, dtype=np.float32)
    start = time.process_time()
    top_k(scores_ND, sequences, 0.05, over=over)
    assert time.process_time() - start < 2
