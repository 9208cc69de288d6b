"""`TEFM` end to end: every family learns, comes back from disk, repeats itself, and refuses what it cannot do."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import QUICK, STAYS, Explained, quick, stays
from rich.console import Console, Group
from support.miniatures import FAMILIES

from tefm.base.errors import InputError, NotFittedError, SchemaError, SettingsError
from tefm.codes.coder import SlotCoder
from tefm.model.estimator import TEFM
from tefm.model.report import figures_of
from tefm.pipeline import stages
from tefm.pipeline.data import Lesson, lesson_of
from tefm.show.terminal import evaluation_tables
from tefm.tables.schema import Schema

TRAINING, HELD_OUT = stays(200), stays(80, seed=1)
PATIENTS = HELD_OUT["patient"].n_unique()
#: with a tokenizer that is there already, a fit of one step is for what happens around the training
ONE_STEP: dict[str, Any] = {"tune": {"steps": 1}}


def around(fitted: TEFM, schema: Schema = STAYS, **settings: Any) -> TEFM:
    """A model that reads the codes of a fitted one."""
    return quick(Path(fitted.config.backbone), schema, tokenizer=fitted.tokenizer_, **{**ONE_STEP, **settings})


def check_probabilities(p_SQ: np.ndarray, sequences: int = PATIENTS, classes: int = 2) -> None:
    assert p_SQ.shape == (sequences, classes)
    assert (p_SQ >= 0).all()
    np.testing.assert_allclose(p_SQ.sum(axis=1), 1)


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """No stage may begin."""

    def refuse(*given: Any, **settings: Any) -> None:
        raise AssertionError("a stage has begun")

    monkeypatch.setattr(SlotCoder, "fit", refuse)
    monkeypatch.setattr(stages, "lesson_of", refuse)


# ---- it learns ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_learns_and_comes_back_from_disk(
    family: str, fitted: TEFM, backbones: dict[str, Path], tmp_path: Path
) -> None:
    tune = {"learning_rate": 3e-3, "least": 40, "epochs": 2}
    model = quick(backbones[family], tune=tune, tokenizer=fitted.tokenizer_).fit(TRAINING)
    p_SQ = model.predict_proba(HELD_OUT)
    check_probabilities(p_SQ)
    found = model.evaluate(HELD_OUT, resamples=20)
    assert found.scores.n == PATIENTS
    assert found.scores.auroc.value > 0.9
    assert found.tokens_mean < 12
    again = TEFM.load(model.save(tmp_path / "model"), device="cpu")
    assert np.array_equal(again.predict_proba(HELD_OUT), p_SQ)
    assert again.predict(HELD_OUT).tolist() == model.predict(HELD_OUT).tolist()


def test_four_classes_that_begin_alike(fitted: TEFM, backbones: dict[str, Path], tmp_path: Path) -> None:
    def wards(table: pl.DataFrame) -> pl.DataFrame:
        """The class says how the ward and the end go together."""
        kind = pl.concat_str(pl.lit("ward-"), pl.col("ward").eq("heart").cast(pl.Int8), "died")
        return table.with_columns(died=pl.when(pl.col("ward").is_not_null()).then(kind))

    model = quick(backbones["llama"], tune={"learning_rate": 5e-3, "least": 80}).fit(wards(TRAINING))
    assert model.fitted.classes == ("ward-0no", "ward-0yes", "ward-1no", "ward-1yes")
    assert len(set(model.fitted.classifier.writer.first_tokens)) == 4
    check_probabilities(model.predict_proba(HELD_OUT), classes=4)
    found = model.evaluate(wards(HELD_OUT), resamples=20)
    assert found.scores.auroc.value > 0.85
    again = TEFM.load(model.save(tmp_path / "model"), device="cpu")
    assert np.array_equal(again.predict_proba(HELD_OUT), model.predict_proba(HELD_OUT))


def test_alignment_comes_before_tuning(fitted: TEFM, tmp_path: Path) -> None:
    model = around(fitted, align={"steps": 3, "batch": 8}).fit(TRAINING)
    assert model.fitted.history["align"].stopped_at == 3
    again = TEFM.load(model.save(tmp_path / "model"), device="cpu")
    assert again.fitted.history["align"].stopped_at == 3


def test_a_tokenizer_folder_is_as_good_as_a_tokenizer(fitted: TEFM, tmp_path: Path) -> None:
    given = around(fitted).fit(TRAINING)
    folder = fitted.tokenizer_.save(tmp_path / "tokenizer")
    loaded = quick(Path(fitted.config.backbone), tokenizer=folder, **ONE_STEP).fit(TRAINING)
    assert np.array_equal(given.predict_proba(HELD_OUT), loaded.predict_proba(HELD_OUT))


def test_a_tokenizer_that_encodes_the_label_is_refused(fitted: TEFM, tmp_path: Path, explained: Explained) -> None:
    """The label of the new task is a field of the tokenizer: its codes would give the answer away."""
    schema = Schema.from_yaml("{entity: patient, time: day, label: ward, fields: {age: number}}")
    folder = fitted.tokenizer_.save(tmp_path / "tokenizer")
    for tokenizer in (fitted.tokenizer_, folder):
        model = quick(Path(fitted.config.backbone), schema, tokenizer=tokenizer, **ONE_STEP)
        explained(InputError, lambda model=model: model.fit(TRAINING), "'ward'", "tokenizer", "without this field")


def test_a_label_that_is_also_a_field_is_refused(backbones: dict[str, Path], explained: Explained) -> None:
    copied = STAYS.model_copy(update={"label": "ward"})  # pydantic checks nothing here
    explained(SchemaError, lambda: quick(backbones["llama"], copied).fit(TRAINING), "'ward'", "used twice")
    table = TRAINING.rename({"ward": "label"})  # the column that y is put into
    schema = Schema.from_yaml("{entity: patient, time: day, fields: {age: number, label: category}}")
    fit = quick(backbones["llama"], schema).fit
    explained(SchemaError, lambda: fit(table, TRAINING["died"].to_list()), "'label'", "used twice")


def test_unsupervised_codes_never_see_the_label(backbones: dict[str, Path]) -> None:
    codes = {"levels": 1, "entries": 4, "latent": 4, "hidden": 8, "steps": 20}

    def identity(table: pl.DataFrame) -> str:
        model = quick(backbones["llama"], codes=codes, task_aware=False, **ONE_STEP)
        tokenizer = model.fit(table, validation=HELD_OUT).tokenizer_
        assert not tokenizer.coder.classes_
        return tokenizer.coder.identity

    other = TRAINING.with_columns(pl.col("died").replace_strict({"yes": "no", "no": "yes"}))
    assert identity(TRAINING) == identity(other)


# ---- the same again -------------------------------------------------------------------------------------------------


def test_one_seed_gives_one_model(fitted: TEFM, fitted_again: TEFM, backbones: dict[str, Path]) -> None:
    same, other = fitted_again, quick(backbones["llama"], seed=1).fit(TRAINING)
    assert np.array_equal(same.tokenizer_.encode(HELD_OUT), fitted.tokenizer_.encode(HELD_OUT))
    assert np.array_equal(same.predict_proba(HELD_OUT), fitted.predict_proba(HELD_OUT))
    assert not np.array_equal(other.tokenizer_.encode(HELD_OUT), fitted.tokenizer_.encode(HELD_OUT))
    assert not np.allclose(other.predict_proba(HELD_OUT), fitted.predict_proba(HELD_OUT), atol=1e-6)


# ---- what a sequence is ---------------------------------------------------------------------------------------------


def test_windows_with_a_background(backbones: dict[str, Path]) -> None:
    """A window has the label of its first record that is not like the others."""

    def rare(table: pl.DataFrame) -> pl.DataFrame:
        return table.filter((pl.col("died") == "no") | (pl.int_range(pl.len()) % 4 == 0))

    flows = rare(stays(500))
    model = quick(backbones["qwen3"], window=5, background="no").fit(flows)
    table = rare(stays(150, seed=1)).head(103)
    found = model.evaluate(table, resamples=20)
    assert found.scores.n == 20  # the last three records are no whole window
    assert found.scores.auroc.value > 0.9
    said = model.predict_table(table)
    assert said.columns == ["segment", "records", "predicted", "p(no)", "p(yes)"]
    assert said["segment"][:2].to_list() == [0, 1]
    assert said["records"].to_list() == [5] * 20 + [3]
    assert found.tokens_mean > 12


@pytest.mark.parametrize(
    ("balance", "trained", "judged"), [("none", False, False), ("train", True, False), ("all", True, True)]
)
def test_balance(balance: str, trained: bool, judged: bool, fitted: TEFM, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []

    def spied(*given: Any, **settings: Any) -> Lesson:
        lesson = lesson_of(*given, **settings)
        seen.append(np.bincount(lesson.labels_S))
        return lesson

    monkeypatch.setattr(stages, "lesson_of", spied)
    # without a teacher, the sequences that the balance leaves out are not learned from
    model = around(fitted, balance=balance, tune={**QUICK["tune"], "label_share": 1.0}).fit(TRAINING)
    assert (seen[0][0] == seen[0][1]) == trained
    last = HELD_OUT.group_by("patient").agg(pl.col("died").sort_by("day").last())
    deaths = (last["died"] == "yes").sum()
    expected = 2 * min(deaths, PATIENTS - deaths) if judged else PATIENTS
    assert model.evaluate(HELD_OUT, resamples=20).scores.n == expected
    assert len(model.predict_proba(HELD_OUT)) == PATIENTS


def rare_deaths(patients: int, seed: int = 0) -> pl.DataFrame:
    """Stays of which about one patient in eight dies; no class has a word that says it is positive."""
    frame, keep = stays(patients, seed), np.random.default_rng(seed).random(patients) < 0.2
    last = frame.group_by("patient", maintain_order=True).agg(pl.col("died").last())
    died = set(last.filter(pl.col("died") == "yes")["patient"])
    number = pl.col("patient").str.slice(1).cast(pl.Int64)
    kept = [patient for patient in range(patients) if f"p{patient}" not in died or keep[patient]]
    names = {"yes": "Expired", "no": "Alive"}
    return frame.filter(number.is_in(kept)).with_columns(pl.col("died").replace_strict(names))


@pytest.mark.parametrize("balance", ["none", "train", "all"])
def test_the_rarer_class_before_balancing_is_the_positive_one(balance: str) -> None:
    """After balancing there is a tie, which the order of the names would decide."""
    held_out = rare_deaths(200, seed=1)
    data = TEFM(STAYS, balance=balance).prepared(rare_deaths(300), validation=held_out).given.data
    assert data.classes == ("Alive", "Expired")
    assert data.classes[data.positive] == "Expired"
    natural = data.shares[1]
    assert (natural == 0.5) if balance == "all" else (0.05 < natural < 0.2)
    assert (data.trained_shares == (0.5, 0.5)) == (balance != "none")
    validation = np.bincount(data.validation.labels_S)
    assert (validation[0] == validation[1]) == (balance == "all")
    if balance == "train":
        assert data.stopping is not None
        stopping = np.bincount(data.validation.labels_S[data.stopping])
        assert stopping[0] == stopping[1] == validation[1]
    else:
        assert data.stopping is None


def test_balanced_training_gives_the_probabilities_of_the_table(fitted: TEFM) -> None:
    table, other = rare_deaths(400), rare_deaths(400, seed=1)
    model = around(fitted, balance="train", tune={"learning_rate": 3e-3, "steps": 30}).fit(table, validation=other)
    share = model.fitted.shares[1]
    assert model.fitted.calibration.rule == "f1" and 0.05 < share < 0.2
    assert model.predict_proba(rare_deaths(300, seed=2))[:, 1].mean() == pytest.approx(share, abs=0.06)


def test_costs_are_those_of_the_classes(fitted: TEFM, explained: Explained, no_training: None) -> None:
    explained(
        SettingsError,
        lambda: around(fitted, decision={"cost": {"yes": 20, "nope": 1}}).fit(TRAINING),
        "'no'",
        "no, yes",
    )


def test_a_decision_by_cost(fitted: TEFM, tmp_path: Path) -> None:
    model = around(fitted, decision={"cost": {"yes": 20, "no": 1}}).fit(TRAINING)
    assert model.fitted.calibration.threshold == pytest.approx(1 / 21)
    again = TEFM.load(model.save(tmp_path / "model"), device="cpu")
    assert again.fitted.calibration == model.fitted.calibration
    assert again.fitted.shares == model.fitted.shares
    assert again.config.decision == {"cost": {"yes": 20, "no": 1}}


# ---- what is asked --------------------------------------------------------------------------------------------------


def test_the_class_that_is_asked_for(fitted: TEFM, explained: Explained) -> None:
    assert fitted.classes_[fitted.fitted.positive] == "yes"
    model = around(fitted, positive="no").fit(TRAINING)
    assert model.classes_[model.fitted.positive] == model.classes_[model.fitted.calibration.positive] == "no"
    explained(SettingsError, lambda: around(fitted, positive="yess").fit(TRAINING), "'yess'", "'yes'")


def prompts(model: TEFM) -> list[str]:
    read = model.fitted.codes(model.preparation.slots(model.preparation.to_predict(HELD_OUT)))
    return [model.fitted.classifier.backbone.tokenizer.decode(ids) for ids in model.fitted.classifier.prompts(read)]


def test_a_prompt_of_ones_own(fitted: TEFM) -> None:
    prompt = {"message": "{count} stay(s): {records}. Alive?", "answers": {"yes": "Dead", "no": "Well"}, "chat": True}
    model = around(fitted, prompt=prompt).fit(TRAINING)
    tokenizer, writer = model.fitted.classifier.backbone.tokenizer, model.fitted.classifier.writer
    assert [tokenizer.decode(ids) for ids in writer.answers] == ["Well<|im_end|>", "Dead<|im_end|>"]
    lengths = HELD_OUT.group_by("patient", maintain_order=True).len()["len"]
    for shown, length in zip(prompts(model), lengths, strict=True):
        assert shown.startswith(f"<|im_start|>user\n{length} stay(s): <|")
        assert shown.endswith(". Alive?<|im_end|>\n<|im_start|>assistant\n")


def test_free_text_is_read(fitted: TEFM, explained: Explained) -> None:
    schema = STAYS.model_copy(update={"text": ("note",), "ignore": ()})
    model = around(fitted, schema).fit(TRAINING)
    notes = HELD_OUT.group_by("patient", maintain_order=True).agg(pl.col("note").sort_by("day").last())["note"]
    for shown, note in zip(prompts(model), notes, strict=True):
        assert ("slept well" in shown) == (note is not None)
    shouting = HELD_OUT.with_columns(note=pl.lit("awake all night"))
    assert not np.allclose(model.predict_proba(shouting), model.predict_proba(HELD_OUT))
    explained(InputError, lambda: model.predict_proba(HELD_OUT.drop("note")), "'note'")


# ---- settings -------------------------------------------------------------------------------------------------------


def test_settings_make_a_round_trip(fitted: TEFM) -> None:
    params = fitted.get_params()
    assert TEFM(**params).get_params() == params
    model = TEFM().set_params(**params)
    assert model.get_params() == params
    assert model.set_params(seed=5, device=None).get_params() == {**params, "seed": 5, "device": None}


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"tune": {"learning_rat": 1}}, ["'learning_rat'", "'learning_rate'"]),
        ({"tune": {"preset": "papers"}}, ["preset", "paper"]),
        ({"codes": {"levels": 0}}, ["levels"]),
        ({"codes": {"entrys": 8}}, ["'entrys'", "'entries'"]),
        ({"align": {"stesp": 2}}, ["'stesp'", "'steps'"]),
    ],
)
def test_settings_of_any_stage_are_checked_before_the_first_one(
    settings: dict[str, Any], parts: list[str], explained: Explained
) -> None:
    explained(SettingsError, lambda: TEFM(STAYS, **settings).fit(TRAINING), *parts)
    explained(SettingsError, lambda: TEFM(STAYS).set_params(**settings).fit(TRAINING), *parts)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"prompt": "mortalty"}, ["'mortalty'", "'mortality'"]),
        ({"prompt": {"mesage": "{records}"}}, ["'mesage'", "'message'"]),
        ({"prompt": {"message": "no codes"}}, ["{records}"]),
        ({"positive": "ye"}, ["'ye'", "'yes'"]),
    ],
)
def test_what_is_asked_is_checked_before_any_training(
    settings: dict[str, Any], parts: list[str], backbones: dict[str, Path], explained: Explained
) -> None:
    explained(SettingsError, lambda: quick(backbones["llama"], **settings).fit(TRAINING), *parts)


def test_what_is_learned_from_is_said_first(backbones: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    monkeypatch.setattr("tefm.pipeline.prepare.note", notes.append)
    with pytest.raises(SettingsError):
        quick(backbones["llama"], layers=99).fit(stays(40))
    assert len(notes) == 1
    counts = [int(found) for found in re.findall(r"\d+", notes[0])]
    assert counts == [36, *counts[1:3], 4]
    assert sum(counts[1:3]) == 36


# ---- tables that are not as they were ---------------------------------------------------------------------------


def test_the_label_is_not_looked_at(fitted: TEFM) -> None:
    p_SQ = fitted.predict_proba(HELD_OUT)
    assert np.array_equal(fitted.predict_proba(HELD_OUT.drop("died")), p_SQ)
    assert np.array_equal(fitted.predict_proba(HELD_OUT.with_columns(died=pl.lit("?"))), p_SQ)


def test_one_row_per_sequence(fitted: TEFM) -> None:
    said = fitted.predict_table(HELD_OUT)
    assert said.columns == ["patient", "records", "predicted", "p(no)", "p(yes)"]
    assert said["patient"].to_list() == HELD_OUT["patient"].unique(maintain_order=True).to_list()
    assert said["records"].sum() == HELD_OUT.height
    assert said["predicted"].to_list() == fitted.predict(HELD_OUT).tolist()
    # who else is in the table makes no difference
    few = fitted.predict_table(HELD_OUT.filter(pl.col("patient").is_in(["p3", "p7"])))
    np.testing.assert_allclose(few["p(yes)"], said.filter(pl.col("patient").is_in(["p3", "p7"]))["p(yes)"], atol=1e-5)


def test_missing_and_unseen_values(fitted: TEFM) -> None:
    nothing = HELD_OUT.with_columns(pl.lit(None, pl.String).alias(name) for name in ("age", "ward", "drugs"))
    check_probabilities(fitted.predict_proba(nothing))
    unseen = HELD_OUT.with_columns(ward=pl.lit("moon"), drugs=pl.lit("nectar;ambrosia"), age=pl.lit(10**9))
    check_probabilities(fitted.predict_proba(unseen))


def test_tables_that_cannot_be_predicted(fitted: TEFM, explained: Explained) -> None:
    explained(InputError, lambda: fitted.predict(HELD_OUT.drop("patient")), "'patient'")
    explained(InputError, lambda: fitted.predict(HELD_OUT.drop("drugs")), "drugs")
    explained(InputError, lambda: fitted.predict(HELD_OUT.drop("day")), "'day'")
    explained(InputError, lambda: fitted.predict_proba(HELD_OUT.clear()), "no rows")
    explained(InputError, lambda: fitted.predict_table(HELD_OUT.clear()), "no rows")


def test_classes_that_the_model_does_not_know_are_errors_and_listed(fitted: TEFM) -> None:
    lost = pl.when(pl.col("patient").str.ends_with("1")).then(pl.lit("lost")).otherwise("died").alias("died")
    known, mixed = (fitted.evaluate(table, resamples=20) for table in (HELD_OUT, HELD_OUT.with_columns(lost)))
    own = fitted.evaluate(HELD_OUT.filter(~pl.col("patient").str.ends_with("1")), resamples=0)
    decided = mixed.decisions
    assert known.decisions is not None and decided is not None and not known.decisions.unknown
    unknown = decided.unknown["lost"]
    assert mixed.scores.n == known.scores.n == own.scores.n + unknown and unknown > 0
    assert np.isclose(mixed.scores.accuracy.value * mixed.scores.n, own.scores.accuracy.value * own.scores.n)
    assert mixed.scores.auroc.value == own.scores.auroc.value, "there is no probability to rank them by"
    assert mixed.scores.macro_f1.value < own.scores.macro_f1.value
    by_class = {scores.name: scores for scores in decided.by_class}
    assert (by_class["lost"].recall, by_class["lost"].sequences) == (0.0, unknown)
    assert sum(map(sum, decided.confusion.counts)) == mixed.scores.n
    console = Console(width=120)
    with console.capture() as shown:
        console.print(Group(*evaluation_tables(mixed)))
    for text in (f"lost ({unknown})", "Confusion matrix", decided.decision):
        assert text in shown.get()
    assert mixed.to_dict()["unknown"] == {"lost": unknown}


def test_a_threshold_decides_between_two_classes(fitted: TEFM, explained: Explained) -> None:
    p_S = fitted.predict_proba(HELD_OUT)[:, 1]
    threshold = float(np.median(p_S))
    assert ((fitted.predict(HELD_OUT, threshold=threshold) == "yes") == (p_S >= threshold)).all()
    decided = fitted.with_threshold(threshold).evaluate(HELD_OUT, resamples=0).decisions
    assert decided is not None and decided.threshold == threshold
    assert decided.decision == f"yes if its probability is at least {threshold:.3f}"
    explained(SettingsError, lambda: fitted.predict(HELD_OUT, threshold=2.0), "2.0")
    several = replace(fitted.fitted, classes=("a", "b", "c"))
    explained(SettingsError, lambda: several.deciding_at(0.5), "two classes", "3")


def test_tables_that_cannot_be_judged(fitted: TEFM, explained: Explained) -> None:
    lost = HELD_OUT.with_columns(died=pl.lit("lost"))
    explained(InputError, lambda: fitted.evaluate(lost), "'died'", "knows none of the classes", "'lost'", "no, yes")
    explained(
        InputError, lambda: figures_of(fitted, HELD_OUT[:-1].vstack(lost[-1:])), "'died'", "'lost'", "tefm evaluate"
    )
    explained(InputError, lambda: fitted.evaluate(HELD_OUT.with_columns(died=pl.lit(None, pl.String))), "'died'")
    explained(InputError, lambda: fitted.evaluate(HELD_OUT.drop("died")), "'died'")


@pytest.mark.usefixtures("no_training")
def test_tables_that_cannot_be_learned(backbones: dict[str, Path], explained: Explained) -> None:
    def fit(table: pl.DataFrame, schema: Schema = STAYS) -> TEFM:
        return quick(backbones["llama"], schema).fit(table)

    explained(InputError, lambda: fit(TRAINING, STAYS.model_copy(update={"label": None})), "no label")
    explained(InputError, lambda: fit(TRAINING.drop("died")), "'died'")
    explained(InputError, lambda: fit(TRAINING.with_columns(died=pl.lit("no"))), "the same")
    explained(InputError, lambda: fit(TRAINING.clear()))


def test_nothing_before_fit(explained: Explained, tmp_path: Path) -> None:
    for call in (
        lambda: TEFM().predict(HELD_OUT),
        lambda: TEFM().predict_proba(HELD_OUT),
        lambda: TEFM().evaluate(HELD_OUT),
        lambda: TEFM().save(tmp_path / "model"),
    ):
        explained(NotFittedError, call, "fit")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("is_fitted", [False, True])
def test_what_a_model_does_not_have_is_not_listed(is_fitted: bool, fitted: TEFM) -> None:
    model = fitted if is_fitted else TEFM()
    assert not hasattr(model, "questions_") and hasattr(model, "tokenizer_") == is_fitted
    listed = dir(model)
    assert {"fit", "ask", "config"} <= set(listed) and "questions_" not in listed
    assert ("bundle" in listed) == is_fitted


# ---- the real weights -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_smollm2_fits_predicts_and_comes_back(fitted: TEFM, tmp_path: Path) -> None:
    model = TEFM(
        STAYS,
        backbone="smollm2-135m",
        tokenizer=fitted.tokenizer_,
        layers=1,
        prompt={"preset": "mortality", "style": "full"},
        tune={"steps": 8, "batch": 16},
        device="cpu",
    )
    model.fit(stays(40))
    losses = [loss for _, loss in model.fitted.history["tune"].loss]
    assert losses[-1] < losses[0]
    p_SQ = model.predict_proba(HELD_OUT)
    check_probabilities(p_SQ)
    again = TEFM.load(model.save(tmp_path / "model"), device="cpu")
    assert again.fitted.classifier.backbone.model.config.num_hidden_layers == 1
    assert np.array_equal(again.predict_proba(HELD_OUT), p_SQ)
