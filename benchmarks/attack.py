"""What happens to `tefm` under attack: hostile tables and bundles, kills, full disks, and 64 clients at once.

    python benchmarks/attack.py [--size 1.0] [--parts tables bundles kills disk load] [--seed 0] [--json FILE]

- **tables**: 2,000 fuzzed tables (tests/support/fuzzing.py), each inspected, predicted and encoded.
- **bundles**: 100 damaged ones, 100 with other values under a manifest that is right (re-sealed), and forged ones, the
  bombs among them (tests/model), each asked for predictions, a report and an explanation.
- **kills**: benchmarks/faults.py, 100 kills over fit, encode, predict, teach, extend and serve.
- **disk**: fit, encode, predict, teach and extend, each on ten disks that are too small by different amounts.
- **load**: 64 clients; the memory of the server after 100 and after 10,000 requests.

Every command runs in a process of its own with a limit of time, forked from one that has imported everything. It ends
in `fine`, `refused` (one clear line), `unclear`, `traceback`, `crash` (a signal) or `hang`. An audit hook notes files
that Python opens outside the folder of the command, what it writes there, and other processes and connections; what
native code opens is not seen. `--size 0.05` takes a twentieth of everything.

What is finished is kept in FILE.jsonl and not done again: an interrupted run resumes, and a larger size goes on from a
smaller one. Delete that file to begin anew, for example after a change of the code.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS = Path("benchmarks/results/attack.json")
BUNDLE = ROOT / "tests" / "golden" / "bundle"
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests"), str(ROOT / "tests" / "model")]
#: What values are replaced by.
OTHERS: tuple[Any, ...] = (
    None,
    -1,
    0,
    1,
    3,
    2**31,
    1e300,
    float("nan"),
    True,
    "",
    "x",
    "0" * 64,
    [],
    {},
    [[1]],
    "../x",
)
NUMBERS = (float("nan"), float("inf"), -1.0, 0.0, 1.0, 255.0, 1e30)
#: Columns of its table.
COLUMNS = ("patient", "day", "age", "ward", "drugs")
#: How many there are of each at size 1.
SIZES = {"tables": 2_000, "damaged": 100, "resealed": 100, "kills": 100, "moments": 10, "requests": 10_000}
CLIENTS = 64
#: Seconds after which a command hangs, and the memory that it may take (GB), its libraries among them.
LIMIT, MOST_MEMORY = 120.0, 2.0
WARM = 100
#: How commands end: a refusal without one clear line is unclear.
ENDS = ("fine", "refused", "unclear", "traceback", "crash", "hang")
#: Statuses of a command that has done its work; `tefm monitor` ends in 3 on an alarm.
FINE = (0, 3)

#: Imports everything, then forks a process for each command that it is given and waits for its end.
RUNNER = """
import json, os, signal, sys, time, traceback
sys.dont_write_bytecode = True
import accelerate, peft, sklearn.ensemble, torch, transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast
import tefm.cli, tefm.model.run, tefm.codes.tokenizer, tefm.tabular.baselines, tefm.model.report

SEEN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect")

def watch(job):
    notes = os.open(job["notes"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    own = tuple(os.path.realpath(path) for path in (job["folder"], *job["reads"]))
    places = (sys.prefix, sys.base_prefix, *sys.path, "/usr", "/proc", "/sys")
    libraries = tuple({os.path.realpath(path) for path in places if path})
    def hook(event, given):
        if event == "open" and isinstance(given[0], (str, bytes)):
            path, flags = os.path.realpath(os.fsdecode(given[0])), given[2]
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            inside = (path + os.sep).startswith(own[0] + os.sep) if writes else path.startswith(own + libraries)
            if not inside and not path.startswith("/dev/"):
                os.write(notes, f"{'write' if writes else 'read'} {path}\\n".encode())
        elif event in SEEN:
            os.write(notes, f"{event} {given!r}\\n"[:500].encode())
    sys.addaudithook(hook)

def run(job):
    output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0), os.dup2(output, 1), os.dup2(output, 2)
    os.chdir(job["folder"])
    os.environ["TMPDIR"] = job["folder"]
    if job["largest"] is not None:
        import resource
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["largest"], resource.RLIM_INFINITY))
    watch(job)
    sys.argv = ["tefm", *job["arguments"]]
    status = 0
    try:
        tefm.cli.main()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(status)

