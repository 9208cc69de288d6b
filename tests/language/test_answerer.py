"""What answers: the language model from codes, what reads the fields beside it, and a memory between calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tefm.language.backbone import open_backbone
from tefm.language.classifier import Answerer, Classifier
from tefm.language.prompts import Prompt
from tefm.language.vocabulary import CodeVocabulary
from tefm.tables.sequences import Sequences

VOCABULARY = CodeVocabulary.of("stay", levels=2, entries=4)
#: five sequences, four distinct ones; as codes, two: the third slot is in no code
SLOTS = Sequences(
    np.array([[1, 2, 5], [1, 2, 6], [3, 0, 5], [1, 2, 5], [3, 0, 7], [1, 2, 5]], dtype=np.uint8),
    np.array([0, 1, 2, 3, 4, 6]),
)


class TwoSlots:
    """A coder that takes the first two slots as codes."""

    #: not read by the model of the fields below
    layout = None

    def __init__(self) -> None:
        self.records = 0

    def coded(self, slots: Sequences) -> Sequences:
        self.records += len(slots.values)
        return slots.with_values(slots.values[:, :2])


class ThirdSlot:
    """A model of the fields that answers with the third slot of the last record."""

    cheap = True

    def logits(self, slots: Sequences, _: Any = None) -> np.ndarray:
        return np.stack([np.zeros(len(slots)), slots.x_ND[slots.starts[1:] - 1, 2].astype(np.float64)], axis=1)


@pytest.fixture(scope="module")
def classifier(backbones: dict[str, Path]) -> Classifier:
    codebooks_KCd = np.random.default_rng(0).normal(size=(2, 4, 3))
    backbone = open_backbone(backbones["llama"], device="cpu")
    return Classifier.open(backbone, VOCABULARY, codebooks_KCd, Prompt.preset("mortality"), ("no", "yes"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """The codes of every sequence that the language model was asked about."""
    contents: list[bytes] = []
    logits = Classifier.logits

    def spied(self: Classifier, codes: Sequences, **settings: Any) -> np.ndarray:
        first, _ = codes.distinct()
        starts = codes.select(first).starts
        contents.extend(codes.select(first).values[a:b].tobytes() for a, b in pairwise(starts))
        return logits(self, codes, **settings)

    monkeypatch.setattr(Classifier, "logits", spied)
    yield contents


def test_the_language_model_alone(classifier: Classifier) -> None:
    answerer = Answerer(classifier, TwoSlots())  # type: ignore[arg-type]
    codes = answerer.codes(SLOTS)
    expected_SQ = classifier.logits(codes)
    assert np.array_equal(answerer.logits(SLOTS), expected_SQ)
    assert np.array_equal(answerer.logits(SLOTS, codes), expected_SQ)
    assert np.array_equal(answerer.by_model(SLOTS), expected_SQ) and not answerer.by_fields(SLOTS).any()


def test_both_answer_with_their_weights(classifier: Classifier) -> None:
    answerer = Answerer(classifier, TwoSlots(), ThirdSlot(), share=0.25)  # type: ignore[arg-type]
    expected_SQ = 0.25 * classifier.logits(answerer.codes(SLOTS)) + 0.75 * ThirdSlot().logits(SLOTS)
    assert np.allclose(answerer.logits(SLOTS), expected_SQ, atol=1e-6)
    assert np.allclose(answerer.by_model(SLOTS) + answerer.by_fields(SLOTS), expected_SQ, atol=1e-6)
    assert answerer.logits(SLOTS.select([])).shape == (0, 2)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_what_has_no_weight_is_not_asked(classifier: Classifier, asked: list[bytes], share: float) -> None:
    answerer = Answerer(classifier, TwoSlots(), ThirdSlot(), share=share)  # type: ignore[arg-type]
    expected_SQ = classifier.logits(answerer.codes(SLOTS)) if share else ThirdSlot().logits(SLOTS)
    asked.clear()
    assert np.allclose(answerer.logits(SLOTS), expected_SQ, atol=1e-6)
    assert bool(asked) == bool(share)


@pytest.mark.parametrize("beside", [None, ThirdSlot()])
def test_codes_of_an_earlier_call_are_not_asked_again(
    classifier: Classifier, asked: list[bytes], beside: ThirdSlot | None
) -> None:
    answerer = Answerer(classifier, TwoSlots(), beside, share=1.0 if beside is None else 0.5)  # type: ignore[arg-type]
    remembering = answerer.remembering()
    assert remembering.remembering() is remembering
    expected_SQ = answerer.logits(SLOTS)
    asked.clear()
    for _ in range(2):
        assert np.allclose(remembering.logits(SLOTS), expected_SQ, atol=1e-6)
    remembering.by_model(SLOTS)
    assert len(asked) == len(set(asked)) == 3  # [1, 2], [3, 0], and both of them
    # a memory belongs to one answerer: a copy without it asks again
    replace(remembering, memory=None).logits(SLOTS)
    assert len(asked) > 3


def test_slots_are_encoded_once(classifier: Classifier) -> None:
    coder = TwoSlots()
    Answerer(classifier, coder, ThirdSlot(), share=0.5).logits(SLOTS)  # type: ignore[arg-type]
    assert coder.records == 5  # of the four distinct sequences
    coder.records = 0
    Answerer(classifier, coder).logits(SLOTS)  # type: ignore[arg-type]
    assert coder.records == len(SLOTS.values)
