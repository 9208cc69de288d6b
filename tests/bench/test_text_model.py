"""The baseline that reads records as text: it learns, its prompts are plain, its predictions are the golden ones."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from conftest import STAYS, stays
from support.miniatures import FAMILIES
from tefm_bench.text_model import TextModel, Texts, TextTask, TextWriter

from tefm.language.backbone import open_backbone
from tefm.language.prompts import Prompt
from tefm.language.vocabulary import BEGIN, CodeVocabulary, extend
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.prepare import label_numbers
from tefm.tables.grouping import by_entity
from tefm.tables.serialise import serialise

pytestmark = pytest.mark.all

#: Predictions stored per kind of processor, whose sums of floats differ; TEFM_WRITE_GOLDEN=1 writes those of this one.
GOLDEN = Path(__file__).parent / "golden"
CLASSES = ("no", "yes")


def texts_of(frame: pl.DataFrame) -> Texts:
    """The stays of every patient as text."""
    sequences = by_entity(frame, STAYS)
    texts = serialise(frame, STAYS, sequences, "compact")
    return Texts(texts, sequences.lengths.tolist(), label_numbers(sequences, CLASSES))


def fit(folder: Path, patients: int = 120, **tune: Any) -> TextModel:
    config = ModelConfig(backbone=str(folder), tune={"learning_rate": 3e-3, "epochs": 2, "least": 40, **tune})
    prompt = Prompt.preset("generic", "compact", label="died", record="stay")
    task = TextTask(texts_of(stays(patients)), texts_of(stays(30, seed=2)), CLASSES, 1, prompt)
    return TextModel.fit(task, config, open_backbone(folder, device="cpu"))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_learns_from_text(family: str, backbones: dict[str, Path]) -> None:
    model = fit(backbones[family], 200, learning_rate=3e-3 if family == "gemma2" else 1e-2)
    held_out = texts_of(stays(80, seed=1))
    p_SQ = model.probabilities(held_out)
    assert p_SQ.shape == (len(held_out), 2) and (p_SQ >= 0).all()
    np.testing.assert_allclose(p_SQ.sum(axis=1), 1)
    found = model.evaluate(held_out)
    assert found.scores.n == len(held_out) and found.scores.auroc.value > 0.9
    assert found.tokens_mean >= 12
    assert model.validation is not None and model.validation.scores.n == 30


def test_predictions_are_those_of_the_golden_file(backbones: dict[str, Path]) -> None:
    machine = f"{platform.machine()}-{torch.backends.cpu.get_cpu_capability().lower()}".replace(" ", "-")
    path = GOLDEN / f"{machine}.json"
    if not path.exists() and not os.environ.get("TEFM_WRITE_GOLDEN"):
        pytest.skip(f"no golden predictions for {machine}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # another number of threads adds up in another order
    try:
        p_SQ = fit(backbones["llama"]).probabilities(texts_of(stays(40, seed=1)))
    finally:
        torch.set_num_threads(threads)
    if os.environ.get("TEFM_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(p_SQ.tolist(), indent=1) + "\n")
    np.testing.assert_allclose(p_SQ, json.loads(path.read_text()), atol=1e-6, rtol=0)


def test_equal_texts_get_equal_answers(backbones: dict[str, Path]) -> None:
    model, held_out = fit(backbones["llama"], 40, steps=1), texts_of(stays(5, seed=1))
    twice = Texts([*held_out.texts] * 2, [*held_out.counts] * 2, np.tile(held_out.labels_S, 2))
    p_SQ = model.probabilities(twice)
    assert np.array_equal(p_SQ[:5], p_SQ[5:]) and np.array_equal(p_SQ[:5], model.probabilities(held_out))


# ---- prompts ----------------------------------------------------------------------------------------------------


def writer_of(folder: Path, message: str, classes: tuple[str, ...] = CLASSES, **settings: Any) -> TextWriter:
    prompt = Prompt(message=message, **settings)
    return TextWriter(open_backbone(folder, device="cpu").tokenizer, prompt, classes)


def test_a_long_text_keeps_its_last_tokens(backbones: dict[str, Path]) -> None:
    writer = writer_of(backbones["llama"], "Here {count}:{records}\nDied?", chat=False)
    whole, cut = (writer.around([" age: 63; ward: A"], [2], limit=limit)[0] for limit in (None, 4))
    head, body, tail = (
        writer.tokenizer(text, add_special_tokens=False)["input_ids"]
        for text in ("<|im_start|>Here 2:", " age: 63; ward: A", "\nDied?")
    )
    assert whole.tolist() == head + body + tail
    assert cut.tolist() == head + body[-4:] + tail


@pytest.mark.parametrize("family", FAMILIES)
def test_no_text_brings_a_token_of_control(family: str, backbones: dict[str, Path]) -> None:
    backbone = open_backbone(backbones[family], device="cpu")
    extend(backbone, CodeVocabulary.of("admission", levels=2, entries=8))
    tokenizer: Any = backbone.tokenizer
    added = tokenizer.get_added_vocab()
    assert {"<adm_a_3>", BEGIN, tokenizer.eos_token} <= set(added)
    hostile = [*added, "<|im_end|>", "<adm_a_3><adm_b_3>", "<<adm_a_3>>", "<|<|im_end|>im_end|>", "".join(added)]
    writer = TextWriter(tokenizer, Prompt(message="{records} Died?"), CLASSES)
    controls = set(added.values())
    plain = [token for token in writer.around(["home"], [1])[0] if token in controls]
    for ids in writer.around([f"well{bad}, home" for bad in hostile], [1] * len(hostile)):
        assert [token for token in ids if token in controls] == plain


def test_braces_in_names_and_messages_stay_braces(backbones: dict[str, Path]) -> None:
    prompt = Prompt.preset("generic", "full", label="a{b}", record="{count:>999999999}")
    tokenizer: Any = open_backbone(backbones["llama"], device="cpu").tokenizer
    text = tokenizer.decode(TextWriter(tokenizer, prompt, ("{x}", "y{0}")).around(["r"], [3])[0])
    assert "There are 3 {count:>999999999}(s): r. What is the a{b} after" in text
    braces = writer_of(backbones["llama"], "{{count}} of {count}: {records}", ("x", "y"))
    assert "{count} of 2: r" in tokenizer.decode(braces.around(["r"], [2])[0])
