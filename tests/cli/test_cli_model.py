"""The command line on a task: a fit and its log, then predictions, scores, token counts and explanations."""

import html
import json
import re
from functools import partial

import numpy as np
import polars as pl
import pytest
from commands import refused, tefm, write_patients
from conftest import MASKS, QUICK

from tefm.explain.explanation import Explanation
from tefm.explain.rationale_card import Rationale
from tefm.explain.summary import summarise
from tefm.model.estimator import TEFM

CPU = ("--device", "cpu")
STAGES = {
    "learning task-aware codes": 1,
    "alignment skipped": 2,
    "fine-tuning": 3,
    "learning to explain": 4,
    "learning the paper's masks": 4,
}


def write_task(backbone, folder):
    """A folder with `task.yaml` and what it names; the backbone has random weights."""
    folder.mkdir()
    write_patients(folder)
    tefm("inspect", folder / "table.csv", "--label", "died", "--time", "day", "--out", folder / "schema.yaml")
    body = {
        "table": "table.csv",
        "schema": "schema.yaml",
        "backbone": str(backbone),
        **QUICK,
        **MASKS,
        "tune": {**QUICK["tune"], "epochs": 8},  # enough that answers differ, and some are settled
        "split": {"shares": [0.6, 0.2, 0.2]},
    }
    (folder / "task.yaml").write_text(json.dumps(body))  # JSON is YAML


@pytest.fixture(scope="module")
def folder(kept, backbones):
    """The folder of the task, which all workers share: tests write elsewhere."""
    return kept.folder_of("cli", partial(write_task, backbones["llama"]))


def write_variant(folder, target, **settings):
    """A task file like that of the folder, with other settings."""
    body = json.loads((folder / "task.yaml").read_text())
    named = {name: str(folder / body[name]) for name in ("table", "schema")}
    target.write_text(json.dumps({**body, **named, **settings}))
    return target


@pytest.fixture(scope="module")
def fitted(kept, folder):
    """What `tefm fit --json` printed; the model is in `model`, its tokenizer also in `tok`."""

    def fit():
        finished = tefm("fit", folder / "task.yaml", "--out", folder / "model", *CPU, "--json")
        TEFM.load(folder / "model", device="cpu").tokenizer_.save(folder / "tok")
        return finished

    return kept.made("cli fit", fit)


# ---- fit --------------------------------------------------------------------------------------------------------


def test_fit_tells_what_it_measured_and_compares_with_lightgbm(folder, fitted):
    outcome = fitted.json
    assert outcome["classes"] == ["no", "yes"]
    assert outcome["test"]["n"] == outcome["sequences"]["test"] == 40
    assert set(outcome["baselines"]) == {"lightgbm", "logistic"}
    means = {account["format"]: account["mean"] for account in outcome["tokens"]}
    assert means["codes, with the question"] < means["compact"] < means["prose"]
    assert not (folder / "model.checkpoint").exists()
    assert "test part" in (folder / "model" / "README.md").read_text()


def stage_lines(log):
    """The titles of the stages in a log, each behind the time of day."""
    return re.findall(r"^\d\d:\d\d:\d\d stage (\d of 4: .+)$", log, re.MULTILINE)


def assert_all_stages(log):
    lines = stage_lines(log)
    assert len(lines) == len(STAGES), log
    for line, (title, number) in zip(lines, STAGES.items(), strict=True):
        assert line.startswith(f"{number} of 4: {title}")


def test_with_json_the_log_goes_to_stderr(fitted):
    assert_all_stages(fitted.stderr)
    assert stage_lines(fitted.stdout) == []


@pytest.fixture(scope="module")
def log(kept, folder, tmp_path_factory):
    """What `tefm fit` prints into a file, with a line about every step instead of one a minute."""
    place = tmp_path_factory.mktemp("log")
    task = write_variant(folder, place / "task.yaml", codes={**QUICK["codes"], "steps": 40}, tune={"steps": 10})

    def fit():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tefm.base.progress.LOG_EVERY", 0.0)
            finished = tefm("fit", task, "--out", place / "model", *CPU)
        assert finished.stderr == ""
        return finished.stdout

    return kept.made("cli log", fit)


