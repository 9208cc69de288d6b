"""From a model to its report: the same figures as the model itself gives, on tables and on a task; the command."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import ONLY_PREDICTS, QUICK, STAYS, Explained, quick, stays
from show.test_page import checked
from typer.testing import CliRunner

from tefm.base.errors import InputError, TefmError
from tefm.cli import app
from tefm.explain.summary import summarise
from tefm.model.estimator import TEFM
from tefm.model.report import figures_of, split_of, task_of
from tefm.model.run import fit_tasks
from tefm.model.task import Task
from tefm.show.figures import Figures, Outcome
from tefm.show.report_page import report_page
from tefm.tables.readers.table import open_table
from tefm.tables.vectorise import Vectoriser

TABLE = stays(60, seed=1)


@pytest.fixture(scope="module")
def of_table(fitted: TEFM) -> Figures:
    return figures_of(fitted, TABLE)


@pytest.fixture(scope="module")
def task(backbones: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A folder with a task file, its table and the model that was fitted."""
    folder = tmp_path_factory.mktemp("task")
    stays(150).write_csv(folder / "stays.csv")
    STAYS.save(folder / "schema.yaml")
    body = {"table": "stays.csv", "schema": "schema.yaml", "backbone": str(backbones["llama"]), **QUICK}
    (folder / "task.yaml").write_text(json.dumps({**body, "split": {"shares": [0.6, 0.2, 0.2]}}))
    _, outcomes = fit_tasks({"": Task.load(folder / "task.yaml")}, folder / "model", device="cpu")
    return folder, outcomes[""]


def test_scores_are_those_of_the_model(fitted: TEFM, of_table: Figures) -> None:
    judged = fitted.evaluate(TABLE)
    (ours,) = of_table.methods
    assert ours.scores == judged.scores.to_dict()
    assert ours.tokens == judged.tokens_mean
    assert sum(group.sequences for group in of_table.calibration) == judged.scores.n
    assert "trained on" in of_table.warnings[0]


