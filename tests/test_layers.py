"""Imports point one way: a stage knows only the stages before it, and importing `tefm` costs nothing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path

import pytest

import tefm

PACKAGE = Path(tefm.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

#: Every room of the house, from the ground up; a room imports from rooms before it only.
FLOORS = (
    "base",
    "scoring",
    "tables",
    "datasets",
    "tabular",
    "codes",
    "language",
    "rationale",
    "explain",
    "questions",
    "show",
    "pipeline",
    "monitor",
    "model",
    "mlflow",
    "cluster",
    "serve",
    "cli",
)
#: Beside the order, what a room has no business with.
NEVER = {room: {"datasets"} for room in ("tabular", "codes", "language", "rationale", "explain")}
#: The packages that imports are followed to; the product imports nothing of the benchmarks.
OURS = ("tefm", "tefm_bench")


def imported(source: str, package: str) -> Iterator[str]:
    """Every module or name of `tefm` that the code imports: at the top, in a function, for types, by a string."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in OURS)
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
            if module.split(".")[0] in OURS:
                yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            named = node.args[0]
            if isinstance(named, ast.Constant) and str(named.value).split(".")[0] in OURS:
                yield str(named.value)


def room(name: str) -> str:
    """The first part below `tefm` of a module or name; a public name lives where its module does."""
    parts = name.split(".")
    if parts[0] != "tefm":
        return parts[0]
    first = parts[1] if len(parts) > 1 else ""
    return room(tefm._HOME[first]) if first in tefm._HOME else first


def violations(source: str, module: str) -> list[str]:
    """The imports of a module that point the wrong way."""
    here = room(module)
    if here in ("__init__", "__main__"):
        return []
    allowed = set(FLOORS[: FLOORS.index(here)]) | {here}
    allowed -= NEVER.get(here, set())
    package = module.rpartition(".")[0]
    return [f"{module} imports {name}" for name in imported(source, package) if room(name) not in allowed]


def circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """Groups of modules that import each other, however far around."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for target in edges.get(waiting.pop(), set()) - seen:
                seen.add(target)
                waiting.append(target)
        return seen

    reach = {name: reached(name) for name in edges}
    groups = {frozenset(other for other in reach[name] if name in reach.get(other, set())) for name in edges}
    return [set(group) for group in groups if group]


def file_imports(path: Path) -> set[str]:
    """The files of the package that a file imports, in functions and for types too."""
    package = ".".join(("tefm", *path.relative_to(PACKAGE).parts[:-1]))
    files = {module_name(other) for other in MODULES}
    found = set()
    for name in imported(path.read_text(encoding="utf-8"), package):
        home = tefm._HOME.get(name.removeprefix("tefm."), name)
        for candidate in (home, home.rpartition(".")[0], f"{home}.__init__"):
            if candidate in files:
                found.add(candidate)
                break
    return found - {module_name(path)}


def module_name(path: Path) -> str:
    return ".".join(("tefm", *path.relative_to(PACKAGE).with_suffix("").parts))


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_one_way(path: Path) -> None:
    assert violations(path.read_text(encoding="utf-8"), module_name(path)) == []


def test_every_room_has_a_floor() -> None:
    rooms = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES}
    assert rooms - {"__init__", "__main__"} == set(FLOORS)


def test_nothing_imports_in_a_circle() -> None:
    assert circles({module_name(path): file_imports(path) for path in MODULES}) == []


def test_a_circle_is_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert circles(edges) == [{"a", "b", "c"}]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("tefm.tables.readers.table", "from tefm.codes.coder import SlotCoder"),
        ("tefm.tables.readers.table", "import tefm.codes.coder as coder"),
        ("tefm.tables.readers.table", "def later():\n    from tefm.codes import coder"),
        ("tefm.tables.infer", "from ..codes import coder"),
        ("tefm.tables.readers.table", "from tefm import RecordTokenizer"),
        ("tefm.tables.readers.table", "from tefm import codes"),
        ("tefm.tables.readers.table", "from tefm import __version__"),
        ("tefm.tables.readers.table", "import_module('tefm.codes.coder')"),
        ("tefm.tables.readers.table", "if TYPE_CHECKING:\n    from tefm.codes.coder import SlotCoder"),
        ("tefm.datasets.diabetes130", "from tefm.codes.coder import SlotCoder"),
        ("tefm.codes.coder", "from tefm.datasets import diabetes130"),
        ("tefm.codes.coder", "from tefm.language.prompts import prompt"),
        ("tefm.language.prompts", "from tefm.rationale.masked_model import top_k"),
        ("tefm.rationale.verify", "from tefm_bench.attribution import by_shap"),
        ("tefm.pipeline.fit", "from tefm.model.estimator import TEFM"),
        ("tefm.model.report", "from tefm_bench.page import bench_page"),
        ("tefm.codes.coder", "from tefm.model.estimator import TEFM"),
        ("tefm.base.files", "from tefm.tables.readers.table import open_table"),
        ("tefm.serve.routes", "from tefm.cli import main"),
    ],
)
def test_an_import_the_wrong_way_is_found(module: str, source: str) -> None:
    assert len(violations(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("tefm.codes.coder", "from tefm.tables.layout import Layout"),
        ("tefm.codes.coder", "from tefm import Schema"),
        ("tefm.codes.coder", "from tefm.base import __version__"),
        ("tefm.codes.coder", "from .config import TokenizerConfig"),
        ("tefm.tables.readers.table", "import numpy, tefm.base.files"),
        ("tefm.cli", "from tefm.cli.story import demo"),
        ("tefm.__main__", "from tefm.cli import main"),
    ],
)
def test_an_import_the_right_way_is_not(module: str, source: str) -> None:
    assert violations(source, module) == []


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_public_name_has_its_home() -> None:
    assert sorted(tefm._HOME) == sorted(tefm.__all__)
    for name in tefm.__all__:
        assert getattr(tefm, name) is getattr(import_module(tefm._HOME[name]), name)
    with pytest.raises(AttributeError, match="RecordTokeniser"):
        _ = tefm.RecordTokeniser


def test_importing_tefm_brings_nothing_heavy() -> None:
    run(
        """