def test_the_log_of_a_fit_has_a_line_per_stage_and_ends_in_the_test_figures(log):
    assert_all_stages(log)
    in_order = [log.index(text) for text in ("stage 4 of 4", "Test scores (", "Tokens per sequence", "saved to ")]
    assert in_order == sorted(in_order)
    assert re.search(r"TEFM \(codes.*LightGBM.*logistic", log)
    assert re.search(r"AUROC +│( +0\.\d{3} \[0\.\d{3}–[01]\.\d{3}\] │){3}", log)


def test_the_log_of_a_fit_tells_the_share_done_and_the_time_left_of_the_whole_job(log):
    lines = re.findall(r"^\d\d:\d\d:\d\d (\d+)% done, about (?:\d+ h )?\d+ (?:s|min) left: (.+)$", log, re.MULTILINE)
    shares = [int(share) for share, _ in lines]
    assert shares == sorted(shares) and shares[0] < 10 and 80 < shares[-1] <= 100
    assert len({title.partition(" (")[0] for _, title in lines}) > 4, "what it is doing is named"


# ---- predict, evaluate, tokens ----------------------------------------------------------------------------------


def test_predict_and_evaluate(folder, fitted, tmp_path):
    new = tmp_path / "new.csv"
    pl.read_csv(folder / "table.csv").drop("died").write_csv(new)
    written = tefm("predict", folder / "model", new, "--out", tmp_path / "predictions.csv", *CPU)
    assert written.stdout == "" and "200 predictions written" in written.stderr
    predictions = pl.read_csv(tmp_path / "predictions.csv")
    assert predictions.columns == ["patient_id", "records", "predicted", "p(no)", "p(yes)"]
    assert predictions.height == 200 and predictions["records"].to_list() == [3] * 200
    assert np.allclose(predictions["p(no)"] + predictions["p(yes)"], 1)
    printed = tefm("predict", folder / "model", new, "--json", *CPU).json
    assert [row["predicted"] for row in printed] == predictions["predicted"].to_list()
    evaluation = tefm("evaluate", folder / "model", folder / "table.csv", "--json", *CPU).json
    accuracy = evaluation["accuracy"]
    assert evaluation["confusion"]["classes"] == ["no", "yes"] and evaluation["unknown"] == {}
    everyone = tefm("predict", folder / "model", new, "--threshold", 0.0, "--json", *CPU).json
    assert {row["predicted"] for row in everyone} == {"yes"}
    assert evaluation["n"] == 200 and accuracy["low"] <= accuracy["value"] <= accuracy["high"]
    assert "share of prose" in tefm("tokens", folder / "model", new).stdout


def test_who_evaluates_on_the_table_of_the_fit_is_told(folder, fitted, tmp_path):
    pl.read_csv(folder / "table.csv").write_csv(tmp_path / "later.csv")
    for table, same in ((folder / "table.csv", True), (tmp_path / "later.csv", False)):
        finished = tefm("evaluate", folder / "model", table, *CPU)
        assert ("fitted on this table" in finished.stderr) == same


