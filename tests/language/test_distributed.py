"""A fit that is killed goes on where it was, and several processes learn what one does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import QUICK, STAYS, Explained, quick, stays

from tefm.base.errors import SettingsError
from tefm.model import TEFM

SCRIPT = """
import json, os, sys
from pathlib import Path

import torch
from tefm import TEFM, Schema

place = Path(sys.argv[1])
model = TEFM(Schema.load(place / "schema.yaml"), device="cpu", **json.loads((place / "settings.json").read_text()))
model.fit(place / "stays.csv", checkpoint=place / sys.argv[2])
model.save(place / f"{sys.argv[2]}.model")
torch.save(model.reader.backbone.model.state_dict(), place / f"{sys.argv[2]}.{os.environ.get('RANK', '0')}.weights")
said = {
    "rank": int(os.environ.get("RANK", "0")),
    "resumed": model.history_["tune"].resumed_from,
    "tokenizer_resumed": model.tokenizer_.coder.history_.resumed_from,
    "codes": model.tokenizer_.coder.identity,
    "p": model.predict_proba(place / "stays.csv").tolist(),
}
print("SAID " + json.dumps(said) + "\\n", end="", flush=True)
"""


@pytest.fixture(scope="module")
def settings(backbones: dict[str, Path]) -> dict[str, Any]:
    return {
        "backbone": str(backbones["llama"]),
        "codes": {**QUICK["codes"], "steps": 400},
        "tune": {**QUICK["tune"], "least": 60, "checks": 10, "save_every": 0},
        "rationale": QUICK["rationale"],
    }


@pytest.fixture(scope="module")
def place(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script that fits."""
    folder = tmp_path_factory.mktemp("place")
    stays(100).write_csv(folder / "stays.csv")
    STAYS.save(folder / "schema.yaml")
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "script.py").write_text(SCRIPT)
    return folder


@pytest.fixture(scope="module")
def whole(settings: dict[str, Any], place: Path) -> TEFM:
    """The same fit without a kill, a checkpoint or another process."""
    return TEFM(STAYS, device="cpu", **settings).fit(place / "stays.csv")


def start(place: Path, work: str, *launcher: str) -> subprocess.Popen[str]:
    # as many threads as here, because sums in another order are other numbers
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    return subprocess.Popen(
        [sys.executable, *launcher, str(place / "script.py"), str(place), work],
        env={**os.environ, **threads},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """What the processes printed, in the order of their ranks."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    lines = [json.loads(line.removeprefix("SAID ")) for line in out.splitlines() if line.startswith("SAID ")]
    return sorted(lines, key=lambda line: int(line["rank"]))


def kill_at(process: subprocess.Popen[str], work: Path, name: str) -> None:
    """Kill a process as soon as one of its stages has left a file."""
    while not list(work.glob(f"*/{name}")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_fit_that_is_killed_in_every_stage_ends_as_if_it_had_not_been(place: Path, whole: TEFM) -> None:
    work = place / "killed"
    kill_at(start(place, "killed"), work, "tokenizer.checkpoint")
    assert not list(work.glob("*/tokenizer"))
    kill_at(start(place, "killed"), work, "tune.checkpoint")
    kill_at(start(place, "killed"), work, "tuned.pt")
    (last,) = said(start(place, "killed"))
    assert last["tokenizer_resumed"] > 0
    assert last["resumed"] > 0
    assert whole.tokenizer_ is not None
    assert last["codes"] == whole.tokenizer_.coder.identity
    assert np.array_equal(last["p"], whole.predict_proba(place / "stays.csv"))
    weights, expected = torch.load(place / "killed.0.weights"), whole.reader.backbone.model.state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert not list(work.glob("*/*.checkpoint"))


@pytest.mark.slow
def test_two_processes_learn_what_one_does(place: Path, whole: TEFM) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
    first, second = said(start(place, "shared", *launcher))
    assert (first["rank"], second["rank"]) == (0, 1)
    assert first["p"] == second["p"]
    assert whole.tokenizer_ is not None
    assert first["codes"] == second["codes"] == whole.tokenizer_.coder.identity
    np.testing.assert_allclose(first["p"], whole.predict_proba(place / "stays.csv"), atol=1e-4)
    weights = [torch.load(place / f"shared.{rank}.weights") for rank in (0, 1)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    left = sorted(path.name for path in (place / "shared").glob("*/*"))
    assert left == ["rationale.safetensors", "tokenizer", "tuned.pt"]
    assert TEFM.load(place / "shared.model", device="cpu").predict_proba(place / "stays.csv").tolist() == first["p"]


def test_several_processes_need_a_folder_to_share(
    backbones: dict[str, Path], monkeypatch: pytest.MonkeyPatch, explained: Explained
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    explained(SettingsError, lambda: quick(backbones["llama"]).fit(stays(30)), "several processes", "checkpoint")


@pytest.mark.parametrize("rank", [0, 1])
def test_only_the_first_process_leaves_its_work(
    rank: int, fitted: TEFM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", str(rank))
    model = quick(Path(fitted.config.backbone), tokenizer=fitted.tokenizer_, tune={"steps": 1})
    model.fit(stays(30), checkpoint=tmp_path)
    assert len(list(tmp_path.glob("language-*/tuned.pt"))) == (rank == 0)


def test_what_other_settings_do_not_concern_is_found_again(fitted: TEFM, tmp_path: Path) -> None:
    def fit(patients: int = 30, **changes: Any) -> set[str]:
        quick(Path(fitted.config.backbone), **{"tune": {"steps": 1}, **changes}).fit(
            stays(patients), checkpoint=tmp_path
        )
        return {path.name for path in tmp_path.iterdir()}

    first = fit()
    assert sorted(name.partition("-")[0] for name in first) == ["codes", "language"]
    assert fit() == first
    tuned = fit(tune={"steps": 2}) - first
    assert [name.partition("-")[0] for name in tuned] == ["language"]  # the same codes
    for changes in ({"seed": 1}, {"codes": {"levels": 1}}, {"patients": 31}):
        before = {path.name for path in tmp_path.iterdir()}
        assert sorted(name.partition("-")[0] for name in fit(**changes) - before) == ["codes", "language"]


def test_a_tokenizer_from_disk_is_the_same_one(fitted: TEFM, tmp_path: Path) -> None:
    assert fitted.tokenizer_ is not None
    again = type(fitted.tokenizer_).load(fitted.tokenizer_.save(tmp_path / "copy"))
    for tokenizer in (fitted.tokenizer_, again, tmp_path / "copy"):
        quick(Path(fitted.config.backbone), tokenizer=tokenizer, tune={"steps": 1}).fit(
            stays(30), checkpoint=tmp_path / "work"
        )
    assert len(list((tmp_path / "work").iterdir())) == 1