print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    process, started = os.fork(), time.monotonic()
    if process == 0:
        run(job)
    hung = False
    while True:
        ended, status, used = os.wait4(process, os.WNOHANG)
        if ended:
            break
        if not hung and time.monotonic() - started > job["limit"]:
            hung = True
            os.kill(process, signal.SIGKILL)
        time.sleep(0.005)
    print(json.dumps([status, hung, time.monotonic() - started, used.ru_maxrss / 2**20]), flush=True)
"""


# ---- commands -------------------------------------------------------------------------------------------------------


class Runner:
    """Runs commands one after another, each watched, in a folder of its own."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUNNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._read()

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def run(
        self, folder: Path, arguments: Iterable[object], reads: Iterable[Path] = (), largest: int | None = None
    ) -> dict[str, Any]:
        """How a command ended; `folder` is what it may write to, `reads` what else it may open."""
        words = [str(argument) for argument in arguments]
        with tempfile.TemporaryDirectory() as place:
            output, notes = Path(place) / "output", Path(place) / "notes"
            job = {
                "arguments": words, "folder": str(folder), "reads": [str(path) for path in reads], "largest": largest,
                "output": str(output), "notes": str(notes), "limit": LIMIT,
            }  # fmt: skip
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            status, hung, seconds, memory = json.loads(self._read())
            printed = output.read_text(errors="replace")
            outside = sorted(set(notes.read_text(errors="replace").splitlines()))
        end = ended(status, hung, printed)
        result = {"command": words[0], "end": end, "seconds": round(seconds, 2), "memory_gb": round(memory, 3)}
        if outside:
            result["outside"] = outside
        if end not in ("fine", "refused"):
            result["printed"] = printed[-2_000:]
        return result

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def ended(status: int, hung: bool, printed: str) -> str:
    """The end of a command in a word."""
    if hung:
        return "hang"
    if os.WIFSIGNALED(status):
        return "crash"
    if "Traceback (most recent call last)" in printed or "panicked at" in printed:
        return "traceback"
    if os.waitstatus_to_exitcode(status) in FINE:
        return "fine"
    return "refused" if len(re.findall(r"^error: ", printed, re.MULTILINE)) == 1 else "unclear"


# ---- what is done once ----------------------------------------------------------------------------------------------


class Journal:
    """What is finished, a line each; it is not done again."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.seed = path, seed
        lines = path.read_text().splitlines() if path.exists() else []
        bodies = [json.loads(line) for line in lines if line.endswith("}")]  # a killed run leaves half a line
        self.done = {(body["part"], body["item"]): body for body in bodies if body["seed"] == seed}

    def once(self, part: str, item: object, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What `make` returns, or what it returned in an earlier run."""
        key = part, str(item)
        if key not in self.done:
            self.done[key] = {"part": part, "item": str(item), "seed": self.seed, **make()}
            with self.path.open("a") as file:
                file.write("\n" + json.dumps(self.done[key]))
        return self.done[key]


