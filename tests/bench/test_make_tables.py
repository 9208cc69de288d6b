"""`tefm bench --quick`: every table end to end, on a miniature backbone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tefm.base.errors import SettingsError
from tefm.bench.experiments import Plan
from tefm.bench.make_tables import Asked, needed
from tefm.bench.table import Table
from tefm.bench.tables import TABLES
from tefm.cli import app

sys.path.append(str(Path(__file__).parents[1] / "language"))
from miniatures import miniature

#: The figures that each table must have measured on the clinical data.
FIGURES = {
    "reconstruction": {"slot_accuracy", "recall", "utilisation", "ceiling"},
    "alignment": {"slot_accuracy", "exact_c", "true"},
    "hierarchy": {"ratio"},
    "prediction": {"tokens", "accuracy", "auroc"},
    "crossdomain": {"tokens", "accuracy"},
    "rationalization": {"accuracy", "agreement", "gain"},
    "pretraining": {"accuracy"},
    "shapes": {"slot_accuracy", "collisions", "aligned", "accuracy"},
    "tokens": {"mean"},
    "smallest": {"passed", "milliseconds", "shuffled"},
    "parts": {"accuracy 5%", "surrogate"},
    "supervision": {"auroc"},
    "levels": {"field_accuracy", "auroc"},
    "buckets": {"slot_accuracy", "auroc"},
    "prompts": {"tokens", "auroc"},
    "starts": {"auroc"},
    "curve": {"auroc"},
}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory, flows: Path) -> list[str]:
    """The command, with everything in one folder."""
    folder = tmp_path_factory.mktemp("bench")
    backbone = miniature("llama", folder / "mini")
    places = ["--runs", str(folder / "runs"), "--out", str(folder / "results")]
    data = ["--data", "diabetes130", "--data", f"cicids2017={flows}"]
    return ["bench", *data, "--backbone", str(backbone), "--seeds", "1", "--quick", *places]


@pytest.mark.slow
def test_every_table(words: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*words, "--html", str(tmp_path / "page.html"), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    body = json.loads(done.stdout)
    reasons = {failure["error"].splitlines()[0] for failure in body["failed"]}
    assert all("TabPFN" in reason for reason in reasons), reasons
    tables = {name: Table.load(Path(file)) for name, file in body["tables"].items()}
    assert set(tables) == set(TABLES) == set(FIGURES)
    for name, table in tables.items():
        found = {figure for row in table.rows for figure in row.figures}
        assert FIGURES[name] <= found, name
        assert table.made["quick"] is True and "torch" in table.made["Versions"]
        assert (
            f"<h2>{table.title}" in (tmp_path / "page.html").read_text()
            or table.title in (tmp_path / "page.html").read_text()
        )
    # once more: nothing is measured again, and the figures are the same
    again = CliRunner().invoke(app, [*words, "prediction", "--json"], catch_exceptions=False)
    assert Table.load(Path(json.loads(again.stdout)["tables"]["prediction"])).rows == tables["prediction"].rows


def test_what_was_not_measured_is_left_out_and_the_paper_stands_alone(words: list[str], tmp_path: Path) -> None:
    places = ["--runs", str(tmp_path), "--out", str(tmp_path / "results"), "--markdown", str(tmp_path / "pages")]
    done = CliRunner().invoke(app, [*words, "prediction", *places, "--no-measure"], catch_exceptions=False)
    assert "Qwen3-8B on codes" in done.stdout and "(paper 0.824)" in done.stdout
    assert "majority" not in done.stdout, "nothing is known about it"
    page = (tmp_path / "pages" / "prediction.md").read_text()
    assert page.startswith("# Prediction\n") and "| Diabetes130 | Qwen3-8B on codes | – | – | 35.0 |" in page
    assert "tefm bench prediction --data diabetes130 --data cicids2017=flows.parquet --seeds 1 --quick" in page


def test_tables_share_measurements() -> None:
    plan = Plan()
    asked = {name: {one.key for one in needed(name, plan)} for name in TABLES}
    assert asked["hierarchy"] <= asked["reconstruction"]
    assert asked["prediction"] & asked["supervision"]
    assert asked["alignment"] & asked["curve"] & asked["pretraining"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((["predictions"], []), "prediction"),
        (([], ["diabetes"]), "diabetes130"),
        (([], ["mimic3=/no/such/folder"]), "/no/such/folder"),
    ],
)
def test_what_cannot_be_asked_for(given: tuple[list[str], list[str]], said: str) -> None:
    with pytest.raises(Exception, match=said):
        Asked.of(*given, [], seeds="3", quick=True)
    with pytest.raises(SettingsError):
        Asked.of([], [], [], seeds="0", quick=True)


def test_prepare_makes_the_arrays_alone(words: list[str], tmp_path: Path) -> None:
    place = ["--runs", str(tmp_path), "--out", str(tmp_path / "results")]
    done = CliRunner().invoke(app, [*words, "tokens", "hierarchy", *place, "--prepare"], catch_exceptions=False)
    assert done.exit_code == 0
    assert sorted(path.suffix for path in (tmp_path / "quick" / "data").iterdir()) == [".npz", ".npz"]
    assert not (tmp_path / "quick" / "done").exists() and not (tmp_path / "results").exists()
