"""`tefm ask` and `tefm explain --question`."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from commands import run
from conftest import QUICK, STAYS, stays

from tefm.model.estimator import TEFM

QUESTION = "Next stay: statin?"


@pytest.fixture(scope="module")
def saved(fitted_with_questions: TEFM, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("asked")
    stays(6, seed=3).write_csv(folder / "stays.csv")
    return fitted_with_questions.save(folder / "model"), folder / "stays.csv"


def test_answers_come_with_what_they_are_worth(saved: tuple[Path, Path]) -> None:
    model, table = saved
    done = run("ask", model, table, QUESTION.lower(), "Will it rain?", "--entity", "p1")
    assert done.status == 0, done.stderr
    assert "2 answers" in done.stdout
    assert "Trained question: AUROC" in done.stdout or "Trained question: AUROC not known" in done.stdout
    assert "“Will it rain?” New question" in done.stdout
    alone = run("ask", model, table, QUESTION).stdout
    assert "question is" in done.stdout and "question is" not in alone, "what all answers have in common is said once"
    body = run("ask", model, table, QUESTION, "--json").json
    assert len(body["answers"]) == 6
    assert set(body["answers"][0]) >= {"patient", "question", "p(yes)", "known", "auroc", "remark"}
    assert QUESTION in body["worth"]


def test_what_it_was_trained_on_is_listed(saved: tuple[Path, Path]) -> None:
    model, _ = saved
    done = run("ask", model, "--list")
    assert done.status == 0, done.stderr
    assert "Trained questions" in done.stdout and "Questions held out of training" in done.stdout
    body = run("ask", model, "--list", "--json").json
    assert {question["known"] for question in body["questions"]} == {"trained", "held out"}


def test_answers_are_written(saved: tuple[Path, Path], tmp_path: Path) -> None:
    model, table = saved
    done = run("ask", model, table, QUESTION, "--out", tmp_path / "answers.csv")
    assert done.status == 0, done.stderr
    assert "6 answers written" in done.stderr
    assert pl.read_csv(tmp_path / "answers.csv").height == 6


def test_an_answer_is_explained(saved: tuple[Path, Path]) -> None:
    model, table = saved
    done = run("explain", model, table, "--question", QUESTION, "--entity", "p1", "--json")
    assert done.status == 0, done.stderr
    (explanation,) = json.loads(done.stdout)
    assert explanation["label"] == QUESTION
    assert explanation["of_class"] == "yes"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "needs a table and a question"),
        (["TABLE"], "needs a table and a question"),
        (["TABLE", " "], "the question is empty"),
        (["TABLE", QUESTION, "--out", "answers.txt"], "CSV or Parquet"),
        (["TABLE", QUESTION, "--entity", "nobody"], "no such patient"),
    ],
)
def test_refused(arguments: list[str], words: str, saved: tuple[Path, Path]) -> None:
    model, table = saved
    done = run("ask", model, *(table if argument == "TABLE" else argument for argument in arguments))
    assert done.status == 1
    assert words in done.stderr
    assert "→" in done.stderr


def test_a_fit_without_a_label_learns_what_comes_next(backbones: dict[str, Path], tmp_path: Path) -> None:
    """And can then be taught a question."""
    stays(150).drop("died").write_csv(tmp_path / "stays.csv")
    unlabelled = STAYS.model_copy(update={"label": None})
    (tmp_path / "schema.yaml").write_text(unlabelled.to_yaml())
    task = {
        "table": "stays.csv",
        "schema": "schema.yaml",
        "backbone": str(backbones["llama"]),
        **QUICK,
        "explanations": "none",
        "rationale": "none",
    }
    (tmp_path / "task.yaml").write_text(json.dumps(task))
    fitted = run("fit", tmp_path / "task.yaml", "--out", tmp_path / "model")
    assert "no label: the model learns to predict the next value of every field" in fitted.stdout
    listed = run("ask", tmp_path / "model", "--list")
    assert "Next stay: statin?" in listed.stdout
    predicted = " ".join(run("predict", tmp_path / "model", tmp_path / "stays.csv").stdout.split())
    assert "Predicted: yes to “Next stay: " in predicted, "which question is answered"
    taught = ("--question", "Did the patient die?", "--answer", "died")
    stays(60, seed=5).write_csv(tmp_path / "labelled.csv")
    run("teach", tmp_path / "model", tmp_path / "labelled.csv", *taught)
    assert "Did the patient die?" in run("ask", tmp_path / "model", "--list").stdout
