"""The new tokens: their names and ids, and rows that start different and leave the existing rows unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Explained
from support.miniatures import FAMILIES, SPARE, miniature
from torch import Tensor

from tefm.base.errors import SettingsError
from tefm.language.backbone import Backbone, open_backbone
from tefm.language.vocabulary import BEGIN, END, CodeVocabulary, TokenIds, extend, start_rows, word_vectors

FEW = CodeVocabulary.of("admission", levels=2, entries=8)  # 18 tokens: the spare rows of qwen3 are enough
MANY = CodeVocabulary.of("flow", levels=3, entries=16)  # 50 tokens: they are not
HEADS = [(family, tied) for family in FAMILIES for tied in (True, False)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Path]:
    return {
        (family, tied): miniature(family, tmp_path_factory.mktemp(f"{family}-{tied}"), tied=tied)
        for family, tied in HEADS
    }


@pytest.fixture
def llama(folders: dict[tuple[str, bool], Path]) -> Backbone:
    return open_backbone(folders["llama", True], device="cpu")


def tables(backbone: Backbone) -> list[Tensor]:
    """The embedding and the head, copied."""
    model = backbone.model
    return [part.weight.detach().clone() for part in (model.get_input_embeddings(), model.get_output_embeddings())]


# ---- names and ids --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "stem"),
    [("admission", "adm"), ("flow", "flow"), ("ICU stay", "icu"), ("Ère", "re"), ("—", "rec"), ("a b", "ab")],
)
def test_names_come_from_the_record(record: str, stem: str) -> None:
    words = CodeVocabulary.of(record, levels=2, entries=3)
    expected = [f"<{stem}_{level}_{entry}>" for level in "ab" for entry in range(3)]
    assert list(words.tokens) == [*expected, BEGIN, END]
    assert words.text(np.array([2, 1])) == f"<{stem}_a_2><{stem}_b_1>"


@pytest.mark.parametrize("vocabulary", [FEW, MANY])
@pytest.mark.parametrize("family", FAMILIES)
def test_ids_are_contiguous_and_each_token_is_one(
    folders: dict[tuple[str, bool], Path], family: str, vocabulary: CodeVocabulary
) -> None:
    backbone = open_backbone(folders[family, True], device="cpu")
    first = len(backbone.tokenizer)
    ids = extend(backbone, vocabulary)
    assert ids.all == list(range(first, first + len(vocabulary.tokens)))
    assert backbone.tokenizer.convert_tokens_to_ids([BEGIN, END]) == [ids.begin, ids.end] == ids.all[-2:]
    codes_NK = np.random.default_rng(0).integers(vocabulary.entries, size=(20, vocabulary.levels))
    text = BEGIN + "".join(vocabulary.text(code) for code in codes_NK) + END
    tokens = backbone.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokens == [ids.begin, *ids.of(codes_NK).flatten().tolist(), ids.end]


def test_each_level_has_its_own_ids() -> None:
    ids = TokenIds(100, levels=3, entries=4)
    assert [ids.level(level) for level in range(3)] == [slice(100, 104), slice(104, 108), slice(108, 112)]
    assert ids.of(np.array([[0, 0, 0], [3, 3, 3]], dtype=np.uint8)).tolist() == [[100, 104, 108], [103, 107, 111]]


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_survive_saving(folders: dict[tuple[str, bool], Path], family: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    backbone = open_backbone(folders[family, True], device="cpu")
    ids = extend(backbone, FEW)
    backbone.tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    text = f"one {BEGIN}{''.join(FEW.names)}{END}, two"
    tokens = again(text, add_special_tokens=False)["input_ids"]
    assert tokens == backbone.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert set(ids.all) <= set(tokens)
    assert len(again) == len(backbone.tokenizer)


# ---- rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "tied"), HEADS)
@pytest.mark.parametrize("vocabulary", [FEW, MANY])
def test_existing_rows_stay_and_new_ones_are_their_mean(
    folders: dict[tuple[str, bool], Path], family: str, tied: bool, vocabulary: CodeVocabulary
) -> None:
    backbone = open_backbone(folders[family, tied], device="cpu")
    before, first = tables(backbone), len(backbone.tokenizer)
    ids = extend(backbone, vocabulary)
    assert backbone.tied is tied
    for old, new in zip(before, tables(backbone), strict=True):
        # a padded vocabulary grows when its spare rows are used up, and no sooner
        assert len(new) == max(first + len(vocabulary.tokens), first + SPARE.get(family, 0))
        assert torch.equal(new[:first], old[:first])
        assert torch.equal(new[ids.end + 1 :], old[ids.end + 1 :])
        torch.testing.assert_close(new[ids.all], old[:first].mean(dim=0).expand(len(ids.all), -1))
    assert backbone.model.config.vocab_size == len(new)


@pytest.mark.parametrize(("family", "tied"), HEADS)
def test_a_start_keeps_angles_at_the_scale_of_words(
    folders: dict[tuple[str, bool], Path], family: str, tied: bool
) -> None:
    backbone = open_backbone(folders[family, tied], device="cpu")
    ids = extend(backbone, MANY)
    before = tables(backbone)
    vectors_Pv = np.random.default_rng(0).normal(size=(48, backbone.hidden_size)) * 7
    start_rows(backbone, ids, vectors_Pv)
    for old, new in zip(before, tables(backbone), strict=True):
        apart = new[ids.first : ids.begin] - old[: ids.first].mean(dim=0)
        torch.testing.assert_close(apart.norm(dim=1), old[: ids.first].norm(dim=1).median().expand(48))
        np.testing.assert_allclose(cosines(apart.numpy()), cosines(vectors_Pv), atol=1e-4)
        assert torch.equal(new[: ids.first], old[: ids.first])
        assert torch.equal(new[ids.begin :], old[ids.begin :])


def test_a_projection_keeps_angles_too(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    small = open_backbone(miniature("llama", tmp_path), device="cpu")
    wide = LlamaConfig(
        vocab_size=len(small.tokenizer), hidden_size=1024, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    backbone = Backbone("wide", LlamaForCausalLM(wide), small.tokenizer)
    ids = extend(backbone, MANY)
    latents_PV = np.random.default_rng(0).normal(size=(48, 16))
    start_rows(backbone, ids, latents_PV)
    table = tables(backbone)[0]
    projected = cosines((table[ids.first : ids.begin] - table[: ids.first].mean(dim=0)).numpy())
    pairs = np.triu_indices(48, 1)
    assert np.corrcoef(projected[pairs], cosines(latents_PV)[pairs])[0, 1] > 0.9


def cosines(vectors: np.ndarray) -> np.ndarray:
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(units @ units.T)


def test_the_same_seed_gives_the_same_rows(llama: Backbone) -> None:
    ids = extend(llama, FEW)
    latents_PV = np.random.default_rng(0).normal(size=(16, 5))
    drawn = []
    for seed in (3, 3, 4):
        start_rows(llama, ids, latents_PV, seed=seed)
        drawn.append(tables(llama)[0])
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.allclose(drawn[0], drawn[2])


def test_a_code_of_all_zeros_starts_as_the_mean(llama: Backbone) -> None:
    ids = extend(llama, FEW)
    start_rows(llama, ids, np.zeros((16, 5)))
    table = tables(llama)[0]
    torch.testing.assert_close(table[ids.all], table[: ids.first].mean(dim=0).expand(18, -1))


def test_word_vectors_point_to_what_a_codes_records_say() -> None:
    codes_NK = np.array([[0, 1], [0, 2], [1, 1], [1, 2]])
    words_NH = np.array([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0]])
    vectors_PH = word_vectors(codes_NK, words_NH, entries=3)
    assert vectors_PH.shape == (6, 3)
    np.testing.assert_allclose(vectors_PH[0], [1, -1, 0])
    np.testing.assert_allclose(vectors_PH[1], [-1, 1, 0])
    assert vectors_PH[[2, 3]].any(axis=1).all()  # unused codes differ as well
    assert not np.allclose(vectors_PH[2], vectors_PH[3])


# ---- what is wrong --------------------------------------------------------------------------------------------------


def test_tokens_that_are_there_already(llama: Backbone, explained: Explained) -> None:
    extend(llama, FEW)
    size = len(llama.tokenizer)
    explained(SettingsError, lambda: extend(llama, FEW), "already", "<adm_a_0>", "without codes")
    explained(SettingsError, lambda: extend(llama, MANY), "already", BEGIN)  # two kinds of codes in one backbone
    assert len(llama.tokenizer) == size
