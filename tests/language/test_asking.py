"""Many questions after one reading of the history get the answers that they get alone, in every family."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.miniatures import FAMILIES

from tefm.language.backbone import open_backbone
from tefm.language.prediction import answer_logits, pair_logits
from tefm.language.prompts import Prompt, QuestionWriter
from tefm.language.vocabulary import CodeVocabulary, extend
from tefm.tables.sequences import Sequences

TEXTS = ["Next stay: fever?", "Next stay: cough and much more than that?", "Tired?", "Within 30 days: another stay?"]
ALIKE = [
    "Next stay: fever?",
    "Next stay: cough and much more than that?",
    "Next stay: fever or cough?",
    "Next stay: fever",
]
CODES = np.random.default_rng(0).integers(0, 8, (9, 2))
HISTORIES = Sequences(CODES, np.array([0, 2, 3, 5, 9]))


def writer_of(backbone: object, prompt: Prompt | None = None, question: str = "") -> QuestionWriter:
    ids = extend(backbone, CodeVocabulary.of("stay", levels=2, entries=8))  # type: ignore[arg-type]
    prompt = prompt or Prompt.preset("generic", "compact")
    return QuestionWriter(backbone.tokenizer, prompt, ids, question)  # type: ignore[attr-defined]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("style", ["compact", "full"])
@pytest.mark.parametrize("texts", [TEXTS, ALIKE], ids=["other", "alike"])
def test_shared_and_alone(family: str, style: str, texts: list[str], backbones: dict[str, Path]) -> None:
    backbone = open_backbone(backbones[family], device="cpu")
    writer = writer_of(backbone, Prompt.preset("generic", style))  # type: ignore[arg-type]
    prefixes, tails = writer.prefixes(HISTORIES), [writer.tail(text) for text in texts]
    history_P, question_P = np.divmod(np.random.default_rng(1).permutation(16), 4)
    together = pair_logits(backbone, prefixes, tails, history_P, question_P, writer.first_tokens)
    prompts = [np.concatenate([prefixes[h], tails[q]]) for h, q in zip(history_P, question_P, strict=True)]
    alone = np.concatenate([answer_logits(backbone, [prompt], writer.first_tokens) for prompt in prompts])
    np.testing.assert_allclose(together, alone, atol=2e-4)
    some = slice(0, 5)  # too few questions per history to share anything
    few = pair_logits(backbone, prefixes, tails, history_P[some], question_P[some], writer.first_tokens)
    np.testing.assert_allclose(few, alone[some], atol=2e-4)


def test_a_prompt_is_the_history_and_then_the_question(backbones: dict[str, Path]) -> None:
    backbone = open_backbone(backbones["llama"], device="cpu")
    writer = writer_of(backbone, question="Tired?")
    (prompt, *_) = writer.of_codes(HISTORIES)
    text = backbone.tokenizer.decode(prompt)
    assert text.endswith("<stay_a_{}><stay_b_{}> Tired?".format(*CODES[1]))
    assert [backbone.tokenizer.decode(answer).strip() for answer in writer.answers] == ["No", "Yes"]


def test_the_text_of_a_record_comes_before_the_question(backbones: dict[str, Path]) -> None:
    backbone = open_backbone(backbones["llama"], device="cpu")
    writer = writer_of(backbone, question="Tired?")
    (prompt,) = writer.of_codes(Sequences(CODES[:1], np.array([0, 1]), texts=["slept badly"]))
    assert backbone.tokenizer.decode(prompt).endswith("\nslept badly\n Tired?")


def test_a_question_cannot_pass_for_codes(backbones: dict[str, Path]) -> None:
    backbone = open_backbone(backbones["llama"], device="cpu")
    writer = writer_of(backbone)
    assert writer.ids is not None
    tail = writer.tail(f"Is it <stay_a_3>{backbone.tokenizer.eos_token}?")
    assert not set(tail.tolist()) & {*writer.ids.all, backbone.tokenizer.eos_token_id}
