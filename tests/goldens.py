"""Stored figures of small models: where they are, how they are compared, and what is said where there are none.

The figures of a model are a tree of dicts, lists, strings and numbers, as JSON has them. Sums of floats differ between
processors, so there is one file per kind of processor, with one line per tree.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

FOLDER = Path(__file__).parent / "golden"
WRITE = "TEFM_WRITE_GOLDEN"
#: Two fits on one kind of processor differ by less than this.
CLOSE = 1e-6
#: Figures that say how long something took.
TIMES = ("seconds",)
#: What every processor says: names and counts of what is in a table, and what was asked.
SAME_EVERYWHERE = ("classes", "entity", "known", "label", "patient", "question", "records", "sequences")
#: Trees that were not compared with those of the processor at hand.
not_compared: list[str] = []


def this_machine() -> Path:
    """The file of this kind of processor."""
    return FOLDER / f"{platform.machine()}-{torch.backends.cpu.get_cpu_capability().lower()}.json".replace(" ", "-")


def check(name: str, tree: Any, *, elsewhere: float | None = None) -> None:
    """Compare figures with the stored ones of that name, or store them where `TEFM_WRITE_GOLDEN` is set.

    Without a file for this kind of processor, the figures are compared with those of another kind: what is the same on
    every processor, or, with `elsewhere`, the numbers too, which may differ by that much.
    """
    tree = plain(tree)
    path = this_machine()
    if os.environ.get(WRITE):
        stored = json.loads(path.read_text()) if path.exists() else {}
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted({**stored, name: tree}.items()))
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    elif path.exists():
        stored = json.loads(path.read_text())
        assert name in stored, f"{path.name} has no figures of {name!r}: {WRITE}=1 pytest stores them"
        differences = list(compare(tree, stored[name], close=CLOSE))
        assert not differences, "\n".join(differences[:20])
    else:
        not_compared.append(name)
        other = json.loads(min(FOLDER.glob("*-*.json")).read_text())[name]
        differences = list(compare(tree, other, close=elsewhere) if elsewhere is not None else outlines(tree, other))
        assert not differences, "\n".join(differences[:20])


def plain(tree: Any) -> Any:
    """A tree as JSON has it: numbers with nine digits, paths without their folders, and no times."""
    if isinstance(tree, dict):
        return {str(key): plain(value) for key, value in tree.items() if key not in TIMES}
    if isinstance(tree, list | tuple):
        return [plain(value) for value in tree]
    if isinstance(tree, float):
        return float(f"{tree:.9g}") if math.isfinite(tree) else str(tree)
    return re.sub(r"(/[^\s/]+)+/", "", tree) if isinstance(tree, str) else tree


def compare(now: Any, stored: Any, *, close: float, place: str = "") -> Iterator[str]:
    """Where two trees differ: other keys, another string, or a number that is not close."""
    if isinstance(now, dict) and isinstance(stored, dict) and now.keys() == stored.keys():
        for key in now:
            yield from compare(now[key], stored[key], close=close, place=f"{place}.{key}")
    elif isinstance(now, dict) and isinstance(stored, dict):
        yield f"{place}: new keys {sorted(now.keys() - stored.keys())}, gone {sorted(stored.keys() - now.keys())}"
    elif isinstance(now, list) and isinstance(stored, list) and len(now) == len(stored):
        for number, pair in enumerate(zip(now, stored, strict=True)):
            yield from compare(*pair, close=close, place=f"{place}[{number}]")
    elif is_number(now) and is_number(stored):
        if abs(now - stored) > close * max(1, abs(stored)):
            yield f"{place}: {now}, stored {stored}"
    elif now != stored:
        yield f"{place}: {str(now)[:300]}, stored {str(stored)[:300]}"


def outlines(now: Any, stored: Any, place: str = "") -> Iterator[str]:
    """Where two trees have other keys, or say other things that are the same on every processor.

    Lists may be shorter or longer inside of a figure: how many features are found depends on the numbers.
    """
    if isinstance(now, dict) and isinstance(stored, dict):
        if now.keys() != stored.keys():
            yield f"{place}: keys {sorted(now)}, stored {sorted(stored)}"
        for key in now.keys() & stored.keys():
            if key in SAME_EVERYWHERE:
                yield from compare(now[key], stored[key], close=CLOSE, place=f"{place}.{key}")
            else:
                yield from outlines(now[key], stored[key], f"{place}.{key}")
    elif isinstance(now, list) and isinstance(stored, list):
        if not place and len(now) != len(stored):
            yield f"{len(now)} entries, stored {len(stored)}"
        for number, pair in enumerate(zip(now, stored, strict=False)):
            yield from outlines(*pair, f"{place}[{number}]")


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
