"""What the codes keep: figures worked out by hand, and what must hold for any records."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tefm.base.errors import InputError
from tefm.codes.fidelity import Fidelity, FieldFidelity, codebook_use, collisions, measure, mode_of
from tefm.tables.layout import Layout, Slot

LAYOUT = Layout(
    (
        Slot("age", "number", 4),
        Slot("sex", "category", 3),
        Slot("dx", "number", 2),  # how many diagnoses
        Slot("dx", "flag", 1, "250"),
        Slot("dx", "flag", 1, "428"),
    )
)
X = np.array([[1, 1, 1, 1, 0], [2, 1, 2, 1, 1], [4, 2, 0, 0, 0], [4, 3, 1, 0, 1]], np.uint8)
# Age is decoded one off, right, absent, three off; sex right, wrong, wrong, right; of four flags one is missed.
BACK = np.array([[2, 1, 1, 1, 0], [2, 3, 2, 1, 0], [0, 1, 0, 0, 1], [1, 3, 2, 0, 1]], np.uint8)


def random_slots(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, LAYOUT.sizes_D + 1, (n, LAYOUT.width)).astype(np.uint8)


def figures(fidelity: Fidelity) -> np.ndarray:
    """All numbers of a result in a row; what is undefined is NaN."""
    rows = [v for field in fidelity.fields for v in (field.accuracy, field.mode_accuracy, field.kept)]
    totals = [v for v in vars(fidelity).values() if not isinstance(v, tuple)]
    return np.array(totals + rows, dtype=float)


# --- reconstruction


def test_mode_is_the_most_common_value_and_the_smallest_of_several() -> None:
    mode_D = mode_of(X, LAYOUT)
    assert mode_D.tolist() == [4, 1, 1, 0, 0] and mode_D.dtype == LAYOUT.dtype


def test_golden_figures() -> None:
    fidelity = measure(X, BACK, LAYOUT, mode_of(X, LAYOUT))
    assert (fidelity.records, fidelity.slots) == (4, 5)
    # exact per slot: age 1, sex 2, count 3, flags 4 and 2 of 4
    assert fidelity.slot_accuracy == pytest.approx(12 / 20)
    # one bucket off is forgiven: age of the first record and count of the last, never a category
    assert fidelity.close_accuracy == pytest.approx(14 / 20)
    # age (1² + 0 + 4² + 3²) / 4², sex two wrong, count (1 / 2)², flags two wrong
    assert fidelity.nmse == pytest.approx((26 / 16 + 2 + 1 / 4 + 2) / 20)
    # the mode 4 1 1 0 0 is right 2, 2, 2, 2, 2 times
    assert fidelity.mode_slot_accuracy == pytest.approx(10 / 20)
    assert fidelity.mode_close_accuracy == pytest.approx(
        11 / 20
    )  # count 2 of the second record; its 0 is absent, not close
    assert fidelity.mode_nmse == pytest.approx(((9 + 4) / 16 + 2 + 2 / 4 + 4) / 20)
    assert fidelity.field_accuracy == pytest.approx(6 / 12)
    assert fidelity.mode_field_accuracy == pytest.approx(6 / 12)
    # four flags present, three of them decoded, four predicted
    assert (fidelity.recall, fidelity.precision, fidelity.f1) == (3 / 4, 3 / 4, 3 / 4)


def test_golden_fields() -> None:
    fidelity = measure(X, BACK, LAYOUT, mode_of(X, LAYOUT))
    assert fidelity.fields == (
        FieldFidelity("age", "number", 1, 0.25, 0.5, 0.5, kept=-0.5),
        FieldFidelity("sex", "category", 1, 0.5, 0.5, 0.5, kept=0.0),
        FieldFidelity("dx", "set", 2, 0.75, 0.5, 0.75, kept=0.75),
        FieldFidelity("dx (count)", "number", 1, 0.75, 0.5, 1.0, kept=0.5),
    )
    assert fidelity.lost == ("age", "sex")


def test_absent_is_never_close_to_a_number() -> None:
    layout = Layout((Slot("age", "number", 255),))
    x, back = np.array([[0], [1], [255], [254]], np.uint8), np.array([[1], [0], [254], [255]], np.uint8)
    assert measure(x, back, layout, mode_of(x, layout)).close_accuracy == 0.5  # and 255 + 1 does not wrap to 0


def test_layouts_without_sets_or_without_fields() -> None:
    only_fields = measure(X[:, :2], BACK[:, :2], Layout(LAYOUT.slots[:2]), np.zeros(2, np.uint8))
    assert (only_fields.recall, only_fields.precision, only_fields.f1) == (None, None, None)
    only_sets = measure(X[:, 3:], BACK[:, 3:], Layout(LAYOUT.slots[3:]), np.zeros(2, np.uint8))
    assert (only_sets.field_accuracy, only_sets.mode_field_accuracy, only_sets.recall) == (None, None, 0.75)


def test_lost_excuses_nearly_constant_fields_but_not_sets() -> None:
    field = {"slots": 1, "accuracy": 0.98, "mode_accuracy": 0.98, "close_accuracy": 0.98, "kept": 0.0}
    assert not FieldFidelity(name="a", kind="category", **field).lost
    assert FieldFidelity(name="a", kind="set", **field).lost
    assert FieldFidelity(name="a", kind="category", **field | {"mode_accuracy": 0.9}).lost
    assert not FieldFidelity(name="a", kind="category", **field | {"mode_accuracy": 1.0, "kept": None}).lost


def test_results_are_plain_json() -> None:
    fidelity = measure(X, BACK, LAYOUT, mode_of(X, LAYOUT)).to_dict()
    for result in [fidelity, asdict(collisions(X, X[:, :2])), *map(asdict, codebook_use(X[:, :2], 5))]:
        assert json.loads(json.dumps(result)) == result


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(InputError, match="no records"):
        mode_of(X[:0], LAYOUT)
    with pytest.raises(InputError, match="4 slots, but the layout has 5"):
        mode_of(X[:, :4], LAYOUT)
    with pytest.raises(InputError, match="do not match"):
        measure(X, BACK[:3], LAYOUT, mode_of(X, LAYOUT))


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_perfect_reconstruction(n: int, seed: int) -> None:
    x = random_slots(n, seed)
    fidelity = measure(x, x.copy(), LAYOUT, mode_of(x, LAYOUT))
    assert (fidelity.slot_accuracy, fidelity.close_accuracy, fidelity.nmse, fidelity.field_accuracy) == (
        1.0,
        1.0,
        0.0,
        1.0,
    )
    assert fidelity.recall in (1.0, None) and fidelity.lost == ()


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_invariants(n: int, seed: int) -> None:
    x, back = random_slots(n, seed), random_slots(n, seed + 1)
    mode_D = mode_of(x, LAYOUT)
    fidelity = measure(x, back, LAYOUT, mode_D)
    assert (
        fidelity.slot_accuracy <= fidelity.close_accuracy <= 1
        and fidelity.mode_slot_accuracy <= fidelity.mode_close_accuracy
    )
    assert 0 <= fidelity.nmse <= 1 - fidelity.slot_accuracy + 1e-12  # no slot is more than wholly wrong
    assert all(field.kept is None or field.kept <= 1 for field in fidelity.fields)

    shuffle = np.random.default_rng(seed).permutation(n)
    again = measure(x[shuffle], back[shuffle], LAYOUT, mode_D)
    np.testing.assert_allclose(figures(again), figures(fidelity))


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_guessing_the_mode_keeps_nothing(n: int, seed: int) -> None:
    x = random_slots(n, seed)
    mode_D = mode_of(x, LAYOUT)
    fidelity = measure(x, np.tile(mode_D, (n, 1)), LAYOUT, mode_D)
    assert (fidelity.slot_accuracy, fidelity.close_accuracy) == (
        fidelity.mode_slot_accuracy,
        fidelity.mode_close_accuracy,
    )
    assert fidelity.nmse == fidelity.mode_nmse
    assert all(field.kept in (0.0, None) for field in fidelity.fields if field.kind != "set")


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    x, back = random_slots(100, 0), random_slots(100, 1)
    whole = measure(x, back, LAYOUT, mode_of(x, LAYOUT))
    monkeypatch.setattr("tefm.codes.fidelity._BLOCK", 7 * LAYOUT.width)
    np.testing.assert_allclose(figures(measure(x, back, LAYOUT, mode_of(x, LAYOUT))), figures(whole))


# --- codebook use


def test_golden_codebook_use() -> None:
    first, second = codebook_use(np.array([[0, 3], [1, 3], [2, 3], [3, 3]]), entries=4)
    assert (first.level, first.entries, first.used, first.dead, first.utilisation) == (1, 4, 4, 0, 1.0)
    assert first.perplexity == pytest.approx(4) and first.top_share == 0.25
    assert (second.level, second.used, second.dead, second.utilisation) == (2, 1, 3, 0.25)
    assert second.perplexity == pytest.approx(1) and second.top_share == 1.0
    (uneven,) = codebook_use(np.array([[0], [0], [0], [1]]), entries=8)
    assert uneven.perplexity == pytest.approx(4 / 3**0.75)


def test_codes_outside_the_codebook_are_refused() -> None:
    with pytest.raises(InputError, match="0 to 4, but a level has 4 entries"):
        codebook_use(np.array([[0], [4]]), entries=4)


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_codebook_use_bounds(n: int, entries: int, seed: int) -> None:
    for use in codebook_use(np.random.default_rng(seed).integers(0, entries, (n, 2)), entries):
        assert use.used + use.dead == entries and 0 < use.utilisation <= 1
        assert 1 - 1e-9 <= use.perplexity <= use.used + 1e-9
        assert 1 / use.used - 1e-9 <= use.top_share <= 1


# --- collisions


def test_golden_collisions() -> None:
    codes = np.array([[0, 0], [0, 0], [0, 1], [0, 1], [1, 0], [1, 0], [1, 0], [1, 1]])
    x = np.array([[5, 5], [5, 5], [1, 2], [1, 3], [7, 7], [7, 7], [7, 8], [9, 9]], np.uint8)
    labels = np.array(["alive", "died", "alive", "alive", "died", "died", "alive", "died"])
    shared = collisions(x, codes, labels)
    assert (shared.records, shared.distinct_records, shared.distinct_codes) == (8, 6, 4)
    assert (shared.collision_rate, shared.sharing_rate, shared.colliding) == (0.5, 7 / 8, 7)
    # the first two are identical, so that their labels differ is not the codes' doing
    assert (shared.identical, shared.different, shared.conflicting) == (2, 2, 3)
    unlabelled = collisions(x, codes)
    assert (unlabelled.identical, unlabelled.different, unlabelled.conflicting) == (2, 5, None)


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_collision_categories_sum_up(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, codes, labels = rng.integers(0, 3, (n, 2)), rng.integers(0, 3, (n, 2)), rng.integers(0, 2, n)
    shared = collisions(x.astype(np.uint8), codes, labels)
    assert shared.conflicting is not None
    assert shared.identical + shared.different + shared.conflicting == shared.colliding <= n
    assert 0 <= shared.collision_rate <= shared.sharing_rate <= 1

    shuffle = rng.permutation(n)
    assert collisions(x[shuffle].astype(np.uint8), codes[shuffle], labels[shuffle]) == shared


def test_a_hundred_thousand_records_take_seconds() -> None:
    rng = np.random.default_rng(0)
    x = (rng.random((100_000, 242), np.float32) < 0.02).astype(np.uint8)
    start = time.perf_counter()
    collisions(x, rng.integers(0, 128, (100_000, 3)), rng.integers(0, 2, 100_000))
    assert time.perf_counter() - start < 5  # about 0.3 s on one core; np.unique(axis=0) takes 8
