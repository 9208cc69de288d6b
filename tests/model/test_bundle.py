"""The bundle: a model comes back from disk as it was, and one that was tampered with does not."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Explained, quick, stays

from tefm.base.errors import ArtefactError, InputError
from tefm.base.files import MANIFEST, sha256, write_manifest
from tefm.model import bundle
from tefm.model.estimator import TEFM
from tefm.scoring.calibration import Calibration

TABLE = stays(40, seed=1)


@pytest.fixture(scope="module")
def saved(fitted: TEFM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted.save(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    """A bundle that a test may damage."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def test_it_comes_back_as_it_was(fitted: TEFM, saved: Path) -> None:
    again = TEFM.load(saved, device="cpu")
    assert np.array_equal(again.predict_proba(TABLE), fitted.predict_proba(TABLE))
    assert again.predict_table(TABLE).equals(fitted.predict_table(TABLE))
    assert again.config == fitted.config
    assert again.preparation == fitted.preparation
    assert again.figures_ == fitted.figures_
    assert again.classes_.tolist() == fitted.classes_.tolist()
    for name in ("config", "classes", "positive", "prompt", "calibration"):
        assert getattr(again.fitted, name) == getattr(fitted.fitted, name), name
    assert again.fitted.history["tune"].stopped_at == fitted.fitted.history["tune"].stopped_at
    assert again.fitted.classifier.backbone.name == fitted.fitted.classifier.backbone.name


def test_the_calibration_comes_back(saved: Path, tmp_path: Path) -> None:
    model = TEFM.load(saved, device="cpu")
    before = model.predict_proba(TABLE)
    model.fitted_ = replace(model.fitted, calibration=Calibration(temperature=5.0, threshold=0.001, positive=1))
    again = TEFM.load(model.save(tmp_path / "model"), device="cpu")
    assert again.fitted.calibration == model.fitted.calibration
    assert set(again.predict(TABLE)) == {"yes"}
    assert (again.predict_proba(TABLE).max(axis=1) < before.max(axis=1)).all()


def test_what_came_back_can_be_saved_again(saved: Path, tmp_path: Path) -> None:
    again = TEFM.load(TEFM.load(saved, device="cpu").save(tmp_path / "again"), device="cpu")
    assert np.array_equal(again.predict_proba(TABLE), TEFM.load(saved, device="cpu").predict_proba(TABLE))


def test_the_manifest_has_the_hash_of_every_part(saved: Path) -> None:
    manifest = json.loads((saved / MANIFEST).read_text())
    files = {str(path.relative_to(saved)) for path in saved.rglob("*") if path.is_file()} - {MANIFEST}
    assert manifest["parts"] == {name: sha256(saved / name) for name in files}
    assert {"model.json", "README.md", "tokenizer/network.safetensors", "language/model.safetensors"} <= files
    assert set(manifest["versions"]) == {"tefm", "torch", "transformers", "python"}


def test_a_changed_byte_in_any_part_is_refused(copy: Path, explained: Explained) -> None:
    for path in sorted(path for path in copy.rglob("*") if path.is_file() and path != copy / MANIFEST):
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        explained(ArtefactError, lambda path=path: TEFM.load(copy), path, "hash")
        path.write_bytes(whole)
    TEFM.load(copy, device="cpu")


def test_a_part_that_is_gone_is_refused(copy: Path, explained: Explained) -> None:
    (copy / "language" / "model.safetensors").unlink()
    explained(ArtefactError, lambda: TEFM.load(copy), "model.safetensors", "missing")


@pytest.mark.all
def test_a_tokenizer_of_another_model_is_refused(
    copy: Path, backbones: dict[str, Path], tmp_path: Path, explained: Explained
) -> None:
    tune = {"steps": 1}
    other = quick(backbones["llama"], seed=1, tune=tune).fit(stays(60)).save(tmp_path / "other")
    shutil.rmtree(copy / "tokenizer")
    shutil.copytree(other / "tokenizer", copy / "tokenizer")
    write_manifest(copy, bundle.KIND)
    explained(ArtefactError, lambda: TEFM.load(copy), copy / "tokenizer", "not the one")


def test_a_model_file_of_another_version_is_refused(copy: Path, explained: Explained) -> None:
    for change in ({"config": {"unknown": 1}}, {"calibration": {"heat": 1}}, {"prompt": {"message": "no codes"}}):
        body = json.loads((copy / "model.json").read_text())
        (copy / "model.json").write_text(json.dumps({**body, **change}))
        write_manifest(copy, bundle.KIND)
        explained(ArtefactError, lambda: TEFM.load(copy), copy)
        (copy / "model.json").write_text(json.dumps(body))


def test_folders_that_are_no_bundle(saved: Path, tmp_path: Path, explained: Explained) -> None:
    explained(ArtefactError, lambda: TEFM.load(tmp_path), tmp_path, MANIFEST)
    explained(ArtefactError, lambda: TEFM.load(tmp_path / "none"), tmp_path / "none")
    explained(ArtefactError, lambda: TEFM.load(saved / "tokenizer"), "tefm record tokenizer")


def test_a_foreign_folder_is_not_overwritten(fitted: TEFM, tmp_path: Path, explained: Explained) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    explained(InputError, lambda: fitted.save(tmp_path), tmp_path, "not written by tefm")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_old_bundle_is_replaced(fitted: TEFM, copy: Path) -> None:
    (copy / "README.md").unlink()  # a damaged one counts as foreign until it is mended
    with pytest.raises(InputError):
        fitted.save(copy)
    write_manifest(copy, bundle.KIND)
    fitted.save(copy)
    assert (copy / "README.md").is_file()


def test_the_model_card_holds_the_figures(fitted: TEFM, saved: Path) -> None:
    card = (saved / "README.md").read_text()
    figures = fitted.figures_["validation"]
    assert f"({figures['n']:,} sequences)" in card
    for name in ("auroc", "accuracy", "brier"):
        assert f"| {name} | {figures[name]['value']:.4f} |" in card
    assert f"{figures['tokens_mean']:.1f}" in card
    assert "no, yes" in card
    assert "task-aware" in card


def test_plain_transformers_reads_the_language_folder(fitted: TEFM, saved: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(saved / "language").eval()
    tokenizer = AutoTokenizer.from_pretrained(saved / "language")
    read = fitted.fitted.codes(fitted.preparation.slots(fitted.preparation.to_predict(TABLE)))
    logits_SQ = fitted.fitted.classifier.logits(read)
    for ids, expected_Q in list(zip(fitted.fitted.classifier.prompts(read), logits_SQ, strict=True))[:5]:
        text = fitted.fitted.classifier.backbone.tokenizer.decode(ids)
        given = tokenizer(text, add_special_tokens=False, return_tensors="pt")
        assert given.input_ids[0].tolist() == ids.tolist()
        with torch.no_grad():
            last_V = model(**given).logits[0, -1]
        np.testing.assert_allclose(last_V[fitted.fitted.classifier.writer.first_tokens], expected_Q, atol=1e-4)
