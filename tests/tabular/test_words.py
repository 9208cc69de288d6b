"""Tabular models read the text that the language model reads, and learn its words from the training part alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.planted import evaluate_baselines, visits

from tefm.tabular import learners
from tefm.tabular.baselines import TABULAR, BaselineData
from tefm.tabular.inputs import COMPONENTS, TELLING, WORDS, Features, with_text

FILLERS = ("quiet", "night", "slept", "walked", "ate", "talked")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learners, "RATES", (0.1,))
    monkeypatch.setattr(learners, "LEAVES", (15, 7))


def noted(said_in: int, n: int = 400) -> BaselineData:
    """Sequences of three records whose label is a word in the text of one of them, and in no field."""
    data, rng = visits(n), np.random.default_rng(1)
    slots_ND = data.slots_ND.copy()
    slots_ND[:, 2] = rng.integers(0, 2, len(slots_ND))
    notes = [" ".join(rng.choice(FILLERS, 4)) for _ in range(3 * n)]
    for i, label in enumerate(data.labels):
        notes[3 * i + said_in] += " cold" if label == "died" else " warm"
    return replace(data, slots_ND=slots_ND, notes=notes)


@pytest.mark.parametrize("name", TABULAR)
@pytest.mark.parametrize(("said_in", "scope"), [(0, "all records"), (2, "")])
def test_a_word_decides(name: str, said_in: int, scope: str) -> None:
    figures = evaluate_baselines(noted(said_in), models=(name,), kinds=("last", "history"), resamples=0)[name]
    assert figures["test"]["auroc"]["value"] > 0.95
    assert "+" in figures["kind"] and figures["kind"].endswith(scope)
    blind = evaluate_baselines(replace(noted(said_in), notes=None), models=(name,), kinds=("last",), resamples=0)
    assert blind[name]["test"]["auroc"]["value"] < 0.7
    assert len(figures["tried"]) > len(blind[name]["tried"])


@pytest.mark.parametrize("name", TABULAR)
def test_texts_of_the_test_part_change_only_its_own_scores(name: str) -> None:
    data = noted(0)
    assert data.notes is not None
    is_test_N = np.repeat(data.parts == "test", 3)
    others = replace(
        data, notes=["new words" if test else note for note, test in zip(data.notes, is_test_N, strict=True)]
    )
    before, after = (
        evaluate_baselines(given, models=(name,), kinds=("last",), resamples=0)[name] for given in (data, others)
    )
    assert before["tried"] == after["tried"] and before["validation"] == after["validation"]
    assert before["test"] != after["test"]


@pytest.mark.parametrize("form", [COMPONENTS, TELLING, WORDS])
def test_texts_without_a_common_word_are_no_features(form: str) -> None:
    features = Features(np.zeros((3, 1)), ("number",))
    parts, labels = np.array(["train", "train", "test"]), np.array(["a", "b", "a"])
    same = with_text(features, ["", "once", "twice twice"], form, labels, parts)
    assert same is features
    one: Any = with_text(features, ["word", "word", ""], form, labels, parts)
    assert one.words_NV is not None or one.x_NF.shape == (3, 2)


def test_without_text_nothing_else_is_tried() -> None:
    data = visits(300)
    plain = evaluate_baselines(data, models=("logistic",), kinds=("last",), resamples=0)["logistic"]
    assert {tried["kind"] for tried in plain["tried"]} == {"last"}
