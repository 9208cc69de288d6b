"""A new question from a few labelled sequences: it learns what was planted, and changes nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from commands import run
from conftest import Explained, stays
from numpy.typing import NDArray
from support.circling import WARDS, asked_model, circling
from support.kept import Kept

from tefm.base.errors import ArtefactError, InputError, SettingsError
from tefm.base.files import write_manifest
from tefm.model.bundle import KIND
from tefm.model.estimator import TEFM
from tefm.scoring.metrics import auroc

HEART = "Is the patient with heart or lung?"
RAIN = "Will it rain?"


def labelled(patients: int, seed: int) -> pl.DataFrame:
    """Where the last stay is, which the codes hold, and the weather, which no field tells."""
    frame = circling(patients, seed=seed)
    rng = np.random.default_rng(seed)
    return frame.with_columns(
        heart=pl.col("ward").is_in(["heart", "lung"]), rain=pl.Series(rng.choice(["wet", "dry"], frame.height))
    )


def is_last(frame: pl.DataFrame, column: str) -> NDArray[np.bool_]:
    return frame.group_by("patient", maintain_order=True).agg(pl.col(column).last())[column].to_numpy()


@pytest.fixture(scope="module")
def untaught(kept: Kept, backbones: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    questions = {"asked": [{"next": "ward", "again": True}], "least": 10}
    model = kept.made("untaught", lambda: asked_model(backbones["llama"], questions=questions).fit(circling(300)))
    return model.save(tmp_path_factory.mktemp("untaught") / "model")


@pytest.fixture
def model(untaught: Path) -> TEFM:
    """A model that a test may teach."""
    return TEFM.load(untaught, device="cpu")


@pytest.fixture(scope="module")
def taught(kept: Kept, untaught: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that was taught where the last stay is."""

    def teach() -> TEFM:
        model = TEFM.load(untaught, device="cpu")
        model.teach(labelled(60, 5), HEART, answer="heart")
        return model

    return kept.made("taught", teach).save(tmp_path_factory.mktemp("taught") / "model")


def test_it_learns_what_was_planted_and_says_what_that_is_worth(model: TEFM) -> None:
    said = model.teach(labelled(60, 5), HEART, answer="heart")
    later = labelled(150, 6)
    answers = model.ask(later, HEART)
    assert auroc(answers["p(yes)"].to_numpy(), is_last(later, "heart")) > 0.95
    assert set(answers["known"]) == {"taught"} and answers["auroc"][0] > 0.9
    assert said.startswith("Taught question: AUROC 0.9") or said.startswith("Taught question: AUROC 1.0"), said
    assert "cross-validated on the 60 labelled sequences" in said


def test_all_wards_are_learned_and_one_of_them_is_next(model: TEFM) -> None:
    """None of them is held out, so nothing is known about new questions, and they are not answered unless wanted."""
    listed = model.questions_
    wards = listed.filter(pl.col("question").str.contains("Ward"))
    assert set(wards["known"]) == {"trained"} and wards.height == len(WARDS)
    answers = model.ask(labelled(6, 9), wards["question"].to_list())
    assert answers.group_by("patient").agg(pl.col("p(yes)").sum())["p(yes)"].to_numpy() == pytest.approx(1, abs=0.05)
    new = model.ask(labelled(6, 9), "asdf qwer")
    assert new["p(yes)"].null_count() == new.height and "unknown" in new["remark"][0]
    assert model.ask(labelled(6, 9), "asdf qwer", anyway=True)["p(yes)"].is_between(0, 1).all()


@pytest.mark.all
def test_what_no_field_tells_is_worth_nothing(model: TEFM) -> None:
    """The figure must not come from sequences that the head has seen."""
    values = []
    for seed in range(4):
        model.teach(labelled(60, seed), RAIN, answer="rain", yes="wet")
        values.append(model.ask(labelled(2, 9), RAIN)["auroc"][0])
    assert abs(np.mean(values) - 0.5) < 0.12, values


def test_everything_else_stays_bit_for_bit(taught: Path, untaught: Path) -> None:
    later, before, model = circling(40, seed=7), *(TEFM.load(of, device="cpu") for of in (untaught, taught))
    trained = [entry.question.text for entry in before.fitted.book.entries]  # type: ignore[union-attr]
    first = model.ask(later, HEART)
    model.teach(labelled(60, 5), RAIN, answer="rain", yes="wet")
    assert model.ask(later, HEART).equals(first)
    assert model.ask(later, trained).equals(before.ask(later, trained))
    assert np.array_equal(model.predict_proba(later), before.predict_proba(later))
    model.teach(labelled(30, 8), HEART, answer="heart")  # in place of the first one
    texts = [entry.question.text for entry in model.fitted.book.entries]  # type: ignore[union-attr]
    assert texts == [*trained, RAIN, HEART]


def test_a_model_of_a_label_alone_learns_its_first_question(fitted: TEFM, tmp_path: Path) -> None:
    model, later = TEFM.load(fitted.save(tmp_path / "model"), device="cpu"), stays(30, seed=7)
    shown = stays(60, seed=5).with_columns(old=pl.col("age").fill_null(0) > 60)
    model.teach(shown, "Is the patient old?", answer="old")
    again = TEFM.load(model.save(tmp_path / "taught"), device="cpu")
    assert again.ask(later, "Is the patient old?").equals(model.ask(later, "Is the patient old?"))
    assert np.array_equal(again.predict_proba(later), fitted.predict_proba(later))


