"""`tefm_bench text` in miniature: every line runs on the same rows, and the splits are what they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest
from tefm_bench.data import Sources
from tefm_bench.experiments import Setup
from tefm_bench.measurement import Bench
from tefm_bench.tables import TABLES
from tefm_bench.tables.words import TITLES
from tefm_bench.text_runs import LANGUAGE, Line, TextRun
from tefm_bench.text_tables import TEXT_TABLES, parts_of
from tefm_bench.user_data import tables_folder

pytestmark = pytest.mark.all

SMALL: dict[str, Any] = {
    "tune": {"steps": 2, "checks": 1, "batch": 8},
    "codes": {"steps": 20, "hidden": 16, "latent": 8, "levels": 2, "entries": 8},
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("bench")
    return Bench(folder, Sources(folder / "data", {}, quick=True))


def frame_of(bench: Bench, name: str) -> pl.DataFrame:
    return TEXT_TABLES[name].read(tables_folder(bench.sources))


@pytest.mark.parametrize("line", get_args(Line))
def test_every_line_scores_the_same_rows(bench: Bench, backbones: dict[str, Path], line: Line) -> None:
    settings = {**SMALL, "backbone": str(backbones["llama"])} if line in LANGUAGE else {}
    figures = bench.measure(TextRun(table="kev_vendors", seed=10, line=line, settings=settings))
    parts = parts_of(TEXT_TABLES["kev_vendors"], frame_of(bench, "kev_vendors"), 10)
    labels = frame_of(bench, "kev_vendors").filter(pl.Series(parts == "test"))["ransomware"]
    assert figures["labels"] == (labels == "yes").cast(pl.Int64).to_list()
    assert len(figures["probabilities"]) == len(labels) == figures["sequences"]["test"]
    if line in ("lightgbm and text", "logistic and text", "tfidf"):
        assert figures["scores"]["auroc"]["value"] > 0.9  # the name tells the label
    assert ("tokens" in figures) == (line in LANGUAGE)


def test_parts(bench: Bench) -> None:
    frame = frame_of(bench, "kev_time")
    vendors, times = (parts_of(TEXT_TABLES[name], frame, 3) for name in ("kev_vendors", "kev_time"))
    names = ("train", "validation", "test")
    of_part = [set(frame["vendorProject"].filter(pl.Series(vendors == part))) for part in names]
    assert all(of_part) and not (of_part[0] & of_part[1] or of_part[0] & of_part[2] or of_part[1] & of_part[2])
    dates = [frame["dateAdded"].filter(pl.Series(times == part)) for part in names]
    assert dates[0].max() <= dates[1].min() <= dates[1].max() <= dates[2].min()  # type: ignore[operator]
    assert (times == "test").sum() == len(frame) // 10


def test_the_table_needs_every_line() -> None:
    needed: list[Any] = TABLES["text"].needs(Setup(splits=(10,)))
    assert {(run.table, run.line) for run in needed} == {(name, line) for name in TEXT_TABLES for line in TITLES}
    assert set(TITLES) == set(get_args(Line))
    assert TABLES["text"].table(Setup(splits=(10,)), lambda run: None).rows == ()
