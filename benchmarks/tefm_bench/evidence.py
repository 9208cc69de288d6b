"""Which stored results are those of today's code, which are older, and which are frozen: `make evidence`.

A result is current if the code that it depends on is unchanged. After a change of structure alone it is current too:
the golden figures (`tests/golden`), which such a change must not move, and the default settings are the same as when it
was measured. What was measured before results carried these marks is older. A frozen result says when it was frozen: it
is kept as it is, on the page of what was measured with earlier code, and measuring it again makes it current.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tefm_bench.table import FROZEN

ROOT = Path(__file__).parents[2]
#: The rooms of the product that figures depend on.
ROOMS = ("codes", "explain", "language", "pipeline", "questions", "rationale", "scoring", "tables", "tabular")
#: The golden figures of models that a test fits; the others are of stored models, or of what is made of these.
FITTED = re.compile(r".*: probabilities|tokenizer.*|free text|many classes|other settings")
#: Digits of a golden figure that count: two fits on one kind of processor differ in later ones.
DIGITS = 5
#: Pages that quote results, the most read first.
QUOTING = ("README.md", "docs/results/index.md", "docs/sequences.md", "docs/results/earlier.md")
#: Where the references of the README are, which has no comments.
README_FIGURES = ROOT / "tests" / "readme_figures.txt"
REFERENCE = re.compile(r"(?:= |figures: |cells = )([\w/]+)(?:;|$)", re.MULTILINE)


# ---- the marks of a measurement -------------------------------------------------------------------------------------


@cache
def marks() -> dict[str, str]:
    """What a measurement carries: a hash of the code, one of how it behaves, and one of the default settings."""
    return {"code": _code(), "golden": _golden(), "defaults": _defaults()}


def is_current(marked: Mapping[str, Any]) -> bool:
    """Whether what carries these marks would be measured again with the same result."""
    now = marks()
    same_behaviour = all(marked.get(name) == now[name] for name in ("golden", "defaults"))
    return marked.get("code") == now["code"] or same_behaviour


def _code() -> str:
    """Comments, docstrings and layout aside."""
    import tefm

    root = Path(tefm.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for room in ROOMS for path in (root / room).rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + _without_words(path.read_text("utf-8")).encode())
    return digest.hexdigest()[:12]


def _without_words(source: str) -> str:
    """The syntax tree of a module without its docstrings.

    >>> _without_words('def f():\\n    "Why."\\n    return 1  # one') == _without_words("def f(): return 1")
    True
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def _golden() -> str:
    """The golden figures of fitted models."""
    stored = json.loads(min((ROOT / "tests" / "golden").glob("*-*.json")).read_text("utf-8"))
    fitted = {name: _rounded(tree) for name, tree in stored.items() if FITTED.fullmatch(name)}
    return _digest(fitted)


def _rounded(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {name: _rounded(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [_rounded(value) for value in tree]
    return round(tree, DIGITS) if isinstance(tree, float) else tree


def _defaults() -> str:
    """The settings of a fit without settings."""
    from tefm.pipeline.config import ModelConfig

    config = ModelConfig()
    stages = (config, config.tokenizer_config, config.tune_config, config.explanations_config, config.rationale_config)
    return _digest([stage.model_dump(mode="json") for stage in stages if stage is not None])


def _digest(tree: Any) -> str:
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:12]


# ---- what is stored, and who quotes it ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """A stored result: how it was made, what it is marked with, and how often each page quotes it."""

    name: str
    command: str
    date: str
    marked: tuple[Mapping[str, Any], ...]
    minutes: float | None
    #: the day on which it was frozen, empty if it was not
    frozen: str
    quoted: Mapping[str, int]

    @property
    def current(self) -> bool:
        return bool(self.marked) and all(map(is_current, self.marked)) and not self.frozen

    @property
    def state(self) -> str:
        return "frozen" if self.frozen else "current" if self.current else "stale"


def stored_results() -> list[Stored]:
    """All results, those that are quoted most first."""
    quotes = {page: quoted_on(page) for page in QUOTING}
    paths = [*(ROOT / "results").glob("*.json"), *(ROOT / "results" / "fresh").glob("*.json")]
    found = [_of_table(path) for path in paths]
    found += [_of_script(path) for path in (ROOT / "benchmarks" / "results").glob("*.json")]
    stored = [
        Stored(**of, quoted={page: count for page, names in quotes.items() if (count := names.count(of["name"]))})
        for of in found
    ]
    return sorted(stored, key=lambda of: ([-of.quoted.get(page, 0) for page in QUOTING], of.name))


def quoted_on(page: str) -> list[str]:
    """The results that a page quotes, once per figure or table."""
    text = README_FIGURES.read_text("utf-8") if page == "README.md" else (ROOT / page).read_text("utf-8")
    return [name for name in REFERENCE.findall(text) if name not in ("not", "refits")]


def _of_table(path: Path) -> dict[str, Any]:
    made = json.loads(path.read_text("utf-8"))["made"]
    return {
        "name": path.relative_to(ROOT / "results").with_suffix("").as_posix(),
        "command": made["Command"].strip("`"),
        "date": made.get("Dates", "older"),
        "marked": tuple(made.get("marks", ())),
        "minutes": made.get("minutes"),
        "frozen": made.get(FROZEN, ""),
    }


def _of_script(path: Path) -> dict[str, Any]:
    body = json.loads(path.read_text("utf-8"))
    # some scripts add rows from several machines
    machines = [body.get("environment", {}), *(row["machine"] for row in body.get("rows", ()) if "machine" in row)]
    return {
        "name": f"benchmarks/{path.stem}",
        "command": f"python benchmarks/{path.stem}.py",
        "date": max((of["date"] for of in machines if "date" in of), default="older"),
        "marked": tuple(of["marks"] for of in machines if "marks" in of),
        "minutes": None,
        "frozen": body.get("frozen", ""),
    }


# ---- the list -------------------------------------------------------------------------------------------------------


def lines_of(stored: Sequence[Stored]) -> Iterator[str]:
    """Per result: whether it is current, when it was measured, how long that took, who quotes it, and the command."""
    for of in stored:
        minutes = "–" if of.minutes is None else f"{of.minutes:.0f} min"
        quoted = ", ".join(f"{page} {count}" for page, count in of.quoted.items()) or "not quoted"
        yield f"{of.state:8}{of.date:12}{minutes:>8}  {of.name:25}{quoted}"
        if not of.frozen:
            yield f"{'':30}{of.command}"


def main() -> None:
    stored = stored_results()
    for line in lines_of(sorted(stored, key=lambda of: (bool(of.frozen), of.current))):
        print(line)
    frozen = [of for of in stored if of.frozen]
    stale = [of for of in stored if of.state == "stale"]
    quoted = sum(bool(of.quoted) for of in stale)
    print(f"{len(stale)} of {len(stored) - len(frozen)} results are older than the code, {quoted} of them quoted")
    print(f"{len(frozen)} are frozen: measured with earlier code, and not again; today: {marks()}")


if __name__ == "__main__":
    main()
