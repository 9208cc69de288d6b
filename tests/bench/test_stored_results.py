"""The stored results: today's tables find their measurements again by hash and lay them out as they were published."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tefm_bench.data import DATA, Sources
from tefm_bench.experiments import Setup
from tefm_bench.make_tables import laid_out
from tefm_bench.measurement import Bench
from tefm_bench.table import FROZEN, Table
from tefm_bench.tables import TABLES

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
STORED = sorted(path for path in RESULTS.rglob("*.json") if "measurements" not in path.parts)
#: Tables all of whose measurements are in `results/measurements`.
COMPLETE = ("hierarchy", "questions", "reconstruction", "text")
#: Tables with measurements of settings that have changed since they were published.
EARLIER = {
    "alignment", "crossdomain", "heldout", "prediction", "pretraining", "rationalization", "shapes", "smallest",
}  # fmt: skip
#: Tables that have a command; of the others only the figures are kept.
MADE = [path for path in STORED if path == RESULTS / f"{path.stem}.json" and path.stem in TABLES]
#: How many measurements each table needs, and a hash of their names; a change makes stored measurements unfindable.
NEEDED = json.loads((Path(__file__).parent / "needed.json").read_text())


def setup_of(table: Table) -> Setup:
    made, words = table.made, str(table.made["Command"]).strip("`").split()
    only = tuple(words[number + 1] for number, word in enumerate(words) if word == "--only")
    return Setup(tuple(made["data"]), tuple(made["splits"]), tuple(made["backbones"]), made["quick"], only)


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.stem)
def test_a_page_is_its_stored_table(path: Path) -> None:
    assert (ROOT / "docs" / "results" / f"{path.stem}.md").read_text(encoding="utf-8") == Table.load(path).page()


def test_a_table_without_a_command_is_frozen() -> None:
    assert [path.name for path in STORED if path not in MADE and FROZEN not in Table.load(path).made] == []


@pytest.mark.parametrize("name", COMPLETE)
def test_stored_measurements_are_laid_out_as_published(name: str, tmp_path: Path) -> None:
    stored = Table.load(RESULTS / f"{name}.json")
    bench = Bench(RESULTS, Sources(tmp_path))
    table = laid_out(TABLES[name], setup_of(stored), bench, str(stored.made["Command"]).strip("`"))
    frozen = {FROZEN: of for of in [stored.made.get(FROZEN)] if of}
    replace(table, made={**table.made, **frozen}).save(tmp_path / "table.json")
    assert (tmp_path / "table.json").read_bytes() == (RESULTS / f"{name}.json").read_bytes()


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.stem)
def test_what_was_measured_is_what_a_table_needs(path: Path) -> None:
    """The settings of every measurement of a published table are those that the table looks up today."""
    stored = Table.load(path)
    needed = [{"kind": one.KIND, **one.changes} for one in TABLES[stored.name].needs(setup_of(stored))]
    if stored.name not in EARLIER:
        assert [settings for settings in stored.measured if settings not in needed] == []


@pytest.mark.parametrize("name", TABLES)
def test_a_table_needs_the_measurements_that_it_always_needed(name: str) -> None:
    setup = Setup(tuple(DATA), (10, 11, 12), ("smollm2-135m", "models/other"))
    keys = [measurement.key for measurement in TABLES[name].needs(setup)]
    assert [len(keys), hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:16]] == NEEDED[name]
