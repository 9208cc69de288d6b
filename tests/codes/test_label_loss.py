"""Planted losses are found: a field must matter to the label and be lost, and chance is not reported."""

from __future__ import annotations

import numpy as np

from tefm.codes.doctor import label_losses
from tefm.tables.layout import Layout, Slot

LAYOUT = Layout(
    (
        Slot("noise", "category", 4),
        Slot("kept", "number", 4),
        Slot("lost", "number", 4),
        Slot("dx", "flag", 1, "250"),
        Slot("dx", "flag", 1, "428"),
    )
)


def planted(records: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Everything but `noise` says something about the label; `lost` and one member are decoded as constants."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, records)

    def related(strength: float, size: int) -> np.ndarray:
        guess = np.where(rng.random(records) < strength, labels, rng.integers(0, 2, records))
        return guess * (size // 2) + rng.integers(1, size // 2 + 1, records)

    flags = [np.where(rng.random(records) < share, labels, 0) for share in (0.4, 0.6)]
    x = np.stack([rng.integers(1, 5, records), related(0.6, 4), related(0.6, 4), *flags], axis=1).astype(np.uint8)
    back = x.copy()
    back[:, 0] = 1
    back[:, 2] = 2
    back[:, 4] = 0
    return x, back, labels


def test_lost_fields_that_matter_are_named() -> None:
    x, back, labels = planted()
    losses = label_losses(x, back, LAYOUT, labels)
    assert {(loss.field, loss.member) for loss in losses} == {("lost", None), ("dx", "428")}
    assert all(loss.decoded == 0 < 0.1 < loss.recorded < 1 for loss in losses)
    sizes = [loss.recorded - loss.decoded for loss in losses]
    assert sizes == sorted(sizes, reverse=True), "the largest first"


def test_text_labels_give_the_same() -> None:
    x, back, labels = planted()
    words = np.array(["no", "yes"], dtype=object)[labels]
    assert label_losses(x, back, LAYOUT, words) == label_losses(x, back, LAYOUT, labels)


def test_chance_is_not_reported() -> None:
    """Labels without any relation to the fields: in 20 tables at a level of 1%, nothing, or hardly anything."""
    named = 0
    for seed in range(20):
        x, back, labels = planted(seed=seed)
        named += bool(label_losses(x, back, LAYOUT, np.random.default_rng(100 + seed).permutation(labels)))
    assert named <= 1


def test_nothing_is_lost_by_a_perfect_code_or_with_one_class() -> None:
    x, back, labels = planted()
    assert label_losses(x, x, LAYOUT, labels) == ()
    assert label_losses(x, back, LAYOUT, np.zeros_like(labels)) == ()
