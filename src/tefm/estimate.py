"""How long a fit will take, stage by stage, before it starts."""

from __future__ import annotations

import numpy as np

from tefm.codes.coder import SlotCoder
from tefm.codes.probe import code_seconds
from tefm.language.backbone import Backbone
from tefm.language.probe import seconds_per_token
from tefm.language.prompts import PromptWriter
from tefm.language.token_counts import counts as token_counts
from tefm.questions.data import EACH
from tefm.questions.learn import question_seconds
from tefm.rationale.config import RationaleConfig
from tefm.rationale.masks.extractor import CANDIDATES
from tefm.task import ModelConfig
from tefm.taskdata import Part, TaskData
from tefm.teaching import examples_of, teaching_seconds


def expected_shares(config: ModelConfig) -> dict[str, float]:
    """How the time of a fit is divided among its stages, roughly, until `expected_seconds` has measured it."""
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


def expected_seconds(
    data: TaskData, config: ModelConfig, backbone: Backbone, writer: PromptWriter, coder: SlotCoder | None
) -> dict[str, float]:
    """The time of each stage: the steps that it plans times what such a step takes here, from a few timed ones.

    Training that stops early is faster.
    """
    sequences, tuning = data.training.sequences, config.tune_config
    few = sequences.select(np.random.default_rng(config.seed).permutation(len(sequences))[: tuning.batch])
    if config.inputs == "text":
        prompts = writer.of_texts(few.texts or [], few.lengths.tolist(), limit=config.text_limit)
    else:  # there are no codes yet: prompts of the same length take the same time
        question, levels = len(writer.of_texts([""], [1])[0]), config.tokenizer_config.levels
        texts = ["\n".join(writer.shortener(*of)) for of in zip(few.texts or [""] * len(few), few.lengths, strict=True)]
        lengths = question + levels * few.lengths + token_counts(texts, backbone.tokenizer)
        prompts = [np.zeros(length, dtype=np.int64) for length in lengths]
    examples, aligning = examples_of(data, config), config.align_config(len(sequences), backbone.device.type)
    # a language model that learns nothing has no part in the answers
    per_token = seconds_per_token(backbone, prompts, tuning) if examples or aligning is not None else 0.0
    per_prompt = per_token * float(np.mean([len(prompt) for prompt in prompts]))
    seconds = {"tune": per_prompt * tuning.batch * tuning.total_steps(examples) if examples else 0.0}
    # an example of questions holds several of them about one history
    if (questions := data.questions) is not None and examples:
        texts = [question.text for question in questions.questions]
        asked = float(np.mean(token_counts(texts, backbone.tokenizer))) * min(len(questions.trained), EACH)
        seconds["tune"] *= 1 + questions.examples / examples * asked * per_token / per_prompt
    if data.layout is None or data.phrases is None:
        return seconds
    x_ND, settings = data.training.slots_ND, config.tokenizer_config
    step, encode = code_seconds(x_ND, data.layout, settings, backbone.device)
    of_records, of_sequences, of_trees = teaching_seconds(data, config, own_codes=coder is None)
    seconds["codes"] = 0.0 if coder is not None else settings.steps * step + of_records
    seconds["tune"] += of_sequences
    seconds["beside"] = of_trees
    seconds["align"] = 0.0
    if aligning is not None:
        words = [f"{field.title}: {field.values[0][0]}" for field in data.phrases.fields]
        tokens = float(np.mean([len(ids) for ids in backbone.tokenizer(words, add_special_tokens=False)["input_ids"]]))
        described = tokens * min(len(words), aligning.sample or len(words))
        seconds["align"] = per_token * described * aligning.batch * aligning.total_steps(len(x_ND))
    # a forward pass is a third of a training step
    if questions is not None:
        seconds["questions"] = 0.0
        if questions.pairs:
            scored = min(questions.config.scored + questions.config.scored_yes, len(questions.validation))
            seconds["questions"] = len(questions.questions) * scored * per_prompt / 3
        # where the language model learns the questions, the teacher comes before that
        seconds["tune" if questions.pairs else "questions"] += question_seconds(questions, x_ND, data.layout)
    if (explaining := config.explanations_config) is not None:
        asked = min(explaining.questions, (1 + explaining.mixtures) * len(sequences)) + explaining.donors
        seconds["explain"] = asked * per_prompt / 3 + explaining.surrogate_steps * step
    if (masks := config.rationale_config) is not None:
        seconds["masks"] = _mask_seconds(data.training, masks, per_prompt / 3, step, encode)
    return seconds


def _mask_seconds(part: Part, config: RationaleConfig, answer: float, step: float, encode: float) -> float:
    """The time of learning masks, from that of an answer, of a step of a small network, and of encoding a record.

    Surrogate and extractor are about as large as the tokenizer.
    """
    versions, searches = 1 + config.versions + config.rounds, 1 + config.rounds
    asked = min(config.questions, versions * len(part.sequences))
    records = len(part.sequences.values) * asked / (versions * len(part.sequences))
    candidates = min(CANDIDATES, records * float((part.slots_ND > 0).sum(axis=1).mean()) * config.depth)
    small_steps = config.surrogate_steps + config.epochs * records / config.batch
    return asked * answer + searches * (candidates * encode + small_steps * step)
