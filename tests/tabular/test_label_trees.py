"""`beside: trees`: trees on the fields and the language model on the codes answer the label together."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import STAYS, Explained, quick, stays
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kept import Kept

from tefm.base.errors import ArtefactError
from tefm.base.files import write_manifest
from tefm.model.bundle import KIND
from tefm.model.estimator import TEFM
from tefm.scoring.calibration import log_softmax
from tefm.tables.layout import Layout, Slot
from tefm.tables.schema import Schema
from tefm.tables.sequences import Sequences
from tefm.tabular.inputs import Features
from tefm.tabular.label_trees import best_share, grow

TABLE, LATER = stays(150), stays(60, seed=1)
#: The language model knows little after them.
FEW_STEPS = {"learning_rate": 3e-3, "steps": 5}
LAYOUT = Layout(tuple(Slot(name, "number", 3) for name in "abcd"))


@pytest.fixture(scope="module")
def beside(kept: Kept, backbones: dict[str, Path]) -> TEFM:
    return kept.made("beside trees", lambda: quick(backbones["llama"], beside="trees", tune=FEW_STEPS).fit(TABLE))


def records(count: int, seed: int) -> tuple[Sequences, np.ndarray]:
    """Records of four small numbers, of which two decide together among three classes."""
    x_ND = np.random.default_rng(seed).integers(1, 4, (count, 4)).astype(np.uint8)
    return Sequences(x_ND, np.arange(count + 1)), (x_ND[:, 0] > 1).astype(np.int64) + (x_ND[:, 3] > 2)


# ---- together -----------------------------------------------------------------------------------------------------


def test_the_answer_is_the_mean_of_both_with_the_share_of_validation(beside: TEFM) -> None:
    fitted, slots = beside.fitted, beside.preparation.slots(beside.preparation.to_predict(LATER))
    assert fitted.trees is not None and fitted.coder is not None
    share = fitted.trees.share
    read_SQ = fitted.classifier.logits(fitted.codes(slots))
    both_SQ = share * read_SQ + (1 - share) * fitted.trees.logits(slots, fitted.coder.layout)
    assert np.allclose(fitted.answerer.logits(slots), both_SQ, atol=1e-5)
    p_SQ = beside.fitted.calibration.probabilities(both_SQ)
    assert np.allclose(beside.predict_table(LATER)["p(yes)"].to_numpy(), p_SQ[:, 1], atol=1e-5)


def test_trees_find_what_an_untrained_language_model_does_not(beside: TEFM) -> None:
    """Who got morphine in the last stay died; the tiny language model has had a few steps."""
    predicted, trees = beside.predict_table(LATER), beside.fitted.trees
    died = dict(LATER.group_by("patient", maintain_order=True).agg(pl.col("died").last()).rows())
    right = [died[patient] == answer for patient, answer in predicted.select("patient", "predicted").rows()]
    assert np.mean(right) > 0.95
    assert trees is not None and trees.share < 0.5


def test_codes_and_language_model_are_the_same_without_them(beside: TEFM, backbones: dict[str, Path]) -> None:
    alone = quick(backbones["llama"], tune=FEW_STEPS, beside="none").fit(TABLE)
    slots = beside.preparation.slots(beside.preparation.to_predict(LATER))
    assert alone.fitted.trees is None and alone.fitted.answerer.beside is None
    logits_SQ = [of.classifier.logits(of.codes(slots)) for of in (alone.fitted, beside.fitted)]
    assert np.allclose(*logits_SQ)


def test_a_saved_model_answers_the_same(beside: TEFM, tmp_path: Path) -> None:
    again = TEFM.load(beside.save(tmp_path / "model"), device="cpu")
    assert again.fitted.trees == beside.fitted.trees
    assert again.predict_table(LATER).equals(beside.predict_table(LATER))


def test_every_field_may_settle_an_answer(beside: TEFM) -> None:
    """The search asks the trees themselves, so it finds what decides, whatever the codes hold."""
    explanations = beside.explain(LATER.filter(pl.col("patient").is_in([f"p{i}" for i in range(8)])))
    assert [one.answer.says for one in explanations] == beside.predict_table(LATER)["predicted"].to_list()[:8]
    cited = [str(one.settling.findings) + str(one.influences) for one in explanations if one.answer.says == "yes"]
    assert cited and all("morphine" in words for words in cited)


# ---- growing ------------------------------------------------------------------------------------------------------


def test_trees_know_several_classes_at_the_shares_of_the_language_model() -> None:
    (training, labels_S), (later, later_S) = records(900, 0), records(400, 1)
    features = Features(training.x_ND, ("number",) * 4)
    shares = tuple((np.bincount(labels_S) / len(labels_S)).tolist())
    groups_S = np.arange(900)
    trees = grow({"last": features}, labels_S, groups_S, shares, seed=0)
    assert trees is not None and trees.numbers == (0, 1, 2) and trees.fits(LAYOUT, 3) and not trees.fits(LAYOUT, 2)
    logits_SQ = trees.logits(later, LAYOUT)
    assert (logits_SQ.argmax(axis=1) == later_S).mean() > 0.99
    rarer = grow({"last": features}, labels_S, groups_S, (0.8, 0.1, 0.1), seed=0)
    assert rarer is not None
    shift_Q = np.log(np.array((0.8, 0.1, 0.1)) / shares)
    assert np.allclose(rarer.logits(later, LAYOUT), log_softmax(logits_SQ + shift_Q), atol=1e-6)


def test_a_class_without_training_sequences_is_improbable() -> None:
    training, labels_S = records(300, 0)
    two_S = np.minimum(labels_S, 1) * 2  # the classes 0 and 2
    trees = grow({"last": Features(training.x_ND, ("number",) * 4)}, two_S, np.arange(300), (0.4, 0.0, 0.6), seed=0)
    assert trees is not None and trees.numbers == (2,)
    p_SQ = np.exp(trees.logits(training, LAYOUT))
    assert (p_SQ[:, 1] < 0.01).all() and (p_SQ[:, (0, 2)].argmax(axis=1) * 2 == two_S).mean() > 0.95


def test_with_one_class_there_is_nothing_to_grow() -> None:
    training, _ = records(20, 0)
    features = Features(training.x_ND, ("number",) * 4)
    assert grow({"last": features}, np.zeros(20, dtype=np.int64), np.arange(20), (1.0, 0.0), seed=0) is None


def test_windows_that_are_shorter_or_longer_than_those_of_training_are_read_from_their_end() -> None:
    x_ND = np.random.default_rng(0).integers(1, 4, (600, 4)).astype(np.uint8)
    labels_S = (x_ND[1::2, 2] > 1).astype(np.int64)  # the last record decides
    flat = Features(x_ND.reshape(300, 8), ("number",) * 8)
    trees = grow({"flat": flat}, labels_S, np.arange(300), (0.5, 0.5), seed=0)
    assert trees is not None and trees.width == 8
    for starts in ([0, 1], [0, 2], [0, 3]):
        window = Sequences(x_ND[: starts[1]], np.array(starts))
        assert trees.logits(window, LAYOUT).argmax(axis=1).tolist() == [int(x_ND[starts[1] - 1, 2] > 1)]
    forged = trees.model_copy(update={"width": 4 * 300_000_000})  # its records are all absent, and take no memory
    assert np.isfinite(forged.logits(Sequences(x_ND[:2], np.array([0, 1, 2])), LAYOUT)).all()


# ---- the share ----------------------------------------------------------------------------------------------------


def test_the_better_model_has_the_larger_share() -> None:
    rng = np.random.default_rng(0)
    labels_S = rng.integers(0, 2, 500)
    good_SQ, noise_SQ = 3.0 * np.eye(2)[labels_S] + rng.normal(size=(500, 2)), rng.normal(size=(500, 2))
    assert best_share(good_SQ, noise_SQ, labels_S, ()) > 0.8
    assert best_share(noise_SQ, good_SQ, labels_S, ()) < 0.2


@settings(max_examples=20)
@given(st.integers(0, 3), st.integers(0, 99))
def test_few_validation_sequences_hardly_move_the_share(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels_S = rng.integers(0, 2, count)
    assert 0.3 <= best_share(rng.normal(size=(count, 2)), rng.normal(size=(count, 2)), labels_S, ()) <= 0.7


# ---- from strangers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    (
        {"bias": [0.0]},
        {"numbers": [7]},
        {"width": 3},
        {"width": 2**40},
        {"bias": [float("nan"), 0.0]},
        {"share": 2.0},
        {"trees": []},
    ),
)
def test_forged_trees_are_refused(
    beside: TEFM, tmp_path: Path, explained: Explained, change: dict[str, object]
) -> None:
    folder = beside.save(tmp_path / "model")
    body = json.loads((folder / "trees.json").read_text())
    (folder / "trees.json").write_text(json.dumps(body | change))
    coder = beside.fitted.coder
    assert coder is not None
    write_manifest(folder, KIND, codes=coder.identity)
    explained(ArtefactError, lambda: TEFM.load(folder, device="cpu"), "trees")


def test_a_table_of_windows_is_answered_together(backbones: dict[str, Path]) -> None:
    schema = Schema.model_validate({**STAYS.model_dump(), "entity": None})
    model = quick(backbones["llama"], schema, beside="trees", window=2, explanations="none").fit(TABLE)
    trees, coder = model.fitted.trees, model.fitted.coder
    assert trees is not None and coder is not None and trees.kind == "flat" and trees.width == 2 * coder.layout.width
    assert set(model.predict_table(LATER)["predicted"].to_list()) == {"no", "yes"}
