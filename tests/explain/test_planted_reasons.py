"""Planted truth: visits whose label is decided by known fields, so that an explanation can be right or wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import quick
from support.kept import Kept
from support.planted_visits import GRADED, Cause, visits

from tefm.explain.check import OTHERS
from tefm.explain.explanation import Explanation
from tefm.model.estimator import TEFM

pytestmark = pytest.mark.slow
#: One seed per cause in `make test`, five in `make test-all`.
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.all) for seed in range(1, 5))]

#: The fields that decide; of several sets, one is enough.
DECIDING: dict[Cause, list[set[str]]] = {
    "one field": [{"stage"}],
    "a pair": [{"stage", "ward"}],
    "exclusive or": [{"stage", "ward"}],
    "a copy": [{"stage"}, {"grade"}],
}
SETTINGS: dict[str, Any] = {
    "codes": {"levels": 2, "entries": 32, "latent": 16, "hidden": 64, "steps": 350, "learning_rate": 4e-3},
    "tune": {"learning_rate": 3e-3, "epochs": 4, "least": 120},
    "explanations": {"surrogate_hidden": 32, "surrogate_steps": 200, "questions": 2_000},
}
PATIENTS, EXPLAINED = 800, 30


def explained(cause: Cause, seed: int, backbone: Path) -> list[Explanation]:
    """Answers about new patients, as many of each as there are."""
    model: TEFM = quick(backbone, GRADED, seed=seed, **SETTINGS).fit(visits(cause, PATIENTS, seed, graded=True))
    table = visits(cause, 400, seed=100 + seed, graded=True)
    predicted = model.predict(table)
    if cause != "nothing":
        assert (predicted == table["died"].to_numpy()).mean() >= 0.95, "it has learned the rule"
    asked = np.flatnonzero(predicted == "yes") if cause == "a pair" else np.arange(len(predicted))
    return model.explain(table[asked[:EXPLAINED]])


def fields_of(explanation: Explanation) -> set[str]:
    return {finding.field for finding in explanation.settling.findings}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cause", DECIDING)
def test_the_fields_that_decide_settle_the_answer(cause: Cause, seed: int, backbones: dict[str, Path]) -> None:
    explanations = explained(cause, seed, backbones["llama"])
    verified = [one for one in explanations if one.verified]
    assert len(verified) >= 0.9 * len(explanations), [one.verdict for one in explanations]
    named = [fields_of(one) for one in verified]
    recall = np.mean([max(len(fields & deciding) / len(deciding) for deciding in DECIDING[cause]) for fields in named])
    assert recall >= 0.95, recall
    others = np.mean([len(fields - set().union(*DECIDING[cause])) for fields in named])
    assert others <= 0.3, f"{others} further fields on average"
    settled = [one for one in verified if one.verdict != "made-up only"]
    assert len(settled) >= 0.8 * len(verified), "real cases share the rules"
    assert np.median([one.coverage.value for one in settled]) >= 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_label_that_is_in_no_field_is_settled_by_none(seed: int, backbones: dict[str, Path]) -> None:
    explanations = explained("nothing", seed, backbones["llama"])
    assert np.mean([one.verified for one in explanations]) <= 0.02, [one.verdict for one in explanations]


# ---- fields that are no reasons, and sensitive ones ---------------------------------------------------------------


@pytest.fixture(scope="module")
def of_stage(kept: Kept, backbones: dict[str, Path]) -> TEFM:
    """The stage alone decides."""
    return kept.made(
        "planted stage",
        lambda: quick(backbones["llama"], GRADED, **SETTINGS).fit(visits("one field", 800, 0, graded=True)),
    )


NEW = visits("one field", 6, seed=100, graded=True)


def cited(explanation: Explanation) -> set[str]:
    """The fields of every condition and effect."""
    findings = [*explanation.settling.findings, *(explanation.rival.findings if explanation.rival else ())]
    effects = [*explanation.influences, *(explanation.joint.shares if explanation.joint else ())]
    return {of.field for of in (*findings, *(effect.finding for effect in effects))}


def test_a_cause_in_a_field_that_is_no_reason_never_appears(of_stage: TEFM) -> None:
    assert all("stage" in cited(one) for one in of_stage.explain(NEW))
    for of_class in ("yes", "no"):
        without = of_stage.explain(NEW, of_class=of_class, without=["stage"])
        assert not any("stage" in cited(one) for one in without)
        assert not any(one.verified for one in without), "nothing else decides"
    assert not any(
        "Stage" in " ".join(rule.features) for rule in of_stage.explain_population(NEW, without=["stage"]).rules
    )


def test_a_sensitive_field_that_decides_is_told_from_one_that_does_not(of_stage: TEFM) -> None:
    for one in of_stage.explain(NEW, sensitive=["stage", "ward"]):
        stage, ward = one.sensitive
        assert stage.same.of == ward.same.of == OTHERS
        assert stage.same.value == pytest.approx(1 / 3, abs=0.2), "of three other stages, one has the same answer"
        assert stage.low < 0.2 and stage.high > 0.8
        assert ward.same.value == 1 and ward.low > 0.5
        assert one.other_values.startswith(f"Sensitive fields: with another stage: “{one.answer.says}” for ")
        (finding,) = [of for of in one.settling.findings if of.field == "stage"]
        assert one.placed(finding).endswith("(sensitive)")
