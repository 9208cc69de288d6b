"""Scores of answers: those of one prompt after another, whatever the batches and whatever the prompts share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.miniatures import FAMILIES, miniature

from tefm.language import prediction
from tefm.language.backbone import Backbone, open_backbone
from tefm.language.prediction import Tree, answer_logits, answering, by_length, common_prefix

ANSWERS = [17, 250, 9]


@pytest.fixture(scope="module")
def backbones(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Backbone]:
    def opened(family: str, tied: bool) -> Backbone:
        folder: Path = miniature(family, tmp_path_factory.mktemp(family), tied=tied)
        return open_backbone(folder, device="cpu")

    return {(family, tied): opened(family, tied) for family in FAMILIES for tied in (True, False)}


def prompts(shared: int, longest: int = 30, count: int = 9) -> list[NDArray[np.int64]]:
    """Prompts of many lengths; their ids take in the pad token of every family."""
    rng = np.random.default_rng(shared)
    begins = rng.integers(300, size=shared)
    return [np.concatenate([begins, rng.integers(300, size=rng.integers(1, longest))]) for _ in range(count)]


def one_by_one(backbone: Backbone, questions: list[NDArray[np.int64]]) -> NDArray[np.float32]:
    with torch.no_grad():
        return np.stack(
            [backbone.model(torch.from_numpy(ids)[None]).logits[0, -1, ANSWERS].numpy() for ids in questions]
        )


@pytest.mark.parametrize("shared", [0, 1, 25])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_batches_and_sharing_change_nothing(
    backbones: dict[tuple[str, bool], Backbone], family: str, tied: bool, shared: int
) -> None:
    backbone, questions = backbones[family, tied], prompts(shared)
    assert common_prefix(questions) >= shared
    expected = one_by_one(backbone, questions)
    assert expected.std(axis=0).min() > 0.01  # the prompts differ in what they answer, so that order shows
    for batch_tokens in (1, 64, 10_000, None):
        for share_prefix in (True, False):
            logits_NQ = answer_logits(
                backbone, questions, ANSWERS, batch_tokens=batch_tokens, share_prefix=share_prefix
            )
            assert logits_NQ.dtype == np.float32
            np.testing.assert_allclose(logits_NQ, expected, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_long_prompts(backbones: dict[tuple[str, bool], Backbone], family: str) -> None:
    backbone, questions = backbones[family, True], prompts(shared=120, longest=200, count=4)
    np.testing.assert_allclose(answer_logits(backbone, questions, ANSWERS), one_by_one(backbone, questions), atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_longest_padding_does_not_change_a_result(backbones: dict[tuple[str, bool], Backbone], family: str) -> None:
    backbone = backbones[family, True]
    short, long = np.array([40, 41]), np.arange(60)
    alone = answer_logits(backbone, [short], ANSWERS)
    padded = answer_logits(backbone, [short, long], ANSWERS, batch_tokens=10_000, share_prefix=False)
    np.testing.assert_allclose(padded[:1], alone, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_for_the_answers_shares_the_rest_and_leaves_the_model_as_it_is(
    backbones: dict[tuple[str, bool], Backbone], family: str
) -> None:
    model = backbones[family, True].model
    few, columns = answering(model, ANSWERS)
    ids = torch.arange(7)[None]
    with torch.no_grad():
        logits, whole = few(ids).logits, model(ids).logits
    assert logits.shape == (1, 7, 3)
    torch.testing.assert_close(logits[..., columns], whole[..., ANSWERS])
    assert whole.shape[-1] == model.get_output_embeddings().out_features > 3
    own, weights = dict(few.named_parameters()), dict(model.named_parameters())
    assert all(own[name] is weight for name, weight in weights.items() if "lm_head" not in name)


def test_a_model_inside_another_keeps_its_head(backbones: dict[tuple[str, bool], Backbone]) -> None:
    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = backbones["llama", True].model
            self.get_output_embeddings = self.inner.get_output_embeddings

    wrapped = Wrapped()
    assert answering(wrapped, ANSWERS) == (wrapped, ANSWERS)


def test_equal_prompts_and_no_prompts(backbones: dict[tuple[str, bool], Backbone]) -> None:
    backbone = backbones["llama", True]
    same = [np.array([5, 6, 7])] * 3
    np.testing.assert_allclose(answer_logits(backbone, same, ANSWERS), one_by_one(backbone, same), atol=1e-5)
    assert answer_logits(backbone, [], ANSWERS).shape == (0, 3)


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), min_size=1, max_size=5))
def test_a_common_prefix_is_the_longest_that_leaves_a_token(questions: list[list[int]]) -> None:
    shared = common_prefix([np.array(ids) for ids in questions])
    assert all(ids[:shared] == questions[0][:shared] for ids in questions)
    assert all(len(ids) > shared for ids in questions)
    assert any(len(ids) == shared + 1 for ids in questions) or len({ids[shared] for ids in questions}) > 1


@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 100))
def test_batches_by_length_hold_everything_once_and_keep_the_bound(lengths: list[int], batch_tokens: int) -> None:
    batches = list(by_length(lengths, batch_tokens))
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= batch_tokens
    firsts = [lengths[batch[0]] for batch in batches]
    assert firsts == sorted(firsts, reverse=True)


@pytest.mark.parametrize("shared", [0, 7])
@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_that_begin_alike_are_read_as_a_tree(
    backbones: dict[tuple[str, bool], Backbone], family: str, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, rng = backbones[family, True], np.random.default_rng(shared)
    begins = prompts(shared, count=4)
    questions = [np.concatenate([begins[i % 4], rng.integers(9, size=1 + i % 3)]) for i in range(60)]
    monkeypatch.setattr(prediction, "TREE", 40)
    assert len(Tree.of_all(questions)) > 1
    expected = one_by_one(backbone, questions)
    np.testing.assert_allclose(answer_logits(backbone, questions, ANSWERS), expected, atol=1e-5)
