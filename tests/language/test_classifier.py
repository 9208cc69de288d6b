"""The classifier: whole from the start, and finished stages that a resumed run can load."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from conftest import Explained

from tefm.base.errors import ArtefactError
from tefm.base.training import History
from tefm.language.backbone import open_backbone
from tefm.language.classifier import Classifier
from tefm.language.prompts import Prompt
from tefm.language.vocabulary import CodeVocabulary
from tefm.tables.sequences import Sequences

VOCABULARY = CodeVocabulary.of("stay", levels=2, entries=4)


def opened(backbones: dict[str, Path], seed: int) -> Classifier:
    codebooks_KCd = np.random.default_rng(seed).normal(size=(2, 4, 3))
    backbone = open_backbone(backbones["llama"], device="cpu")
    return Classifier.open(backbone, VOCABULARY, codebooks_KCd, Prompt.preset("mortality"), ("no", "yes"))


def test_an_untrained_classifier_is_whole(backbones: dict[str, Path]) -> None:
    """It has its prompts and answers at once, only not the right ones."""
    sequences = Sequences(np.array([[0, 1], [2, 3], [3, 0]]), np.array([0, 2, 3]))
    logits_SQ = opened(backbones, seed=0).logits(sequences)
    assert logits_SQ.shape == (2, 2)
    assert np.isfinite(logits_SQ).all()


def test_a_finished_stage_is_loaded_as_it_was_saved(backbones: dict[str, Path], tmp_path: Path) -> None:
    saved, other = opened(backbones, seed=0), opened(backbones, seed=1)
    path, history = tmp_path / "finished.pt", History(steps=9, best_step=4, validation=[(4, 0.25)])
    assert other.restore(path) is None
    saved.keep(path, history)
    assert other.restore(path) == history
    expected = saved.backbone.model.state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in other.backbone.model.state_dict().items())


def test_a_damaged_file_of_a_finished_stage(backbones: dict[str, Path], tmp_path: Path, explained: Explained) -> None:
    classifier, path = opened(backbones, seed=0), tmp_path / "finished.pt"
    classifier.keep(path, History())
    path.write_bytes(path.read_bytes()[:1000])
    explained(ArtefactError, lambda: classifier.restore(path), path, "cannot be read", "delete")
