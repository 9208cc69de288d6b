"""Imports point one way: a stage knows only the stages before it, and importing `tefm` costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

import tefm

PACKAGE = Path(tefm.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

BASE = {"errors", "files", "console", "settings"}
#: What each stage may import beside itself. Rooms that are not named here stand on top and may import all but the cli.
MAY_IMPORT = {
    "errors": set(),
    "console": {"errors"},
    "files": {"errors"},
    "settings": {"errors"},
    "records": BASE,
    "codes": BASE | {"records"},
    "datasets": BASE | {"records"},
    "language": BASE | {"records", "codes"},
    "rationale": BASE | {"records", "codes", "language"},
    "baselines": BASE | {"records", "codes", "language"},
}
#: The package itself holds the version, and hands public names out on first use.
OWN = {"__version__"}


def imported(source: str, package: str) -> Iterator[str]:
    """Every module or name of `tefm` that the code imports: at the top, in a function, for types, by a string."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "tefm")
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
            if module.split(".")[0] == "tefm":
                yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            named = node.args[0]
            if isinstance(named, ast.Constant) and str(named.value).split(".")[0] == "tefm":
                yield str(named.value)


def room(name: str) -> str:
    """The first part below `tefm` of a module or name; a public name lives where its module does."""
    parts = name.split(".")
    first = parts[1] if len(parts) > 1 else ""
    return room(tefm._HOME[first]) if first in tefm._HOME else first


def violations(source: str, module: str) -> list[str]:
    """The imports of a module that point the wrong way."""
    here = room(module)
    package = module.rpartition(".")[0]
    wrong = []
    for name in imported(source, package):
        there = room(name)
        if there in OWN or there == here:
            continue
        below = here not in MAY_IMPORT or there in MAY_IMPORT[here]
        if not below or (there == "cli" and here != "__main__"):
            wrong.append(f"{module} imports {name}")
    return wrong


def module_name(path: Path) -> str:
    return ".".join(("tefm", *path.relative_to(PACKAGE).with_suffix("").parts))


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_one_way(path: Path) -> None:
    assert violations(path.read_text(encoding="utf-8"), module_name(path)) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("tefm.records.read", "from tefm.codes.coder import SlotCoder"),
        ("tefm.records.read", "import tefm.codes.coder as coder"),
        ("tefm.records.read", "def later():\n    from tefm.codes import coder"),
        ("tefm.records.read", "from ..codes import coder"),
        ("tefm.records.read", "from tefm import RecordTokenizer"),
        ("tefm.records.read", "from tefm import codes"),
        ("tefm.records.read", "import_module('tefm.codes.coder')"),
        ("tefm.records.read", "if TYPE_CHECKING:\n    from tefm.codes.coder import SlotCoder"),
        ("tefm.datasets.mimic3", "from tefm.codes.coder import SlotCoder"),
        ("tefm.codes.coder", "from tefm.datasets import diabetes130"),
        ("tefm.codes.coder", "from tefm.language.prompts import prompt"),
        ("tefm.language.prompts", "from tefm.rationale.select import select"),
        ("tefm.codes.coder", "from tefm.model import TEFM"),
        ("tefm.files", "from tefm.records.read import open_table"),
        ("tefm.demo", "from tefm.cli import main"),
    ],
)
def test_an_import_the_wrong_way_is_found(module: str, source: str) -> None:
    assert len(violations(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("tefm.codes.coder", "from tefm.records.layout import Layout"),
        ("tefm.codes.coder", "from tefm import __version__, Schema"),
        ("tefm.codes.coder", "from .config import TokenizerConfig"),
        ("tefm.records.read", "import numpy, tefm.files"),
        ("tefm.cli", "from tefm.demo import demo"),
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
        assert getattr(tefm, name).__name__ == name
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
    run(
        """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("polars", "pyarrow", "yaml"):
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Absent())
import numpy as np
from tefm.codes.coder import SlotCoder
from tefm.codes.config import TokenizerConfig
from tefm.records.layout import Layout, Slot

layout = Layout((Slot("size", "number", 4), Slot("kind", "category", 3), Slot("dx", "flag", 1, "428")))
x = np.random.default_rng(0).integers(0, layout.sizes_D + 1, size=(64, 3)).astype(np.uint8)
config = TokenizerConfig(levels=2, entries=4, latent=4, hidden=8, steps=5)
coder = SlotCoder(config, device="cpu").fit(x, layout, labels_N=np.where(np.arange(64) % 3, "a", "b"))
assert coder.decode(coder.encode(x)).shape == x.shape
"""
    )


def test_codes_are_read_from_arrays_without_the_table_libraries() -> None:
    run(
        """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("polars", "pyarrow", "yaml", "lightgbm"):
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Absent())
import tefm.language.reader, tefm.language.metrics, tefm.language.calibrate, tefm.records.phrases
"""
    )
