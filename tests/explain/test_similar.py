"""Real training sequences that are most like an explained one: a planted twin comes first, what differs is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import STAYS, Explained, quick, stays
from explain.test_explanation import page_text
from explain.test_look_alikes import LAYOUT, sequences
from explain.test_render import Page, assert_harmless
from hypothesis import given
from hypothesis import strategies as st
from support.cards import SCRIPT, unwrapped
from support.explanations import ASPIRIN, NO_WARD, explanation, printed

from tefm.base.errors import NotFittedError, SettingsError
from tefm.explain.cards import Finding
from tefm.explain.explanation import Explanation, SimilarCase
from tefm.explain.render import cards_page
from tefm.explain.similar import distances
from tefm.model.estimator import TEFM
from tefm.rationale.verify import Answer
from tefm.tables.layout import Layout, Slot
from tefm.tables.sequences import Sequences

#: What the model of the tests was fitted on.
LEARNED = stays(200)


def similar(
    percent: float, says: str = "no", observed: str | None = "yes", *differs: Finding, more: int = 0
) -> SimilarCase:
    return SimilarCase(Answer(says, {"no": 0.7, "yes": 0.3}), observed, 3, percent / 100, differs, more)


# ---- how far apart sequences are ----------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_distance_is_zero_for_the_same_alone_and_at_most_one(seed: int, longest: int) -> None:
    cases = sequences(40, seed=seed, longest=longest)
    for number in range(3):
        apart_S = distances(cases, cases[number], LAYOUT)
        same = [case.shape == cases[number].shape and (case == cases[number]).all() for case in cases]
        assert ((apart_S < 1e-6) == same).all() and (apart_S <= 1).all() and (apart_S >= -1e-6).all()


def test_fields_count_alike_whatever_they_are() -> None:
    """A set of a hundred members counts as much as a number; what both lack says nothing."""
    members = tuple(Slot("dx", "flag", 1, str(n)) for n in range(100))
    layout = Layout((Slot("age", "number", 10), Slot("ward", "category", 3), *members))
    x_D = np.zeros(102, dtype=np.uint8)
    x_D[[0, 1, 2, 3]] = 5, 1, 1, 1
    cases = np.tile(x_D, (4, 1))
    cases[0, 0] = 10  # half the scale
    cases[1, 1] = 0  # not recorded
    cases[2, 4:6] = 1  # two of four members that either has
    cases[3, 2:] = 1 - cases[3, 2:]  # no member in common
    apart = distances(Sequences(cases, np.arange(5)), x_D[None], layout)
    assert apart == pytest.approx([0.5 / 3, 1 / 3, 0.5 / 3, 1 / 3], abs=1e-6)


# ---- of a model -----------------------------------------------------------------------------------------------------


def test_a_planted_twin_is_found_first(fitted: TEFM) -> None:
    """Stays of the training table come back as new patients; others differ in what is named."""
    explanations = fitted.explain(LEARNED.with_columns(patient="new " + pl.col("patient")).head(24), similar=3)
    observed = dict(LEARNED.group_by("patient").agg(pl.col("died").last()).iter_rows())
    twins = 0
    for one in explanations:
        assert one.similar is not None and len(one.similar) <= 3
        assert [case.likeness for case in one.similar] == sorted((c.likeness for c in one.similar), reverse=True)
        twin, *others = one.similar
        assert all(case.differs or case.records != one.records for case in others if case.likeness < 1)
        if twin.likeness == 1:  # those of the validation part are not stored
            twins += 1
            assert twin.differs == () and twin.records == one.records
            assert twin.answer.p == pytest.approx(one.answer.p, abs=1e-6)
            assert twin.observed == observed[one.sequence.removeprefix("new ")]
    assert twins >= 0.7 * len(explanations)


def test_they_satisfy_the_rule(fitted: TEFM) -> None:
    few = stays(4, seed=1)
    for one in fitted.explain(few, similar=1_000):
        assert one.similar is not None
        assert len(one.similar) == one.coverage.count
        settled = {(of.field, of.record): of for of in one.settling.findings if of.when is None}
        for case in one.similar:
            assert all(
                of.words != settled[key].words for of in case.differs if (key := (of.field, of.record)) in settled
            )
    assert all(one.similar is None for one in fitted.explain(few))


def test_what_cannot_be_asked(fitted: TEFM, backbones: dict[str, Path], explained: Explained) -> None:
    explained(SettingsError, lambda: fitted.explain(LEARNED, similar=-1), "similar", "-1")
    silent = quick(backbones["llama"], STAYS, explanations="none", tune={"steps": 2})
    silent = silent.set_params(tokenizer=fitted.tokenizer_).fit(LEARNED)
    explained(
        NotFittedError, lambda: silent.explain(LEARNED, similar=3), "without explanations", "explanations: default"
    )


# ---- cards ----------------------------------------------------------------------------------------------------------


def test_each_case_is_a_line_on_the_card_and_opens_on_the_page() -> None:
    cases = (similar(100, "yes"), similar(93, "no", None, ASPIRIN, NO_WARD, more=4))
    shown = explanation(similar=(cases[0], replace(cases[1], records=1)))
    titles = ["100% alike: “yes” (p = 0.30), observed “yes”", "93% alike: “no” (p = 0.70), nothing observed"]
    assert [case.title for case in shown.similar or ()] == titles
    differences = [
        "1 stay",
        "Drugs: aspirin (last stay)",
        "Ward: not recorded (1 stay before the last)",
        "4 more values",
    ]
    assert shown.differences(cases[0]) == ["the same in all fields"]
    assert [*map(shown.differences, shown.similar or ())][1] == differences
    for words in ("Most similar training sequences that satisfy the rule", *titles):
        assert words in unwrapped(printed(shown, 100)) and words in page_text(shown)
    assert cards_page([shown]).count("<details><summary>9") == 1 and all(
        words in page_text(shown) for words in differences
    )
    body = json.loads(json.dumps(shown.to_json()))
    assert Explanation.from_json(body) == shown and body["similar"][1]["differs"][0]["field"] == "drugs"
    assert "training sequences" not in printed(explanation(settling=replace(explanation().settling, findings=())))


def test_none_that_satisfies_the_rule() -> None:
    shown = explanation(similar=())
    for text in (unwrapped(printed(shown)), page_text(shown)):
        assert "No training sequences that satisfy the rule" in text


@pytest.mark.parametrize(("conditions", "lines"), [(1, 5), (4, 5), (8, 1)])
def test_a_card_with_them_has_at_most_25_lines(conditions: int, lines: int) -> None:
    many = tuple(Finding(1, f"f{n}", "", f"A condition in some words {n}") for n in range(conditions))
    long = Finding(1, "note", "", "Note: " + "many words " * 20)
    cases = tuple(similar(90 - n, "no", "yes", long, ASPIRIN) for n in range(5))
    settling = replace(explanation().settling, findings=many, without=())
    shown = printed(explanation(settling=settling, joint=None, real_world=0.2, similar=cases))
    assert len(shown.rstrip().splitlines()) <= 25 and shown.count("% alike") == lines
    assert (f"({5 - lines} more on the page" in unwrapped(shown)) == (lines < 5)


def test_hostile_values_stay_text() -> None:
    shown = explanation(similar=(similar(90, "no", SCRIPT, Finding(1, "ward", "x", f"Ward: {SCRIPT}\x1b[2J")),))
    assert_harmless(Page(cards_page([shown])))
    assert "\x1b[2J" not in printed(shown)
