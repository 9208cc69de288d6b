"""`tefm_bench questions` in miniature: it runs, compares the same questions, and its summary says what it should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tefm_bench.data import Sources
from tefm_bench.experiments import Setup
from tefm_bench.measurement import Bench
from tefm_bench.questions import QuestionRun, QuestionTrees, question_table
from tefm_bench.tables import TABLES
from tefm_bench.tables.words import summary

pytestmark = pytest.mark.all

RUN = QuestionRun(
    table="diabetes130",
    seed=10,
    layers=1,
    most=400,
    asked={
        "asked": [{"next": "diagnoses", "values": 20, "again": True}],
        **{"pairs": 40, "scored": 100, "least": 2},
    },
    settings={"tune": {"steps": 2, "checks": 1, "batch": 8}, "codes": {"steps": 20, "hidden": 16, "latent": 8}},
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("bench")
    return Bench(folder, Sources(folder / "data", {}, quick=True))


@pytest.mark.slow
def test_both_bodies_answer_the_same_questions(
    bench: Bench, backbones: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tefm.questions.measure.LEAST_SCORED", 1)  # the test part is small
    runs = [
        RUN.model_copy(update={"backbone": str(backbones["llama"]), "body": body}) for body in ("pretrained", "random")
    ]
    pretrained, random = (bench.measure(run) for run in runs)
    asked = [[(q["text"], q["trained"], q["asked"], q["yes"]) for q in f["questions"]] for f in (pretrained, random)]
    assert asked[0] == asked[1] and len(asked[0]) >= 2
    assert asked[0][0][0].startswith("Next admission: ")
    assert bench.figures(runs[1]) == random
    trees = bench.measure(QuestionTrees(table=RUN.table, seed=RUN.seed, most=RUN.most, asked=RUN.asked))["lightgbm"]
    assert trees and set(trees) <= {text for text, trained, *_ in asked[0] if trained}
    assert all(0 <= auroc <= 1 for auroc in trees.values())


def test_the_table_needs_both_bodies_and_all_blocks() -> None:
    needed: list[Any] = TABLES["questions"].needs(Setup(splits=(10,)))
    trees, runs = ([run for run in needed if isinstance(run, of)] for of in (QuestionTrees, QuestionRun))
    assert {run.table for run in trees} == {"diabetes130", "bpic2012"}
    assert {(run.table, run.layers, run.body) for run in runs} == {
        (name, layers, body)
        for name in ("diabetes130", "bpic2012")
        for layers in (6, 30)
        for body in ("pretrained", "random")
    }
    assert TABLES["questions"].table(Setup(splits=(10,)), lambda run: None).rows == ()


def test_events_have_activities_in_english(bench: Bench) -> None:
    frame, schema = question_table(bench, "bpic2012", None, 10)
    assert schema.label is None and schema.entity == "application"
    assert schema.field("activity").names["O_SENT"] == "offer sent to the customer"
    assert {"activity", "amount"} <= set(frame.columns)


def question(text: str, auroc: float | None, *, trained: bool) -> dict[str, Any]:
    return {"text": text, "trained": trained, "auroc": auroc, "asked": 9, "yes": 3}


def test_the_summary_compares_question_by_question() -> None:
    own = [
        question("a", 0.8, trained=True),
        question("e", None, trained=True),
        question("b", 0.7, trained=False),
        question("c", 0.6, trained=False),
        question("d", None, trained=False),
    ]
    other = [{**one, "auroc": 0.5} for one in own]
    body = {"questions": own, "in_place": {"auroc": 0.55}}
    trees = {"lightgbm": {"a": 0.7, "e": 0.9}}
    figures = summary(body, trees, {"questions": other, "in_place": {"auroc": None}})
    expected = {"trained": 0.8, "lightgbm": 0.7, "held_out": 0.65, "questions": 2, "in_place": 0.55, "ahead": 0.15}
    expected |= {"ahead_of_trees": 0.1}  # a question without a figure is compared with nothing
    assert {name: figures[name] for name in expected} == pytest.approx(expected)
    assert figures["half_width"] == pytest.approx(figures["ahead_half_width"])
