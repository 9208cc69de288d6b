"""Fitted miniatures, each fitted once: all workers share them, and so does the next run of the same code.

They are pickled under a lock in pytest's cache, in a folder named after what they depend on. `pytest --cache-clear`
removes them.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl
import sklearn
import torch
import transformers
from filelock import FileLock

Made = TypeVar("Made")

REPOSITORY = Path(__file__).parents[2]


def _sources() -> Iterator[Path]:
    """What a fitted model may depend on: the package, and the tables and settings of the tests."""
    yield from sorted((REPOSITORY / "src" / "tefm").rglob("*.py"))
    yield from sorted((REPOSITORY / "tests").rglob("*.py"))


def fingerprint() -> str:
    """The code, the libraries that compute, and the machine."""
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(str(path.relative_to(REPOSITORY)).encode() + path.read_bytes())
    libraries = [of.__version__ for of in (np, pl, sklearn, torch, transformers)]
    machine = [platform.machine(), torch.backends.cpu.get_cpu_capability(), os.environ.get("OMP_NUM_THREADS", "")]
    digest.update(repr((libraries, machine)).encode())
    return digest.hexdigest()[:16]


class Kept:
    """Where they are stored."""

    def __init__(self, place: Path) -> None:
        self.folder = place / fingerprint()
        self.folder.mkdir(parents=True, exist_ok=True)
        for older in place.iterdir():
            if older != self.folder:
                shutil.rmtree(older, ignore_errors=True)

    def made(self, name: str, make: Callable[[], Made]) -> Made:
        """What `make` returns, from its file where an earlier call has stored it."""
        path = self.folder / f"{name}.pickle"
        with FileLock(path.with_suffix(".lock")):
            if not path.is_file():
                temporary = path.with_suffix(".part")
                temporary.write_bytes(pickle.dumps(make()))
                temporary.replace(path)
        made: Made = pickle.loads(path.read_bytes())
        return made

    def folder_of(self, name: str, make: Callable[[Path], object]) -> Path:
        """A folder that `make` fills once."""
        path = self.folder / name
        with FileLock(path.with_suffix(".lock")):
            if not path.is_dir():
                temporary = path.with_suffix(".part")
                shutil.rmtree(temporary, ignore_errors=True)
                make(temporary)
                temporary.rename(path)
        return path
