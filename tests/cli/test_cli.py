"""The command line on tables and tokenizers: what the verbs print, --json for machines, errors without a traceback."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import polars as pl
import pytest
from commands import refused, run, tefm, write_patients

from tefm.base.errors import TefmError, TefmWarning
from tefm.cli.app import leave_cores_to_others, others_running

TINY = ("--steps", "60", "--levels", "2", "--entries", "8", "--set", "hidden=32", "--set", "latent=8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with `table.csv`."""
    return write_patients(tmp_path_factory.mktemp("cli")).parent


@pytest.fixture(scope="module")
def inspected(folder):
    """What `tefm inspect` found in the table; it also writes `schema.yaml`."""
    arguments = ("--label", "died", "--time", "day", "--out", folder / "schema.yaml", "--json")
    return tefm("inspect", folder / "table.csv", *arguments)


@pytest.fixture(scope="module")
def tokenized(folder, inspected):
    """What `tefm tokenize` reported; the tokenizer is in `tok`."""
    arguments = ("--schema", folder / "schema.yaml", "--out", folder / "tok", *TINY, "--json")
    return tefm("tokenize", folder / "table.csv", *arguments)


def test_inspect_tells_every_column(folder, inspected):
    kinds = {column["column"]: column["kind"] for column in inspected.json["columns"]}
    expected = {"patient_id": "entity", "day": "time", "died": "label"}
    assert kinds == expected | {"score": "number", "ward": "category", "codes": "set"}
    assert "score" in tefm("inspect", folder / "table.csv").stdout


def test_inspect_warns_of_equal_times_and_different_labels(tmp_path):
    rows = {"who": ["a", "a", "b", "b"], "day": [1, 1, 1, 2], "ill": ["yes", "no", "no", "no"], "x": [1, 2, 3, 4]}
    pl.DataFrame(rows).write_csv(tmp_path / "t.csv")
    arguments = ("inspect", tmp_path / "t.csv", "--entity", "who", "--time", "day", "--label", "ill")
    ties, labels = tefm(*arguments, "--json").json["remarks"]
    assert ties == "1 of 2 entities ('who') have records at the same time ('day'): these stay in the file's order"
    assert "the label of the last record is used; for 1 the last records are at the same time" in labels
    assert "! 1 of 2 entities" in tefm(*arguments).stdout
    pl.DataFrame({**rows, "day": [1, None, 1, 2]}).write_csv(tmp_path / "t.csv")
    (refusal,) = tefm(*arguments, "--json").json["remarks"]
    assert "1 of 4 rows have no time" in refusal and "'day'" in refusal


def test_inspect_says_which_histories_are_too_long_to_be_told_whole(tmp_path):
    frame = pl.DataFrame({"who": ["a"] * 600 + ["b"] * 20, "day": [*range(600), *range(20)], "x": [1.5, 2.5] * 310})
    frame.write_csv(tmp_path / "t.csv")
    (remark,) = tefm("inspect", tmp_path / "t.csv", "--entity", "who", "--time", "day", "--json").json["remarks"]
    assert remark.startswith("1 of 2 sequences have more than 341 records: their oldest records are shortened")


def test_tokenize_is_task_aware_with_a_label_and_unsupervised_on_demand(folder, tokenized, tmp_path):
    facts = tokenized.json
    assert facts["task_aware"] and facts["classes"] == ["no", "yes"] and facts["levels"] == 2
    arguments = ("--schema", folder / "schema.yaml", "--out", tmp_path / "plain", *TINY)
    assert not tefm("tokenize", folder / "table.csv", *arguments, "--unsupervised", "--json").json["task_aware"]


