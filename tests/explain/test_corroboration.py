"""Corroboration: what was observed in the training data where a feature is present, and what references say."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import STAYS, Explained, quick, stays
from hypothesis import given
from hypothesis import strategies as st
from support.explanations import ASPIRIN, MORPHINE, OLD, about, explanation, influence, printed

from tefm.base.errors import InputError
from tefm.explain.counts import FEW, Observed
from tefm.explain.explanation import Explanation
from tefm.explain.render import cards_page
from tefm.model.estimator import TEFM
from tefm.tables.references import Reference

MORE, LESS = Observed(200, 60, 1_000, 100), Observed(200, 5, 1_000, 100)


@given(st.integers(FEW, 500), st.integers(FEW, 500), st.data())
def test_the_interval_of_the_relative_risk_holds_it(having: int, others: int, data: st.DataObject) -> None:
    observed = Observed(having, data.draw(st.integers(0, having)), others, data.draw(st.integers(0, others)))
    ratio, low, high = observed.relative_risk
    assert 0 < low < ratio < high < math.inf
    opposite = {"supported": "contradicted", "contradicted": "supported"}
    verdict = observed.corroborates(True)
    assert observed.corroborates(False) == opposite.get(verdict, verdict)


def test_the_four_answers() -> None:
    assert (MORE.corroborates(True), LESS.corroborates(True)) == ("supported", "contradicted")
    assert Observed(200, 21, 1_000, 100).corroborates(True) == "unclear"
    assert Observed(FEW - 1, FEW - 1, 1_000, 1).corroborates(True) == "too few"
    assert Observed(1_000, 1_000, FEW - 1, 1).corroborates(True) == "too few"


def test_a_feature_that_the_data_contradict_is_a_warning() -> None:
    influences = (
        replace(influence(MORPHINE, 0.4), observed=LESS),
        replace(influence(OLD, 0.2), observed=MORE),
        replace(influence(ASPIRIN, -0.1), observed=LESS),
    )
    shown = about("yes", influences=influences)
    assert [one.corroboration for one in influences] == ["contradicted", "supported", "supported"]
    assert shown.doubts == "The training data contradict the direction of: Drugs: morphine (last stay)."
    text = " ".join(printed(shown).replace("│", " ").split())
    assert shown.doubts in text and shown.doubts in str(shown) and shown.doubts in cards_page([shown])
    for one in influences:
        assert one.observation in cards_page([shown])
    assert "observed for 2% of 200 training sequences with it and 10% of the others" in influences[0].observation
    assert explanation().doubts == ""
    slight = about("yes", influences=(replace(influence(MORPHINE, 0.015, 0.001), observed=LESS),))
    assert slight.doubts == "", "a slight effect is no reason for a warning"


def test_a_condition_that_the_data_contradict_is_a_warning_too() -> None:
    joint = explanation().joint
    assert joint is not None
    shares = tuple(replace(of, observed=LESS) for of in joint.shares)
    shown = explanation(joint=replace(joint, shares=shares))
    assert shown.doubts.count("stay") == 2 and shown.doubts in " ".join(printed(shown).replace("│", " ").split())


def test_references_are_cited_with_numbers() -> None:
    first = Reference("drugs", "morphine", "Given in palliative care.", "A 2001")
    second = Reference("drugs", "morphine", "Depresses breathing.", "B 2005")
    aspirin = Reference("drugs", "aspirin", "Prevents clots.", "A 2001")
    findings = (replace(MORPHINE, references=(first, second)), OLD)
    against = influence(replace(ASPIRIN, references=(aspirin,)), -0.1)
    shown = about(settling=replace(explanation().settling, findings=findings), influences=(against,), joint=None)
    assert shown.sources == ("A 2001", "B 2005")
    assert shown.cited(findings[0]) == ["Given in palliative care. [1]", "Depresses breathing. [2]"]
    assert shown.cited(against.finding) == ["Prevents clots. [1]"]
    assert "[1] A 2001" not in printed(shown) and "2 sources cited: --bibliography" in printed(shown)
    for text in (printed(shown, bibliography=True), cards_page([shown])):
        assert "Depresses breathing. [2]" in text and "[1] A 2001" in text and "[2] B 2005" in text
    assert Explanation.from_json(json.loads(json.dumps(shown.to_json()))) == shown


# ---- from a table -----------------------------------------------------------------------------------------------


def test_what_was_observed_is_what_the_table_says(fitted: TEFM) -> None:
    """Count the training patients whose last stay has the drug, and who died."""
    training, table = stays(200), stays(12, seed=1)
    parts = fitted.fitted.look_alikes
    assert parts is not None
    last = training.group_by("patient", maintain_order=True).last()
    assert 0 < len(parts.cases) < last.height, "a tenth of the patients are the validation part, which is not counted"
    checked = 0
    for one in fitted.explain(table, of_class="yes"):
        for of in one.influences:
            has = last.filter(pl.col("drugs").fill_null("").str.split(";").list.contains(of.finding.value))
            if of.finding.value and has.height and of.finding.record == one.records:
                assert of.observed is not None
                assert 0.8 * has.height <= of.observed.having <= has.height
                assert of.observed.having_class <= (has["died"] == "yes").sum()
                checked += 1
    assert checked


def test_a_table_of_references(fitted: TEFM, tmp_path: Path, explained: Explained) -> None:
    table = stays(12, seed=1)
    rows = {"field": ["drugs"], "value": ["morphine"], "statement": ["Palliative."], "source": ["A 2001"]}
    path = tmp_path / "references.csv"
    pl.DataFrame(rows).write_csv(path)
    cited = [
        of.finding
        for one in fitted.explain(table, references=path, of_class="yes")
        for of in one.influences
        if of.finding.value == "morphine"
    ]
    assert cited and all(finding.references[0].statement == "Palliative." for finding in cited)
    rules = [finding for one in fitted.explain(table, references=path) for finding in one.settling.findings]
    assert all(of.references == () for of in rules if "no morphine" in of.words or of.when == "never")
    explained(InputError, lambda: fitted.explain(table, references=tmp_path / "no.csv"), "no.csv")


def test_counts_are_of_the_population(backbones: dict[str, Path]) -> None:
    """Sequences that balancing left out are counted too."""
    table = stays(300).filter((pl.col("died") == "no") | (pl.col("age") < 40))
    model = quick(backbones["llama"], STAYS, balance="train", tune={"steps": 2}).fit(table)
    parts = model.fitted.look_alikes
    assert parts is not None
    shares = np.bincount(parts.cases.labels_S) / len(parts.cases)
    assert shares == pytest.approx(np.array(model.fitted.shares), abs=0.02) and abs(shares[0] - 0.5) > 0.1
