"""Targets: what cannot be written is refused before the work, one process at a time, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from conftest import Explained

from tefm.base.errors import InputError
from tefm.base.files import check_writable, held, replacing, temporary_name, write_text

#: Holds a target, or begins to replace a file and a folder, and waits to be killed.
KILLED = """
import sys, time
from pathlib import Path
from tefm.base.files import replacing
from tefm.base.files import held
folder = Path(sys.argv[1])
with held(folder / "model"), replacing(folder / "p.csv") as file, replacing(folder / "model", ours=bool) as part:
    file.write_text("half")
    (part / "half").write_text("half")
    print("ready", flush=True)
    time.sleep(60)
"""


def killed(folder: Path) -> None:
    """A process that was killed while it wrote."""
    with subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        with pytest.raises(InputError, match=f"process {process.pid}"), held(folder / "model"):
            pass
        process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("name", ["x.csv", "folder/x.csv"])
def test_a_place_that_cannot_be_written_is_refused(name: str, explained: Explained) -> None:
    explained(InputError, lambda: check_writable(Path("/proc") / name), "/proc", "cannot")


def test_a_full_disk_is_explained(tmp_path: Path) -> None:
    # a limit on the size of files stands for the disk
    code = (
        "import resource, signal, sys; from pathlib import Path; from tefm.base.errors import InputError\n"
        "from tefm.base.files import check_writable; from tefm.base.files import write_text\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "for call in (lambda path: check_writable(path), lambda path: write_text(path, 'x' * 5000)):\n"
        "    try: call(Path(sys.argv[1])); print('written')\n"
        "    except InputError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "out.txt"], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("cannot write: File too large") == 2, done.stdout
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    killed(tmp_path)
    left = [path.name for path in tmp_path.iterdir()]
    assert len(left) == 3, left  # a file, a folder and a lock
    with held(tmp_path / "model"):  # the lock of a dead process is nobody's
        with replacing(tmp_path / "model", ours=lambda _: True) as part:
            (part / "whole").write_text("whole")
        write_text(tmp_path / "p.csv", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "p.csv"]


def test_what_a_living_process_writes_stays(tmp_path: Path) -> None:
    with replacing(tmp_path / "p.csv") as first:
        first.write_text("first")
        write_text(tmp_path / "p.csv", "second")
        assert first.read_text() == "first"
    assert (tmp_path / "p.csv").read_text() == "first"


def test_what_another_machine_writes_stays_for_a_week(tmp_path: Path) -> None:
    other = tmp_path / ".p.csv.elsewhere-1-abcdef.tmp"
    other.touch()
    write_text(tmp_path / "p.csv", "x")
    assert other.exists()
    old = time.time() - 8 * 86_400
    os.utime(other, (old, old))
    write_text(tmp_path / "p.csv", "x")
    assert not other.exists()


def test_a_folder_that_a_killed_process_moved_aside_comes_back(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    place = tmp_path / "model"
    aside = Path(str(temporary_name(place, "old")).replace(f"-{os.getpid()}-", f"-{process.pid}-"))
    aside.mkdir()
    (aside / "weights").touch()
    with pytest.raises(InputError, match="not written by tefm"), replacing(place, ours=lambda _: False):
        pass
    assert (place / "weights").exists() and not aside.exists()


def test_commands_refuse_a_target_before_the_work(tmp_path: Path) -> None:
    from commands import refused

    pl.DataFrame({"age": range(50), "died": ["yes", "no"] * 25}).write_csv(tmp_path / "t.csv")
    (tmp_path / "task.yaml").write_text("{table: t.csv, label: died}")
    nowhere = "/proc/nowhere/out"
    assert "/proc/nowhere" in refused("fit", tmp_path / "task.yaml", "--out", nowhere)
    assert "/proc/nowhere" in refused("tokenize", tmp_path / "t.csv", "--out", nowhere)
    assert "/proc/nowhere" in refused("inspect", tmp_path / "none.csv", "--out", f"{nowhere}.yaml")
    assert "/proc/nowhere" in refused("monitor", tmp_path, tmp_path / "t.csv", "--html", f"{nowhere}.html")
    assert "too long" in refused("inspect", tmp_path / "t.csv", "--out", tmp_path / ("x" * 300))
    # the model is not even looked at
    assert "/proc/nowhere" in refused("predict", tmp_path, tmp_path / "t.csv", "--out", f"{nowhere}.csv")
    assert "/proc/nowhere" in refused("report", tmp_path, "--out", f"{nowhere}.html")
    assert "/proc/nowhere" in refused("explain", tmp_path, tmp_path / "t.csv", "--out", f"{nowhere}.html")
