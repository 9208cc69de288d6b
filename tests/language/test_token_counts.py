"""Counting tokens: right numbers, the same yardstick for all forms, and a cache that follows the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tefm.language import shortening
from tefm.language.shortening import TokenCount, count_forms, counts
from tefm.language.smollm2 import cache_folder

WORDS = {"[UNK]": 0, "a": 1, "b": 2, "[BOS]": 3}


def word_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


@pytest.fixture
def words() -> Any:
    """A tokenizer with a token per word."""
    return PreTrainedTokenizerFast(tokenizer_object=word_tokenizer())


def test_counts_are_per_text_and_in_order_over_batches(words: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortening, "BATCH", 2)
    lengths = counts(["a b", "", "a b a", "b", "a b c d"], words)
    assert lengths.dtype == np.int64
    assert lengths.tolist() == [2, 0, 3, 1, 4]
    assert counts([], words).tolist() == []


def test_special_tokens_are_not_counted() -> None:
    from tokenizers.processors import TemplateProcessing

    backend = word_tokenizer()
    backend.post_processor = TemplateProcessing(single="[BOS] $A", special_tokens=[("[BOS]", 3)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert len(tokenizer("a b")["input_ids"]) == 3
    assert counts(["a b"], tokenizer).tolist() == [2]


def test_counts_are_compared_with_prose(words: Any) -> None:
    texts = {"prose": ["a a a a", "a a a a a a"], "compact": ["a", "a a a a"]}
    assert count_forms(texts, "words", words, {"codes": np.array([1, 1])}) == [
        TokenCount("prose", "words", 5.0, 5.0, 6, 1.0),
        TokenCount("compact", "words", 2.5, 2.5, 4, 0.5),
        TokenCount("codes", "words", 1.0, 1.0, 1, 0.2),
    ]


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TEFM_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/x")
    assert cache_folder() == Path("/home/x/.cache/tefm")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/tefm")
    monkeypatch.setenv("TEFM_CACHE", "/own")
    assert cache_folder() == Path("/own")
