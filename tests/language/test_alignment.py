"""Alignment: examples of both directions, codes written level by level, and a measure that cannot be fooled."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Explained
from numpy.typing import NDArray
from support.miniatures import FAMILIES

from tefm.base.errors import SettingsError
from tefm.base.training import History
from tefm.language import alignment as aligning
from tefm.language.alignment import (
    Alignment,
    AlignmentExamples,
    align,
    mean_target_loss,
    measure_alignment,
    true_and_shuffled_loss,
    write_codes,
)
from tefm.language.backbone import Backbone, open_backbone
from tefm.language.batches import Batch, Example
from tefm.language.config import AlignConfig
from tefm.language.vocabulary import CodeVocabulary, extend, start_rows, tokens_of
from tefm.tables.layout import Layout, Slot, SlotKind
from tefm.tables.phrases import FieldPhrases, Phrases

LEVELS, ENTRIES = 3, 5
PHRASES = Phrases(
    "stay",
    (
        FieldPhrases("ward", (0,), (("surgery", "heart", "lung", "other"),)),
        FieldPhrases("result", (1,), (("high", "low", "none"),)),
        FieldPhrases("drugs", (2, 3), (("insulin",), ("metformin",)), several=True),
    ),
)
SIZES = np.array([4, 3, 1, 1])
KINDS: tuple[SlotKind, ...] = ("category", "number", "flag", "flag")
LAYOUT = Layout(tuple(Slot(kind, kind, int(size)) for kind, size in zip(KINDS, SIZES, strict=True)))
Aligned = tuple[Backbone, AlignmentExamples]


def opened(folder: Path) -> Aligned:
    backbone = open_backbone(folder, device="cpu")
    ids = extend(backbone, CodeVocabulary.of("stay", levels=LEVELS, entries=ENTRIES))
    start_rows(backbone, ids, np.random.default_rng(0).normal(size=(LEVELS * ENTRIES, 8)))
    return backbone, AlignmentExamples(PHRASES, backbone.tokenizer, ids)


@pytest.fixture(scope="module")
def fresh(backbones: dict[str, Path]) -> dict[str, Aligned]:
    return {family: opened(folder) for family, folder in backbones.items()}


def drawn(count: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(SIZES + 1, size=(count, len(SIZES)))


def codes_of(x_ND: NDArray[Any]) -> NDArray[np.int64]:
    """Codes that can be learned: the ward, the result, and both drugs together."""
    return np.stack([x_ND[:, 0], x_ND[:, 1], x_ND[:, 2] + 2 * x_ND[:, 3]], axis=1)


class Coder:
    """A coder whose codes lose nothing."""

    def __init__(self, mode_D: NDArray[Any]) -> None:
        self.mode_D_, self.layout = mode_D, LAYOUT

    encode = staticmethod(codes_of)

    @staticmethod
    def decode(codes_NK: NDArray[np.integer]) -> NDArray[Any]:
        return np.stack([codes_NK[:, 0], codes_NK[:, 1], codes_NK[:, 2] % 2, codes_NK[:, 2] // 2 % 2], axis=1)


# ---- examples -------------------------------------------------------------------------------------------------------


def seen_batches(
    aligned: Aligned,
    x_ND: NDArray[Any],
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    *,
    backward: float = 0.5,
    whole: float = 0.5,
    **config: Any,
) -> list[Batch]:
    """The batches of a run, without the run; with the ids of the whole vocabulary."""
    monkeypatch.setattr(AlignConfig, "backward", backward)
    monkeypatch.setattr(AlignConfig, "whole", whole)
    batches: list[Batch] = []
    tokens = torch.from_numpy(tokens_of(aligned[0], aligned[1].ids.all, aligned[1].words))

    def listening(backbone: Any, ids: Any, batch_of: Any, steps: int, *_: Any, **__: Any) -> History:
        for batch in map(batch_of, range(steps)):
            labels_BL = torch.where(batch.labels_BL < 0, batch.labels_BL, tokens[batch.labels_BL.clamp_min(0)])
            batches.append(replace(batch, ids_BT=tokens[batch.ids_BT], labels_BL=labels_BL))
        return History()

    monkeypatch.setattr(aligning, "train", listening)
    align(*aligned, x_ND, codes_of(x_ND), AlignConfig(steps=steps, **config))
    return batches


def ids_and_targets(batches: list[Batch]) -> list[tuple[list[int], list[int]]]:
    """Per example its ids and its targets."""
    return [
        (ids[mask == 1].tolist(), labels[labels >= 0].tolist())
        for batch in batches
        for ids, mask, labels in zip(batch.ids_BT, batch.mask_BT, batch.labels_BL, strict=True)
    ]


def test_the_paper_describes_whole_records() -> None:
    assert (AlignConfig().whole, AlignConfig.preset("paper").whole) == (0.5, 1.0)
    assert AlignConfig.stored({"recipe": "paper", "whole": 1.0, "backward": 0.5}) == AlignConfig(recipe="paper")


def test_both_directions_come_in_their_share(fresh: dict[str, Aligned], monkeypatch: pytest.MonkeyPatch) -> None:
    aligned, x_ND = fresh["llama"], drawn(64).clip([1, 0, 0, 0])
    ids = aligned[1].ids
    codes = set(range(ids.first, ids.begin))
    for share in (0.0, 0.3, 1.0):
        batches = seen_batches(aligned, x_ND, monkeypatch, steps=100, batch=4, backward=share)
        kinds = [{set(targets) <= codes for _, targets in ids_and_targets([batch])} for batch in batches]
        assert all(len(kind) == 1 for kind in kinds)  # a batch has one direction
        assert np.mean([kind == {True} for kind in kinds]) == pytest.approx(share, abs=0.12)


def test_codes_are_the_target_of_words_and_words_that_of_codes(
    fresh: dict[str, Aligned], monkeypatch: pytest.MonkeyPatch
) -> None:
    aligned, x_ND = fresh["llama"], drawn(30)
    ids, codes = aligned[1].ids, {tuple(code) for code in aligned[1].ids.of(codes_of(x_ND)).tolist()}
    for tokens, targets in ids_and_targets(seen_batches(aligned, x_ND, monkeypatch, 10, batch=6, backward=1.0)):
        assert tuple(targets) in codes
        assert tokens[-LEVELS - 1 :] == [ids.begin, *targets]
    described = x_ND[(x_ND > 0).any(axis=1)]
    for tokens, targets in ids_and_targets(seen_batches(aligned, described, monkeypatch, 10, batch=6, backward=0.0)):
        begin = tokens.index(ids.begin)
        assert tuple(tokens[begin + 1 : begin + 1 + LEVELS]) in codes
        assert tokens[begin + 1 + LEVELS] == ids.end
        assert targets
        assert not set(targets) & set(ids.all)


def test_fields_are_drawn_anew_each_time(fresh: dict[str, Aligned], monkeypatch: pytest.MonkeyPatch) -> None:
    aligned, x_ND = fresh["llama"], np.tile([[2, 3, 1, 1]], (8, 1))
    stop = aligned[0].tokenizer(".", add_special_tokens=False)["input_ids"][0]

    def counts(fields: int = 4, **config: Any) -> list[int]:
        monkeypatch.setattr(aligning, "FIELDS", fields)
        return [
            tokens.count(stop) for tokens, _ in ids_and_targets(seen_batches(aligned, x_ND, monkeypatch, 20, **config))
        ]

    assert set(counts(backward=0.0, fields=2)) == {2}
    assert set(counts(backward=0.0, fields=2, whole=1.0)) == {3}
    assert set(counts(backward=1.0, whole=1.0)) == {3}
    assert set(counts(backward=1.0, whole=0.0)) == {0, 1, 2, 3}
    monkeypatch.setattr(aligning, "FIELDS", 1)
    first = ids_and_targets(seen_batches(aligned, x_ND, monkeypatch, 20, backward=0.0))
    assert len({tuple(targets) for _, targets in first}) == 3
    again = ids_and_targets(seen_batches(aligned, x_ND, monkeypatch, 20, backward=0.0))
    assert first == again


def test_an_empty_record_teaches_its_code(fresh: dict[str, Aligned], monkeypatch: pytest.MonkeyPatch) -> None:
    aligned, x_ND = fresh["gemma2"], np.zeros((4, 4), dtype=np.int64)
    for backward in (0.0, 1.0):
        for _, targets in ids_and_targets(seen_batches(aligned, x_ND, monkeypatch, 3, backward=backward)):
            assert targets == aligned[1].ids.of(np.zeros(3)).tolist()


def test_only_so_many_records_are_learned_from(fresh: dict[str, Aligned], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligning, "MOST_RECORDS", 7)
    x_ND = np.array([[a, b, c, 0] for a in range(1, 5) for b in range(1, 4) for c in range(2)])
    batches = seen_batches(fresh["llama"], x_ND, monkeypatch, 20, batch=4, backward=1.0)
    assert len({tuple(targets) for _, targets in ids_and_targets(batches)}) == 7


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


def test_a_checkpoint_of_other_records_is_refused(
    backbones: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explained: Explained
) -> None:
    x_ND, checkpoint = drawn(40), tmp_path / "checkpoint.pt"
    monkeypatch.setattr("tefm.language.training_loop.SAVE_EVERY", 0)
    config = AlignConfig(steps=6, batch=4)
    backbone, examples = opened(backbones["llama"])
    called = 0

    def dying(*arguments: Any) -> Example:
        nonlocal called
        called += 1
        if called > 12:
            raise InterruptedError
        return original(*arguments)

    original = aligning._draw
    monkeypatch.setattr(aligning, "_draw", dying)
    with pytest.raises(InterruptedError):
        align(backbone, examples, x_ND, codes_of(x_ND), config, checkpoint=checkpoint)
    monkeypatch.setattr(aligning, "_draw", original)
    assert checkpoint.is_file()
    backbone, examples = opened(backbones["llama"])
    other = drawn(40, seed=5)
    call = lambda: align(backbone, examples, other, codes_of(other), config, checkpoint=checkpoint)  # noqa: E731
    explained(SettingsError, call, checkpoint, "other data")
    backbone, examples = opened(backbones["llama"])
    assert align(backbone, examples, x_ND, codes_of(x_ND), config, checkpoint=checkpoint).resumed_from > 0


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
