"""The classifier: nothing to predict before it is trained, and finished stages that a resumed run can load."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Explained

from tefm.base.errors import ArtefactError, NotFittedError
from tefm.language.align import Alignment
from tefm.language.backbone import open_backbone
from tefm.language.classifier import Classifier
from tefm.language.train import History
from tefm.language.vocabulary import CodeVocabulary

VOCABULARY = CodeVocabulary.of("stay", levels=2, entries=4)
ALIGNMENT = Alignment(5, 0.5, 0.6, 0.9, 1.0, 0.4, (0.7, 0.3), 1.2, 1.5)


def opened(backbones: dict[str, Path], seed: int) -> Classifier:
    codebooks_KCd = np.random.default_rng(seed).normal(size=(2, 4, 3))
    return Classifier.open(open_backbone(backbones["llama"], device="cpu"), VOCABULARY, codebooks_KCd)


def test_an_untrained_classifier_has_no_prompts(backbones: dict[str, Path], explained: Explained) -> None:
    classifier = opened(backbones, seed=0)
    explained(NotFittedError, lambda: classifier.writer, "not trained", "tune")


@pytest.mark.parametrize("alignment", [None, ALIGNMENT])
def test_a_finished_stage_is_loaded_as_it_was_saved(
    backbones: dict[str, Path], tmp_path: Path, alignment: Alignment | None
) -> None:
    saved, other = opened(backbones, seed=0), opened(backbones, seed=1)
    path, history = tmp_path / "finished.pt", History(steps=9, best_step=4, validation=[(4, 0.25)])
    assert other.restore(path) is None
    saved.keep(path, history, alignment)
    assert other.restore(path) == (history, alignment)
    expected = saved.backbone.model.state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in other.backbone.model.state_dict().items())


def test_a_damaged_file_of_a_finished_stage(backbones: dict[str, Path], tmp_path: Path, explained: Explained) -> None:
    classifier, path = opened(backbones, seed=0), tmp_path / "finished.pt"
    classifier.keep(path, History())
    path.write_bytes(path.read_bytes()[:1000])
    explained(ArtefactError, lambda: classifier.restore(path), path, "cannot be read", "delete")
