"""Which stored results are current, and that pages which quote older ones say so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tefm_bench import evidence
from tefm_bench.evidence import ROOT, Stored, is_current, marks, stored_results

EARLIER = "docs/results/earlier.md"
#: How a page names the results that it quotes and that are older than the code.
OLDER = re.compile(r"older than the code\W+for (.*?)\.(?:\s|$)", re.IGNORECASE | re.DOTALL)


@pytest.fixture(scope="module")
def stored() -> list[Stored]:
    return stored_results()


def test_a_change_of_structure_keeps_a_result_current() -> None:
    assert is_current(marks()) and not is_current({})
    assert is_current({**marks(), "code": "before"}), "the same behaviour and defaults"
    assert not is_current({**marks(), "code": "before", "golden": "other answers"})
    assert not is_current({**marks(), "code": "before", "defaults": "other settings"})


def test_words_are_no_code_and_everything_else_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tefm

    (tmp_path / "codes").mkdir()
    monkeypatch.setattr(tefm, "__file__", str(tmp_path / "__init__.py"))
    hashes = []
    for source in (
        "def f():\n    return 1\n",
        'def f():\n    "Why."\n\n    return 1  # one\n',
        "def f():\n    return 2\n",
    ):
        (tmp_path / "codes" / "module.py").write_text(source)
        hashes.append(evidence._code())
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize("page", ["README.md", "docs/results/index.md"])
def test_what_is_quoted_and_older_than_the_code_is_named(page: str, stored: list[Stored]) -> None:
    said = OLDER.findall((ROOT / page).read_text("utf-8"))
    named = {name for sentence in said for name in re.findall(r"`([\w/]+)`", sentence)}
    quoted = [of for of in stored if page in of.quoted]
    assert len(quoted) > 1
    assert named == {of.name for of in quoted if of.state == "stale"}


@pytest.mark.parametrize("page", ["README.md", "docs/results/index.md", "docs/sequences.md"])
def test_frozen_results_are_quoted_as_such_or_not_at_all(page: str, stored: list[Stored]) -> None:
    assert [of.name for of in stored if of.frozen and page in of.quoted] == []


def test_the_page_of_earlier_code_names_every_frozen_result_and_no_other(stored: list[Stored]) -> None:
    named = set(re.findall(r"`((?:benchmarks/|fresh/)?\w+)\.json`", (ROOT / EARLIER).read_text("utf-8")))
    assert named == {of.name for of in stored if of.frozen}
    assert {of.name for of in stored if EARLIER in of.quoted} <= named


def test_every_quoted_result_is_stored(stored: list[Stored]) -> None:
    known = {of.name for of in stored}
    assert [name for page in evidence.QUOTING for name in evidence.quoted_on(page) if name not in known] == []


def test_the_list_names_state_date_command_and_who_quotes(stored: list[Stored]) -> None:
    of = Stored("tables", "python -m tefm_bench tables", "2026-11-19", (marks(),), 12.4, "", {"README.md": 3})
    old = Stored("shapes", "python -m tefm_bench shapes", "older", (), None, "", {})
    kept = Stored("levels", "python -m tefm_bench levels", "older", (), None, "2026-11-19", {})
    lines = list(evidence.lines_of([of, old, kept]))
    assert lines[0].split()[:5] == ["current", "2026-11-19", "12", "min", "tables"] and "README.md 3" in lines[0]
    assert lines[2].startswith("stale") and "not quoted" in lines[2] and "tefm_bench shapes" in lines[3]
    assert lines[4].startswith("frozen") and len(lines) == 5, "there is nothing to run"
