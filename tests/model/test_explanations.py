"""Explanations by look-alikes, from a table: what the model itself says, its bundle, its errors."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import QUICK, STAYS, Explained, quick, stays
from safetensors import safe_open
from support.kept import Kept

from tefm.base.errors import ArtefactError, InputError, NotFittedError, SettingsError
from tefm.base.files import write_manifest
from tefm.explain.explanation import Explanation
from tefm.explain.reasons import REAL, Donors, Question, Reasoner
from tefm.model.estimator import TEFM
from tefm.pipeline.data import Given
from tefm.pipeline.fit import _depends_on
from tefm.pipeline.stages import population_of

TABLE = stays(12, seed=1)


@pytest.fixture(scope="module")
def explanations(kept: Kept, fitted: TEFM) -> list[Explanation]:
    """What the model says of the table."""
    return kept.made("stays explained", lambda: fitted.explain(TABLE))


def reasoner(model: TEFM) -> Reasoner:
    parts = model.fitted.look_alikes
    assert parts is not None
    return Reasoner(model.fitted.masked_model(), parts.network, parts.surrogate, parts.population, parts.cases)


def test_an_explanation_is_about_the_prediction(fitted: TEFM, explanations: list[Explanation]) -> None:
    predicted = fitted.predict_table(TABLE)
    assert [one.sequence for one in explanations] == predicted["patient"].to_list()
    assert [one.answer.says for one in explanations] == predicted["predicted"].to_list()
    p_yes = [one.answer.probabilities["yes"] for one in explanations]
    assert p_yes == pytest.approx(predicted["p(yes)"].to_list(), abs=1e-6)
    assert [one.records for one in explanations] == predicted["records"].to_list()


def test_the_precision_is_what_the_model_says_of_whole_records(fitted: TEFM) -> None:
    """Made-up cases satisfy the rule and are the stored sequences elsewhere; the model itself answers each of them."""
    slots, parts = fitted.preparation.slots(fitted.preparation.to_predict(TABLE)), fitted.fitted.look_alikes
    assert parts is not None
    for number in range(3):
        one = slots.select([number])
        found = reasoner(fitted).reasons(one, fitted.fitted.masked_model()(one)[0].tolist(), None, Question())
        assert all(condition.holds(one).all() for condition in found.found.rule), "the case is one of its own"
        counts = []
        for check in Donors.of(parts.population, len(one.x_ND)).checks:
            cases = parts.population.made_up(one, found.found.rule, check)
            assert all(condition.holds(cases).all() for condition in found.found.rule)
            p_SQ = np.concatenate([fitted.fitted.probabilities(cases.select([case])) for case in range(len(cases))])
            same_S = fitted.fitted.decide(p_SQ) == found.answer
            counts.append(int(same_S[: found.found.made_up.of].sum()))  # a check ends as soon as it is decided
        assert not found.found.rule or found.found.made_up.count in counts
        having = parts.population.has(found.found.rule)
        assert not found.found.rule or found.found.real.of == min(having.sum(), REAL)


def test_shares_sum_to_the_joint_effect(explanations: list[Explanation]) -> None:
    with_effects = [one for one in explanations if one.joint is not None]
    assert with_effects
    for one in with_effects:
        assert sum(of.change for of in one.joint.shares) == pytest.approx(one.answer.p - one.joint.without, abs=0.01)
        assert [of.finding for of in one.joint.shares] == list(one.settling.findings)


def test_the_class_in_question_and_the_other_are_opposites(fitted: TEFM) -> None:
    some = TABLE["patient"].unique(maintain_order=True).to_list()[:5]
    yes = {one.sequence: one for one in fitted.explain(TABLE, of_class="yes", entities=some)}
    for one in fitted.explain(TABLE, of_class="no", entities=some):
        other = yes[one.sequence]
        assert (one.of_class, other.of_class) == ("no", "yes")
        assert one.mean_p == pytest.approx(1 - other.mean_p, abs=1e-5)
        mine, theirs = ({str(i.finding): i.change for i in e.influences} for e in (one, other))
        for words in mine.keys() & theirs.keys():
            assert mine[words] == pytest.approx(-theirs[words], abs=1e-4)


def test_some_sequences_only(fitted: TEFM, explained: Explained) -> None:
    assert [one.sequence for one in fitted.explain(TABLE, entities=["p7", "p3"])] == ["p7", "p3"]
    explained(InputError, lambda: fitted.explain(TABLE, entities=["p700"]), "p700", "patient")


def test_what_cannot_be_asked(fitted: TEFM, explained: Explained) -> None:
    explained(InputError, lambda: fitted.explain(TABLE, of_class="maybe"), "maybe", "no")
    explained(SettingsError, lambda: fitted.explain(TABLE, precision=1.5), "precision", "1.5")
    explained(SettingsError, lambda: fitted.explain(TABLE, most=0), "most", "0")
    explained(SettingsError, lambda: fitted.explain(TABLE, without=["wards"]), "'wards'", "did you mean 'ward'")
    explained(SettingsError, lambda: fitted.explain(TABLE, sensitive=["agee"]), "'agee'", "did you mean 'age'")
    for name in ("without", "sensitive"):
        unread = TEFM(STAYS, explanations={name: ["drug"]})
        explained(SettingsError, lambda: unread.prepared(TABLE), "'drug'", "did you mean 'drugs'")
    settings = {**QUICK, "explanations": {"doners": 90}}
    explained(SettingsError, lambda: TEFM(STAYS, **settings).fit(TABLE), "'doners'", "'donors'")


def test_fields_of_the_fit_are_those_of_an_explanation(fitted: TEFM, tmp_path: Path) -> None:
    parts = fitted.fitted.look_alikes
    config = parts.config.model_copy(update={"without": ("drugs",), "sensitive": ("ward",)})
    model = copy(fitted)
    model.fitted_ = replace(fitted.fitted, look_alikes=replace(parts, config=config))
    few = TABLE.head(9)
    explanations = TEFM.load(model.save(tmp_path / "model"), device="cpu").explain(few)
    assert explanations == fitted.explain(few, without=["drugs"], sensitive=["ward"]) != fitted.explain(few)
    assert explanations != model.explain(few, without=[], sensitive=[]) == fitted.explain(few)
    for one in explanations:
        assert "drugs" not in {finding.field for finding in one.settling.findings}
        assert [of.fields for of in one.sensitive] == [("ward",)] and "another ward" in one.other_values


def test_it_survives_saving(fitted: TEFM, explanations: list[Explanation], tmp_path: Path) -> None:
    again = TEFM.load(fitted.save(tmp_path / "model"), device="cpu")
    assert [one.to_json() for one in again.explain(TABLE)] == [one.to_json() for one in explanations]
    assert again.fitted.look_alikes.agreement == fitted.fitted.look_alikes.agreement
    card = (tmp_path / "model" / "README.md").read_text()
    count = len(fitted.fitted.look_alikes.cases)
    assert f"{count:,} training sequences" in card and "share it like the training data" in card


def test_no_names_are_stored(fitted: TEFM, tmp_path: Path) -> None:
    folder = fitted.save(tmp_path / "model")
    with safe_open(folder / "look_alikes.safetensors", framework="pt") as file:
        assert not [name for name in file.keys() if "ids" in name]  # noqa: SIM118  # not a mapping
        facts = json.loads(file.metadata()["facts"])
    assert set(facts) == {"config", "agreement", "population.texts", "cases.texts"}
    assert facts["cases.texts"] is facts["population.texts"] is None
    assert b"p17" not in (folder / "look_alikes.safetensors").read_bytes()[:4_000]


def test_a_damaged_part_is_refused(fitted: TEFM, tmp_path: Path, explained: Explained) -> None:
    folder = fitted.save(tmp_path / "model")
    part = folder / "look_alikes.safetensors"
    part.write_bytes(part.read_bytes()[:1_000])
    explained(ArtefactError, lambda: TEFM.load(folder, device="cpu"), "look_alikes.safetensors")
    manifest = json.loads((folder / "manifest.json").read_text())
    write_manifest(folder, manifest["kind"], versions=manifest["versions"], codes=manifest.get("codes"))
    explained(ArtefactError, lambda: TEFM.load(folder, device="cpu"), "look_alikes.safetensors", "save")


def test_two_fits_with_one_seed_explain_alike(fitted_again: TEFM, explanations: list[Explanation]) -> None:
    assert [one.to_json() for one in fitted_again.explain(TABLE)] == [one.to_json() for one in explanations]


def test_a_model_that_only_predicts_says_so(backbones: dict[str, Path], fitted: TEFM, explained: Explained) -> None:
    model = quick(backbones["llama"], explanations="none").set_params(tokenizer=fitted.tokenizer_).fit(stays(60))
    explained(NotFittedError, lambda: model.explain(TABLE), "explain", "explanations: default")
    explained(NotFittedError, lambda: TEFM().explain(TABLE), "fit")


def test_texts_beside_the_codes(backbones: dict[str, Path], tmp_path: Path) -> None:
    prompt = {"message": "{records}{text} died?"}
    schema = STAYS.model_copy(update={"text": ("note",), "ignore": ()})
    model, few = quick(backbones["llama"], schema, prompt=prompt).fit(stays(120)), stays(4, seed=1)
    assert model.fitted.look_alikes.population.slots.texts is not None
    again = TEFM.load(model.save(tmp_path / "model"), device="cpu")
    assert [one.to_json() for one in again.explain(few)] == [one.to_json() for one in model.explain(few)]


def test_json_comes_back(explanations: list[Explanation]) -> None:
    for one in explanations:
        assert Explanation.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_a_model_with_masks_does_not_resume_from_one_without() -> None:
    """Masks need masked copies in the fine-tuning; settings of explanations alone change nothing there."""
    table = stays(60)
    configs = [TEFM(STAYS, rationale=rationale).config for rationale in ("none", "default", {"epochs": 3})]
    configs.append(TEFM(STAYS, explanations={"donors": 90}).config)
    data = TEFM(STAYS).prepared(table, validation=stays(20, seed=3)).given.data
    without, masks, other_masks, donors = (_depends_on(Given(data, config), "codes", None) for config in configs)
    assert without != masks == other_masks and without == donors


@pytest.mark.parametrize("quickly", [False, True])
def test_the_population_has_the_natural_shares(quickly: bool) -> None:
    """Balanced training leaves most of the frequent class out, but look-alikes vary like everyone."""
    table = stays(2_000).with_columns(died=pl.when(pl.col("age") > 60).then(pl.lit("yes")).otherwise(pl.lit("no")))
    model = TEFM(STAYS, balance="train", quick=quickly)
    data = model.prepared(table, validation=stays(50, seed=3)).given.data
    assert np.ptp(np.bincount(data.training.labels_S)) == 0, "the training is balanced"
    slots, labels_S = population_of(data, data.shares, seed=0)
    assert len(slots) == len(labels_S)
    shares = np.bincount(labels_S, minlength=2) / len(labels_S)
    assert shares == pytest.approx(np.array(data.shares), abs=0.07)
    assert abs(data.shares[0] - 0.5) > 0.1, "and the population is not"
    assert slots.ids is None and slots.labels is None


@pytest.mark.all
def test_a_balanced_world_has_balanced_look_alikes(backbones: dict[str, Path]) -> None:
    """With `balance: all` the population is balanced, but everyone is counted for corroboration."""
    table = stays(300).filter((pl.col("died") == "no") | (pl.col("age") < 40))
    model = quick(backbones["llama"], STAYS, balance="all", tune={"steps": 2}).fit(table)
    parts = model.fitted.look_alikes
    assert np.bincount(parts.population.labels_S) / len(parts.population) == pytest.approx([0.5, 0.5])
    of_class = np.bincount(parts.cases.labels_S)
    assert of_class[0] > 1.5 * of_class[1]
