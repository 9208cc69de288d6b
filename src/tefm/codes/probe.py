"""How long learning codes takes on this machine, from a few timed steps."""

from __future__ import annotations

import time

import torch

from tefm.codes.config import TokenizerConfig
from tefm.codes.train import Trainer, TrainingData
from tefm.records.layout import Layout, Slots

#: Records that the codebooks start from in a probe, and steps that are timed.
RECORDS, STEPS = 2_000, 5


def code_seconds(x_ND: Slots, layout: Layout, config: TokenizerConfig, device: torch.device) -> tuple[float, float]:
    """The time of one training step, and of encoding one record."""
    config = config.resolved(rows=len(x_ND), layout=layout).model_copy(update={"warm_share": 0.0})
    sample_ND = torch.from_numpy(x_ND[:RECORDS])
    with torch.random.fork_rng(devices=[]):
        trainer = Trainer(layout, config, TrainingData(sample_ND, sample_ND[:1]), device=device)
    trainer.update()  # the codebooks start
    started = time.perf_counter()
    for _ in range(STEPS):
        trainer.update()
    step = (time.perf_counter() - started) / STEPS
    started = time.perf_counter()
    with torch.inference_mode():
        trainer.network.eval().encode(sample_ND.to(device))
    return step, (time.perf_counter() - started) / len(sample_ND)