def test_mistakes_name_the_file(folder, fitted, tmp_path):
    table = pl.read_csv(folder / "table.csv")
    less, words = tmp_path / "less.csv", tmp_path / "words.csv"
    table.drop("score").write_csv(less)
    table.with_columns(score=pl.lit("high")).write_csv(words)
    for arguments in (
        ("predict", folder / "model", less),
        ("predict", folder / "model", words),
        ("explain", folder / "model", words),
        ("explain", folder / "model", folder / "table.csv", "--entity", "nobody"),
    ):
        message = refused(*arguments, *CPU)
        assert arguments[2].name in message and "table in memory" not in message
    wordy = write_variant(folder, tmp_path / "wordy.yaml", table=str(words))
    message = refused("fit", wordy, "--out", tmp_path / "wordy", *CPU)
    assert "words.csv" in message and "'score'" in message and "'high'" in message


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("fit", "{folder}/no.yaml", "--out", "{folder}/m"), ("no.yaml", "table")),
        (("fit", "{folder}/task.yaml", "--out", "{folder}/m", "--align", "sideways"), ("align", "sideways")),
        (("fit", "{folder}/task.yaml", "--out", "{folder}/m", "--layers", "9"), ("layers", "9")),
        (("fit", "{folder}/task.yaml", "--out", "{folder}/tok"), ("tok", "not written by tefm")),
        (("fit", "{folder}/task.yaml", "--out", "{folder}/m", "--backbone", "{folder}/tok"), ("config.json",)),
        (("predict", "{folder}/tok", "{folder}/table.csv"), ("record tokenizer", "tefm model")),
        (("predict", "{folder}/model", "{folder}/table.csv", "--out", "predictions.xlsx"), ("predictions.xlsx", "CSV")),
        (("predict", "{folder}/model", "{folder}/schema.yaml"), ("schema.yaml",)),
    ],
)
def test_errors_of_a_task_are_one_clear_message(folder, fitted, arguments, parts):
    message = refused(*(argument.format(folder=folder) for argument in arguments))
    for part in parts:
        assert part in message


# ---- explain ----------------------------------------------------------------------------------------------------


def explain(folder, *arguments):
    return tefm("explain", folder / "model", folder / "table.csv", *CPU, *arguments)


def test_a_card_names_whom_it_is_about_and_what_the_check_found(folder, fitted):
    finished = explain(folder, "--entity", "p7", "--entity", "p3")
    printed = finished.stdout
    first, second = map(Explanation.from_json, explain(folder, "--entity", "p7", "--entity", "p3", "--json").json)
    assert 0 < printed.index(first.title) < printed.index(second.title), "in the order that they were asked for"
    assert first.title.startswith("patient_id p7: died = ") and len(re.findall(r"patient_id p\d", printed)) == 2
    text = " ".join(printed.replace("│", " ").split())
    for explanation in (first, second):
        assert explanation.conclusion in text and explanation.made_up in text and explanation.opposite in text
        assert explanation.of_class == explanation.answer.says, "the answer is what the evidence is about"
        assert explanation.settling.findings and all(of.words in text for of in explanation.settling.findings)
    assert finished.stderr.startswith("2 explained: ")
    assert all(explanation.verdict in finished.stderr for explanation in (first, second))


def test_the_evidence_is_about_the_class_that_was_asked_for(folder, fitted):
    asked = ("--entity", "p7", "--entity", "p3", "--class", "yes")
    explanations = [Explanation.from_json(body) for body in explain(folder, *asked, "--json").json]
    assert [explanation.of_class for explanation in explanations] == ["yes", "yes"]
    # the shares of a rule say it where the class is the answer
    apart = [bool(explanation.influences) for explanation in explanations]
    assert apart == [explanation.answer.says == "no" or explanation.joint is None for explanation in explanations]
    assert explain(folder, *asked).stdout.count("For and against “yes”") == sum(apart)


def test_precision_and_number_of_features_are_what_was_asked_for(folder, fitted):
    few = [argument for number in range(6) for argument in ("--entity", f"p{number}")]
    for precision, most in ((0.9, 10), (0.97, 1)):
        asked = ("--precision", precision, "--most", most, "--json")
        explanations = [Explanation.from_json(body) for body in explain(folder, *few, *asked).json]
        assert {(explanation.least, explanation.most) for explanation in explanations} == {(precision, most)}
        assert max(len(explanation.settling.findings) for explanation in explanations) <= most
        verdicts = {explanation.verdict for explanation in explanations}
        assert verdicts <= {"settled", "real only", "made-up only", "contested", "unsettled"}
        for explanation in explanations:
            precise = explanation.settling.precision.low >= precision
            borne_out = precise or explanation.verdict == "real only"
            assert explanation.verified == (explanation.distinct and borne_out)
        assert any(explanation.verified for explanation in explanations) == (precision == 0.9)


