"""Our figures beside published ones, from stored tables of before and after trees became the default."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tefm_bench.experiments import Setup
from tefm_bench.tables import TABLES, compared

LATER = {"TEFM": "TEFM, language model alone", "TEFM with trees": "TEFM"}


def lines() -> dict[tuple[str, ...], dict[str, float]]:
    table = TABLES["published"].table(Setup(), lambda _: None)
    return {tuple(row.keys.values())[:4]: {name: of.mean for name, of in row.figures.items()} for row in table.rows}


def test_ours_stand_beside_what_was_published() -> None:
    found = lines()
    gru = found[(compared.ICU, "set-a → set-b", "AUROC", "GRU on slots")]
    assert set(gru) == {"ours", "hourly", "published"} and gru["published"] == 0.846
    assert found[("Diabetes130", "not the same data", "accuracy", "LightGBM on slots")]["published"] == 0.8117
    assert not TABLES["published"].needs(Setup()), "it is made without measuring"


def test_tables_with_the_titles_of_before_and_of_today_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = (compared.ICU, "set-a → set-b", "AUROC", "TEFM")
    alone = (*ours[:3], "TEFM, language model alone")
    body = json.loads((compared.RESULTS / "sequences.json").read_text(encoding="utf-8"))
    titles = {row["keys"]["method"] for row in body["rows"]}
    found = lines()
    shutil.copytree(compared.RESULTS, tmp_path / "results", ignore=shutil.ignore_patterns("measurements"))
    names = LATER if "TEFM with trees" in titles else {later: before for before, later in LATER.items()}
    for row in body["rows"]:
        row["keys"]["method"] = names.get(row["keys"]["method"], row["keys"]["method"])
    (tmp_path / "results" / "sequences.json").write_text(json.dumps(body), encoding="utf-8")
    monkeypatch.setattr(compared, "RESULTS", tmp_path / "results")
    again = lines()
    assert {ours, alone} <= set(found)
    assert again == found and found[ours] != found[alone]
