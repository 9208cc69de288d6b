"""The benchmarks run and report every figure; how fast it was is not tested here."""

from __future__ import annotations

import ast
import json
import runpy
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.postgres_server import binaries

from tefm.language.backbone import open_backbone

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "attack.py"


@pytest.mark.parametrize("script", sorted(SCRIPT.parent.glob("*.py")), ids=lambda script: script.stem)
def test_what_a_benchmark_imports_is_there(script: Path) -> None:
    """Most of them take too long to be run here."""
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("tefm"):
            module = import_module(node.module)
            missing = [name.name for name in node.names if not hasattr(module, name.name)]
            assert all(find_spec(f"{node.module}.{name}") for name in missing), (node.module, missing)


def test_throughput_replaces_its_own_rows_and_keeps_the_others(tmp_path: Path) -> None:
    add = runpy.run_path(str(SCRIPT.with_name("throughput.py")))["add"]
    row = {"device": "arm", "data": "ddos", "layers": 6, "ratio": 1.0}
    add([row, {**row, "device": "gpu"}], tmp_path / "out.json")
    add([{**row, "ratio": 2.0}, {**row, "layers": 30}], tmp_path / "out.json")
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [(row["device"], row["layers"], row["ratio"]) for row in rows] == [
        ("arm", 6, 2.0),
        ("gpu", 6, 1.0),
        ("arm", 30, 1.0),
    ]


@pytest.mark.slow
@pytest.mark.all
def test_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = SCRIPT.with_name("faults.py")
    monkeypatch.setattr("sys.argv", [str(script), "--kills", "6", "--json", str(tmp_path / "out.json")])
    runpy.run_path(str(script), run_name="__main__")  # exits with 1 if anything is half-written, different or left over
    figures = json.loads((tmp_path / "out.json").read_text())["figures"]
    assert figures["kills"] == 6
    assert figures["during_the_work"] >= 2
    assert figures["resumed"] == 5  # all but the server


@pytest.mark.slow
@pytest.mark.all
def test_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database part; Ray is tested in `cluster/`."""
    binaries()
    target = tmp_path / "out.json"
    monkeypatch.setenv("PGPASSWORD", "")  # restored after the script has set it
    monkeypatch.setattr("sys.argv", ["scale.py", "--only", "memory", "--rows", "500", "2000", "--json", str(target)])
    runpy.run_path(str(SCRIPT.with_name("scale.py")), run_name="__main__")
    sizes = json.loads(target.read_text())["memory"]["sizes"]
    assert [size["rows"] for size in sizes] == [500, 2000]
    assert all(size["equal"] and size["postgresql"]["peak_mib"] > 0 for size in sizes)


def test_scale_makes_the_same_rows_as_the_database_and_calculates_a_cluster() -> None:
    script = runpy.run_path(str(SCRIPT.with_name("scale.py")))
    assert script["made_here"](5)["patient"].to_list() == [0, 0, 0, 0, 1]
    rates = {"workers_1": {"rows_per_second": 1000.0}, "scaling": 1.6}
    paper = script["on_paper"]({"encode": rates, "predict": rates})
    assert paper["predict"]["hours"] == pytest.approx(paper["encode"]["hours"] / 4)
    assert paper["encode"]["rows_per_second"] == pytest.approx(1000 * 256 * 0.8)
    assert paper["encode"]["hours"] == pytest.approx(1e9 / (1000 * 256 * 0.8) / 3600)


def test_monitor_counts_what_is_found_and_keeps_other_kinds(tmp_path: Path) -> None:
    room = runpy.run_path(str(SCRIPT.with_name("monitor.py")))
    nothing = room["exact_share"](0, 200)
    assert nothing.low == 0.0 and 0.01 < nothing.high < 0.02
    counts = room["Counts"]()
    counts.add((), False, {"age": 1e-9, "ward": 0.5}, "age")
    counts.add((), False, {"age": 0.04, "ward": 0.5}, "age")
    found = counts.result(True)
    assert [found[name]["share"] for name in ("alarms", "bonferroni", "bonferroni_named", "uncorrected")] == [
        0,
        0.5,
        0.5,
        1,
    ]
    for kind in ("none", "unit"):
        room["add"]({"data": "x", "results": {kind: 1}}, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["rows"]["x"]["results"] == {"none": 1, "unit": 1}


def test_questions_cost_the_same_answers(
    backbones: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = SCRIPT.with_name("questions.py")
    module = runpy.run_path(str(script))
    globals_ = module["cost"].__globals__
    monkeypatch.setitem(globals_, "open_backbone", lambda *_, **__: open_backbone(backbones["llama"], device="cpu"))
    rows = module["cost"](8, 1, None)
    assert [row["records"] for row in rows] == [2, 10, 40]
    assert all(row["questions"] == 8 and row["largest_difference"] < 1e-3 for row in rows)
    assert all(row["tokens_per_answer"] < row["tokens_per_prompt"] for row in rows)
    module["write"]("cost", rows, tmp_path / "out.json")
    module["write"]("other", {}, tmp_path / "out.json")
    assert set(json.loads((tmp_path / "out.json").read_text())) == {"cost", "other"}


def test_what_an_attack_has_finished_is_not_done_again(tmp_path: Path) -> None:
    attack = runpy.run_path(str(SCRIPT), run_name="attack")
    first = attack["Journal"](tmp_path / "attack.jsonl", seed=0)
    done = first.once("tables", 7, lambda: {"commands": []})
    with first.path.open("a") as file:
        file.write('\n{"part": "tables", "it')  # killed here
    for seed, expected in ((0, done), (1, {**done, "seed": 1, "again": True})):
        again = attack["Journal"](first.path, seed=seed)
        assert again.once("tables", 7, lambda: {"commands": [], "again": True}) == expected


@pytest.mark.parametrize(
    ("status", "printed", "end"),
    [
        (0, "", "fine"),
        (3 << 8, "alarm", "fine"),
        (1 << 8, "error: no such file\n  → check the path", "refused"),
        (1 << 8, "something is wrong", "unclear"),
        (1 << 8, "Traceback (most recent call last):\n", "traceback"),
        (11, "", "crash"),
    ],
)
def test_an_attack_tells_how_a_command_ended(status: int, printed: str, end: str) -> None:
    attack = runpy.run_path(str(SCRIPT), run_name="attack")
    assert attack["ended"](status, False, printed) == end
    assert attack["ended"](9, True, printed) == "hang"
