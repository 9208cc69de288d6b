"""The command line: the whole path of a user's table, --json for machines, errors without a traceback."""

import html
import json
import re
import subprocess
import sys
import warnings

import numpy as np
import polars as pl
import pytest
from conftest import QUICK

from tefm.base.errors import TefmError, TefmWarning
from tefm.cli import main
from tefm.rationale.card import from_json

TINY = ("--steps", "60", "--levels", "2", "--entries", "8", "--set", "hidden=32", "--set", "latent=8")


def tefm(*words, ok=True):
    done = subprocess.run(
        [sys.executable, "-m", "tefm.cli", *map(str, words)], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    assert (done.returncode == 0) == ok, done.stderr + done.stdout
    return done.stdout if ok else done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a table and what every verb makes of it."""
    folder = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 4, 600)
    table = pl.DataFrame(
        {
            "patient_id": [f"p{i // 3}" for i in range(600)],
            "day": np.arange(600),
            "score": kind * 10 + rng.normal(size=600).round(2),
            "ward": [["north", "south", "east", None][k] for k in kind],
            "codes": [";".join(np.array(["a", "b", "c", "d"])[: k + 1]) for k in kind],
            "died": np.where((kind == 3) ^ (rng.random(600) < 0.2), "yes", "no"),
        }
    )
    table.write_csv(folder / "table.csv")
    facts = json.loads(
        tefm(
            "inspect",
            folder / "table.csv",
            "--label",
            "died",
            "--time",
            "day",
            "--out",
            folder / "schema.yaml",
            "--json",
        )
    )
    fitted = json.loads(
        tefm(
            "tokenize",
            folder / "table.csv",
            "--schema",
            folder / "schema.yaml",
            "--out",
            folder / "tok",
            *TINY,
            "--json",
        )
    )
    return folder, facts, fitted


def test_inspect_tells_every_column(place):
    folder, facts, _ = place
    kinds = {column["column"]: column["kind"] for column in facts["columns"]}
    expected = {"patient_id": "entity", "day": "time", "died": "label"}
    assert kinds == expected | {"score": "number", "ward": "category", "codes": "set"}
    assert "score" in tefm("inspect", folder / "table.csv")


def test_tokenize_is_task_aware_with_a_label_and_unsupervised_on_demand(place, tmp_path):
    folder, _, fitted = place
    assert fitted["task_aware"] and fitted["classes"] == ["no", "yes"] and fitted["levels"] == 2
    given = ("--schema", folder / "schema.yaml", "--out", tmp_path / "plain", *TINY)
    plain = tefm("tokenize", folder / "table.csv", *given, "--unsupervised", "--json")
    assert not json.loads(plain)["task_aware"]


def test_encode_and_decode(place, tmp_path):
    folder, *_ = place
    tefm("encode", folder / "tok", folder / "table.csv", "--out", tmp_path / "codes.parquet")
    codes = pl.read_parquet(tmp_path / "codes.parquet")
    assert codes.columns == ["patient_id", "day", "died", "code_a", "code_b"] and codes.height == 600
    tefm("decode", folder / "tok", tmp_path / "codes.parquet", "--out", tmp_path / "back.parquet")
    back = pl.read_parquet(tmp_path / "back.parquet")
    assert back.columns == ["score", "ward", "codes"] and back.height == 600
    shown = tefm("decode", folder / "tok", tmp_path / "codes.parquet", "--words", "--rows", "2")
    assert shown.count("This record:") == 2 and "<rec_a_" in shown
    first = json.loads(tefm("decode", folder / "tok", tmp_path / "codes.parquet", "--rows", "1", "--json"))
    assert set(first[0]) == {"score", "ward", "codes"}


def test_doctor(place):
    folder, *_ = place
    found = json.loads(tefm("doctor", folder / "tok", folder / "table.csv", "--json"))
    assert set(found["ceiling"]) == {"raw slots", "latents", "codes"}
    assert 0.5 < found["ceiling"]["raw slots"]["auroc"] <= 1
    assert len(found["use"]) == 2 and found["fidelity"]["records"] == 600
    shown = tefm("doctor", folder / "tok", folder / "table.csv")
    for title in ("Reconstruction", "Codebooks", "Collisions", "Hierarchy", "Code ceiling"):
        assert title in shown


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("inspect", "nowhere.csv"), ("nowhere.csv",)),
        (("inspect", "{folder}/table.csv", "--label", "dead"), ("label", "dead", "did you mean")),
        (("tokenize", "{folder}/table.csv", "--out", "{folder}/x", "--set", "levls=3"), ("levls", "levels")),
        (("tokenize", "{folder}/table.csv", "--out", "{folder}/x", "--set", "levels"), ("name=value",)),
        (("tokenize", "{folder}/table.csv", "--out", "{folder}"), ("not written by tefm",)),
        (("tokenize", "{folder}/table.csv", "--out", "{folder}/x", "--preset", "papers"), ("preset", "paper")),
        (("encode", "{folder}", "{folder}/table.csv", "--out", "{folder}/c.parquet"), ("manifest",)),
        (("encode", "{folder}/tok", "{folder}/schema.yaml", "--out", "{folder}/c.parquet"), ("schema.yaml",)),
        (("decode", "{folder}/tok", "{folder}/table.csv"), ("code_a",)),
    ],
)
def test_errors_are_one_clear_message(place, words, parts):
    folder, *_ = place
    message = tefm(*(word.format(folder=folder) for word in words), ok=False)
    assert "error" in message
    for part in parts:
        assert part in message


def test_every_verb_has_an_example():
    verbs = (
        "inspect",
        "tokenize",
        "encode",
        "decode",
        "doctor",
        "fit",
        "predict",
        "explain",
        "evaluate",
        "report",
        "bench",
        "tokens",
        "demo",
    )
    for verb in verbs:
        assert f"tefm {verb}" in tefm(verb, "--help").replace("\n", " ")


# ---- a task, from its file to predictions -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def task(place, backbones):
    """A task on the table of `place`, with a model of random weights as its backbone."""
    folder, *_ = place
    body = {
        "table": "table.csv",
        "schema": "schema.yaml",
        "backbone": str(backbones["llama"]),
        "codes": {"levels": 2, "entries": 8, "hidden": 32, "latent": 8, "steps": 60},
        "tune": {"least": 30, "epochs": 1},
        "rationale": QUICK["rationale"],
        "split": {"shares": [0.6, 0.2, 0.2]},
    }
    (folder / "task.yaml").write_text(json.dumps(body))  # JSON is YAML
    fitted = json.loads(tefm("fit", folder / "task.yaml", "--out", folder / "model", "--device", "cpu", "--json"))
    return folder, fitted


def test_fit_tells_what_it_measured_beside_lightgbm(task):
    folder, fitted = task
    assert fitted["classes"] == ["no", "yes"]
    assert fitted["test"]["n"] == fitted["sequences"]["test"] == 40
    assert set(fitted["baselines"]) == {"lightgbm", "logistic"}
    forms = {account["format"]: account["mean"] for account in fitted["tokens"]}
    assert forms["codes, with the question"] < forms["compact"] < forms["prose"]
    assert not (folder / "model.checkpoint").exists()
    assert "test part" in (folder / "model" / "README.md").read_text()


def test_predict_and_evaluate(task):
    folder, _ = task
    table = pl.read_csv(folder / "table.csv")
    table.drop("died").write_csv(folder / "new.csv")
    tefm("predict", folder / "model", folder / "new.csv", "--out", folder / "said.csv", "--device", "cpu")
    said = pl.read_csv(folder / "said.csv")
    assert said.columns == ["patient_id", "records", "predicted", "p(no)", "p(yes)"]
    assert said.height == 200 and said["records"].to_list() == [3] * 200
    assert np.allclose(said["p(no)"] + said["p(yes)"], 1)
    printed = json.loads(tefm("predict", folder / "model", folder / "new.csv", "--json", "--device", "cpu"))
    assert [row["predicted"] for row in printed] == said["predicted"].to_list()
    judged = json.loads(tefm("evaluate", folder / "model", folder / "table.csv", "--json", "--device", "cpu"))
    assert judged["n"] == 200 and judged["accuracy"]["low"] <= judged["accuracy"]["value"] <= judged["accuracy"]["high"]
    assert "share of prose" in tefm("tokens", folder / "model", folder / "new.csv")


def test_mistakes_name_the_file(task):
    folder, _ = task
    table = pl.read_csv(folder / "table.csv")
    table.drop("score").write_csv(folder / "less.csv")
    table.with_columns(score=pl.lit("high")).write_csv(folder / "words.csv")
    for words in (
        ("predict", folder / "model", folder / "less.csv"),
        ("predict", folder / "model", folder / "words.csv"),
        ("explain", folder / "model", folder / "words.csv"),
        ("explain", folder / "model", folder / "table.csv", "--entity", "nobody"),
    ):
        said = tefm(*words, "--device", "cpu", ok=False)
        assert words[2].name in said and "table in memory" not in said
    (folder / "wordy.yaml").write_text((folder / "task.yaml").read_text().replace("table.csv", "words.csv"))
    said = tefm("fit", folder / "wordy.yaml", "--out", folder / "wordy", "--device", "cpu", ok=False)
    assert "words.csv" in said and "'score'" in said and "'high'" in said


@pytest.mark.filterwarnings("default::tefm.base.errors.TefmWarning")
def test_a_warning_is_one_line(monkeypatch, capfd):
    def warned(*_, **__):
        warnings.warn("[seen] a word", TefmWarning, stacklevel=2)
        raise TefmError("and an error")

    monkeypatch.setattr("tefm.records.readers.table.open_table", warned)
    with pytest.raises(SystemExit):
        run("inspect", "table.csv")
    assert capfd.readouterr().err.splitlines() == ["! [seen] a word", "error: and an error"]


def run(*words):
    """The command line in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["tefm", *map(str, words)])
        patch.setattr("warnings.showwarning", warnings.showwarning)
        main()