def test_records_are_vectorised_once(fitted: TEFM, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    vectorise = Vectoriser.batches_with
    monkeypatch.setattr(
        Vectoriser, "batches_with", lambda *given, **named: calls.append(given) or vectorise(*given, **named)
    )
    figures = figures_of(fitted, TABLE)
    assert figures.explained is not None, "all sections are there"
    assert len(calls) == 1


def test_decisions_are_those_of_the_model(fitted: TEFM, of_table: Figures) -> None:
    predicted = fitted.predict_table(TABLE)
    labels = TABLE.group_by("patient", maintain_order=True).agg(pl.col("died").last())["died"]
    pairs = Counter(zip(labels, predicted["predicted"], strict=True))
    assert of_table.confusion.classes == ("no", "yes")
    assert of_table.confusion.counts == tuple(tuple(pairs[a, b] for b in ("no", "yes")) for a in ("no", "yes"))
    counts, (curve,) = of_table.thresholds, of_table.curves
    assert counts is not None and curve.name == of_table.positive == "yes"
    assert counts.true_positives[counts.own] == pairs["yes", "yes"]
    assert counts.false_positives[counts.own] == pairs["no", "yes"]
    assert curve.auroc == of_table.methods[0].scores["auroc"]["value"]


def test_groups_and_data_are_those_of_the_table(of_table: Figures) -> None:
    last = TABLE.group_by("patient", maintain_order=True).agg(pl.col("ward").last(), pl.col("died").last())
    wards = Counter("missing" if ward is None else ward for ward in last["ward"])
    (by_ward,) = (field for field in of_table.groups if field.field == "ward")
    assert {group.name: group.sequences for group in by_ward.groups} == wards
    assert all((group.accuracy is None) == (group.sequences < 20) for group in by_ward.groups)
    (by_age,) = (field for field in of_table.groups if field.field == "age")
    assert [group.name.split()[0] for group in by_age.groups][::3] == ["up", "over"]
    overview = of_table.overview
    assert overview.classes == {"this table": Counter(last["died"])}
    assert overview.missing["ward"] == TABLE["ward"].null_count() / TABLE.height
    lengths = TABLE.group_by("patient").len()["len"]
    assert overview.lengths == (lengths.min(), lengths.median(), lengths.mean(), lengths.max())
    assert overview.tied == 0, "days differ"


def test_codes_are_those_of_the_records(fitted: TEFM, of_table: Figures) -> None:
    codes_NK = fitted.tokenizer_.encode(TABLE)
    assert [level.used for level in of_table.codes.use] == [len(np.unique(codes_N)) for codes_N in codes_NK.T]


def test_explanations_are_those_of_the_model(fitted: TEFM, of_table: Figures) -> None:
    report = of_table.explained
    assert report is not None
    labels = dict(TABLE.group_by("patient", maintain_order=True).agg(pl.col("died").last()).iter_rows())
    assert all(case.label == labels[case.explanation.sequence] for case in report.cases)
    correct = [case.explanation for case in report.cases if case.explanation.answer.says == case.label]
    assert {explanation.answer.says for explanation in correct} == {"no", "yes"}
    names = [explanation.sequence for explanation in correct]
    for shown, explanation in zip(correct, fitted.explain(TABLE, entities=names, of_class="yes"), strict=True):
        assert (shown.title, shown.conclusion, shown.risk) == (
            explanation.title,
            explanation.conclusion,
            explanation.risk,
        )
        assert [one.finding for one in shown.influences] == [one.finding for one in explanation.influences]


def test_explanations_are_summarised_over_sequences_drawn_at_random(fitted: TEFM, of_table: Figures) -> None:
    assert of_table.explained is not None
    summary = of_table.explained.summary
    names = TABLE["patient"].unique(maintain_order=True).to_list()
    drawn = np.random.default_rng(fitted.config.seed).permutation(len(names))[:40]
    explanations = fitted.explain(TABLE, entities=[names[number] for number in drawn], of_class="yes")
    assert summary.explained == sum(summary.verdicts.values()) == 40
    assert summary.verdicts == Counter(explanation.verdict for explanation in explanations)
    alone = [replace(rule, new=None) for rule in summary.rules]
    assert alone == [rule for rule in summarise(explanations).rules if rule in alone] != []
    assert {effect.of_class for effect in summary.fields} == {"yes"}, "the positive class"


@pytest.mark.all
def test_a_wrong_case_is_looked_for_among_all_sequences(fitted: TEFM) -> None:
    """One wrong answer in 300, which is none of the sequences that are explained anyway."""
    table = stays(300, seed=1)
    predicted = fitted.predict_table(table)
    order = np.random.default_rng(fitted.config.seed).permutation(predicted.height)
    wrong = predicted["patient"][int(order[-1])]  # the last to be explained
    other = {"yes": "no", "no": "yes"}
    labels = {who: other[what] if who == wrong else what for who, _, what, *_ in predicted.iter_rows()}
    report = figures_of(fitted, table.with_columns(died=pl.col("patient").replace_strict(labels))).explained
    assert report is not None and report.wrong == 1 and report.summary.explained == 40
    missed = [case for case in report.cases if case.explanation.answer.says != case.label]
    assert [case.explanation.sequence for case in missed] == [wrong]


def test_without_a_wrong_prediction_none_is_shown(fitted: TEFM) -> None:
    table = stays(30, seed=2)
    labels = dict(fitted.predict_table(table).select("patient", "predicted").iter_rows())
    report = figures_of(fitted, table.with_columns(died=pl.col("patient").replace_strict(labels))).explained
    assert report is not None and report.wrong == 0 and report.summary.explained == 30
    assert [case for case in report.cases if case.explanation.answer.says != case.label] == []


def test_the_page_of_real_figures(of_table: Figures) -> None:
    json.dumps(of_table.to_dict())
    assert of_table.explained is not None
    text = " ".join(checked(report_page(of_table)).text.split())
    for words in (of_table.explained.summary.sentence, *(case.explanation.title for case in of_table.explained.cases)):
        assert words in text


@pytest.mark.all
def test_three_classes_are_explained_by_the_predicted_one(backbones: dict[str, Path]) -> None:
    schema = STAYS.model_copy(update={"label": "ward", "fields": tuple(f for f in STAYS.fields if f.name != "ward")})
    known = pl.col("ward").is_not_null()
    model = quick(backbones["llama"], schema).fit(stays(60).filter(known))
    figures = figures_of(model, TABLE.filter(known))
    assert figures.explained is not None
    assert all(case.explanation.of_class == case.explanation.answer.says for case in figures.explained.cases)
    checked(report_page(figures))


def test_a_task_gives_its_test_part_and_the_tabular_models(task: tuple[Path, Outcome]) -> None:
    folder, outcome = task
    model = TEFM.load(folder / "model", device="cpu")
    model.figures_["test"]["verdict"] = {
        "sentence": "No significant difference in AUROC"
    }  # as a fit that compares says
    figures = figures_of(model, open_table(folder / "stays.csv"), split=split_of(model))  # the bundle knows its split
    assert figures.verdict == "No significant difference in AUROC."
    assert [method.name for method in figures.methods] == ["TEFM (codes and trees)", "LightGBM", "logistic regression"]
    assert figures.methods[0].scores == outcome.test.scores.to_dict()
    assert figures.methods[1].scores == outcome.to_dict()["baselines"]["lightgbm"]
    assert {part: sum(counts.values()) for part, counts in figures.overview.classes.items()} == outcome.sequences
    assert outcome.remarks, "few are tested"
    assert list(figures.warnings) == [f"{remark[0].upper()}{remark[1:]}." for remark in outcome.remarks]
    assert "too few for reliable intervals" in checked(report_page(figures)).text


@pytest.mark.all
def test_another_table_than_that_of_the_fit_is_told(task: tuple[Path, Outcome], tmp_path: Path) -> None:
    folder, _ = task
    for name in ("task.yaml", "schema.yaml"):
        (tmp_path / name).write_text((folder / name).read_text())
    stays(160, seed=5).write_csv(tmp_path / "stays.csv")
    model = TEFM.load(folder / "model", device="cpu")
    figures = figures_of(model, task_of(model, str(tmp_path / "task.yaml")))
    assert any("have changed since" in warning for warning in figures.warnings)


def test_a_model_of_three_classes_without_explanations(backbones: dict[str, Path]) -> None:
    schema = STAYS.model_copy(update={"label": "ward", "fields": tuple(f for f in STAYS.fields if f.name != "ward")})
    known = pl.col("ward").is_not_null()
    model = quick(backbones["llama"], schema, **ONLY_PREDICTS).fit(stays(60).filter(known))
    figures = figures_of(model, TABLE.filter(known))
    assert figures.explained is None and figures.positive is None
    text = checked(report_page(figures)).text
    assert "probability of the predicted class" in text
    labels = Counter(TABLE.filter(known).group_by("patient", maintain_order=True).agg(pl.col("ward").last())["ward"])
    assert {scores.name: scores.sequences for scores in figures.by_class} == labels
    right = sum(scores.recall * scores.sequences for scores in figures.by_class if scores.recall is not None)
    assert right / labels.total() == pytest.approx(figures.methods[0].scores["accuracy"]["value"])
    f1 = [scores.f1 for scores in figures.by_class if scores.f1 is not None]
    assert np.mean(f1) == pytest.approx(figures.methods[0].scores["macro_f1"]["value"])


def test_the_head_says_what_a_sequence_is(of_table: Figures, backbones: dict[str, Path]) -> None:
    assert of_table.title == "died from the stays of one patient"
    assert of_table.facts["One sequence"] == "the stays of one patient"
    counts = dict(TABLE.group_by("patient").agg(pl.col("died").last())["died"].value_counts().iter_rows())
    most = sorted(counts, key=lambda name: -counts[name])
    assert of_table.facts["Sequences"] == f"60 with {TABLE.height} stays; died: " + ", ".join(
        f"{counts[name]} × “{name}”" for name in most
    )
    assert of_table.facts["Task"] == "died: “no”, “yes”"
    single = STAYS.model_copy(update={"entity": None, "time": None})
    table = TABLE.with_columns(died=(pl.col("died") == "yes").cast(int))
    model = quick(backbones["llama"], single, explanations="none").fit(table)
    fitted = model.fitted
    model.fitted_ = replace(fitted, calibration=replace(fitted.calibration, threshold=0.25))
    figures = figures_of(model, table)
    assert figures.title == "died from one stay"
    assert figures.facts["One sequence"] == "one stay"
    assert figures.facts["Sequences"].startswith(f"{TABLE.height}; died: ")
    text = checked(report_page(figures)).text
    assert f"are those of died = {figures.positive}." in text
    assert f"{figures.positive} if its probability is at least 0.250" in figures.facts["Decision"]


def test_tables_that_cannot_be_reported_on(fitted: TEFM, explained: Explained) -> None:
    unknown = TABLE.with_columns(died=pl.lit("perhaps"))
    explained(InputError, lambda: figures_of(fitted, unknown), "perhaps", "'died'", "no, yes")
    unlabelled = TABLE.with_columns(died=pl.lit(None, dtype=pl.String))
    explained(InputError, lambda: figures_of(fitted, unlabelled), "label", "'died'")
    explained(InputError, lambda: task_of(fitted, None), "task file", "--table")
    explained(InputError, lambda: split_of(fitted), "task file")


# ---- the command ------------------------------------------------------------------------------------------------


def test_the_command(task: tuple[Path, Outcome], tmp_path: Path) -> None:
    folder, outcome = task
    words = ["report", str(folder / "model"), str(folder / "task.yaml"), "--device", "cpu"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "r.html"), "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    body = json.loads(done.stdout)
    assert body["methods"][0]["scores"]["n"] == outcome.test.scores.n
    page = (tmp_path / "r.html").read_text()
    assert "stays.csv, the test part" in checked(page).text
    for path in (folder, Path(TEFM.load(folder / "model", device="cpu").config.backbone).parent):
        assert str(path) not in page + done.stdout, "nothing about the folders of this machine"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("{folder}/model", "{folder}/no.yaml"), ("no.yaml", "task file")),
        (("{folder}/model", "{folder}/no.csv"), ("no.csv",)),
        (("{folder}/model", "{folder}/stays.csv", "--out", "r.pdf"), ("r.pdf", "HTML")),
        (("{folder}/nothing", "{folder}/stays.csv"), ("nothing", "manifest.json")),
        (("{folder}/model", "--device", "cpu"), ("stays.csv", "--table")),
        (("{folder}/model", "{folder}/stays.csv", "--table", "{folder}/stays.csv"), ("stays.csv", "--table")),
    ],
)
def test_errors_of_the_command(task: tuple[Path, Outcome], words: tuple[str, ...], parts: tuple[str, ...]) -> None:
    arguments = ["report", *(word.format(folder=task[0]) for word in words)]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, TefmError)
    assert all(part in str(done.exception) for part in parts), done.exception
    assert done.exception.remedy
