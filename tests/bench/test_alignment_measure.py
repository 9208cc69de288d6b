"""The measure of an alignment: codes are written level by level, and it cannot be fooled."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.miniatures import FAMILIES
from support.stays_in_words import ENTRIES, LAYOUT, LEVELS, Aligned, codes_of, drawn, opened
from tefm_bench import alignment as aligning
from tefm_bench.alignment import (
    Alignment,
    mean_target_loss,
    measure_alignment,
    true_and_shuffled_loss,
    write_codes,
)

from tefm.language.alignment import align
from tefm.language.backbone import Backbone
from tefm.language.batches import Example
from tefm.language.config import AlignConfig


@pytest.fixture(scope="module")
def fresh(backbones: dict[str, Path]) -> dict[str, Aligned]:
    return {family: opened(folder) for family, folder in backbones.items()}


class Coder:
    """A coder whose codes lose nothing."""

    def __init__(self, mode_D: NDArray[Any]) -> None:
        self.mode_D_, self.layout = mode_D, LAYOUT

    encode = staticmethod(codes_of)

    @staticmethod
    def decode(codes_NK: NDArray[np.integer]) -> NDArray[Any]:
        return np.stack([codes_NK[:, 0], codes_NK[:, 1], codes_NK[:, 2] % 2, codes_NK[:, 2] // 2 % 2], axis=1)


# ---- writing codes --------------------------------------------------------------------------------------------------


def scores(aligned: Aligned, x_D: NDArray[Any], codes_XK: NDArray[Any]) -> NDArray[Any]:
    """The log-probabilities of codes, each level among its own tokens, in one pass without a cache."""
    backbone, examples = aligned
    prompt = examples.code_prompt(x_D, examples.present(x_D))
    tokens_XT = np.concatenate([np.tile(prompt, (len(codes_XK), 1)), examples.ids.of(codes_XK)], axis=1)
    with torch.no_grad():
        logits_XTV = backbone.model(torch.from_numpy(tokens_XT)).logits[:, len(prompt) - 1 : -1]
    every = np.arange(len(codes_XK))
    return sum(
        logits_XTV[:, level, examples.ids.level(level)].log_softmax(dim=1).numpy()[every, codes_XK[:, level]]
        for level in range(LEVELS)
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_more_beams_find_better_codes(fresh: dict[str, Aligned], family: str) -> None:
    aligned, x_ND = fresh[family], drawn(8)
    beams = (1, 4, ENTRIES**LEVELS)
    written = [write_codes(*aligned, x_ND, beam=beam) for beam in beams]
    for codes_NK in written:
        assert codes_NK.shape == (8, LEVELS)
        assert ((codes_NK >= 0) & (codes_NK < ENTRIES)).all()
    every = np.array(list(itertools.product(range(ENTRIES), repeat=LEVELS)))
    greedy_N, four_N, all_N = np.array(
        [scores(aligned, x_D, np.array(codes)) for x_D, *codes in zip(x_ND, *written, strict=True)]
    ).T
    assert four_N.mean() >= greedy_N.mean() - 1e-5
    # with as many beams as codes, the search is exhaustive
    np.testing.assert_allclose(all_N, [scores(aligned, x_D, every).max() for x_D in x_ND], atol=1e-4)
    assert (all_N >= greedy_N - 1e-4).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_one_beam_is_the_best_token_of_each_level(fresh: dict[str, Aligned], family: str) -> None:
    (backbone, examples), x_ND = fresh[family], drawn(12, seed=1)
    written = write_codes(backbone, examples, x_ND)
    for x_D, code_K in zip(x_ND, written, strict=True):
        tokens = examples.code_prompt(x_D, examples.present(x_D)).tolist()
        for level in range(LEVELS):
            with torch.no_grad():
                own = backbone.model(torch.tensor([tokens])).logits[0, -1, examples.ids.level(level)]
            assert int(own.argmax()) == code_K[level]
            tokens.append(examples.ids.level(level).start + int(code_K[level]))


# ---- the measure ----------------------------------------------------------------------------------------------------


def test_codes_that_are_all_the_same_hold_no_information(fresh: dict[str, Aligned]) -> None:
    x_ND = drawn(20)
    true, shuffled = true_and_shuffled_loss(*fresh["llama"], x_ND, np.full((20, LEVELS), 2))
    assert true == shuffled > 0


def test_no_record_is_paired_with_its_own_code(fresh: dict[str, Aligned], monkeypatch: pytest.MonkeyPatch) -> None:
    backbone, examples = fresh["llama"]
    x_ND = np.tile([[1, 1, 1, 1]], (20, 1))
    codes_NK = np.array(list(itertools.product(range(ENTRIES), repeat=LEVELS)))[:20]
    calls: list[list[tuple[int, ...]]] = []

    def listening(backbone: Backbone, examples: list[Example], pad: int) -> float:
        calls.append([tuple(example.ids.tolist()) for example in examples])
        return 0.0

    monkeypatch.setattr(aligning, "mean_target_loss", listening)
    for seed in range(5):
        true_and_shuffled_loss(backbone, examples, x_ND, codes_NK, seed=seed)
        true, shuffled = calls[-2:]
        assert sorted(true) == sorted(shuffled)
        assert all(own != other for own, other in zip(true, shuffled, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_of_a_batch_is_that_of_its_examples_one_by_one(fresh: dict[str, Aligned], family: str) -> None:
    backbone, examples = fresh[family]
    x_ND = drawn(9).clip([1, 0, 0, 0])
    sentences = [examples.to_words(x_D, np.array([1, 2, 3]), examples.present(x_D)) for x_D in x_ND]
    total = 0.0
    for example in sentences:
        with torch.no_grad():
            logs = backbone.model(torch.from_numpy(example.ids)[None]).logits[0].log_softmax(dim=1)
        total -= sum(float(logs[place - 1, example.ids[place]]) for place in np.flatnonzero(example.target))
    expected = total / sum(int(example.target.sum()) for example in sentences)
    assert mean_target_loss(backbone, sentences) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("family", ["phi3"])
def test_what_can_be_learned_is_learned(
    backbones: dict[str, Path], family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AlignConfig, "whole", 1.0)
    aligned, x_ND = opened(backbones[family]), drawn(400)
    held_ND = drawn(60, seed=1)

    def measured() -> Alignment:
        return measure_alignment(*aligned, held_ND, Coder(np.zeros(4, dtype=int)))  # type: ignore[arg-type]

    before = measured()
    assert before.flow == pytest.approx(0, abs=0.3)
    config = AlignConfig(steps=80, batch=32, learning_rate=5e-3)
    history = align(*aligned, x_ND, codes_of(x_ND), config)
    assert history.loss[-1][1] < 0.3 * history.loss[0][1]
    after = measured()
    assert after.true_loss < 0.5 * after.shuffled_loss
    assert after.true_loss < before.true_loss
    assert min(after.exact) > 2 / ENTRIES
    assert after.slot_accuracy > max(before.slot_accuracy, after.mode_slot_accuracy)
    assert after.close_accuracy >= after.slot_accuracy
    assert (after.upper_slot_accuracy, after.upper_close_accuracy) == (1, 1)
    assert after.mode_slot_accuracy == pytest.approx((held_ND == 0).mean())
    assert after.to_dict()["flow"] == after.shuffled_loss - after.true_loss


def test_what_the_written_codes_give_back_is_compared_with_the_records(
    fresh: dict[str, Aligned], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Close is one bucket off, of a number, and present on both sides."""
    x_ND = np.array([[3, 3, 1, 0], [1, 2, 0, 1], [2, 0, 1, 0]])
    written_ND = np.array([[4, 2, 1, 0], [1, 0, 0, 0], [2, 1, 1, 0]])
    written_NK = codes_of(written_ND)
    monkeypatch.setattr(aligning, "write_codes", lambda *_, **__: written_NK)
    alignment = measure_alignment(*fresh["llama"], x_ND, Coder(np.array([2, 0, 1, 0])))  # type: ignore[arg-type]
    assert alignment.slot_accuracy == pytest.approx(7 / 12)
    assert alignment.close_accuracy == pytest.approx(8 / 12)
    assert (alignment.upper_slot_accuracy, alignment.upper_close_accuracy) == (1, 1)
    assert alignment.mode_slot_accuracy == pytest.approx(6 / 12)
    assert alignment.exact == pytest.approx((2 / 3, 0, 2 / 3))
