"""User tables: what is read, sampled and split, and that a run is what `tefm fit` would score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import accuracy_score, roc_auc_score
from support.miniatures import miniature
from tefm_bench.data import Sources
from tefm_bench.datasets.set_aside import is_set_aside
from tefm_bench.experiments import Setup
from tefm_bench.mean_differences import mean_differences
from tefm_bench.measurement import Bench
from tefm_bench.table_runs import Difference, predicted_of, scored
from tefm_bench.user_data import OTHER, ROW, UserData, prepared, sampled
from tefm_bench.user_tables import ALL_TABLES, DEMO, EVENTS, HELD_OUT, OUTCOMES, USER_TABLES, write_synthetic

from tefm.base.errors import InputError
from tefm.model.estimator import TEFM
from tefm.model.run import fit_frame
from tefm.scoring.metrics import Predicted, paired_difference

pytestmark = pytest.mark.all


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    write_synthetic(folder)
    return folder


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("bench")
    miniature("llama", folder / "mini")
    return Bench(folder, Sources(folder / "data", quick=True))


@pytest.fixture(scope="module")
def setup(bench: Bench) -> Setup:
    return Setup(splits=(10, 11), backbones=(str(bench.folder / "mini"),), quick=True)


# ---- reading ----------------------------------------------------------------------------------------------------


def test_loans_have_the_first_events_of_undecided_applications_only(folder: Path) -> None:
    frame = USER_TABLES["bpic2012"].read(folder)
    events = pl.read_parquet(folder / "bpic2012" / "events.parquet")
    assert (frame.group_by("application").len()["len"] == EVENTS).all()
    assert not frame["event"].is_in(OUTCOMES).any(), "no event gives the outcome away"
    assert set(frame["application"]) == {case for case in set(events["case:concept:name"]) if int(case) % 4}
    last = dict(
        events.filter(pl.col("concept:name").is_in(OUTCOMES)).select("case:concept:name", "concept:name").rows()
    )
    assert all(last[case] == outcome for case, outcome in frame.select("application", "outcome").rows())
    case = frame.filter(pl.col("application") == "1").sort("time")
    waited = case["minutes since the event before"].to_list()
    assert waited[0] is None and sum(waited[1:]) == (case["time"][-1] - case["time"][0]).total_seconds() / 60


def test_a_patient_has_one_label_in_the_last_admission(folder: Path) -> None:
    for name, label in (("mortality", "outcome"), ("readmission", "readmission")):
        frame = USER_TABLES[f"diabetes130_{name}"].read(folder)
        assert frame[label].count() == frame["patient_nbr"].n_unique() < frame.height
        assert frame.group_by("patient_nbr").last()[label].null_count() == 0


def test_patients_of_the_icu_have_one_label(folder: Path) -> None:
    frame = ALL_TABLES[DEMO].read(folder)
    last = frame.sort("admittime").group_by("subject_id", maintain_order=True).last()
    assert frame["outcome"].count() == frame["subject_id"].n_unique() == last["outcome"].count() < frame.height
    assert set(last["outcome"]) == {"died", "survived"}


def test_what_gives_the_label_away_is_dropped(folder: Path) -> None:
    columns = {name: set(table.read(folder).columns) for name, table in USER_TABLES.items()}
    assert not columns["unsw_nb15"] & {"id", "label"} and "difficulty" not in columns["nsl_kdd"]
    assert not columns["clothing_reviews"] & {"Rating", "Title", "Review Text"}
    for name in ("diabetes130_mortality", "diabetes130_readmission"):
        task = USER_TABLES[name].task_for(0)
        schema = USER_TABLES[name].schema_for(task, pl.DataFrame(), folder)
        inputs = {column for field in schema.fields for column in field.source}
        assert not inputs & {"outcome", "readmission", "readmitted", "discharge_disposition_id"}


def test_readmission_ends_with_the_drawn_admission(folder: Path) -> None:
    frame, whole = (USER_TABLES[f"diabetes130_{name}"].read(folder) for name in ("readmission", "mortality"))
    last = frame.group_by("patient_nbr", maintain_order=True).last()
    assert set(last["outcome"]) == {"survived"} and set(last["readmission"]) == {"yes", "no"}
    assert ((last["readmitted"] == "<30") == (last["readmission"] == "yes")).all()
    kept, everything = ({p: set(g["encounter_id"]) for (p,), g in f.group_by("patient_nbr")} for f in (frame, whole))
    assert any(len(kept[patient]) < len(everything[patient]) for patient in kept)
    for patient, admissions in kept.items():
        assert admissions == set(sorted(everything[patient])[: len(admissions)]), "the first ones, in order"


def test_patients_set_aside_are_only_tested_on(folder: Path, bench: Bench) -> None:
    for name in ("diabetes130_mortality", "diabetes130_readmission", HELD_OUT):
        assert not is_set_aside(ALL_TABLES[name].read(folder)["patient_nbr"]).any()
    data = UserData.open(bench.sources, HELD_OUT, ALL_TABLES[HELD_OUT].task_for(10), None)
    patients = data.records.frame["patient_nbr"].gather(data.records.sequences.last)
    aside = is_set_aside(patients).to_numpy()
    assert aside.any() and set(data.parts[aside]) == {"test"}
    assert (aside[data.parts == "test"] == data.is_other).all()


def test_a_missing_file_is_named(tmp_path: Path, explained: Any) -> None:
    explained(InputError, lambda: USER_TABLES["adult"].read(tmp_path), "adult/adult.parquet", "--data FOLDER")


# ---- sampling and splitting --------------------------------------------------------------------------------------


def test_a_sample_has_whole_sequences_and_depends_on_the_seed(folder: Path) -> None:
    table = USER_TABLES["bpic2012"]
    samples = [sampled(table, folder, table.task_for(seed), 20) for seed in (1, 1, 2)]
    assert samples[0].equals(samples[1]) and not samples[0].equals(samples[2])
    assert (samples[0].group_by("application").len()["len"] == EVENTS).all() and samples[0].height == 20 * EVENTS
    assert table.read(folder)[samples[0][ROW].to_list()].equals(samples[0].drop(ROW, OTHER))
    whole = sampled(table, folder, table.task_for(1), None)
    assert whole.drop(ROW, OTHER).equals(table.read(folder)) and not whole[OTHER].any()


def test_prepared_files_are_all_that_a_measurement_needs(bench: Bench, tmp_path: Path) -> None:
    table, sources = USER_TABLES["nsl_kdd"], bench.sources
    path = prepared(sources, "nsl_kdd", table.task_for(10), 50)
    elsewhere = Sources(tmp_path)
    copy = tmp_path / path.relative_to(sources.folder)
    copy.parent.mkdir(parents=True)
    copy.write_bytes(path.read_bytes())
    here, there = (UserData.open(s, "nsl_kdd", table.task_for(10), 50) for s in (sources, elsewhere))
    assert here.records.frame.equals(there.records.frame) and (here.parts == there.parts).all()
    assert (~here.is_other).sum() == 5 and here.is_other.sum() == 100, "a tenth of the sample, and all other rows"


def test_a_split_by_time_tests_the_last_rows(bench: Bench) -> None:
    task = USER_TABLES["cicids2017_time"].task_for(10)
    data = UserData.open(bench.sources, "cicids2017_time", task, None)
    assert sorted(data.test_rows) == list(range(540, 600))
    assert set(data.training.sequences.rows) == set(range(480))


def test_large_tables_come_first_and_splits_one_after_another(bench: Bench, setup: Setup) -> None:
    runs = [setup.beside_run(table, seed) for seed in (11, 10) for table in ("adult", "nsl_kdd", "icu_1h")]
    for run in runs[:-1]:
        run.prepare(bench)
    order = sorted(runs, key=lambda run: run.turn(bench))
    assert [(run.seed, run.table) for run in order] == [
        (10, "icu_1h"),  # not prepared: its size is not known
        (10, "nsl_kdd"),
        (10, "adult"),
        (11, "icu_1h"),
        (11, "nsl_kdd"),
        (11, "adult"),
    ]
    fit, trees, network = (
        run.turn(bench)[1]
        for run in (runs[0], *(setup.baseline_run("adult", 11, name) for name in ("lightgbm", "gru")))
    )
    assert network < trees < fit


# ---- runs --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_scores_what_a_fit_scores(bench: Bench, setup: Setup) -> None:
    run = setup.model_run("diabetes130_mortality", 10)
    figures = bench.measure(run)
    data = run.open(bench)
    model = TEFM(data.schema, **dict(data.task.model))
    outcome = fit_frame(model, data.own.frame, data.task.split, compare=False)
    assert figures["methods"]["tefm"]["test"]["scores"]["auroc"]["value"] == pytest.approx(
        outcome.test.scores.auroc.value, abs=1e-9
    )
    assert figures["classes"] == list(outcome.classes)
    # tabular models learn from all labels, also from those that the balance leaves out
    assert figures["sequences"] == {**outcome.sequences, "train": int((data.parts == "train").sum())}
    assert figures["sequences"]["train"] > outcome.sequences["train"]
    baseline = bench.measure(setup.baseline_run("diabetes130_mortality", 10, "logistic"))
    assert baseline["tests"] == figures["tests"]
    compared = fit_frame(model, data.own.frame, data.task.split).baselines["logistic"]["test_calibrated"]
    assert baseline["methods"]["logistic"]["test"]["scores"]["auroc"]["value"] == compared["auroc"]["value"]
    stored = predicted_of(baseline, "logistic")
    assert accuracy_score(stored.labels_N, stored.predicted_N) == pytest.approx(compared["accuracy"]["value"])
    assert np.mean(stored.labels_N == stored.positive) < 0.45, "classes are not balanced in the test"


def test_stored_probabilities_of_a_rare_class_keep_their_order() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 50)
    rare = 1e-7 * (1 + rng.random(50) + labels / 2)
    p_SQ = np.stack([1 - rare, rare], axis=1)
    stored = scored(p_SQ, np.zeros(50, np.int64), labels, ("no", "yes"), 1)
    auroc = roc_auc_score(labels, np.array(stored["probabilities"])[:, 1])
    assert auroc == pytest.approx(stored["scores"]["auroc"]["value"], abs=1e-12) and auroc < 1


def test_a_difference_is_the_mean_over_the_seeds(bench: Bench, setup: Setup) -> None:
    runs = {
        model: tuple(setup.baseline_run("nsl_kdd", seed, model) for seed in (10, 11))
        for model in ("logistic", "majority")
    }
    difference = Difference(
        runs=runs["logistic"], method="logistic", reference_runs=runs["majority"], test="other", resamples=50
    )
    measured = bench.measure(difference)
    gains = []
    for one, other in zip(*runs.values(), strict=True):
        figures = [bench.figures(run) for run in (one, other)]
        scores = [f["methods"][run.model]["other"]["scores"] for f, run in zip(figures, (one, other), strict=True)]
        gains.append(scores[0]["auroc"]["value"] - scores[1]["auroc"]["value"])
    assert measured["auroc"]["value"] == pytest.approx(np.mean(gains), abs=1e-9)
    assert measured["auroc"]["low"] < measured["auroc"]["value"] < measured["auroc"]["high"]


def test_testing_the_same_sequences_again_does_not_narrow_an_interval() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200)
    a, b = (rng.random(200) * 0.5 + weight * labels for weight in (0.5, 0.2))
    ours, theirs = (Predicted.of(np.stack([1 - p, p], axis=1), labels) for p in (a, b))
    once = mean_differences(["auroc"], [ours], [theirs], [np.arange(200)])["auroc"]
    alone = paired_difference("auroc", ours, theirs)
    assert once == alone
    same = mean_differences(["auroc"], [ours] * 3, [theirs] * 3, [np.arange(200)] * 3)["auroc"]
    assert (same.low, same.high) == pytest.approx((once.low, once.high))
    others = mean_differences(["auroc"], [ours] * 3, [theirs] * 3, [np.arange(200) + 200 * n for n in range(3)])[
        "auroc"
    ]
    assert others.high - others.low < 0.7 * (once.high - once.low)
