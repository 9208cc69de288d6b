"""What is left when `tefm` is killed: `kill -9` at random moments of its commands, on a miniature.

    python benchmarks/faults.py [--kills 100] [--seed 0] [--json FILE]

The commands are fit, encode, predict, teach, extend and serve. After every kill, what a command writes is either not
there or whole. After a few kills it runs to its end: the result must be the one of a run that nobody disturbed, and
nothing else may lie around. A server is killed under requests: what it answered must be right, its model must be
untouched, and the next server must answer the same.

Commands run in processes forked from one that has imported everything, so that kills hit the work and not the imports.
The moments are spread evenly over the time that an undisturbed run takes.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS = Path("benchmarks/results/faults.json")
#: Kills in a row before the command may finish.
IN_A_ROW = 4
#: Seconds that the first server gets for an answer.
UNDISTURBED = 20.0

#: Imports everything, then forks a process for each command that it is given.
SERVER = """
import json, os, signal, sys, time
import accelerate, peft, sklearn.ensemble, torch, transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast
import tefm.cli, tefm.model.run, tefm.codes.tokenizer, tefm.tabular.baselines, tefm.serve.server
print("ready", flush=True)
for line in sys.stdin:
    arguments, kill_after = json.loads(line)
    process = os.fork()
    if process == 0:
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(quiet, 0), os.dup2(quiet, 1), os.dup2(quiet, 2)
        sys.argv = ["tefm", *arguments]
        try:
            tefm.cli.main()
        except SystemExit as stop:  # without the interpreter's own end, which takes longer than the work
            os._exit(int(stop.code or 0))
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(process, signal.SIGKILL)  # one that has ended keeps its number until it is waited for
    print(os.waitpid(process, 0)[1], flush=True)
"""
#: Writes a backbone, the tables and the task.
MAKE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import QUICK, stays
from support.miniatures import miniature
import yaml
folder = Path(sys.argv[2])
miniature("llama", folder / "backbone")
stays(120).write_csv(folder / "stays.csv")
stays(1500, seed=1).write_csv(folder / "new.csv")
settings = {**QUICK, "rationale": "none", "backbone": str(folder / "backbone"), "deterministic": True}
task = {"table": "stays.csv", "entity": "patient", "time": "day", "label": "died", **settings}
(folder / "task.yaml").write_text(yaml.safe_dump(task))
stays(60, seed=2).rename({"ward": "unit", "age": "years"}).write_csv(folder / "later.csv")
(folder / "later.yaml").write_text(yaml.safe_dump({**task, "table": "later.csv"}))
"""


class Server:
    """Runs commands, and kills them if asked to."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read()

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def run(self, arguments: list[str], kill_after: float | None = None) -> int:
        """The status of a command: 0, or the signal that ended it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([arguments, kill_after]) + "\n")
        self.process.stdin.flush()
        return int(self._read())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@dataclass
class Fault:
    """A command, what it writes, and what became of it."""

    name: str
    arguments: list[str]
    target: Path
    #: what identifies the result; an error where it is not whole
    result: Callable[[Path], str]
    seconds: float = 0.0
    reference: str = ""
    kills: int = 0
    in_a_row: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), arguments.kills, arguments.seed)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["figures"], indent=1))
    if result["figures"]["half_written"] or result["figures"]["other_results"] or result["figures"]["left_over"]:
        sys.exit(1)


