"""Planted truth: visits of which it is known what decides the label, so that a rationale can be right or wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pytest
from conftest import quick

from tefm.explain import judge_of, slot_sequences
from tefm.model import TEFM
from tefm.rationale.card import Rationale
from tefm.rationale.verify import smuggled, until_sufficient
from tefm.records.schema import Schema

pytestmark = pytest.mark.slow

Cause = Literal["stage", "stage and ward", "nothing"]

VISITS = Schema.from_yaml("""
record: visit
entity: patient
label: died
fields:
  stage: category
  ward: category
  age: number
  sex: category
  dose: number
  site: category
  drugs: {kind: set, delimiter: ;}
""")
#: Small networks and few steps. So few that masked records are shown more often than by default, to be coded as well.
SETTINGS: dict[str, Any] = {
    "codes": {
        "levels": 2,
        "entries": 32,
        "latent": 16,
        "hidden": 64,
        "steps": 800,
        "learning_rate": 3e-3,
        "mask_share": 0.6,
    },
    "tune": {"learning_rate": 3e-3, "epochs": 6, "least": 150},
    "rationale": {"surrogate_hidden": 32, "surrogate_steps": 200, "hidden": 32, "epochs": 10},
}
PATIENTS = 800


def visits(cause: Cause, count: int, seed: int) -> pl.DataFrame:
    """One visit per patient; of every field any value is as probable as another, whatever the others are."""
    rng = np.random.default_rng(seed)
    stage, ward = rng.choice(["I", "II", "III", "IV"], count), rng.choice(["heart", "lung", "skin"], count)
    late = np.isin(stage, ["III", "IV"])
    died = {"stage": late, "stage and ward": late & (ward == "heart"), "nothing": rng.random(count) < 0.5}[cause]
    return pl.DataFrame(
        {
            "patient": [f"p{number}" for number in range(count)],
            "stage": stage,
            "ward": ward,
            "age": rng.integers(20, 90, count),
            "sex": rng.choice(["f", "m"], count),
            "dose": rng.random(count).round(3),
            "site": rng.choice(list("ABCDE"), count),
            "drugs": [
                ";".join(rng.choice(list("abcdef"), size, replace=False)) or None for size in rng.integers(0, 4, count)
            ],
            "died": np.where(died, "yes", "no"),
        }
    )


def fit(cause: Cause, backbone: Path, seed: int = 0, **settings: Any) -> TEFM:
    return quick(backbone, VISITS, seed=seed, **{**SETTINGS, **settings}).fit(visits(cause, PATIENTS, seed))


def new(cause: Cause) -> pl.DataFrame:
    """Patients that no model has seen."""
    return visits(cause, 200, seed=100)


@pytest.fixture(scope="module")
def planted(backbones: dict[str, Path]) -> TEFM:
    """A model that knows the stage decides, and nothing else does."""
    return fit("stage", backbones["llama"])


def precision_and_recall(found: Sequence[Rationale], planted: set[str]) -> tuple[float, float]:
    """Of the fields that are kept, the share that decides; of those that decide, the share that is kept."""
    kept = [{said.field for record in one.records for said in record.statements} for one in found]
    right = sum(len(fields & planted) for fields in kept)
    return right / sum(map(len, kept)), right / (len(planted) * len(kept))


def test_the_field_that_decides_is_found_and_passes(planted: TEFM) -> None:
    table = new("stage")
    found = planted.explain(table)
    passed = [one for one in found if one.passed]
    assert np.mean([one.predicted == died for one, died in zip(found, table["died"], strict=True)]) >= 0.95
    assert len(passed) >= 0.9 * len(found)
    for answer in ("yes", "no"):
        of_answer = [one for one in passed if one.predicted == answer]
        assert len(of_answer) >= 50
        precision, recall = precision_and_recall(of_answer, {"stage"})
        assert precision >= 0.95 and recall >= 0.95, (answer, precision, recall)


def test_two_fields_that_decide_together_are_found(backbones: dict[str, Path]) -> None:
    """Both are kept where there is room for two; the smallest that passes holds nothing else, though one may do."""
    model, table = fit("stage and ward", backbones["llama"]), new("stage and ward")
    both = [
        one for one in model.explain(table, keep=2 / model.explainer.network.layout.width) if one.predicted == "yes"
    ]
    assert len(both) >= 20 and all(one.retention.kept == 2 for one in both)
    assert np.mean([one.passed for one in both]) >= 0.95
    precision, recall = precision_and_recall(both, {"stage", "ward"})
    assert precision >= 0.95 and recall >= 0.95, (precision, recall)
    smallest = [one for one in model.explain(table) if one.predicted == "yes" and one.passed]
    assert len(smallest) >= 20
    precision, _ = precision_and_recall(smallest, {"stage", "ward"})
    assert precision >= 0.95, precision


def test_a_mask_does_not_smuggle_the_label(planted: TEFM) -> None:
    """Values of others under the same masks: the judge can only guess, where with their own values it was right."""
    table = new("stage")
    slots, judge = slot_sequences(planted, *planted.frame_and_sequences(table)), judge_of(planted)
    keep_ND = until_sufficient(judge, planted.explainer.rank(slots, judge(slots)), slots)
    died_S = np.array([planted.classes_.index(died) for died in table["died"]])
    commonest = np.bincount(died_S).max() / len(died_S)
    assert (judge.decide(judge(slots, keep_ND)) == died_S).mean() >= 0.95
    guessed = [(smuggled(judge, slots, keep_ND, seed=seed) == died_S).mean() for seed in range(5)]
    assert np.mean(guessed) <= commonest + 0.1, guessed


def test_where_no_field_decides_nothing_passes(backbones: dict[str, Path]) -> None:
    model = fit("nothing", backbones["llama"])
    found = model.explain(new("nothing"))
    assert len(found) == 200 and not [one.title for one in found if one.passed]


def test_without_masked_copies_a_model_does_not_know_a_part_of_a_record(
    planted: TEFM, backbones: dict[str, Path]
) -> None:
    """What they are for: the field still decides, but far fewer rationales can be shown to carry the answer."""
    unused = quick(backbones["llama"], VISITS, **SETTINGS, masked_copies=0).set_params(tokenizer=planted.tokenizer_)
    without = unused.fit(visits("stage", PATIENTS, seed=0)).explain(new("stage"))
    assert np.mean([one.passed for one in without]) <= 0.75
    assert np.mean([one.passed for one in planted.explain(new("stage"))]) >= 0.9
