"""Training with the tokens in use only: the rest of the vocabulary is not disturbed, and the rows come back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.miniatures import FAMILIES, miniature

from tefm.language.backbone import Backbone, open_backbone
from tefm.language.config import Trains, TuneConfig
from tefm.language.prediction import answer_logits
from tefm.language.prompts import Prompt, PromptWriter
from tefm.language.tuning import Questions, ToLearn, log_loss, tune
from tefm.language.vocabulary import CodeVocabulary, TokenIds, extend, rows_in_use, start_rows, tokens_of
from tefm.tables.sequences import Sequences

HEADS = [(family, tied) for family in FAMILIES for tied in (True, False)]


@pytest.fixture
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Backbone, TokenIds]:
    family, tied = request.param
    backbone = open_backbone(miniature(family, tmp_path, tied=tied), device="cpu")
    ids = extend(backbone, CodeVocabulary.of("stay", levels=2, entries=6))
    start_rows(backbone, ids, np.random.default_rng(0).normal(size=(12, 8)))
    return backbone, ids


def tables(backbone: Backbone) -> dict[str, torch.Tensor]:
    weights = dict(backbone.model.named_parameters())
    return {name: weights[name].detach().clone() for name in weights if "embed_tokens" in name or "lm_head" in name}


@pytest.mark.parametrize("opened", HEADS, indirect=True)
def test_the_compact_model_gives_the_same_logits(opened: tuple[Backbone, TokenIds]) -> None:
    backbone, ids = opened
    prompt = np.array([7, ids.first, ids.end, 40, 7])
    tokens = tokens_of(backbone, ids.all, [prompt])
    before, tied = tables(backbone), backbone.tied
    with torch.no_grad():
        whole = backbone.model(torch.from_numpy(prompt)[None]).logits[0]
        with rows_in_use(backbone, tokens) as to_local:
            local = backbone.model(torch.from_numpy(to_local(prompt))[None]).logits[0]
            assert backbone.tied is tied
            codes = to_local(ids.all).tolist()
            assert [tokens[token] for token in codes] == ids.all
            with pytest.raises(AssertionError):
                to_local([41])
    torch.testing.assert_close(local, whole[:, torch.from_numpy(tokens)])
    assert backbone.tied is tied
    assert all(torch.equal(weight, before[name]) for name, weight in tables(backbone).items())


@pytest.mark.parametrize("trains", ["full", "lora", "rows"])
@pytest.mark.parametrize("opened", HEADS, indirect=True)
def test_tuning_changes_the_rows_in_use_and_no_others(opened: tuple[Backbone, TokenIds], trains: Trains) -> None:
    backbone, ids = opened
    writer = PromptWriter(backbone.tokenizer, Prompt.preset("generic", "compact"), ("no", "yes"), ids)
    labels_N = np.arange(24) % 2
    codes_NK = np.stack([labels_N, np.arange(24) % 6], axis=1)
    questions = Questions(writer.of_codes(Sequences(codes_NK, np.arange(25))), labels_N, writer.answers)
    tokens = tokens_of(backbone, ids.all, [*questions.prompts, *writer.answers])
    before, tied = tables(backbone), backbone.tied
    config = TuneConfig(trains=trains, steps=12, learning_rate=1e-2, rank=2)
    history = tune(backbone, ids.all, ToLearn([questions], [questions]), config)
    trained = np.array(ids.all) if trains != "full" else tokens
    for name, weight in tables(backbone).items():
        changed = np.flatnonzero((weight != before[name]).any(dim=1).numpy())
        assert len(weight) == len(before[name]) > len(tokens)
        assert set(changed) <= set(trained.tolist()), name
        assert set(ids.of(codes_NK).ravel()) <= set(changed.tolist()), name
    assert backbone.tied is tied
    # the model of the whole vocabulary answers as the compact one did when it was validated
    logits_NQ = answer_logits(backbone, questions.prompts, writer.first_tokens)
    assert log_loss(logits_NQ, labels_N) == pytest.approx(min(loss for _, loss in history.validation), abs=1e-4)


@pytest.mark.parametrize("opened", [("llama", True), ("llama", False)], indirect=True)
def test_an_error_puts_the_vocabulary_back(opened: tuple[Backbone, TokenIds]) -> None:
    backbone, ids = opened
    before = tables(backbone)
    with pytest.raises(KeyboardInterrupt), rows_in_use(backbone, tokens_of(backbone, ids.all, [])):
        raise KeyboardInterrupt
    assert all(torch.equal(weight, before[name]) for name, weight in tables(backbone).items())
