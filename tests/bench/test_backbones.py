"""Backbones with random weights, which show what pretraining contributes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.miniatures import FAMILIES
from tefm_bench.backbones import opened

from tefm.language.backbone import Backbone


def logits(backbone: Backbone) -> torch.Tensor:
    ids = backbone.tokenizer("The patient is a woman of 63 years.", return_tensors="pt").input_ids
    with torch.inference_mode():
        return backbone.model(ids.to(backbone.device)).logits


@pytest.mark.parametrize("family", FAMILIES)
def test_a_random_body_is_another_and_reproducible(backbones: dict[str, Path], family: str) -> None:
    folder = str(backbones[family])
    pretrained = logits(opened(folder, device="cpu"))
    state = torch.random.get_rng_state()
    first, same, other = (logits(opened(folder, random_body=True, seed=seed, device="cpu")) for seed in (5, 5, 6))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first, same)
    assert not torch.allclose(first, other)
    assert not torch.allclose(first, pretrained)


def test_a_random_body_can_be_cut(backbones: dict[str, Path]) -> None:
    backbone = opened(str(backbones["gemma2"]), layers=2, random_body=True, device="cpu")
    assert len(backbone.model.model.layers) == 2
    assert backbone.model.dtype == torch.float32
