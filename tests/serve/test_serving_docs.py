"""docs/serving.md and the Dockerfile: the requests are answered, the options and files exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from conftest import stays
from support.serving import listening

from tefm.cli import app as commands
from tefm.model.estimator import TEFM
from tefm.serve.served import Served

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
SHELL = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CALLS = [call for block in SHELL for call in re.split(r"\n(?=curl )", block.strip())]


@pytest.fixture(scope="module")
def port(fitted: TEFM) -> Iterator[int]:
    with listening(Served("model", fitted)) as port:
        yield port


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.splitlines()[0][:60])
def test_requests_of_the_page_are_answered(call: str, port: int, tmp_path: Path) -> None:
    table = stays(6, seed=3).drop("died")
    table.write_csv(tmp_path / "stays.csv")
    table.filter(table["patient"] == "p2").write_csv(tmp_path / "one_patient.csv")
    command = call.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    reply = json.loads(done.stdout)
    if '"old"' in call:
        assert reply["error"]["column"] == "age" and reply["error"]["problem"] in PAGE
    else:
        assert {"predictions", "explanations"} & set(reply), reply


def test_there_are_requests() -> None:
    assert len(CALLS) == 4


def options() -> set[str]:
    command = typer.main.get_command(commands).commands["serve"]  # type: ignore[attr-defined]
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def test_every_option_of_the_table_exists() -> None:
    rows = "\n".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `--"))
    named = set(re.findall(r"--[a-z-]+", rows))
    assert len(named) >= 7 and named <= options()


def test_the_dockerfile_names_what_exists() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists() and f"!{source}" in allowed, source
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    assert json.loads(entry)[:2] == ["tefm", "serve"]
    assert {word for word in json.loads(entry) if word.startswith("--")} <= options()
    group = typer.main.get_command(commands)
    for call in re.findall(r"^RUN (tefm .*)$", text, re.MULTILINE):
        name, *rest = shlex.split(call)[1:]
        group.commands[name].make_context(name, rest)  # type: ignore[attr-defined]
    extras = re.findall(r"\[([a-z,]+)\]'", text)
    known = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert extras and all(f"\n{extra} = [" in known for group in extras for extra in group.split(","))
    pinned = re.search(r"torch==(\S+)", text)
    assert pinned and f"\ntorch=={pinned[1]}\n" in (ROOT / "constraints.txt").read_text(encoding="utf-8")
