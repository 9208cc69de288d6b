"""Fields of the entity through all stages: codes of their own, once per sequence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import quick
from support.kept import Kept

from tefm.codes.coder import load_coder, save_coder
from tefm.model.estimator import TEFM
from tefm.tables.schema import Schema

SCHEMA = Schema.from_yaml("""
record: stay
entity: patient
label: died
static: [sex, region]
fields: {sex: category, region: category, pulse: number, ward: category}
""")


def patients(count: int, seed: int = 0) -> pl.DataFrame:
    """One to four stays of each patient; women with a stay on the ward "heart" died."""
    rng = np.random.default_rng(seed)
    rows = []
    for patient in range(count):
        sex, region = str(rng.choice(["f", "m"])), str(rng.choice(list("abc")))
        wards = rng.choice(["heart", "lung", "surgery"], rng.integers(1, 5)).tolist()
        died = "yes" if sex == "f" and "heart" in wards else "no"
        rows += [(f"p{patient}", sex, region, float(rng.normal(80, 9)), ward, died) for ward in wards]
    return pl.DataFrame(rows, schema=["patient", "sex", "region", "pulse", "ward", "died"], orient="row")


@pytest.fixture(scope="module")
def model(kept: Kept, backbones: dict[str, Path]) -> TEFM:
    return kept.made("static", lambda: quick(backbones["llama"], SCHEMA).fit(patients(150)))


def test_the_codes_of_the_entity_come_once_in_front_of_its_records(model: TEFM) -> None:
    classifier, slots = model.fitted.classifier, model.preparation.slots(model.preparation.records(patients(20, 1)))
    ids = classifier.ids
    assert ids.profile == 1, "six different patients need one level"
    of_profile = range(ids.level(ids.levels - 1).start, ids.level(ids.levels - 1).stop)
    for prompt, length in zip(classifier.prompts(model.fitted.codes(slots)), slots.lengths, strict=True):
        codes = [token for token in prompt.tolist() if ids.first <= token < ids.past]
        assert len(codes) == 1 + length * (ids.levels - 1)
        assert [token in of_profile for token in codes] == [True] + [False] * (len(codes) - 1)


def test_what_stays_is_decoded_from_its_own_codes(model: TEFM) -> None:
    coder, slots = model.fitted.coder, model.preparation.slots(model.preparation.records(patients(60, 2)))
    static_D = coder.layout.static_D
    assert (coder.decode(coder.encode(slots.x_ND))[:, static_D] == slots.x_ND[:, static_D]).mean() > 0.95


def test_saved_and_loaded_it_answers_the_same(model: TEFM, tmp_path: Path) -> None:
    others = patients(30, 3)
    loaded = TEFM.load(model.save(tmp_path / "model"))
    assert np.array_equal(loaded.predict_proba(others), model.predict_proba(others))
    folder = tmp_path / "coder"
    folder.mkdir()
    save_coder(model.fitted.coder, folder)
    assert load_coder(folder).identity == model.fitted.coder.identity
    assert loaded.fitted.classifier.vocabulary.names[-1] == "<stay_A_7>"


def test_a_field_of_the_entity_is_one_condition_of_a_rule(model: TEFM, tmp_path: Path) -> None:
    """It is kept or replaced in all records together, and its own codes tell the surrogate what that does."""
    parts = model.fitted.look_alikes
    assert parts is not None and parts.network.width == model.fitted.coder.latent_width
    table = patients(25, 4)
    explanations = model.explain(table)
    named = [[of for of in one.settling.findings if of.field in ("sex", "region")] for one in explanations]
    assert sum(map(len, named)) > 3
    for findings in named:
        assert len({of.field for of in findings}) == len(findings) and all(of.when == "" for of in findings)
    again = TEFM.load(model.save(tmp_path / "model"), device="cpu").explain(table)
    assert [one.to_json() for one in again] == [one.to_json() for one in explanations]
