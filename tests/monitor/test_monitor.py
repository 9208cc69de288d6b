"""Monitoring a fitted miniature: planted drifts are found and named, the same distribution raises no more alarms than
it may, and the command line says so in its exit status."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import refused, run, tefm
from conftest import ONLY_PREDICTS, STAYS, Explained, quick, stays
from scipy.stats import binom
from support.kept import Kept

from tefm.base.errors import ArtefactError, InputError, SettingsError
from tefm.base.files import write_manifest
from tefm.model import bundle
from tefm.model.estimator import TEFM
from tefm.monitor.monitor import BatchReport

NEW = stays(400, seed=50)


@pytest.fixture(scope="module")
def model(kept: Kept, backbones: dict[str, Path]) -> TEFM:
    fresh = quick(backbones["llama"], **ONLY_PREDICTS)
    return kept.made("monitored", lambda: fresh.fit(stays(600), validation=stays(900, seed=1)))


@pytest.fixture(scope="module")
def saved(model: TEFM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model.save(tmp_path_factory.mktemp("watch") / "model")


def batch(model: TEFM, table: pl.DataFrame) -> BatchReport:
    (only,) = model.monitor(table).batches
    return only


def every(n: int, value: object, column: str) -> pl.Expr:
    return pl.when(pl.int_range(pl.len()) % n == 0).then(pl.lit(value)).otherwise(pl.col(column)).alias(column)


def test_the_same_distribution_raises_few_alarms(model: TEFM) -> None:
    alarms = sum(model.monitor(stays(120, seed=seed).drop("died")).alarm for seed in range(100, 112))
    assert alarms <= binom.ppf(0.999, 12, 0.05)


def test_a_tiny_batch_does_not_cry_wolf(model: TEFM) -> None:
    alarms = sum(model.monitor(stays(1, seed=seed)).alarm for seed in range(200, 212))
    assert alarms <= binom.ppf(0.999, 12, 0.05)


DRIFTS: dict[str, tuple[str, str | None, str, Callable[[pl.DataFrame], pl.DataFrame]]] = {
    "unit": ("unit", "age", "multiplied by 12", lambda t: t.with_columns(pl.col("age") * 12)),
    "shift": ("shift", "age", "rose", lambda t: t.with_columns((pl.col("age") + 12).clip(20, 89))),
    "category": ("new", "ward", "'brain'", lambda t: t.with_columns(every(20, "brain", "ward"))),
    "missing": ("missing", "ward", "missing", lambda t: t.with_columns(every(5, None, "ward"))),
    "ward": ("shift", "ward", "lung", lambda t: t.with_columns(every(4, "lung", "ward"))),
    "member": ("new", "drugs", "'arsenic'", lambda t: t.with_columns(every(20, "arsenic", "drugs"))),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_a_planted_drift_is_named(model: TEFM, name: str) -> None:
    kind, field, words, plant = DRIFTS[name]
    found = batch(model, plant(NEW).drop("died"))
    assert found.alarm
    strongest = min(found.diagnosis.causes, key=lambda cause: cause.p)
    assert (strongest.kind, strongest.field) == (kind, field), found.sentence
    assert words in strongest.sentence
    assert {cause.field for cause in found.diagnosis.causes} == {field}


def test_medians_are_those_of_the_values(model: TEFM, saved: Path) -> None:
    older = NEW.with_columns((pl.col("age") + 12).clip(20, 89))
    for one in (model, TEFM.load(saved, device="cpu")):
        report = one.monitor(older)
        assert one.reference_ is not None
        now, was = older["age"].median(), one.reference_.whole.medians["age"]
        assert abs(was - stays(900, seed=1)["age"].median()) < 3  # of one record of each sequence
        sentence = report.batches[0].sentence
        assert f", was {was:.6g}" in sentence and abs(float(sentence.split("median ")[1].split(",")[0]) - now) < 3


def label_shift() -> pl.DataFrame:
    """All patients who died, and a third of the others."""
    died = pl.col("died").last().over("patient") == "yes"
    return NEW.filter(died | (pl.col("patient").str.slice(1).cast(pl.Int64) % 3 == 0))


@pytest.mark.parametrize("labelled", [True, False])
def test_a_label_shift_is_named(model: TEFM, labelled: bool) -> None:
    table = label_shift()
    found = batch(model, table if labelled else table.drop("died"))
    assert [cause.kind for cause in found.diagnosis.causes] == ["labels"], found.sentence
    real = table.group_by("patient").agg(pl.col("died").last()).select((pl.col("died") == "yes").mean()).item()
    assert abs(found.answered.class_shares.shares[1] - real) < 0.08


def test_labels_that_mean_something_else_are_another_relation(model: TEFM) -> None:
    """The labels of some patients swapped: records and answers stay as they are."""
    swapped = pl.when(pl.col("patient").str.slice(1).cast(pl.Int64) % 3 == 0).then(
        pl.when(pl.col("died") == "yes").then(pl.lit("no")).otherwise(pl.lit("yes"))
    )
    found = batch(model, NEW.with_columns(swapped.otherwise(pl.col("died")).alias("died")))
    assert [cause.kind for cause in found.diagnosis.causes] == ["relation"], found.sentence
    assert found.answered.scores is not None
    known = model.monitor(NEW).answered.scores
    assert known is not None and found.answered.scores.accuracy.high < known.accuracy.low


def test_other_combinations_show_in_the_codes(model: TEFM) -> None:
    """The columns of drugs and outcome, which belong together, moved against the rest: no field changes by itself."""
    rolled = NEW.with_columns(pl.when(pl.col("age") > 50).then(pl.lit("lung")).otherwise(pl.lit("heart")).alias("ward"))
    found = batch(model, rolled.drop("died"))
    assert "use of codes" in found.diagnosis.consequences or found.diagnosis.causes[0].kind == "combination"


def test_the_figures_of_a_batch(model: TEFM) -> None:
    report = model.monitor(NEW, reference=stays(500, seed=60))
    (only,) = report.batches
    scores = only.answered.scores
    assert scores is not None
    assert scores.to_dict()["accuracy"]["value"] == pytest.approx(model.score(NEW))
    assert only.answered.predicted_shares == tuple(np.bincount(model.fitted.decide(model.predict_proba(NEW))) / 400)
    assert only.records == NEW.height and only.answered.sequences == 400
    assert report.reference != "held-out records at fit time"


def test_batches_by_month_and_an_old_table(model: TEFM) -> None:
    report = model.monitor(NEW.drop("died"), by="month", reference=stays(400, seed=61))
    assert sum(found.records for found in report.batches) == NEW.height
    assert [found.name for found in report.batches] == sorted({day[:7] for day in NEW["day"]})
    assert all(found.answered.scores is None for found in report.batches)
    # a dozen batches, each with 5% false alarms
    assert sum(found.alarm for found in report.batches) <= binom.ppf(0.999, len(report.batches), 0.05)
    later = pl.col("day") >= "2024-06"
    broken = NEW.with_columns(pl.when(later).then(pl.col("age") * 1000).otherwise(pl.col("age")).alias("age"))
    months = {found.name: found for found in model.monitor(broken, by="month").batches if found.records > 30}
    assert all("age" in found.sentence for name, found in months.items() if name >= "2024-06")
    assert not any("age" in found.sentence for name, found in months.items() if name < "2024-06")


def test_the_same_twice(model: TEFM) -> None:
    assert json.dumps(model.monitor(NEW).to_dict()) == json.dumps(model.monitor(NEW).to_dict())


def test_the_reference_comes_back(model: TEFM, saved: Path) -> None:
    again = TEFM.load(saved, device="cpu")
    assert json.dumps(again.monitor(NEW).to_dict()) == json.dumps(model.monitor(NEW).to_dict())
    size = (saved / bundle.REFERENCE).stat().st_size
    assert size < 200_000


def test_the_reference_holds_no_record(saved: Path) -> None:
    from safetensors import safe_open

    with safe_open(saved / bundle.REFERENCE, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert set(arrays) >= {"whole.counts", "whole.effects", "whole.p_SQ", "growing.counts"}
    # per sequence only the answer, the label and a number; all else is counted
    assert {name for name, array in arrays.items() if array.ndim > 1} == {"whole.p_SQ", "growing.p_SQ"}
    assert all(array.shape[1] == 2 for array in arrays.values() if array.ndim > 1)


# ---- a model that cannot be monitored -----------------------------------------------------------------------------


def old_bundle(saved: Path, folder: Path) -> Path:
    """The bundle as an older version wrote it."""
    shutil.copytree(saved, folder)
    (folder / bundle.REFERENCE).unlink()
    write_manifest(folder, bundle.KIND)
    return folder


def test_an_old_bundle_needs_a_reference_table(saved: Path, tmp_path: Path, explained: Explained) -> None:
    old = TEFM.load(old_bundle(saved, tmp_path / "old"), device="cpu")
    explained(InputError, lambda: old.monitor(NEW), "no reference", "--reference")
    usual = stays(900, seed=1)
    alarms = sum(old.monitor(stays(120, seed=s).drop("died"), reference=usual).alarm for s in range(100, 110))
    assert alarms <= binom.ppf(0.999, 10, 0.05)
    changed = DRIFTS["category"][3](NEW).drop("died")
    (found,) = old.monitor(changed, reference=usual).batches
    assert [(cause.kind, cause.field) for cause in found.diagnosis.causes] == [("new", "ward")]


def test_a_damaged_reference_is_refused(saved: Path, tmp_path: Path, explained: Explained) -> None:
    copy = Path(shutil.copytree(saved, tmp_path / "model"))
    (copy / bundle.REFERENCE).write_bytes(b"nothing")
    write_manifest(copy, bundle.KIND)
    explained(ArtefactError, lambda: TEFM.load(copy, device="cpu"), bundle.REFERENCE, "cannot be loaded")


def test_settings_are_checked(model: TEFM, explained: Explained) -> None:
    explained(SettingsError, lambda: model.monitor(NEW, level=2.0), "level", "0.05")
    explained(InputError, lambda: model.monitor(NEW.head(0)), "no rows")
    explained(InputError, lambda: model.monitor(NEW.drop("age")), "age")
    assert model.monitor(NEW.drop("age", "died"), absent=True).alarm


def test_records_without_an_entity(backbones: dict[str, Path]) -> None:
    schema = STAYS.model_copy(update={"entity": None, "time": None})
    table = stays(300).drop("patient", "day")
    single = quick(backbones["llama"], schema, **ONLY_PREDICTS, tune={"steps": 20}).fit(table)
    assert single.reference_ is not None and single.reference_.growing is None
    assert (
        single.monitor(stays(200, seed=70).with_columns(pl.col("age") * 1000)).batches[0].diagnosis.causes[0].kind
        == "unit"
    )


# ---- the command line -----------------------------------------------------------------------------------------------


def test_the_exit_status_tells_a_scheduler(saved: Path, tmp_path: Path) -> None:
    usual, broken = tmp_path / "usual.csv", tmp_path / "broken.csv"
    stays(120, seed=101).write_csv(usual)
    DRIFTS["unit"][3](NEW).write_csv(broken)
    fine = tefm("monitor", saved, usual)
    assert "No alarm." in fine.stdout and "usual.csv" in fine.stdout
    page = tmp_path / "drift.html"
    alarm = run("monitor", saved, broken, "--by", "month", "--html", page, "--json")
    assert alarm.status == 3
    assert alarm.json["alarm"] and {"unit"} <= {c["kind"] for b in alarm.json["batches"] for c in b["causes"]}
    html = page.read_text(encoding="utf-8")
    assert "multiplied by 12" in html and "Alarm in" in html and "<svg" in html
    assert str(tmp_path) not in html
    assert run("monitor", saved, broken).status == 3


def test_errors_have_status_1(saved: Path, tmp_path: Path) -> None:
    usual = tmp_path / "usual.csv"
    stays(30, seed=2).write_csv(usual)
    assert run("monitor", saved, usual, "--by", "year").status == 1
    assert "choose one of day, week, month" in refused("monitor", saved, usual, "--by", "year")
    assert "--html drift.html" in refused("monitor", saved, usual, "--html", "drift.txt")
    old = old_bundle(saved, tmp_path / "old")
    assert "--reference" in refused("monitor", old, usual)
    assert run("monitor", old, usual).status == 1
    assert run("monitor", old, usual, "--reference", usual).status in (0, 3)
