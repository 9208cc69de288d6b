"""A label that is a time until an event, which was not observed for everyone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import tefm
from conftest import ONLY_PREDICTS, Explained, quick
from support.kept import Kept

from tefm.base.errors import InputError, SchemaError
from tefm.model.estimator import TEFM
from tefm.model.run import fit_frame
from tefm.model.task import Split, Task
from tefm.tables.schema import Schema

SCHEMA = Schema.from_yaml(
    "{record: visit, entity: who, time: day, time_fields: none, fields: {dose: category},"
    " label: {time_to: days_left, observed: died, buckets: 5}}"
)
#: The mean days until the event by dose.
MEANS = {"low": 60.0, "high": 10.0}


def patients(count: int, seed: int = 0, *, censored: bool = True) -> pl.DataFrame:
    """The dose of the last visit decides when the event comes; most of the long times are censored."""
    rng, rows = np.random.default_rng(seed), []
    for who in range(count):
        doses = rng.choice(list(MEANS), int(rng.integers(1, 3))).tolist()
        days, end = rng.exponential(MEANS[doses[-1]]), rng.uniform(5, 60) if censored else np.inf
        rows += [
            (f"p{who}", day, dose, round(min(days, end), 2), "yes" if days <= end else "no")
            for day, dose in enumerate(doses)
        ]
    return pl.DataFrame(rows, schema=["who", "day", "dose", "days_left", "died"], orient="row")


@pytest.fixture(scope="module")
def folder(kept: Kept, backbones: dict[str, Path]) -> Path:
    def make(place: Path) -> None:
        model = quick(backbones["llama"], SCHEMA, **ONLY_PREDICTS)
        fit_frame(model, patients(400), Split(seed=1))
        model.save(place)

    return kept.folder_of("times to an event", make)


@pytest.fixture(scope="module")
def model(folder: Path) -> TEFM:
    return TEFM.load(folder, device="cpu")


def test_times_that_were_not_seen_to_their_end_are_not_taken_as_events(model: TEFM) -> None:
    test = patients(400, seed=2, censored=False)
    dose = test.group_by("who", maintain_order=True).last()["dose"]
    predicted = pl.DataFrame(model.predict_table(test)).with_columns(dose=dose)
    median = {name: predicted.filter(dose=name)["prediction"].median() for name in MEANS}
    early = patients(400).filter(dose="low", died="yes")["days_left"].median()
    assert median["high"] == pytest.approx(np.log(2) * MEANS["high"], rel=0.35)
    assert median["low"] > 1.3 * early, "events that were observed came early"  # type: ignore[operator]


def test_evaluation_has_a_concordance_that_counts_known_orders(model: TEFM) -> None:
    scores = model.evaluate(patients(300, seed=3)).to_dict()
    assert 0.6 < scores["concordance"]["value"] < 0.9
    compared = model.figures_["test"]["compared"]
    assert 0.6 < compared["LightGBM"]["concordance"]["value"] < 0.9
    assert compared["always the median"]["concordance"]["value"] == pytest.approx(0.5)


def test_commands_show_it_and_a_table_to_predict_needs_no_outcome(folder: Path, tmp_path: Path) -> None:
    patients(120, seed=4).write_csv(tmp_path / "test.csv")
    shown = tefm("evaluate", folder, tmp_path / "test.csv", "--device", "cpu").stdout
    assert "concordance" in shown and "mean absolute error" in shown
    page = tmp_path / "report.html"
    tefm("report", folder, tmp_path / "test.csv", "--device", "cpu", "--out", page)
    assert "Without the event" in page.read_text() and "Kaplan–Meier estimate" in page.read_text()
    patients(5).drop("days_left", "died").write_csv(tmp_path / "new.csv")
    assert "prediction" in tefm("predict", folder, tmp_path / "new.csv", "--device", "cpu").stdout
    assert "| concordance |" in (folder / "README.md").read_text()


def test_the_schema_and_the_task(explained: Explained, tmp_path: Path) -> None:
    assert Schema.from_yaml(SCHEMA.to_yaml()) == SCHEMA
    explained(SchemaError, lambda: Schema.from_yaml("{label: {time_to: days}, fields: {x: flag}}"), "observed: died")
    text = "{label: {time_to: days, observed: died}, fields: {died: flag}}"
    explained(SchemaError, lambda: Schema.from_yaml(text), "'died'", "label column")
    patients(30).write_csv(tmp_path / "table.csv")
    text = "{table: table.csv, entity: who, time: day, label: {time_to: days_left, observed: died}}"
    task = Task.from_yaml(text, folder=tmp_path)
    assert [field.name for field in task.schema_for(task.open()).fields] == ["dose"]


def test_an_outcome_is_yes_or_no(model: TEFM, explained: Explained) -> None:
    odd = patients(5).with_columns(died=pl.lit("perhaps"))
    explained(InputError, lambda: model.evaluate(odd), "'perhaps'", "observed is yes or no")
