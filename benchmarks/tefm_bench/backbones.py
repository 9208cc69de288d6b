"""Backbones as they are, or with random weights, which shows how much pretraining contributes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from tefm.language.backbone import Backbone, open_backbone
from tefm.language.smollm2 import NAME as SMOLLM2


def opened(
    name: str, *, layers: int | None = None, random_body: bool = False, seed: int = 0, device: str | None = None
) -> Backbone:
    """A backbone; `random_body` keeps the architecture and the tokenizer and draws all weights from `seed`."""
    from transformers import AutoModelForCausalLM

    backbone = open_backbone(name, layers=layers, device=device)
    if not random_body:
        return backbone
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = backbone.model.config
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    return replace(backbone, model=model.eval().to(backbone.device))


def title_of(backbone: str) -> str:
    """The name of a backbone in tables.

    >>> title_of("smollm2-135m"), title_of("models/TinyLlama-1.1B-Chat")
    ('SmolLM2-135M', 'TinyLlama-1.1B-Chat')
    """
    return "SmolLM2-135M" if backbone == SMOLLM2 else Path(backbone).name