@pytest.mark.all
def test_the_share_of_the_population_moves_probabilities_and_no_ranks(taught: Path) -> None:
    later, model = labelled(150, 6), TEFM.load(taught, device="cpu")
    own = model.ask(later, HEART)["p(yes)"].to_numpy()
    model.teach(labelled(60, 5), HEART, answer="heart", share=0.01)
    rare = model.ask(later, HEART)["p(yes)"].to_numpy()
    assert (rare < own).all() and np.array_equal(np.argsort(rare), np.argsort(own))


@pytest.mark.all
def test_an_answer_is_explained(taught: Path) -> None:
    later, model = labelled(60, 6), TEFM.load(taught, device="cpu")
    chosen = later["patient"].unique(maintain_order=True).to_numpy()[is_last(later, "heart")][:3].tolist()
    explanations = model.explain(later, question=HEART, entities=chosen)
    strongest = [max(one.effects, key=lambda influence: influence.change).finding.field for one in explanations]
    assert strongest.count("ward") >= 2, strongest


def test_the_command_stores_it_in_the_model(model: TEFM, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model")
    labelled(60, 5).write_csv(tmp_path / "labelled.csv")
    circling(5, seed=7).write_csv(tmp_path / "new.csv")
    done = run("teach", folder, tmp_path / "labelled.csv", "--question", HEART, "--answer", "heart")
    assert done.status == 0, done.stderr
    assert "Taught question: AUROC" in done.stdout and "tefm ask" in done.stderr
    body = run("ask", folder, tmp_path / "new.csv", HEART.lower(), "--json").json
    assert {answer["known"] for answer in body["answers"]} == {"taught"}
    assert "Taught questions" in run("ask", folder, "--list").stdout


def part_of(head: dict[str, Any], reads: str) -> dict[str, Any]:
    return next(part["model"] for part in head["parts"] if part["reads"] == reads)


def forged(taught: Path, folder: Path, forge: Callable[[dict[str, Any]], None]) -> Path:
    """The model with a taught question whose stored head was changed, and a manifest that is right."""
    shutil.copytree(taught, folder)
    book = json.loads((folder / "questions.json").read_text())
    forge(book["entries"][-1]["head"])
    (folder / "questions.json").write_text(json.dumps(book))
    manifest = json.loads((folder / "manifest.json").read_text())
    write_manifest(folder, KIND, **{name: manifest[name] for name in ("versions", "codes", "threads")})
    return folder


@pytest.mark.parametrize(
    "forge",
    [
        lambda head: part_of(head, "codes")["weights"].pop(),
        lambda head: part_of(head, "fields").update(weights=[1.0]),
        lambda head: part_of(head, "slots")["feature"].__setitem__(0, 999),
        lambda head: part_of(head, "slots")["left"].__setitem__(0, 0),  # a way that never ends
        lambda head: part_of(head, "slots")["right"].__setitem__(0, 10**9),
        lambda head: part_of(head, "slots")["value"].pop(),
        lambda head: part_of(head, "slots").update(roots=[], feature=[], threshold=[], left=[], right=[], value=[]),
    ],
)
def test_a_head_that_does_not_fit_is_refused(
    taught: Path, tmp_path: Path, explained: Explained, forge: Callable[[dict[str, Any]], None]
) -> None:
    folder = forged(taught, tmp_path / "model", forge)
    explained(ArtefactError, lambda: TEFM.load(folder, device="cpu"), "does not fit the model")


@pytest.mark.parametrize(
    "forge",
    [
        lambda head: part_of(head, "slots")["roots"].append(-(10**9)),
        lambda head: part_of(head, "slots")["left"].__setitem__(0, 10**30),
    ],
)
def test_a_number_that_no_node_has_is_refused(
    taught: Path, tmp_path: Path, explained: Explained, forge: Callable[[dict[str, Any]], None]
) -> None:
    folder = forged(taught, tmp_path / "model", forge)
    explained(ArtefactError, lambda: TEFM.load(folder, device="cpu"), "cannot be", "entries")


def test_what_cannot_be_taught(model: TEFM, explained: Explained) -> None:
    shown, before = labelled(30, 5), model.fitted.book
    assert before is not None
    few = shown.filter(pl.col("patient").is_in(["p0", "p1", "p2"]))
    explained(InputError, lambda: model.teach(few, RAIN, answer="rain", yes="wet"), "labelled sequences answer", "rain")
    explained(InputError, lambda: model.teach(shown, RAIN, answer="rein"), "rein", "rain")
    explained(InputError, lambda: model.teach(shown, RAIN, answer="rain", yes="snow"), "snow")
    explained(SettingsError, lambda: model.teach(shown, "Which ward?", answer="ward"), "the codes would give it away")
    explained(SettingsError, lambda: model.teach(shown, " ", answer="rain"), "empty")
    explained(SettingsError, lambda: model.teach(shown, RAIN, answer="rain", share=1.0), "between 0 and 1")
    known = before.trained[0].question.text
    explained(SettingsError, lambda: model.teach(shown, known, answer="rain", yes="wet"), "already", "other words")
    assert model.fitted.book is before