def counted(items: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The ends of all commands of some items, and what should not have happened."""
    items = list(items)
    commands = [{**command, "item": item["item"]} for item in items for command in item["commands"]]
    wrong = [one for one in commands if one["end"] not in ("fine", "refused") or "outside" in one]
    return {
        "items": len(items),
        "commands": len(commands),
        **{end: sum(one["end"] == end for one in commands) for end in ENDS},
        "outside": sum("outside" in one for one in commands),
        "memory_gb": max((one["memory_gb"] for one in commands), default=0.0),
        "too_much_memory": sum(one["memory_gb"] > MOST_MEMORY for one in commands),
        "seconds": round(sum(one["seconds"] for one in commands), 1),
        "wrong": wrong[:20],
    }


# ---- tables and bundles ---------------------------------------------------------------------------------------------


@contextmanager
def folder_of_its_own() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def table_attack(runner: Runner, seed: int) -> dict[str, Any]:
    """One fuzzed table: inspected, predicted, encoded. Every second one has columns of the model."""
    from support import fuzzing

    names = COLUMNS if seed % 2 else fuzzing.NAMES
    with folder_of_its_own() as folder, patch.object(fuzzing, "NAMES", names):
        table = fuzzing.fuzzed(seed, folder).path
        commands = (
            ["inspect", table, "--out", folder / "schema.yaml"],
            ["predict", BUNDLE, table, "--absent", "--out", folder / "predictions.csv", "--device", "cpu"],
            ["encode", BUNDLE / "tokenizer", table, "--absent", "--out", folder / "codes.parquet", "--device", "cpu"],
        )
        return {"commands": [runner.run(folder, arguments, [BUNDLE]) for arguments in commands]}


def damage(folder: Path, rng: np.random.Generator) -> None:
    """Remove one file, cut it, change some of its bytes or all of them."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "README.md")
    path = paths[int(rng.integers(len(paths)))]
    content = bytearray(path.read_bytes())
    match int(rng.integers(4)):
        case 0:
            path.unlink()
        case 1:
            path.write_bytes(content[: int(rng.integers(len(content)))])
        case 2:
            path.write_bytes(rng.bytes(len(content)))
        case _:
            for _ in range(int(rng.integers(1, 9))):
                content[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
            path.write_bytes(content)


def tamper(folder: Path, rng: np.random.Generator) -> None:
    """Change what one file says, not its form: a value of a JSON file, or a part of an array."""
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file

    names = (path for path in folder.rglob("*") if path.suffix in (".json", ".safetensors"))
    paths = sorted(path for path in names if path.name != "manifest.json")
    path = paths[int(rng.integers(len(paths)))]
    if path.suffix == ".json":
        body = {"": json.loads(path.read_text())}
        place, key = leaf(body, rng)
        place[key] = OTHERS[int(rng.integers(len(OTHERS)))]
        path.write_text(json.dumps(body[""]))
        return
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
    arrays = load_file(path)
    array = arrays[str(rng.choice(sorted(arrays)))].reshape(-1)
    start = int(rng.integers(max(1, array.size)))
    with np.errstate(all="ignore"):
        array[start : start + 1 + int(rng.integers(9))] = np.array(rng.choice(NUMBERS)).astype(array.dtype)
    save_file(arrays, path, metadata=metadata)


def leaf(body: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """The place of a random value: what it is in, and its key."""
    while True:
        keys = list(body) if isinstance(body, dict) else range(len(body))
        key = keys[int(rng.integers(len(keys)))]
        if not isinstance(body[key], dict | list) or not body[key] or rng.random() < 0.05:
            return body, key
        body = body[key]


def bundle_attack(
    runner: Runner, forge: Callable[[Path], None], reseal: Callable[[Path], None] | None
) -> dict[str, Any]:
    """One bundle that is not what its maker sent: predictions, a report and an explanation are asked of it."""
    from conftest import stays

    with folder_of_its_own() as folder:
        model = Path(shutil.copytree(BUNDLE, folder / "model"))
        stays(8, seed=1).write_csv(folder / "stays.csv")
        forge(model)
        if reseal is not None:
            reseal(model)
        commands = (
            ["predict", model, folder / "stays.csv", "--out", folder / "predictions.csv", "--device", "cpu"],
            ["report", model, "--out", folder / "report.html", "--device", "cpu"],
            [
                "explain",
                model,
                folder / "stays.csv",
                "--entity",
                "p1",
                "--out",
                folder / "card.html",
                "--device",
                "cpu",
            ],
        )
        return {"commands": [runner.run(folder, arguments) for arguments in commands]}


def forgeries() -> dict[str, Callable[[Path], None]]:
    """Bundles that are forged on purpose, the bombs first."""
    from test_bombs import BOMBS, edit
    from test_forged import FORGED

    query = "COPY (SELECT 1) TO 'written.csv'; SELECT 1"
    source = {"table": "/etc/passwd", "query": query, "split": {}}
    return {**BOMBS, "a source with SQL": edit("model.json", lambda body: body.update(source=source)), **FORGED}


# ---- disks ----------------------------------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[bool]:
    """A disk of so many bytes at `folder`; False where none can be mounted."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def disk_attack(runner: Runner, folder: Path, name: str, share: float) -> dict[str, Any]:
    """A command on a disk that holds this share of what it writes: one clear line, and nothing half-written."""
    from faults import faults_of

    out = folder / f"disk-{name}"
    (undisturbed,) = (fault for fault in faults_of(folder, folder / "whole") if fault.name == name)
    written = [undisturbed.target, *undisturbed.target.rglob("*")]
    sizes = [path.stat().st_size for path in written if path.is_file()]
    with small_disk(out, max(4096, round(share * sum(sizes)))) as is_small:
        (fault,) = (fault for fault in faults_of(folder, out) if fault.name == name)
        largest = None if is_small else round(share * max(sizes))
        command = runner.run(out, fault.arguments, [folder], largest)
        whole = not fault.target.exists()
        if not whole:
            try:
                whole = fault.result(fault.target) == fault.result(undisturbed.target)
            except Exception as error:  # whatever is wrong with it, it is not whole
                command["printed"] = f"{type(error).__name__}: {error}"
    return {"commands": [command], "half_written": not whole}


# ---- load -----------------------------------------------------------------------------------------------------------


def load_attack(requests: int) -> dict[str, Any]:
    """64 clients and one server: latencies, failures, and its memory after few and after all requests."""
    from conftest import stays
    from serve import Load, running

    parts = stays(300, seed=3).drop("died").partition_by("patient", maintain_order=True)
    bodies = [json.dumps({"rows": part.to_dicts()}).encode() for part in parts]
    result: dict[str, Any] = {"clients": CLIENTS, "requests": requests}
    with running("tefm serve", str(BUNDLE)) as server:
        for name, count in (("after_100", WARM), ("after_all", requests)):
            load = Load(server.port, "/v1/predict", bodies, math.inf, most=count)
            took = asyncio.run(load.run(CLIENTS))
            status = Path(f"/proc/{server.popen.pid}/status").read_text()
            result[name] = {"memory_mb": round(int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024, 1)}
    p50, p95, p99 = np.percentile(load.latencies, [50, 95, 99])
    result |= {"failed": load.failures, "busy": load.statuses.get(429, 0), "per_second": round(requests / took, 1)}
    result |= {f"p{share}_ms": round(1_000 * float(of), 1) for share, of in ((50, p50), (95, p95), (99, p99))}
    grown = result["after_all"]["memory_mb"] / result["after_100"]["memory_mb"] - 1
    return {**result, "memory_grown": round(grown, 4)}


# ---- everything -----------------------------------------------------------------------------------------------------


def measure(size: float, parts: list[str], journal: Journal) -> dict[str, Any]:
    """All parts at this size."""
    counts = {name: max(1, math.ceil(size * count)) for name, count in SIZES.items()}
    seed, result, runner = journal.seed, {}, Runner()
    if "tables" in parts:
        attacks = ((number, partial(table_attack, runner, seed + number)) for number in range(counts["tables"]))
        result["tables"] = counted(journal.once("tables", number, attack) for number, attack in attacks)
        print("tables", json.dumps(result["tables"]), flush=True)
    if "bundles" in parts:
        from test_forged import reseal

        for kind, forge, seal in (("damaged", damage, None), ("resealed", tamper, reseal)):
            drawn = [np.random.default_rng((seed, number)) for number in range(counts[kind])]
            forges = {str(number): partial(forge, rng=rng) for number, rng in enumerate(drawn)}
            result[kind] = bundles_of(kind, forges, runner, journal, seal)
        every = forgeries()
        some = dict(list(every.items())[: max(1, math.ceil(size * len(every)))])
        result["forged"] = bundles_of("forged", some, runner, journal, reseal)
    if "kills" in parts:
        import faults

        with folder_of_its_own() as folder:
            of = partial(faults.measure, folder, counts["kills"], seed)
            result["kills"] = journal.once("kills", counts["kills"], lambda: {"figures": of()["figures"]})["figures"]
        print("kills", json.dumps(result["kills"]), flush=True)
    if "disk" in parts:
        result["disk"] = full_disks(counts["moments"], runner, journal)
        print("disk", json.dumps(result["disk"]), flush=True)
    if "load" in parts:
        requests = max(500, counts["requests"])
        result["load"] = journal.once("load", requests, lambda: {"figures": load_attack(requests)})["figures"]
        print("load", json.dumps(result["load"]), flush=True)
    runner.close()
    return result


def bundles_of(
    kind: str,
    forges: dict[str, Callable[[Path], None]],
    runner: Runner,
    journal: Journal,
    reseal: Callable[[Path], None] | None,
) -> dict[str, Any]:
    """The ends of all bundles of a kind."""
    attacks = {name: partial(bundle_attack, runner, forge, reseal) for name, forge in forges.items()}
    counts = counted(journal.once(kind, name, attack) for name, attack in attacks.items())
    print(kind, json.dumps(counts), flush=True)
    return counts


def full_disks(moments: int, runner: Runner, journal: Journal) -> dict[str, Any]:
    """Every command that writes, on disks that are too small by different amounts."""
    import faults

    shares = [(moment + 0.5) / moments for moment in range(moments)]
    names = [fault.name for fault in faults.faults_of(Path(), Path())]
    with folder_of_its_own() as folder:
        if any(("disk", f"{name} {share:.3f}") not in journal.done for name in names for share in shares):
            subprocess.run([sys.executable, "-c", faults.MAKE, ROOT / "tests", folder], check=True, capture_output=True)
            server, whole = faults.Server(), folder / "whole"
            faults.fitted(server, folder)
            whole.mkdir()
            for fault in faults.faults_of(folder, whole):
                assert server.run(fault.arguments) == 0, f"the undisturbed {fault.name} fails"
            server.close()
        items = [
            journal.once("disk", f"{name} {share:.3f}", partial(disk_attack, runner, folder, name, share))
            for name in names
            for share in shares
        ]
    return {**counted(items), "half_written": sum(item["half_written"] for item in items)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ["tables", "bundles", "kills", "disk", "load"]
    parser.add_argument("--size", type=float, default=1.0, help="share of everything")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    given.json.parent.mkdir(parents=True, exist_ok=True)
    result = measure(given.size, given.parts, Journal(given.json.with_suffix(".jsonl"), given.seed))
    machine = {"system": platform.platform(), "tefm": version("tefm"), "torch": version("torch")}
    used = os.times()
    body = {
        "machine": machine,
        "command": shlex.join(["python", *sys.argv]),
        "size": given.size,
        "cpu_minutes": round((used.user + used.system + used.children_user + used.children_system) / 60, 1),
        **result,
    }
    given.json.write_text(json.dumps(body, indent=1) + "\n")
    ends = Counter[str]()
    for figures in result.values():
        wrong = (
            "unclear",
            "traceback",
            "crash",
            "hang",
            "outside",
            "too_much_memory",
            "half_written",
            "other_results",
            "failed",
        )
        ends += Counter({name: figures.get(name, 0) for name in wrong})
    print(json.dumps({"cpu_minutes": body["cpu_minutes"], "wrong": dict(ends)}))
    sys.exit(bool(ends))


if __name__ == "__main__":
    main()
