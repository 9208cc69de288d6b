"""Many explanations at once: verdicts are counted, rules grouped by what others can share, effects averaged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.explanations import ASPIRIN, MORPHINE, NO_WARD, OLD, explanation, influence, share

from tefm.explain.cards import Finding
from tefm.explain.explanation import Explanation, Influence, JointEffect, Settling
from tefm.explain.summary import LISTED, FieldEffect, Summary, summarise


def settled(
    *findings: Finding, says: str = "yes", records: int = 3, coverage: float = 4, verdict: str = "settled"
) -> Explanation:
    other = "no" if says == "yes" else "yes"
    return explanation(
        says,
        other,
        records=records,
        verdict=verdict,
        settling=Settling(says, findings, share(97)),
        coverage=share(coverage),
    )


def explained(*shares: Influence) -> Explanation:
    """With these shares of the conditions in the joint effect."""
    return explanation(joint=JointEffect(0.3, 0.2, 0.4, 0.3, shares))


def rules(summary: Summary) -> list[tuple[str, tuple[str, ...], int]]:
    return [(rule.answer, rule.features, rule.sequences) for rule in summary.rules]


# ---- verdicts ---------------------------------------------------------------------------------------------------


def test_verdicts_are_counted_and_the_median_is_of_verified_ones() -> None:
    many = (OLD, NO_WARD, MORPHINE, ASPIRIN)
    summary = summarise(
        [
            settled(*many, verdict="unsettled"),
            settled(MORPHINE),
            settled(MORPHINE, OLD),
            settled(MORPHINE, OLD, verdict="contested"),
            settled(verdict="default"),
            settled(*many, verdict="unsettled"),
            settled(*many, verdict="unsettled"),
        ]
    )
    assert summary.explained == 7
    assert list(summary.verdicts.items()) == [("unsettled", 3), ("settled", 2), ("contested", 1), ("default", 1)]
    assert summary.median_features == 2
    assert summary.sentence == (
        "7 answers explained: 3 unsettled, 2 settled, 1 contested, 1 default; median number of settling features: 2."
    )


def test_a_median_need_not_be_whole() -> None:
    assert summarise([settled(MORPHINE), settled(MORPHINE, OLD)]).sentence.endswith("settling features: 1.5.")


def test_without_a_settled_answer_there_are_no_rules_and_no_median() -> None:
    summary = summarise([settled(MORPHINE, verdict="unsettled")])
    assert summary.rules == () and summary.median_features is None
    assert summary.sentence == "1 answer explained: 1 unsettled."


# ---- rules ------------------------------------------------------------------------------------------------------


def test_the_same_features_are_one_rule_whatever_their_order() -> None:
    summary = summarise([settled(MORPHINE, OLD), settled(OLD), settled(OLD, MORPHINE, verdict="contested")])
    morphine_and_age = ("Age: 80–89 years (2 stays before the last)", "Drugs: morphine (last stay)")
    assert rules(summary) == [
        ("yes", morphine_and_age, 2),
        ("yes", ("Age: 80–89 years (2 stays before the last)",), 1),
    ]
    assert summary.rules[0].precision == share(97) and summary.rules[0].coverage == share(4)


def test_the_same_features_for_another_answer_are_another_rule() -> None:
    assert rules(summarise([settled(OLD), settled(OLD, says="no"), settled(OLD, says="no")])) == [
        ("no", ("Age: 80–89 years (2 stays before the last)",), 2),
        ("yes", ("Age: 80–89 years (2 stays before the last)",), 1),
    ]


def test_rules_that_many_of_the_population_satisfy_come_first_then_those_of_many_answers() -> None:
    one, two, three = (Finding(3, "dx", name, f"Diagnosis: {name}") for name in ("a", "b", "c"))
    summary = summarise(
        [settled(one, coverage=2), settled(two, coverage=9), settled(three, coverage=2), settled(three, coverage=2)]
    )
    assert [rule.features[0][11] for rule in summary.rules] == ["b", "c", "a"]


def test_unsettled_and_default_answers_give_no_rule() -> None:
    summary = summarise([settled(MORPHINE), settled(OLD, verdict="unsettled"), settled(OLD, verdict="default")])
    assert rules(summary) == [("yes", ("Drugs: morphine (last stay)",), 1)]


def test_records_are_counted_from_the_last_one() -> None:
    """Morphine in the last stay is one rule, after any number of stays before it."""
    of_each_length = [settled(replace(MORPHINE, record=records), records=records) for records in (1, 2, 3)]
    assert rules(summarise(of_each_length)) == [("yes", ("Drugs: morphine (last stay)",), 3)]
    before = [settled(replace(MORPHINE, record=records - 1), records=records) for records in (2, 3)]
    assert rules(summarise(before)) == [("yes", ("Drugs: morphine (1 stay before the last)",), 2)]


def test_where_all_have_one_record_its_place_goes_without_saying() -> None:
    single = settled(replace(MORPHINE, record=1), records=1)
    assert rules(summarise([single, single])) == [("yes", ("Drugs: morphine",), 2)]


def test_only_some_rules_are_listed() -> None:
    diagnoses = [Finding(3, "dx", str(n), f"Diagnosis: {n:02}") for n in range(LISTED + 3)]
    listed = summarise([*map(settled, diagnoses), settled(diagnoses[-1])]).rules
    assert [rule.features[0][11:13] for rule in listed] == ["12", *(f"{n:02}" for n in range(LISTED - 1))]


def test_rules_are_listed_with_what_they_add_and_those_that_add_nothing_are_not() -> None:
    """Of ten training sequences, the second rule shares two with the first, and the third has none of its own."""
    cases = {"first": [0, 1, 2, 3], "second": [2, 3, 4], "inside": [1, 4], "none": [], "other": [0, 1]}
    has = {name: np.isin(np.arange(10), numbers) for name, numbers in cases.items()}

    def with_rule(name: str) -> Explanation:
        says = "no" if name == "other" else "yes"
        return replace(settled(Finding(3, "dx", name, name), says=says), coverage=share(10 * len(cases[name]), 10))

    explained = [with_rule(name) for name in ("none", "inside", "second", "other", "first", "second")]
    summary = summarise(explained, [has[one.settling.findings[0].value] for one in explained])
    listed = [(rule.features[0].split(" (")[0], rule.new and rule.new.count) for rule in summary.rules]
    assert listed == [("first", 4), ("second", 1), ("other", 2)], "another answer is another list"
    assert summary.rules[1].cells[3].startswith("30.0% (10.0% new)")
    assert len(summarise(explained).rules) == 5, "where nobody looked"


# ---- fields -----------------------------------------------------------------------------------------------------


def test_effects_of_a_field_are_means_over_all_sequences_of_the_class() -> None:
    """Of three sequences about the same class, one has no effect of the drugs: it counts as none."""
    summary = summarise(
        [
            explained(influence(MORPHINE, 0.3), influence(ASPIRIN, -0.15), influence(OLD, 0.06)),
            explained(influence(MORPHINE, 0.6)),
            explanation(influences=(), joint=None, verdict="default"),
            explanation(of_class="no", influences=(influence(MORPHINE, -0.8),)),
        ]
    )
    assert [(of.of_class, of.field) for of in summary.fields] == [("no", "drugs"), ("yes", "drugs"), ("yes", "age")]
    of_no, drugs, age = summary.fields
    assert (of_no.raised, of_no.lowered) == (0, pytest.approx(-0.8))
    assert (drugs.raised, drugs.lowered) == (pytest.approx(0.3), pytest.approx(-0.05))
    assert (age.raised, age.lowered) == (pytest.approx(0.02), 0)
    assert drugs.total == pytest.approx(0.35)


def test_a_field_that_lowers_counts_as_much_as_one_that_raises() -> None:
    summary = summarise([explained(influence(OLD, 0.2), influence(ASPIRIN, -0.3))])
    assert [of.field for of in summary.fields] == ["drugs", "age"]


def test_only_the_strongest_fields_of_each_class_are_listed() -> None:
    effects = tuple(influence(Finding(1, f"field {n}", "", "x"), 0.5 - n / 100) for n in range(LISTED + 5))
    fields = summarise([explained(*effects), explanation(of_class="no", influences=effects)]).fields
    names = [f"field {n}" for n in range(LISTED)]
    assert [(of.of_class, of.field) for of in fields] == [(name, field) for name in ("no", "yes") for field in names]
    assert fields[0] == FieldEffect("field 0", "no", 0.5, 0.0)