@pytest.mark.all
def test_as_many_cards_as_the_limit(folder, fitted):
    few = [argument for number in range(4) for argument in ("--entity", f"p{number}")]
    for limit, cards in (((), 3), (("--limit", "1"), 1)):
        finished = explain(folder, *few, *limit)
        assert len(re.findall(r"patient_id p\d: ", finished.stdout)) == cards
        assert finished.stderr.startswith(f"{cards} explained: ") and "--limit N shows more" in finished.stderr


@pytest.fixture(scope="module")
def ten(folder, fitted, tmp_path_factory):
    """Explain the first ten patients."""
    table = tmp_path_factory.mktemp("ten") / "ten.csv"
    pl.read_csv(folder / "table.csv").head(30).write_csv(table)
    return ("explain", folder / "model", table, *CPU)


def test_a_population_is_summarised(ten):
    summary = tefm(*ten, "--population", "50", "--json").json
    alone = summarise([Explanation.from_json(body) for body in tefm(*ten, "--class", "yes", "--json").json])
    assert summary["explained"] == alone.explained == 10 and summary["verdicts"] == alone.verdicts
    listed = [rule["features"] for rule in summary["rules"]]
    assert listed == [list(rule.features) for rule in alone.rules if list(rule.features) in listed] != []
    effects = [(effect["field"], effect["of_class"]) for effect in summary["fields"]]
    assert effects == [(effect.field, "yes") for effect in alone.fields], "of the positive class"
    printed = " ".join(tefm(*ten, "--population", "4").stdout.split())
    assert "4 answers explained" in printed and "raises p by" in printed


def test_sensitive_fields_and_similar_cases_are_on_the_card(ten):
    """A patient who was learned is the first of them."""
    asked = (*ten, "--sensitive", "ward", "--similar", "2")
    bodies = tefm(*asked, "--json").json
    learned = [body["sequence"] for body in bodies if [case["likeness"] for case in body["similar"]][:1] == [1]]
    assert 3 <= len(learned) < 10 and all(len(body["similar"]) <= 2 for body in bodies)
    printed = " ".join(tefm(*asked, "--entity", learned[0]).stdout.split())
    assert "100% alike" in printed and "with another ward" in printed
    (without,) = tefm(*ten, "--entity", "p3", "--without", "codes", "--without", "score", "--json").json
    assert {finding["field"] for finding in without["settling"]["findings"]} <= {"ward"}


def test_all_explanations_as_a_page_or_as_lines(ten, tmp_path):
    written = tefm(*ten, "--out", tmp_path / "all.jsonl")
    assert written.stdout == "" and "10 explanations written to" in written.stderr
    explanations = [
        Explanation.from_json(json.loads(line)) for line in (tmp_path / "all.jsonl").read_text().splitlines()
    ]
    assert [explanation.sequence for explanation in explanations] == [f"p{i}" for i in range(10)]
    tefm(*ten, "--entity", "p5", "--entity", "p9", "--out", tmp_path / "page.html")
    assert_page_of(tmp_path / "page.html", explanations)


def assert_page_of(path, explanations):
    """A page of its own, with the titles of p5 and p9 only."""
    page = path.read_text()
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    assert not re.search(r"https?:|//\w|\bsrc=|<link|<script|@import|url\(", page), "it needs nothing but itself"
    for explanation in explanations:
        assert (html.escape(explanation.title) in page) == (explanation.sequence in ("p5", "p9"))


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--class", "perhaps"), ("perhaps", "'no', 'yes'", "class")),
        *((("--precision", share), ("precision", f"not {share}", "like 0.9")) for share in ("2.0", "1.0", "0.4")),
        (("--most", "0"), ("most", "not 0", "give 1 or more")),
        (("--without", "wards"), ("'wards'", "did you mean 'ward'")),
        (("--sensitive", "wards"), ("'wards'", "did you mean 'ward'")),
        (("--population", "5", "--sensitive", "ward"), ("--population", "--sensitive")),
        (("--population", "5", "--similar", "2"), ("--population", "--similar")),
        (("--similar", "-1"), ("similar", "not -1", "give 1 or more")),
        (("--population", "0"), ("at least one sequence", "0", "1 or more")),
        (("--population", "5", "--entity", "p3"), ("--population", "--entity")),
        (("--population", "5", "--out", "{folder}/page.html"), ("--population", "--out")),
        (("--entity", "p3", "--entity", "p2000"), ("p2000", "patient_id")),
    ],
)
def test_errors_of_explain_are_one_clear_message(folder, fitted, arguments, parts):
    arguments = [argument.format(folder=folder) for argument in arguments]
    message = refused("explain", folder / "model", folder / "table.csv", *CPU, *arguments)
    for part in parts:
        assert part in message


