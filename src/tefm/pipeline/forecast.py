"""How long a fit will take, stage by stage: the steps that it plans times what such a step takes here.

Two kinds of step are timed before the first stage, one of the tokenizer and one of the language model; all else is a
multiple of them. While a stage runs, its own pace replaces what is said here (`base/progress.py`).
"""

from __future__ import annotations

import time

import numpy as np
import torch

from tefm.codes.coder import SlotCoder
from tefm.codes.trainer import code_seconds
from tefm.explain.look_alikes import MIXTURES
from tefm.language.alignment import FIELDS
from tefm.language.backbone import Backbone, autocast
from tefm.language.batches import Example, collate
from tefm.language.training_loop import target_loss
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.data import TaskData
from tefm.pipeline.lessons import examples_of
from tefm.rationale.extractor import BATCH, CANDIDATES, ROUNDS, VERSIONS
from tefm.rationale.greedy import DEPTH
from tefm.tabular.teacher import FOLDS

#: Tokens of the prompt that the language model is timed on, which is repeated to a batch.
QUESTION = 40
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
        "explain": 0.2,
        "masks": 0.2 * (config.rationale_config is not None),
    }


def forecast(data: TaskData, config: ModelConfig, backbone: Backbone, coder: SlotCoder | None) -> dict[str, float]:
    """The seconds of each stage. Training that stops early is faster."""
    sequences, x_ND, tuning = data.training.sequences, data.training.slots_ND, config.tune_config
    examples, questions = examples_of(data, config), data.questions
    aligning = config.align_config(len(sequences), backbone.device.type)
    step, encode = code_seconds(x_ND, data.layout, config.tokenizer_config, backbone.device)
    teacher = PER_VALUE * min(MOST_VALUES, x_ND.size) * len(data.classes) * FOLDS
    prompt = QUESTION + config.tokenizer_config.levels * float(sequences.lengths.mean())
    answer = FORWARD * prompt * (per_token := _token_seconds(backbone) if examples or aligning is not None else 0.0)
    seconds = {
        "codes": 0.0 if coder is not None else config.tokenizer_config.steps * step + config.task_aware * teacher,
        "align": 0.0,
        "tune": prompt * per_token * tuning.batch * tuning.total_steps(examples) if examples else 0.0,
        "beside": (config.beside == "trees") * 2 * teacher / FOLDS,
    }
    if aligning is not None:
        words = min(len(data.phrases.fields), FIELDS if aligning.whole < 1 else len(data.phrases.fields))
        seconds["align"] = per_token * 8 * words * aligning.batch * aligning.total_steps(len(x_ND))
    if questions is not None:
        scored = min(questions.config.scored + questions.config.scored_yes, len(questions.validation))
        asked = len(questions.questions) * scored * answer if questions.pairs else 0.0
        seconds["questions"] = teacher + asked
    if (explaining := config.explanations_config) is not None:
        asked = min(explaining.questions, (1 + MIXTURES) * len(sequences)) + explaining.donors
        seconds["explain"] = asked * answer + explaining.surrogate_steps * step
    if (masks := config.rationale_config) is not None:
        rounds = ROUNDS[masks.recipe]
        versions = VERSIONS + rounds
        asked = min(masks.questions, versions * len(sequences))
        records = float(sequences.lengths.mean()) * asked / versions
        candidates = min(CANDIDATES, records * float((x_ND > 0).sum(axis=1).mean()) * DEPTH)
        steps = masks.surrogate_steps + masks.epochs * records / BATCH[masks.recipe]
        seconds["masks"] = asked * answer + rounds * (candidates * encode + steps * step)
    return seconds


def _token_seconds(backbone: Backbone, batch: int = 8) -> float:
    """The time of a training step of the language model, by the tokens of its batch; a step that learns nothing."""
    token = int(backbone.tokenizer.pad_token_id)
    example = Example.answering(np.full(QUESTION, token), np.array([token]))
    inputs = collate([example] * batch, token, backbone.window).to(backbone.device)
    seconds = 0.0
    with autocast(backbone.device), torch.no_grad():
        for _ in range(2):  # the first pass warms up
            started = time.perf_counter()
            float(target_loss(backbone.model, inputs))  # a GPU has finished then
            seconds = time.perf_counter() - started
    return seconds / FORWARD / (QUESTION * batch)