def test_the_log_of_tokenize_goes_to_stdout_unless_that_is_json(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("tefm.base.progress.LOG_EVERY", 0.0)
    arguments = ("tokenize", folder / "table.csv", "--out", tmp_path / "tok", *TINY)
    finished = tefm(*arguments)
    assert "100% done" in finished.stdout and "training the tokenizer" in finished.stdout and finished.stderr == ""
    finished = tefm(*arguments, "--json")
    assert "100% done" in finished.stderr and finished.json["levels"] == 2


def test_encode_and_decode(folder, tokenized, tmp_path):
    tefm("encode", folder / "tok", folder / "table.csv", "--out", tmp_path / "codes.parquet")
    codes = pl.read_parquet(tmp_path / "codes.parquet")
    assert codes.columns == ["patient_id", "day", "died", "code_a", "code_b"] and codes.height == 600
    decode = ("decode", folder / "tok", tmp_path / "codes.parquet")
    tefm(*decode, "--out", tmp_path / "back.parquet")
    records = pl.read_parquet(tmp_path / "back.parquet")
    assert records.columns == ["score", "ward", "codes"] and records.height == 600
    text = tefm(*decode, "--words", "--rows", "2").stdout
    assert text.count("This record:") == 2 and "<rec_a_" in text
    first = tefm(*decode, "--rows", "1", "--json").json
    assert len(first) == 1 and set(first[0]) == {"score", "ward", "codes"}


def test_doctor(folder, tokenized):
    examination = tefm("doctor", folder / "tok", folder / "table.csv", "--json").json
    assert set(examination["ceiling"]) == {"raw slots", "latents", "codes"}
    assert 0.5 < examination["ceiling"]["raw slots"]["auroc"] <= 1
    assert len(examination["use"]) == 2 and examination["fidelity"]["records"] == 600
    text = tefm("doctor", folder / "tok", folder / "table.csv").stdout
    for title in ("Reconstruction", "Codebooks", "Collisions", "Code ceiling"):
        assert title in text


@pytest.mark.parametrize(
    ("arguments", "parts"),
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
        (("inspect", "{folder}/table.csv", "--lable", "died"), ("--lable", "--label")),
    ],
)
def test_errors_are_one_clear_message(folder, tokenized, arguments, parts):
    message = refused(*(argument.format(folder=folder) for argument in arguments))
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
        "rationale",
        "evaluate",
        "report",
        "tokens",
        "serve",
        "demo",
    )
    for verb in verbs:
        assert f"tefm {verb}" in tefm(verb, "--help").stdout.replace("\n", " ")


def test_a_warning_is_one_line(monkeypatch):
    def warn(*_, **__):
        warnings.warn("[seen] a word", TefmWarning, stacklevel=2)
        raise TefmError("and an error")

    monkeypatch.setattr("tefm.tables.readers.table.open_table", warn)
    finished = run("inspect", "table.csv")
    assert finished.stderr.splitlines() == ["! [seen] a word", "error: and an error"] and finished.status == 1


# ---- as a process of its own ------------------------------------------------------------------------------------


def process(*arguments):
    """Run Python in another process."""
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_an_error_ends_the_process_with_a_message_and_without_a_traceback():
    finished = process("-m", "tefm.cli", "inspect", "nowhere.csv")
    assert finished.returncode == 1 and finished.stdout == ""
    assert finished.stderr.startswith("error: ") and "nowhere.csv" in finished.stderr
    assert "Traceback" not in finished.stderr


INTERRUPTED = """
import os, signal
import tefm.cli, tefm.codes.trainer as train
save = train.Trainer._save
def interrupted(self):
    save(self)
    if self.step == 30:
        os.kill(os.getpid(), signal.SIGINT)
train.Trainer._save = interrupted
tefm.cli.main()
"""


@pytest.mark.all
def test_who_interrupts_a_command_is_told_how_to_resume_it(folder, tokenized, tmp_path):
    schema = folder / "schema.yaml"
    arguments = ("tokenize", folder / "table.csv", "--schema", schema, "--out", tmp_path / "tok", *TINY)
    finished = process("-c", INTERRUPTED, *arguments)
    assert finished.returncode == 130 and "Traceback" not in finished.stderr, finished.stderr
    assert "run the same command again to resume" in finished.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tok.checkpoint"]
    again = tefm(*arguments, "--json")
    assert f"resuming from {tmp_path / 'tok.checkpoint'}" in again.stderr
    assert again.json["resumed_from"] == 30
    assert again.json["identity"] == tokenized.json["identity"], "as if it had not been interrupted"
    assert [path.name for path in tmp_path.iterdir()] == ["tok"]


def test_what_ended_a_minute_ago_takes_no_thread(tmp_path: Path) -> None:
    (tmp_path / "loadavg").write_text("7.90 6.50 4.00 3/512 4711\n")
    assert others_running(tmp_path / "loadavg") == 2, "the two that run now, not the eight of the last minute"


def test_threads_leave_busy_cores_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    for load, threads in ((0.0, "8"), (8.0, "4"), (40.0, "1")):
        environment: dict[str, str] = {}
        monkeypatch.setattr(sys.modules[leave_cores_to_others.__module__], "others_running", lambda load=load: load)
        monkeypatch.setattr(os, "environ", environment)
        leave_cores_to_others()
        assert environment == {"OMP_NUM_THREADS": threads}
    monkeypatch.setattr(os, "environ", given := {"OMP_NUM_THREADS": "3"})
    leave_cores_to_others()
    assert given["OMP_NUM_THREADS"] == "3"