def test_who_evaluates_on_the_table_of_the_fit_is_told(task, capfd):
    folder, _ = task
    pl.read_csv(folder / "table.csv").write_csv(folder / "later.csv")
    for table, told in (("table.csv", True), ("later.csv", False)):
        with pytest.raises(SystemExit):
            run("evaluate", folder / "model", folder / table, "--device", "cpu")
        assert ("fitted on this table" in capfd.readouterr().err) == told


def test_who_stops_a_command_is_told_how_it_goes_on(monkeypatch, capfd):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tefm.records.readers.table.open_table", stopped)
    with pytest.raises(SystemExit) as stop:
        run("inspect", "table.csv")
    assert stop.value.code == 130
    assert "go on when the same command is given again" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("fit", "{folder}/no.yaml", "--out", "{folder}/m"), ("no.yaml", "table")),
        (("fit", "{folder}/task.yaml", "--out", "{folder}/m", "--inputs", "pictures"), ("inputs", "pictures")),
        (("fit", "{folder}/task.yaml", "--out", "{folder}/m", "--layers", "9"), ("layers", "9")),
        (("fit", "{folder}/task.yaml", "--out", "{folder}/tok"), ("tok", "not written by tefm")),
        (("fit", "{folder}/task.yaml", "--out", "{folder}/m", "--backbone", "{folder}/tok"), ("config.json",)),
        (("predict", "{folder}/tok", "{folder}/table.csv"), ("record tokenizer", "tefm model")),
        (("predict", "{folder}/model", "{folder}/table.csv", "--out", "said.xlsx"), ("said.xlsx", "CSV")),
        (("predict", "{folder}/model", "{folder}/schema.yaml"), ("schema.yaml",)),
    ],
)
def test_errors_of_a_task_are_one_clear_message(task, words, parts):
    folder, _ = task
    message = tefm(*(word.format(folder=folder) for word in words), ok=False)
    assert "error" in message
    for part in parts:
        assert part in message


