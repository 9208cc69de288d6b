"""What is left when `tefm` is killed: `kill -9` at random moments of fit, encode and predict, with miniature models.

    python benchmarks/faults.py [--kills 100] [--seed 0] [--json FILE]

After every kill, what the command writes is either not there or whole. After a few kills the command runs to its end:
the result must be the one of a run that nobody disturbed, and nothing else may lie around.

Commands run in processes forked from one that has imported everything, so that kills hit the work and not the imports.
The moments are spread evenly over the time that an undisturbed run takes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import signal
import subprocess
import sys
import tempfile
import time
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

#: Imports everything, then forks a process for each command that it is given.
SERVER = """
import json, os, signal, sys, time
import accelerate, peft, sklearn.ensemble, torch, transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast
import tefm.cli, tefm.fit, tefm.codes.stream, tefm.baselines.compare
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
from language.miniatures import miniature
import yaml
folder = Path(sys.argv[2])
miniature("llama", folder / "backbone")
stays(120).write_csv(folder / "stays.csv")
stays(1500, seed=1).write_csv(folder / "new.csv")
settings = {**QUICK, "rationale": "none", "backbone": str(folder / "backbone"), "deterministic": True}
task = {"table": "stays.csv", "entity": "patient", "time": "day", "label": "died", **settings}
(folder / "task.yaml").write_text(yaml.safe_dump(task))
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
    once = folder / "model"  # encode and predict need one that stays
    status = server.run(["fit", str(folder / "task.yaml"), "--out", str(once), "--no-compare", "--device", "cpu"])
    assert status == 0, "the undisturbed fit fails"
    new = str(folder / "new.csv")
    fit = ["fit", str(folder / "task.yaml"), "--out", str(out / "model"), "--no-compare", "--device", "cpu"]
    codes, answers = out / "codes.parquet", out / "predictions.csv"
    faults = [
        Fault("fit", fit, out / "model", _model),
        Fault("encode", ["encode", str(once / "tokenizer"), new, "--out", str(codes)], codes, _table),
        Fault("predict", ["predict", str(once), new, "--out", str(answers)], answers, _digest),
    ]
    for fault in faults:
        started = time.monotonic()
        assert server.run(fault.arguments) == 0, f"the undisturbed {fault.name} fails"
        fault.seconds, fault.reference = time.monotonic() - started, fault.result(fault.target)
        _clear(out)
    for number in range(kills):
        fault = faults[number % len(faults)]
        status = server.run(fault.arguments, kill_after=float(rng.random()) * fault.seconds)
        fault.kills += 1
        fault.in_a_row += 1
        fault.outcomes["killed" if status == signal.SIGKILL else "finished before"] += 1
        if fault.target.exists():
            fault.outcomes["whole" if _whole(fault) else "half-written"] += 1
        last = number + len(faults) >= kills
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
            fault.name: {"seconds": round(fault.seconds, 2), "kills": fault.kills, **fault.outcomes} for fault in faults
        },
        "figures": {
            "kills": sum(fault.kills for fault in faults),
            "during_the_work": total["killed"],
            "half_written": total["half-written"],
            "resumed": total["same result"] + total["another result"],
            "other_results": total["another result"],
            "left_over": total["left over"],
        },
    }


def _whole(fault: Fault) -> bool:
    try:
        return fault.result(fault.target) == fault.reference
    except Exception as error:  # whatever is wrong with it, it is not whole
        print(f"{fault.name}: {error}", file=sys.stderr)
        return False


def _model(folder: Path) -> str:
    """The weights, the codes and the settings of a bundle that its manifest says is whole."""
    from tefm.base.files import read_manifest
    from tefm.bundle import KIND

    parts = read_manifest(folder, KIND)["parts"]
    return "".join(parts[name] for name in sorted(parts) if name.endswith((".safetensors", "vectoriser.json")))


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
