"""A fit that is killed resumes where it was, and several processes learn the same as one."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import MASKS, QUICK, STAYS, Explained, quick, stays
from support import fitting

from tefm.base.errors import SettingsError
from tefm.model.estimator import TEFM

#: The modules that a fit imports: one server loads them once, and every process of a fit is forked from it.
PRELOADED = [
    "tefm.model.estimator",
    "tefm.model.bundle",
    "accelerate",
    "peft",
    "sklearn.ensemble",
    "transformers.models.llama.modeling_llama",
]


@pytest.fixture(scope="module")
def settings(backbones: dict[str, Path]) -> dict[str, Any]:
    return {
        "backbone": str(backbones["llama"]),
        "codes": {**QUICK["codes"], "steps": 100},
        "tune": {**QUICK["tune"], "least": 30, "checks": 10},
        "rationale": {**MASKS["rationale"], "epochs": 1, "questions": 100},
    }


@pytest.fixture(scope="module")
def place(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that `fitting.fit` needs."""
    folder = tmp_path_factory.mktemp("place")
    stays(60).write_csv(folder / "stays.csv")
    STAYS.save(folder / "schema.yaml")
    (folder / "settings.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def whole(settings: dict[str, Any], place: Path) -> TEFM:
    """The same fit without a kill, a checkpoint or another process."""
    return TEFM(STAYS, device="cpu", **settings).fit(place / "stays.csv")


def start(place: Path, checkpoint: str) -> ForkServerProcess:
    """A fit in a new process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    # as many threads as here, because sums in another order are other numbers
    process = context.Process(target=fitting.fit, args=(place, checkpoint, torch.get_num_threads()))
    process.start()
    return process


def kill_at(process: ForkServerProcess, work: Path, name: str) -> None:
    """Kill a process as soon as one of its stages has left a file."""
    while not list(work.glob(f"*/{name}")):
        assert process.is_alive(), f"the fit ended with {process.exitcode} before it wrote {name}"
        time.sleep(0.002)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def result(place: Path, checkpoint: str, rank: int = 0) -> dict[str, Any]:
    return dict(json.loads((place / f"{checkpoint}.{rank}.json").read_text()))


@pytest.mark.slow
def test_a_fit_that_is_killed_in_every_stage_ends_as_if_it_had_not_been(place: Path, whole: TEFM) -> None:
    work = place / "killed"
    kill_at(start(place, "killed"), work, "tokenizer.checkpoint")
    assert not list(work.glob("*/coder"))
    kill_at(start(place, "killed"), work, "tune.checkpoint")
    kill_at(start(place, "killed"), work, "tuned.pt")
    last = start(place, "killed")
    last.join(timeout=120)
    assert last.exitcode == 0
    resumed = result(place, "killed")
    assert resumed["coder_resumed_from"] > 0
    assert resumed["tune_resumed_from"] > 0
    assert resumed["codes"] == whole.tokenizer_.coder.identity
    assert np.array_equal(resumed["p"], whole.predict_proba(place / "stays.csv"))
    weights, expected = torch.load(place / "killed.0.weights"), whole.fitted_.classifier.backbone.model.state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert not list(work.glob("*/*.checkpoint"))


@pytest.mark.all
def test_two_processes_learn_what_one_does(place: Path, whole: TEFM) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    subprocess.run(
        [*launcher, fitting.__file__, str(place), "shared"],
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        check=True,
        timeout=120,
    )
    first, second = (result(place, "shared", rank) for rank in (0, 1))
    assert first["p"] == second["p"]
    assert first["codes"] == second["codes"] == whole.tokenizer_.coder.identity
    np.testing.assert_allclose(first["p"], whole.predict_proba(place / "stays.csv"), atol=1e-4)
    weights = [torch.load(place / f"shared.{rank}.weights") for rank in (0, 1)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    left = {path.name.partition("-")[0] for path in (place / "shared").glob("*/*")}
    assert left == {"coder", "explain", "tuned.pt"}
    explained = {path.name for path in (place / "shared").glob("*/explain-*/*")}
    assert explained == {"look_alikes.safetensors", "rationale.safetensors"}
    assert TEFM.load(place / "shared.model", device="cpu").predict_proba(place / "stays.csv").tolist() == first["p"]


def test_several_processes_need_a_folder_to_share(
    backbones: dict[str, Path], monkeypatch: pytest.MonkeyPatch, explained: Explained
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    explained(SettingsError, lambda: quick(backbones["llama"]).fit(stays(30)), "several processes", "checkpoint")


#: A fit as short as can be, for tests of what it leaves behind.
SHORT: dict[str, Any] = {
    "codes": {**QUICK["codes"], "steps": 2},
    "tune": {"steps": 1},
    "explanations": "none",
    "rationale": "none",
}


@pytest.mark.parametrize("rank", [0, 1])
def test_only_the_first_process_leaves_its_work(
    rank: int, fitted: TEFM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", str(rank))
    model = quick(Path(fitted.config.backbone), **{**SHORT, "tokenizer": fitted.tokenizer_})
    model.fit(stays(30), checkpoint=tmp_path)
    assert len(list(tmp_path.glob("tune-*/tuned.pt"))) == (rank == 0)


def test_stages_that_do_not_depend_on_a_setting_are_found_again(backbones: dict[str, Path], tmp_path: Path) -> None:
    def fit(patients: int = 30, **changes: Any) -> set[str]:
        quick(backbones["llama"], **{**SHORT, **changes}).fit(stays(patients), checkpoint=tmp_path)
        return {path.name for path in tmp_path.iterdir()}

    first = fit()
    assert sorted(name.partition("-")[0] for name in first) == ["codes", "tune"]
    assert fit() == first
    tuned = fit(tune={"steps": 2}) - first
    assert [name.partition("-")[0] for name in tuned] == ["tune"]  # the same codes
    for changes in ({"seed": 1}, {"codes": {**SHORT["codes"], "levels": 1}}, {"patients": 31}):
        before = {path.name for path in tmp_path.iterdir()}
        assert sorted(name.partition("-")[0] for name in fit(**changes) - before) == ["codes", "tune"]


def test_a_tokenizer_from_disk_is_the_same_one(fitted: TEFM, tmp_path: Path) -> None:
    again = type(fitted.tokenizer_).load(fitted.tokenizer_.save(tmp_path / "copy"))
    for tokenizer in (fitted.tokenizer_, again, tmp_path / "copy"):
        model = quick(Path(fitted.config.backbone), **{**SHORT, "tokenizer": tokenizer})
        model.fit(stays(30), checkpoint=tmp_path / "work")
    assert len(list((tmp_path / "work").iterdir())) == 1