# ---- what the predictions rest on -------------------------------------------------------------------------------


def explain(folder, *words, ok=True):
    return tefm("explain", folder / "model", folder / "table.csv", "--device", "cpu", *words, ok=ok)


def test_a_card_names_whom_it_is_about_and_what_the_check_found(task):
    folder, _ = task
    shown = explain(folder, "--entity", "p7", "--entity", "p3")
    (first, second) = map(from_json, json.loads(explain(folder, "--entity", "p7", "--entity", "p3", "--json")))
    assert 0 < shown.index(first.title) < shown.index(second.title), "in the order that they were asked for"
    assert first.title.startswith("patient_id p7: ") and shown.count("patient_id p") == 2
    flat = " ".join(shown.replace("│", " ").split())
    for one in (first, second):
        assert one.conclusion in flat and one.kept in flat


def test_a_share_is_given_in_either_way(task):
    folder, _ = task
    few = ("--entity", "p7", "--over", "record", "--json")
    (percent,), (share,) = (json.loads(explain(folder, *few, "--keep", keep)) for keep in ("25%", "0.25"))
    assert percent == share
    kept = from_json(percent).retention
    assert kept.kept == 3 * round(0.25 * kept.slots / 3), "that many of each of the three records"


def test_all_rationales_as_a_page_or_as_lines(task, tmp_path):
    folder, _ = task
    explain(folder, "--keep", "50%", "--out", tmp_path / "all.jsonl")
    found = [from_json(json.loads(line)) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert {one.sequence for one in found} == {f"p{i}" for i in range(200)} and len(found) == 200
    explain(folder, "--keep", "50%", "--entity", "p5", "--entity", "p9", "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    assert not re.search(r"https?:|//\w|\bsrc=|<link|<script|@import|url\(", page), "it needs nothing but itself"
    for one in found:
        assert (html.escape(one.title) in page) == (one.sequence in ("p5", "p9"))


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        *((("--keep", keep), ("--keep", keep, "5%")) for keep in ("five", "0", "150%")),
        (("--of", "everything"), ("'of'", "everything", "present")),
        (("--over", "patient"), ("'over'", "patient", "sequence")),
        (("--by", "column"), ("'by'", "column", "field")),
        (("--entity", "p3", "--entity", "p2000"), ("p2000", "patient_id")),
    ],
)
def test_errors_of_explain_are_one_clear_message(task, words, parts):
    folder, _ = task
    message = explain(folder, *words, ok=False)
    assert "error" in message
    for part in parts:
        assert part in message


def test_a_file_that_cannot_be_written_is_refused_before_the_model_is_looked_for(tmp_path):
    message = tefm("explain", tmp_path / "no", tmp_path / "no.csv", "--out", tmp_path / "x.txt", ok=False)
    assert "x.txt" in message and "page.html" in message
    assert not list(tmp_path.iterdir())


def test_a_model_that_only_predicts_says_so(task, tmp_path):
    folder, _ = task
    body = json.loads((folder / "task.yaml").read_text())
    (folder / "silent.yaml").write_text(json.dumps(body | {"rationale": "none"}))
    tefm("fit", folder / "silent.yaml", "--out", tmp_path / "silent", "--device", "cpu", "--no-compare")
    message = tefm("explain", tmp_path / "silent", folder / "table.csv", "--device", "cpu", ok=False)
    assert "has not learned to explain" in message and "rationale" in message