import sys, tefm
heavy = {"torch", "polars", "pyarrow", "sklearn", "numpy", "pydantic"} & set(sys.modules)
assert not heavy, heavy
"""
    )


def test_codes_are_learned_from_arrays_without_the_table_libraries() -> None:
    """The rooms of codes and of the language model need no table; nor does the latter need LightGBM."""
    run(
        """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("polars", "pyarrow", "yaml", "lightgbm"):
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Absent())
import numpy as np
import tefm.language.classifier, tefm.scoring.metrics, tefm.scoring.calibration, tefm.tables.phrases
from tefm.codes.coder import SlotCoder
from tefm.codes.config import TokenizerConfig
from tefm.tables.layout import Layout, Slot

layout = Layout((Slot("size", "number", 4), Slot("kind", "category", 3), Slot("dx", "flag", 1, "428")))
x = np.random.default_rng(0).integers(0, layout.sizes_D + 1, size=(64, 3)).astype(np.uint8)
config = TokenizerConfig(levels=2, entries=4, latent=4, hidden=8, steps=5)
coder = SlotCoder(config, device="cpu").fit(x, layout, labels_N=np.where(np.arange(64) % 3, "a", "b"))
assert coder.decode(coder.encode(x)).shape == x.shape
"""
    )


def test_the_map_of_the_house_is_true() -> None:
    """Every room is described, in the order of the floors, and every file that the page names exists."""
    page = (PACKAGE.parents[1] / "docs" / "concepts.md").read_text(encoding="utf-8")
    house = page[page.index("## The house") :]
    table = house[house.index("| room |") : house.index("One record's way")]
    named = [name for row in table.strip().splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert [name for name in FLOORS if name in named] == named and set(named) == set(FLOORS)
    files = re.findall(r"`([a-z0-9_]+/[a-z0-9_/]*(?:\.py)?)`", house)
    assert len(files) > 30
    missing = [name for name in files if not any((root / name).exists() for root in (PACKAGE, PACKAGE.parents[1]))]
    assert missing == []
