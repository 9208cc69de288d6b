"""Alignment: examples of both directions, drawn anew each time, and a run that resumes on its own records alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Explained
from numpy.typing import NDArray
from support.stays_in_words import LEVELS, Aligned, codes_of, drawn, opened

from tefm.base.errors import SettingsError
from tefm.base.training import History
from tefm.language import alignment as aligning
from tefm.language.alignment import align
from tefm.language.batches import Batch, Example
from tefm.language.config import AlignConfig
from tefm.language.vocabulary import tokens_of


@pytest.fixture(scope="module")
def fresh(backbones: dict[str, Path]) -> dict[str, Aligned]:
    return {family: opened(folder) for family, folder in backbones.items()}


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
