"""How long a fit will take: the steps that its stages plan times what such a step takes here.

A step of the tokenizer and one of the language model are timed before the first stage. Stages that are not made of such
steps have their usual share. While a stage runs, its own pace replaces what is said here (`base/progress.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
import torch

from tefm.base.progress import stage_name
from tefm.codes.coder import SlotCoder
from tefm.codes.trainer import Trainer, batch_for
from tefm.language.alignment import FIELDS
from tefm.language.backbone import Backbone, autocast
from tefm.language.batches import Example, collate
from tefm.language.training_loop import target_loss
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.data import TaskData, examples_of
from tefm.tabular.teacher import FOLDS

#: Records that the tokenizer is timed on.
PROBED = 2_000
#: Tokens of the prompt that the language model is timed on, which is repeated to a batch.
QUESTION, BATCH = 40, 8
#: Seconds per value (a slot of a record) and fold for the teacher's regression and trees, and its values at most.
PER_VALUE, MOST_VALUES = 4e-7, 10_000_000
#: A forward pass is a third of a training step.
FORWARD = 1 / 3


def expected_shares(config: ModelConfig) -> dict[str, float]:
    """How the time of a fit is divided among its stages, roughly, until `forecast` has measured it."""
    aligned = config.align not in ("none", "auto")  # then it takes longer than all the others together
    return {
        "codes": 0.35,
        "align": 1.2 if aligned else 0.01,
        "tune": 0.45,
        "beside": 0.05 * (config.beside != "none"),
        "questions": 0.2 * (config.questions is not None),
        "explain": 0.2 * (config.explanations_config is not None),
        "masks": 0.2 * (config.rationale_config is not None),
    }


def of_all(domains: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The shares (or seconds) of the stages of all domains, by name; there is one fine-tuning."""
    stages: dict[str, float] = {}
    for name, of_domain in domains.items():
        for own, share in of_domain.items():
            key = own if own == "tune" else stage_name(own, name)
            stages[key] = stages.get(key, 0.0) + share
    return stages


def forecast(data: TaskData, config: ModelConfig, backbone: Backbone, coder: SlotCoder | None) -> dict[str, float]:
    """The seconds of the stages that learn in steps. Training that stops early is faster."""
    sequences, x_ND = data.training.sequences, data.training.slots_ND
    codes, tuning, examples = config.tokenizer_config, config.tune_config, examples_of(data, config)
    aligning = config.align_config(len(sequences), backbone.device.type)
    seconds = dict.fromkeys(("codes", "align", "tune"), 0.0)
    if coder is None:
        teacher = PER_VALUE * min(MOST_VALUES, x_ND.size) * len(data.classes) * FOLDS
        seconds["codes"] = codes.steps * _code_seconds(data, config, backbone.device) + config.task_aware * teacher
    per_token = _token_seconds(backbone) if examples or aligning is not None else 0.0
    if examples:
        prompt = QUESTION + codes.levels * float(sequences.lengths.mean())
        seconds["tune"] = prompt * per_token * tuning.batch * tuning.total_steps(examples)
    if aligning is not None:
        words = min(len(data.phrases.fields), FIELDS if aligning.whole < 1 else len(data.phrases.fields))
        seconds["align"] = per_token * 8 * words * aligning.batch * aligning.total_steps(len(x_ND))
    return seconds


def _code_seconds(data: TaskData, config: ModelConfig, device: torch.device) -> float:
    """The time of a training step of the tokenizer."""
    x_ND, layout = data.training.slots_ND, data.layout
    with torch.random.fork_rng(devices=[]):
        settings = config.tokenizer_config.resolved(layout)
        trainer = Trainer(layout, settings, x_ND[:PROBED], x_ND[:1], device=device)
    trainer.warm_steps, trainer.batch = 0, batch_for(len(x_ND))  # the first step starts the codebooks
    return _timed(lambda: float(trainer.update()), steps=5)


def _token_seconds(backbone: Backbone) -> float:
    """The time of a training step of the language model, by the tokens of its batch; a step that learns nothing."""
    token = int(backbone.tokenizer.pad_token_id)
    example = Example.answering(np.full(QUESTION, token), np.array([token]))
    inputs = collate([example] * BATCH, token, backbone.window).to(backbone.device)
    with autocast(backbone.device), torch.no_grad():
        return _timed(lambda: float(target_loss(backbone.model, inputs))) / FORWARD / (QUESTION * BATCH)


def _timed(step: Callable[[], float], steps: int = 1) -> float:
    """The seconds of a step after a first one that warms up; it gives a number, so that a GPU has finished then."""
    step()
    started = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - started) / steps
