"""A label that is a number, from inspect to explain: one fit of planted stays, made by the command line, is shared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from commands import refused, tefm
from conftest import QUICK, Explained, quick
from support.kept import Kept

from tefm import TEFM, RecordTokenizer, Schema, Task, open_table, scorers
from tefm.base.errors import ArtefactError, InputError, SettingsError
from tefm.base.files import MANIFEST
from tefm.codes.doctor import examine_table
from tefm.model.report import figures_of
from tefm.show.report_page import report_page
from tefm.tables.grouping import buckets_of
from tefm.tables.infer import infer_schema

CPU = ("--device", "cpu")
NOISE = 2.0
SCHEMA = Schema.from_yaml("{label: {column: days, kind: number}, fields: {dose: number, ward: category}}")


def planted(count: int, seed: int = 0) -> pl.DataFrame:
    """Stays whose length is linear in dose and ward, with a normal error."""
    rng = np.random.default_rng(seed)
    dose, ward = rng.integers(0, 10, count), rng.choice(["a", "b"], count)
    days = np.round(20 + 3 * dose + 10 * (ward == "b") + rng.normal(0, NOISE, count), 2)
    return pl.DataFrame({"dose": dose, "ward": ward, "days": days})


@pytest.fixture(scope="module")
def folder(kept: Kept, backbones: dict[str, Path]) -> Path:
    """What `inspect` and `fit` leave: a table, a schema, a task and a model."""

    def make(folder: Path) -> None:
        folder.mkdir()
        planted(500).write_csv(folder / "stays.csv")
        planted(400, seed=1).write_csv(folder / "new.csv")
        inspected = tefm("inspect", folder / "stays.csv", "--label", "days", "--out", folder / "schema.yaml")
        assert "predicted as a number" in " ".join(inspected.stdout.replace("│", " ").split())
        split = {"shares": [0.6, 0.2, 0.2]}
        body = {"table": "stays.csv", "schema": "schema.yaml", "backbone": str(backbones["llama"]), "split": split}
        (folder / "task.yaml").write_text(json.dumps({**body, **QUICK}))
        outcome = tefm("fit", folder / "task.yaml", "--out", folder / "model", *CPU, "--json").json
        (folder / "outcome.json").write_text(json.dumps(outcome))

    return kept.folder_of("numbers", make)


@pytest.fixture(scope="module")
def model(folder: Path) -> TEFM:
    return TEFM.load(folder / "model", device="cpu")


# ---- what is learned --------------------------------------------------------------------------------------------


def test_inspect_writes_a_number_and_leaves_few_values_as_classes(folder: Path) -> None:
    assert Schema.load(folder / "schema.yaml").number is not None
    few = planted(200).with_columns(days=pl.col("dose"))
    assert infer_schema(few, label="days").number is None
    text = infer_schema(few.with_columns(days=pl.Series([f"d{n}" for n in range(200)])), label="days")
    assert text.number is None


def test_the_planted_truth_is_found(folder: Path, model: TEFM) -> None:
    new = planted(400, seed=1)
    predicted, values = model.predict(new), new["days"].to_numpy()
    assert predicted.dtype == np.float64
    assert np.abs(predicted - values).mean() < 1.5 * NOISE * np.sqrt(2 / np.pi)  # of the noise alone
    outcome = json.loads((folder / "outcome.json").read_text())
    trivial, ours = outcome["baselines"]["median"]["mae"]["value"], outcome["test"]["mae"]["value"]
    assert ours < 0.4 * trivial and outcome["baselines"]["lightgbm"]["mae"]["value"] < 0.4 * trivial
    assert outcome["confusion"] is None and "accuracy" not in outcome["test"]
    assert "mean absolute error" in outcome["verdict"]["sentence"]


def test_predictions_have_median_mean_and_interval_in_the_labels_unit(folder: Path, model: TEFM) -> None:
    new = planted(400, seed=1)
    table = model.predict_table(new)
    assert table.columns[:6] == ["record", "records", "prediction", "mean", "low", "high"]
    assert table.columns[6:] == [f"p({name})" for name in model.classes_]
    assert (table["low"] <= table["prediction"]).all() and (table["prediction"] <= table["high"]).all()
    assert np.array_equal(table["prediction"], model.predict(new))
    told = tefm("predict", folder / "model", folder / "new.csv", "--json", *CPU).json
    assert told[0]["prediction"] == pytest.approx(table["prediction"][0])
    shown = tefm("predict", folder / "model", folder / "new.csv", *CPU).stdout
    assert "prediction" in shown and "high" in shown and "its probability" not in shown


def test_a_loaded_model_predicts_the_same(folder: Path, model: TEFM, tmp_path: Path) -> None:
    again = TEFM.load(model.save(tmp_path / "again"), device="cpu")
    new = planted(30, seed=2)
    assert np.array_equal(again.predict_table(new).to_numpy(), model.predict_table(new).to_numpy())
    assert again.fitted.buckets == model.fitted.buckets and again.preparation.schema.number is not None


def test_a_forged_bundle_is_refused(model: TEFM, tmp_path: Path, explained: Explained) -> None:
    from tefm.base.files import write_manifest

    folder = model.save(tmp_path / "forged")
    body = json.loads((folder / "model.json").read_text())
    kind, codes = (json.loads((folder / MANIFEST).read_text())[name] for name in ("kind", "codes"))
    names = body["buckets"]["names"]
    for name, value in {"names": [*names[1:], names[0]], "upper": body["buckets"]["upper"][::-1]}.items():
        forged = {**body, "buckets": {**body["buckets"], name: value}}
        (folder / "model.json").write_text(json.dumps(forged))
        write_manifest(folder, kind, codes=codes)
        with pytest.raises((ArtefactError, SettingsError)):
            TEFM.load(folder, device="cpu")


# ---- evaluate, explain, report, monitor ----------------------------------------------------------------------------


def test_evaluate_scores_numbers_and_the_interval_holds_its_share(folder: Path, model: TEFM) -> None:
    figures = tefm("evaluate", folder / "model", folder / "new.csv", "--json", *CPU).json
    assert {"mae", "rmse", "pinball", "coverage", "width"} <= set(figures) and "accuracy" not in figures
    assert 0.65 < figures["coverage"]["value"] < 0.95  # 100 validation sequences: ± 0.04 twice
    shown = tefm("evaluate", folder / "model", folder / "new.csv", *CPU).stdout
    assert "mean absolute error" in shown and "accuracy" not in shown
    assert model.score(planted(400, seed=1)) == pytest.approx(-figures["mae"]["value"])


def test_a_metric_of_classes_is_explained(model: TEFM, explained: Explained) -> None:
    explained(SettingsError, lambda: scorers["roc_auc"](model, planted(50, 4)), "auroc", "absolute error")


def test_explanations_are_about_the_median_or_a_threshold(folder: Path, model: TEFM) -> None:
    new = planted(2, seed=5)
    median = model.fitted.buckets.above()  # type: ignore[union-attr]
    assert model.explain(new)[0].classes == median.names
    told = tefm("explain", folder / "model", folder / "new.csv", "--above", "30", "--json", *CPU).json[:20]
    cuts = model.fitted.buckets.above(30)  # type: ignore[union-attr]
    answers = {one["answer"]["says"] for one in told}
    assert answers == set(cuts.names) and "more than" in cuts.names[1]
    p = model.predict_proba(planted(400, seed=1))[0]
    above = sum(p[number] for number, group in enumerate(model.fitted.buckets.groups(cuts)) if group)  # type: ignore[union-attr]
    assert told[0]["answer"]["probabilities"][cuts.names[1]] == pytest.approx(above, abs=1e-6)


def test_a_low_dose_settles_a_short_stay(model: TEFM) -> None:
    (explanation,) = model.explain(pl.DataFrame({"dose": [1], "ward": ["b"], "days": [0.0]}))
    assert explanation.verdict == "settled" and "dose: ≤" in str(explanation)
    assert explanation.answer.says == model.reading().fitted.classes[0]


def test_above_is_for_numbers(fitted: TEFM, explained: Explained) -> None:
    from conftest import stays

    explained(SettingsError, lambda: fitted.explain(stays(3), above=3), "`above` needs a label that is a number")


def test_the_report_says_what_it_shows(folder: Path, model: TEFM) -> None:
    page = report_page(figures_of(model, Task.load(folder / "task.yaml")))
    text = str(page)
    assert "mean absolute error" in text and "always the median" in text and "macro F1" not in text
    card = (folder / "model" / "README.md").read_text()
    assert "| mae |" in card and "| coverage |" in card and "accuracy" not in card


def test_monitor_reads_the_number_as_above_its_median(model: TEFM) -> None:
    same = model.monitor(planted(150, seed=6))
    assert same.classes == model.reading().fitted.classes and not same.alarm and "more than" in same.title
    longer = planted(150, seed=7).with_columns(dose=pl.lit(9))
    assert model.monitor(longer).alarm


def test_the_server_tells_the_number(model: TEFM) -> None:
    from support.serving import client_of

    from tefm.serve.served import Served

    rows = planted(2, seed=8).drop("days").to_dicts()
    with client_of(Served("days", model)) as client:
        told = client.post("/v1/predict", json={"rows": rows}).json()["predictions"]
        explained = client.post("/v1/explain", json={"rows": rows[:1], "above": 30}).json()["explanations"]
    assert [one["number"]["prediction"] for one in told] == pytest.approx(model.predict(planted(2, seed=8)).tolist())
    assert "more than" in " ".join(explained[0]["probabilities"])


# ---- what is refused -----------------------------------------------------------------------------------------------


def fit_of(backbones: dict[str, Path], table: pl.DataFrame, **settings: Any) -> TEFM:
    return quick(backbones["llama"], SCHEMA, **settings).fit(table)


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        (["3.5", "long"] * 20, ("values are not", "'long'", "days", "kind: category")),
        ([1.0, float("inf")] * 20, ("infinite", "days")),
        ([5.0] * 40, ("have 1 different values", "days", "kind: category")),
        ([1, 2] * 20, ("have 2 different values", "kind: category")),
    ],
)
def test_labels_that_are_no_number_are_refused(
    backbones: dict[str, Path], explained: Explained, values: list[Any], parts: tuple[str, ...]
) -> None:
    table = planted(40).with_columns(pl.Series("days", values))
    explained(InputError, lambda: fit_of(backbones, table), *parts)


def test_what_is_for_classes_is_refused(
    backbones: dict[str, Path], folder: Path, tmp_path: Path, explained: Explained
) -> None:
    explained(SettingsError, lambda: fit_of(backbones, planted(40), balance="train"), "`balance` needs classes")
    explained(SettingsError, lambda: fit_of(backbones, planted(40), background="0"), "`background` needs classes")
    shutil.copy(folder / "stays.csv", tmp_path)
    message = refused("evaluate", folder / "model", folder / "stays.csv", "--threshold", "0.3", *CPU)
    assert "a threshold needs a model with two classes" in message


def test_missing_labels_are_left_out(model: TEFM) -> None:
    table = planted(60, seed=9)
    some = table.with_columns(days=pl.when(pl.col("dose") > 2).then("days"))
    figures = model.evaluate(some, resamples=10)
    assert figures.unlabelled == (table["dose"] <= 2).sum() and figures.scores.n + figures.unlabelled == 60


# ---- the schema ----------------------------------------------------------------------------------------------------


def test_a_label_as_a_mapping_goes_through_yaml(explained: Explained) -> None:
    text = "{label: {column: days, kind: number, buckets: 5, interval: 0.9}, fields: {dose: number}}"
    schema = Schema.from_yaml(text)
    assert Schema.from_yaml(schema.to_yaml()) == schema
    assert schema.with_roles(label="other").number is None
    assert Schema.from_yaml("{label: {column: d, kind: category}, fields: {dose: number}}").number is None
    task = Task.from_yaml("{table: stays.csv, label: {column: days, kind: number, buckets: 4}}")
    number = task.schema_for(planted(50)).number
    assert number is not None and number.buckets == 4
    classes = Task.from_yaml("{table: stays.csv, label: {column: days, kind: category}}")
    assert classes.schema_for(planted(50)).number is None
    wrong = "{label: {column: days, kind: ordinal}, fields: {dose: number}}"
    explained(Exception, lambda: Schema.from_yaml(wrong), "not a valid label")  # type: ignore[arg-type]


def test_a_small_table_has_fewer_buckets_and_promises_no_coverage() -> None:
    values = np.arange(45.0)
    assert len(buckets_of(values, SCHEMA).names) == 4 and len(buckets_of(values[:9], SCHEMA).names) == 3
    assert buckets_of(values, SCHEMA).conformal(np.full((3, 4), 0.25), values[:3]).margin is None


def test_codes_alone_learn_the_buckets_of_a_number() -> None:
    tokenizer = RecordTokenizer(levels=1, entries=4, latent=4, hidden=8, steps=5, device="cpu")
    tokenizer.fit(planted(200), SCHEMA)
    assert len(tokenizer.coder.classes_) == 10 and tokenizer.coder.classes_[0].startswith("≤ ")
    assert examine_table(tokenizer, open_table(planted(200))).ceiling is not None
