"""Batches: every target where it belongs, every example once per pass, and any step at any time."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tefm.language.batches import NOTHING, Example, ShuffledBatches, collate, model_inputs, padded

PAD = 0


@st.composite
def examples(draw: st.DrawFn) -> list[Example]:
    """Some examples; the first token is never a target, as nothing predicts it."""
    drawn = []
    for _ in range(draw(st.integers(1, 6))):
        size = draw(st.integers(2, 9))
        ids = np.array(draw(st.lists(st.integers(0, 50), min_size=size, max_size=size)))
        places = draw(st.sets(st.integers(1, size - 1), min_size=1))
        drawn.append(Example(ids, np.isin(np.arange(size), list(places))))
    return drawn


@given(examples())
def test_every_target_is_at_its_place_from_the_right(drawn: list[Example]) -> None:
    batch = collate(drawn, PAD)
    width, last = batch.ids_BT.shape[1], batch.labels_BL.shape[1]
    assert width == max(len(example.ids) for example in drawn)
    assert last < width or width == 1
    assert batch.mask_BT.sum(dim=1).tolist() == [len(example.ids) for example in drawn]
    for example, ids_T, mask_T, labels_L in zip(drawn, batch.ids_BT, batch.mask_BT, batch.labels_BL, strict=True):
        assert ids_T[mask_T == 1].tolist() == example.ids.tolist()
        assert (ids_T[mask_T == 0] == PAD).all()
        labels_T = torch.full((width,), NOTHING)
        labels_T[width - len(example.ids) :][torch.from_numpy(example.target)] = torch.from_numpy(
            example.ids[example.target]
        )
        assert torch.equal(torch.full((width,), NOTHING)[: width - last], labels_T[: width - last])
        assert torch.equal(labels_L, labels_T[width - last :])
    assert batch.targets == sum(int(example.target.sum()) for example in drawn)


@given(examples(), st.integers(1, 9))
def test_parts_are_everything_once_and_never_empty(drawn: list[Example], parts: int) -> None:
    batch = collate(drawn, PAD)
    shares = [batch.part(slice(number, None, parts)) for number in range(parts)]
    assert all(len(share.ids_BT) for share in shares)
    assert sum(share.targets for share in shares) == batch.targets
    pairs = [(ids.tolist(), labels.tolist()) for share in shares for ids, labels in zip(share.ids_BT, share.labels_BL)]
    with_targets = [(ids, labels) for ids, labels in pairs if any(label != NOTHING for label in labels)]
    whole = [(ids.tolist(), labels.tolist()) for ids, labels in zip(batch.ids_BT, batch.labels_BL)]
    assert sorted(with_targets) == sorted(whole)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.integers(0, 4))
def test_a_token_sees_what_came_before_it_and_no_padding(sizes: list[int], before: int) -> None:
    inputs = model_inputs(*padded([np.arange(1, size + 1) for size in sizes], PAD), before=before)
    width = max(sizes)
    for row, size in enumerate(sizes):
        assert inputs["position_ids"][row, width - size :].tolist() == list(range(before, before + size))
    if len(set(sizes)) == 1:
        assert "attention_mask" not in inputs
        return
    sees_BTT = inputs["attention_mask"][:, 0] == 0
    assert sees_BTT.any(dim=2).all()  # a token that looks nowhere is a NaN
    for row, size in enumerate(sizes):
        for place in range(width - size, width):
            seen = [*range(before), *range(before + width - size, before + place + 1)]
            assert sees_BTT[row, place].nonzero().flatten().tolist() == seen


@given(st.lists(st.integers(1, 99), min_size=1, max_size=200), st.integers(1, 9), st.integers(0, 3))
def test_every_example_comes_once_per_pass(lengths: list[int], batch: int, seed: int) -> None:
    batches = ShuffledBatches(np.array(lengths), batch, seed)
    for number in range(2):
        steps = [batches[number * batches.per_pass + place] for place in range(batches.per_pass)]
        assert sorted(np.concatenate(steps).tolist()) == list(range(len(lengths)))
        assert all(1 <= len(step) <= batch for step in steps)


@given(st.permutations(range(30)), st.integers(0, 3))
def test_any_step_in_any_order(order: list[int], seed: int) -> None:
    lengths = np.random.default_rng(0).integers(1, 50, size=45)
    forward = ShuffledBatches(lengths, 4, seed)
    expected = [forward[step].tolist() for step in range(30)]
    jumping = ShuffledBatches(lengths, 4, seed)
    assert {step: jumping[step].tolist() for step in order} == dict(enumerate(expected))


def test_seeds_and_passes_differ_and_lengths_go_together() -> None:
    lengths = np.random.default_rng(0).integers(1, 500, size=640)
    batches, other = ShuffledBatches(lengths, 8, 0), ShuffledBatches(lengths, 8, 1)
    first = [batches[step].tolist() for step in range(80)]
    assert first != [other[step].tolist() for step in range(80)]
    assert first != [batches[80 + step].tolist() for step in range(80)]
    padding = np.mean([1 - lengths[rows].mean() / lengths[rows].max() for rows in first])
    random = lengths[np.random.default_rng(0).permutation(640)].reshape(80, 8)
    assert padding < 0.4 * np.mean(1 - random.mean(axis=1) / random.max(axis=1))


def test_a_branch_sees_the_beginning_and_itself() -> None:
    branches = [Example.answering(np.array([6, 7]), np.array([1])), Example.answering(np.array([8]), np.array([2]))]
    batch = collate([Example.branching(np.array([4, 5]), branches), branches[0]], PAD)
    assert batch.labels_BL[0].tolist() == [1, NOTHING, 2] and batch.targets == 3
    inputs = batch.inputs
    assert inputs["position_ids"][0].tolist() == [0, 1, 2, 3, 4, 2, 3]
    assert inputs["position_ids"][1, 4:].tolist() == [0, 1, 2]
    sees_TT = inputs["attention_mask"][0, 0] == 0
    assert sees_TT[4].nonzero().flatten().tolist() == [0, 1, 2, 3, 4]
    assert sees_TT[6].nonzero().flatten().tolist() == [0, 1, 5, 6]
