"""How long training takes on this machine, from one timed step; the model is left as it was."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from tefm.language.backbone import Backbone, autocast
from tefm.language.batches import Example, collate
from tefm.language.compact import rows_in_use, tokens_of
from tefm.language.config import TrainConfig
from tefm.language.predict import Ids
from tefm.language.train import target_loss


def seconds_per_token(backbone: Backbone, prompts: Sequence[Ids], config: TrainConfig) -> float:
    """The time of a training step on these prompts as one batch, by the tokens of the batch.

    The first step warms up and does not count. A learning rate of 0 leaves the weights as they are. Where training
    saves memory, a forward pass is timed instead, which is about a third of a step.
    """
    whole = config.trains == "full" and not config.checkpointing and config.accumulate == 1
    with rows_in_use(backbone, tokens_of(backbone, (), prompts)) as to_local, autocast(backbone.device):
        examples = [Example.answering(to_local(prompt), to_local(prompt[-1:])) for prompt in prompts]
        batch = collate(examples, int(to_local(backbone.tokenizer.pad_token_id)), backbone.window).to(backbone.device)
        optimiser = torch.optim.AdamW(backbone.model.parameters(), lr=0.0, weight_decay=0.0)
        for _ in range(2):
            started = time.perf_counter()
            with torch.set_grad_enabled(whole):
                loss = target_loss(backbone.model, batch)
            if whole:
                loss.backward()
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
            float(loss.detach())  # a GPU has finished then
            seconds = (time.perf_counter() - started) * (1 if whole else 3)
    return seconds / float(np.sum([len(prompt) for prompt in prompts]))