def test_a_file_that_cannot_be_written_is_refused_before_the_model_is_looked_for(tmp_path):
    message = refused("explain", tmp_path / "no", tmp_path / "no.csv", "--out", tmp_path / "x.txt")
    assert "x.txt" in message and "page.html" in message
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def silent(folder, tmp_path_factory):
    """A model that only predicts."""
    place = tmp_path_factory.mktemp("silent")
    short = {"codes": {**QUICK["codes"], "steps": 10}, "tune": {"steps": 2}}
    task = write_variant(folder, place / "task.yaml", explanations="none", rationale="none", **short)
    tefm("fit", task, "--out", place / "model", *CPU, "--no-compare")
    return place / "model"


def test_a_model_that_only_predicts_says_so(folder, silent):
    message = refused("explain", silent, folder / "table.csv", *CPU)
    assert "cannot explain" in message and "explanations: default" in message


def test_a_model_without_masks_says_so(folder, silent):
    message = refused("rationale", silent, folder / "table.csv", *CPU)
    assert "masks" in message and "rationale: default" in message


# ---- rationale --------------------------------------------------------------------------------------------------


def rationale(folder, *arguments):
    return tefm("rationale", folder / "model", folder / "table.csv", *CPU, *arguments)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        *((("--keep", keep), ("--keep", keep, "5%")) for keep in ("five", "0", "150%")),
        (("--of", "everything"), ("'of'", "everything", "present")),
        (("--over", "patient"), ("'over'", "patient", "sequence")),
        (("--entity", "p3", "--entity", "p2000"), ("p2000", "patient_id")),
        (("--out", "{folder}/page.txt"), ("page.txt", "page.html")),
    ],
)
def test_errors_of_rationale_are_one_clear_message(folder, fitted, arguments, parts):
    arguments = [argument.format(folder=folder) for argument in arguments]
    message = refused("rationale", folder / "model", folder / "table.csv", *CPU, *arguments)
    for part in parts:
        assert part in message


def test_a_masked_card_names_whom_it_is_about_and_what_the_check_found(folder, fitted):
    asked = ("--entity", "p7", "--entity", "p3")
    finished = rationale(folder, *asked)
    printed = finished.stdout
    first, second = map(Rationale.from_json, rationale(folder, *asked, "--json").json)
    assert 0 < printed.index(first.title) < printed.index(second.title), "in the order that they were asked for"
    assert first.title.startswith("patient_id p7: ") and printed.count("patient_id p") == 2
    text = " ".join(printed.replace("│", " ").split())
    for one in (first, second):
        assert one.conclusion in text and one.kept in text
    assert f"2 explained: {first.passed + second.passed} with sufficient slots, " in finished.stderr


def test_a_share_is_given_in_either_way(folder, fitted):
    few = ("--entity", "p7", "--over", "record", "--json")
    (percent,), (share,) = (rationale(folder, *few, "--keep", keep).json for keep in ("25%", "0.25"))
    assert percent == share
    retention = Rationale.from_json(percent).retention
    assert retention.kept == 3 * round(0.25 * retention.slots / 3), "that many of each of the three records"


def test_all_rationales_as_a_page_or_as_lines(folder, fitted, tmp_path):
    rationale(folder, "--keep", "50%", "--out", tmp_path / "all.jsonl")
    rationales = [Rationale.from_json(json.loads(line)) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert {one.sequence for one in rationales} == {f"p{i}" for i in range(200)} and len(rationales) == 200
    rationale(folder, "--keep", "50%", "--entity", "p5", "--entity", "p9", "--out", tmp_path / "page.html")
    assert_page_of(tmp_path / "page.html", rationales)