def measure(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kill commands so many times; what was found."""
    subprocess.run([sys.executable, "-c", MAKE, ROOT / "tests", folder], check=True, stderr=subprocess.DEVNULL)
    out, rng, server = folder / "out", np.random.default_rng(seed), Server()
    out.mkdir()
    once = fitted(server, folder)
    faults = faults_of(folder, out)
    for fault in faults:
        started = time.monotonic()
        assert server.run(fault.arguments) == 0, f"the undisturbed {fault.name} fails"
        fault.seconds, fault.reference = time.monotonic() - started, fault.result(fault.target)
        _clear(out)
    served = Served(server, once, (folder / "new.csv").read_bytes()[:2_000].rsplit(b"\n", 1)[0])
    for number in range(kills):
        if number % (len(faults) + 1) == len(faults):
            served.kill(float(rng.random()))
            continue
        fault = faults[number % (len(faults) + 1)]
        status = server.run(fault.arguments, kill_after=float(rng.random()) * fault.seconds)
        fault.kills += 1
        fault.in_a_row += 1
        fault.outcomes["killed" if status == signal.SIGKILL else "finished before"] += 1
        if fault.target.exists():
            fault.outcomes["whole" if _whole(fault) else "half-written"] += 1
        last = number + len(faults) + 1 >= kills
        if fault.in_a_row == IN_A_ROW or last:
            assert server.run(fault.arguments) == 0, f"{fault.name} fails after it was killed"
            fault.outcomes["same result" if _whole(fault) else "another result"] += 1
            left = [path.name for path in out.iterdir() if path.name.startswith(f".{fault.target.name}")]
            left += [path.name for path in out.iterdir() if path.name == f"{fault.target.name}.checkpoint"]
            fault.outcomes["left over"] += len(left)
            _clear(out, fault.target.name)
            fault.in_a_row = 0
    server.close()
    total = sum((fault.outcomes for fault in faults), Counter[str]())
    return {
        "machine": {"system": platform.platform(), "tefm": version("tefm"), "torch": version("torch")},
        "command": f"python benchmarks/faults.py --kills {kills} --seed {seed}",
        "commands": {
            **{
                fault.name: {"seconds": round(fault.seconds, 2), "kills": fault.kills, **fault.outcomes}
                for fault in faults
            },
            "serve": {"seconds": round(served.seconds, 2), "kills": served.kills, **served.outcomes},
        },
        "figures": {
            "kills": sum(fault.kills for fault in faults) + served.kills,
            "during_the_work": total["killed"] + served.kills,
            "half_written": total["half-written"] + served.outcomes["model changed"],
            "resumed": total["same result"] + total["another result"],
            "other_results": total["another result"] + served.outcomes["another answer"],
            "answers_of_killed_servers": served.outcomes["same answer"],
            "left_over": total["left over"],
        },
    }


def fitted(server: Server, folder: Path) -> Path:
    """A model that stays, which all commands but `fit` need."""
    arguments = ["fit", str(folder / "task.yaml"), "--out", str(folder / "model"), "--no-compare", "--device", "cpu"]
    assert server.run(arguments) == 0, "the undisturbed fit fails"
    return folder / "model"


def faults_of(folder: Path, out: Path) -> list[Fault]:
    """The commands that write something, each with its target in `out`."""
    once, new, codes, answers = (
        folder / "model",
        str(folder / "new.csv"),
        out / "codes.parquet",
        out / "predictions.csv",
    )
    quiet = ["--no-compare", "--device", "cpu"]
    fit = ["fit", str(folder / "task.yaml"), "--out", str(out / "model"), *quiet]
    question = ["--question", "Did the patient die?", "--answer", "died", "--out", str(out / "taught")]
    extend = ["extend", str(once), str(folder / "later.yaml"), "--out", str(out / "extended"), *quiet]
    return [
        Fault("fit", fit, out / "model", _model),
        Fault("encode", ["encode", str(once / "tokenizer"), new, "--out", str(codes)], codes, _table),
        Fault("predict", ["predict", str(once), new, "--out", str(answers)], answers, _digest),
        Fault("teach", ["teach", str(once), str(folder / "stays.csv"), *question], out / "taught", _model),
        Fault("extend", extend, out / "extended", _model),
    ]


class Served:
    """Servers of one model that are killed under requests."""

    def __init__(self, server: Server, model: Path, rows: bytes) -> None:
        self.server, self.model, self.rows = server, model, rows
        self.kills, self.outcomes = 0, Counter[str]()
        self.before = _folder(model)
        #: until the first answer, and that answer
        self.seconds, self.reference = 0.0, b""
        self._run(UNDISTURBED)
        assert self.reference, "the undisturbed server does not answer"

    def kill(self, moment: float) -> None:
        """Kill one before its first answer or after it: a moment of 1 is twice the time that it takes."""
        self.kills += 1
        self._run(2 * moment * self.seconds)
        self.outcomes["model changed"] += _folder(self.model) != self.before

    def _run(self, kill_after: float) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ended, started = threading.Event(), time.monotonic()

        def ask() -> None:
            url = f"http://127.0.0.1:{port}/v1/predict"
            while not ended.is_set():
                try:
                    request = urllib.request.Request(url, self.rows, {"Content-Type": "text/csv"})
                    answer = urllib.request.urlopen(request, timeout=5).read()
                except (OSError, http.client.HTTPException):  # not there yet, or killed
                    time.sleep(0.01)
                    continue
                if not self.reference:
                    self.seconds, self.reference = time.monotonic() - started, answer
                self.outcomes["same answer" if answer == self.reference else "another answer"] += 1

        client = threading.Thread(target=ask)
        client.start()
        self.server.run(
            ["serve", str(self.model), "--port", str(port), "--device", "cpu", "--no-access-log"], kill_after
        )
        ended.set()
        client.join()


def _folder(folder: Path) -> str:
    """All names and contents."""
    return "".join(f"{path.name}{_digest(path)}" for path in sorted(folder.rglob("*")) if path.is_file())


def _whole(fault: Fault) -> bool:
    try:
        return fault.result(fault.target) == fault.reference
    except Exception as error:  # whatever is wrong with it, it is not whole
        print(f"{fault.name}: {error}", file=sys.stderr)
        return False


def _model(folder: Path) -> str:
    """The weights, the codes and the settings of a bundle that its manifest says is whole."""
    from tefm.base.files import MANIFEST, read_manifest

    kind = json.loads((folder / MANIFEST).read_text())["kind"]
    parts, learned = read_manifest(folder, kind)["parts"], (".safetensors", "vectoriser.json", "questions.json")
    return "".join(parts[name] for name in sorted(parts) if name.endswith(learned))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _table(path: Path) -> str:
    import pyarrow.parquet as pq

    return hashlib.sha256(str(pq.read_table(path).to_pydict()).encode()).hexdigest()


def _clear(folder: Path, name: str = "") -> None:
    import shutil

    for path in folder.iterdir():
        if name in path.name:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    main()
