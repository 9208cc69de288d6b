"""An explanation in words, as JSON, as a card and as a page: it claims no more than the check shows, and is safe."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from conftest import Explained
from explain.test_render import Page, assert_harmless
from support.cards import LONG, SCRIPT, unwrapped
from support.explanations import (
    ASPIRIN,
    MORPHINE,
    NO_WARD,
    OLD,
    about,
    contested,
    explanation,
    influence,
    printed,
    share,
)

from tefm.base.errors import InputError
from tefm.explain.cards import Finding
from tefm.explain.counts import NONE, Observed
from tefm.explain.explanation import SHOWN, Explanation, JointEffect, Sensitive, Settling
from tefm.explain.render import SHORT, cards_page
from tefm.rationale.verify import Answer

LONE = Settling("yes", (MORPHINE,), share(97), share(98, 40))


def page_text(*explanations: Explanation) -> str:
    return " ".join("".join(Page(cards_page(explanations)).words).split())


# ---- the verdict ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "conclusion"),
    [
        (explanation(), "Settled: whoever meets these 2 conditions gets the answer “yes”."),
        (explanation(settling=LONE, rival=None), "Settled: whoever meets this condition gets the answer “yes”."),
        (
            explanation(verdict="made-up only"),
            "Settled for made-up cases only: these 2 conditions; real cases do not show it.",
        ),
        (
            contested(ASPIRIN, NO_WARD),
            "Contested: these 2 conditions settle “yes”, but others of the same patient settle “no”: Drugs: aspirin "
            "(last stay); Ward: not recorded (1 stay before the last).",
        ),
        (
            explanation(verdict="unsettled"),
            "Unsettled: no rule of up to 10 conditions settles this answer. The best one found:",
        ),
        (
            explanation(verdict="unsettled", most=1, settling=LONE),
            "Unsettled: no single condition settles this answer. The best one found:",
        ),
        (
            explanation(verdict="default", base=share(96, 1_000)),
            "Default answer: the model answers “yes” for 96% of the population, so no rule is needed for it.",
        ),
        (
            explanation(verdict="unsettled", distinct=False),
            "Unsettled: little sets this patient apart. The probability of “yes”, 0.91, is not clearly above the "
            "population’s average.",
        ),
    ],
    ids=["settled", "one", "made-up only", "contested", "unsettled", "no single one", "default", "not distinct"],
)
def test_the_conclusion_in_plain_words(shown: Explanation, conclusion: str) -> None:
    assert shown.conclusion == conclusion
    assert conclusion in unwrapped(printed(shown))
    assert conclusion in page_text(shown)
    assert shown.to_json()["conclusion"] == conclusion
    assert conclusion in str(shown)
    assert shown.verified == (shown.verdict in ("settled", "made-up only", "contested"))


def test_both_checks_stand_side_by_side() -> None:
    shown = explanation(settling=replace(explanation().settling, observed=Observed(40, 12, 960, 96)))
    assert shown.made_up == (
        "Made-up cases (the rule, and everything else from another patient): 97% of 200 get this answer (at least 92% "
        "with 95% confidence), as do 30% of all."
    )
    assert shown.real == (
        "Real cases: 40 of 1,000 training sequences (4%); 98% get this answer (at least 93%); “yes” was observed for "
        "30% of them and 10% of the others."
    )
    assert shown.effect == (
        "The probability of “yes”: with the rule 0.91; with others’ values in its fields 0.31; everybody’s average "
        "0.28. With others’ values, the answer changes in 62% of cases."
    )
    for words in (shown.made_up, shown.real):
        assert words in unwrapped(printed(shown)) and words in page_text(shown) and words in str(shown)
    few = explanation(settling=replace(explanation().settling, real=share(100, 3)))
    assert few.real.endswith("(4%), too few to tell; 3 of them get this answer.")
    none = explanation(settling=replace(explanation().settling, real=NONE))
    assert none.real == "Real cases: none of 1,000 training sequences."
    nothing = explanation(settling=Settling("yes", (), share(93)))
    assert nothing.real == ""


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (explanation(), "Opposite answer: not contested; no rule here settles “no”."),
        (
            explanation(rival=None),
            "Opposite answer: not contested; no rule here settles “no”.",
        ),
        (contested(ASPIRIN), ""),
        (
            explanation(verdict="unsettled", rival=Settling("no", (ASPIRIN,), share(97))),
            "Opposite answer: “no” is settled by: Drugs: aspirin (last stay).",
        ),
    ],
)
def test_every_card_says_whether_the_opposite_can_be_settled(shown: Explanation, words: str) -> None:
    assert shown.opposite == words and words in unwrapped(printed(shown)) and words in page_text(shown)
    assert "aspirin" not in explanation().conclusion + explanation(verdict="unsettled").conclusion


def test_shares_and_levels_are_on_one_scale() -> None:
    """The joint effect is 0.91 − 0.31; its shares sum to it, and bars are of a scale from 0 to 1."""
    shown = explanation()
    text = printed(shown, 100)
    assert "+0.43 ±0.01" in text and "+0.17 ±0.01" in text
    bars = [line.count("█") for line in text.splitlines() if "█" in line]
    assert bars == [round(16 * p) for p in (0.91, 0.31, 0.28)]
    page = page_text(shown)
    assert "with others’ values in the fields of the rule" in page and "+0.43" in page and "+0.17" in page
    same = replace(influence(MORPHINE, 0.6), low=0.6, high=0.6)
    alone = explanation(settling=LONE, joint=replace(shown.joint, shares=(same,)))
    assert "±" not in printed(alone) and "the same with all others’ values" in page_text(alone)


def test_the_threshold_and_the_real_world() -> None:
    assert explanation().title == "patient p7: died = yes (p = 0.91, threshold 0.60)"
    shown = explanation(real_world=0.214)
    assert shown.balanced.endswith("at their real shares, p = 0.21.")
    assert shown.balanced in unwrapped(printed(shown)) and shown.balanced in page_text(shown)
    assert explanation().balanced == ""


@pytest.mark.parametrize(
    "shown", [explanation(real_world=0.2), about(), contested(ASPIRIN), explanation(verdict="made-up only")]
)
def test_a_card_has_at_most_25_lines(shown: Explanation) -> None:
    assert len(printed(shown).rstrip().splitlines()) <= 25


@pytest.mark.parametrize("verdict", ["settled", "made-up only", "unsettled"])
def test_a_card_of_ten_conditions_has_at_most_25_lines(verdict: Any) -> None:
    """All conditions of a rule that settles the answer are on it."""
    many = tuple(Finding(1, f"f{n}", "", f"A condition in some words {n}", decoded="") for n in range(10))
    shares = tuple(influence(finding, 0.06) for finding in many)
    settling = Settling("yes", many, share(97), share(98, 40), Observed(40, 12, 960, 96), (share(90),) * 10)
    joint = JointEffect(0.31, 0.25, 0.37, 0.28, shares)
    shown = printed(explanation(verdict=verdict, settling=settling, joint=joint, real_world=0.2, records=1))
    assert len(shown.rstrip().splitlines()) <= 25
    assert shown.count("A condition") == (10 if verdict != "unsettled" else 6)


@pytest.mark.parametrize(
    ("mean", "compared"),
    [
        (0.25, "is 0.91, 3.6 times the population’s average of 0.25."),
        (0.455, "is 0.91, 2.0 times the population’s average of 0.46."),
        (0.46, "is 0.91; the population’s average is 0.46."),
        (0.0021, "is 0.91, 433.3 times the population’s average of 0.002."),
        (0.0, "is 0.91; the population’s average is 0."),
    ],
)
def test_the_probability_is_compared_with_that_of_the_population(mean: float, compared: str) -> None:
    shown = about("yes", mean_p=mean)
    assert shown.risk == f"The probability of “yes” {compared}"
    assert shown.risk in unwrapped(printed(shown)) and shown.risk in page_text(shown)


@pytest.mark.parametrize(
    ("count", "percent"), [(1, "0.1%"), (4, "0.4%"), (500, "50%"), (997, "99.7%"), (1_000, "100%")]
)
def test_a_rare_rule_is_not_called_absent_nor_a_common_one_universal(count: int, percent: str) -> None:
    shown = explanation(coverage=replace(share(50), count=count, of=1_000))
    assert f"1,000 training sequences ({percent})" in shown.real


def test_a_class_has_its_column_in_the_title() -> None:
    assert explanation(threshold=None).title == "patient p7: died = yes (p = 0.91)"
    assert explanation(label=None, threshold=None).title == "patient p7: yes (p = 0.91)"
    assert explanation(verdict="unsettled").named("no") == "died = no"


def test_sensitive_fields_are_marked_and_what_others_would_get_is_told() -> None:
    settling = Settling("yes", (MORPHINE, OLD), share(97), share(98, 40))
    others = (
        Sensitive("Age", ("age", "age_last_seen"), share(98, 50), 0.61, 0.93),
        Sensitive("Race", ("race",), share(100, 50), 0.9, 0.92),
        Sensitive("Sex", ("sex",), NONE),
    )
    shown = explanation(settling=settling, sensitive=others, joint=None)
    assert shown.other_values == (
        "Sensitive fields: with another Age: “yes” for 98% of 50, p 0.61 to 0.93; with another Race: “yes” for 100% of "
        "50, p 0.90 to 0.92; no one has another Sex."
    )
    body = shown.to_json()
    assert body["other_values"] == shown.other_values
    assert body["sensitive"][0]["fields"] == ["age", "age_last_seen"] and Explanation.from_json(body) == shown
    assert not {"sensitive", "other_values", "similar"} & explanation().to_json().keys(), "nobody asked"
    for text in (unwrapped(printed(shown)), page_text(shown), str(shown)):
        assert shown.other_values in text and "Age: 80–89 years (2 stays before the last, sensitive)" in text
    assert explanation().other_values == "" and "ensitive" not in printed(explanation())
    assert len(printed(replace(shown, joint=explanation().joint, real_world=0.2)).splitlines()) <= 25


# ---- features ---------------------------------------------------------------------------------------------------


def test_conditions_say_which_records_they_are_about() -> None:
    shown = explanation()
    assert [shown.place(finding) for finding in (OLD, NO_WARD, MORPHINE)] == [
        " (2 stays before the last)",
        " (1 stay before the last)",
        " (last stay)",
    ]
    assert shown.placed(replace(MORPHINE, when="in any of the last 3 stays")) == (
        "Drugs: morphine (in any of the last 3 stays)"
    )
    assert shown.placed(replace(OLD, when="")) == OLD.words, "a field of the patient"


def test_the_only_record_has_no_place() -> None:
    shown = explanation(records=1, settling=Settling("yes", (replace(MORPHINE, record=1),), share(97)))
    assert shown.placed(replace(MORPHINE, record=1)) == "Drugs: morphine"
    assert "Rule: Drugs: morphine." in str(shown)


@pytest.mark.parametrize("change", [{"verdict": "default"}, {"verdict": "unsettled", "distinct": False}])
def test_features_that_say_nothing_are_not_listed(change: dict[str, Any]) -> None:
    shown = explanation(influences=(), **change)
    assert shown.made_up == shown.real == shown.effect == ""
    for text in (str(shown), printed(shown), page_text(shown)):
        assert not any(words in text for words in ("morphine", "Age"))


def test_effects_for_and_against_have_their_sign_and_the_strongest_come_first() -> None:
    shown = about(influences=tuple(reversed(about().influences)))
    assert [one.finding for one in shown.supporting] == [MORPHINE, OLD], "the sign of the ward's cannot be told"
    assert [one.finding for one in shown.opposing] == [ASPIRIN]
    rows = re.findall(r"(\w+) \([^\n]*?([+-]0\.\d{3}) \(([+-]0\.\d{3}) to ([+-]0\.\d{3})\)", printed(shown, 120))
    assert rows == [
        ("morphine", "+0.432", "+0.422", "+0.442"),
        ("years", "+0.200", "+0.190", "+0.210"),
        ("aspirin", "-0.100", "-0.110", "-0.090"),
    ]
    text = page_text(shown)
    assert "Features for it: how much each one raises the probability" in text
    assert "Features against it: how much each one lowers the probability" in text
    assert "+0.432+0.422 to +0.442" in text and "-0.100-0.110 to -0.090" in text, "two cells of a table"
    assert "not recorded" not in text


def test_bars_of_effects_are_of_the_same_scale() -> None:
    rows = [line for line in printed(about(), 120).splitlines() if " to +" in line or " to -" in line]
    assert [line.count("█") for line in rows] == [7, 3, 0]
    assert [line.count("▒") for line in rows] == [0, 0, 2], "an effect against looks different without colour"


def test_a_card_lists_the_strongest_effects_only() -> None:
    findings = [Finding(1, "dx", str(n), f"Diagnosis {n}") for n in range(2 * SHOWN)]
    effects = [influence(finding, sign * (0.5 - n / 50)) for n, finding in enumerate(findings) for sign in (1, -1)]
    shown = about(influences=tuple(effects))
    assert [one.finding for one in shown.supporting] == findings[:SHOWN]
    assert [one.finding for one in shown.opposing] == findings[:SHOWN]
    assert " ".join(Page(shown._repr_html_()).words).count("Diagnosis") == 2 * SHOWN
    assert printed(shown).count("Diagnosis") == 2 * SHORT


@pytest.mark.parametrize("effects", [(influence(OLD, 0.0004, 0.0001),), (influence(OLD, 0.2, 0.3),)])
def test_no_visible_effect_is_said(effects: tuple[Any, ...]) -> None:
    shown = about(influences=effects)
    words = "No single feature changes the probability noticeably."
    assert words in unwrapped(printed(shown)) and words in page_text(shown)
    assert "For “no”" not in str(shown)


def test_the_evidence_may_be_about_another_class_than_the_answer() -> None:
    shown = about()
    assert shown.risk == "The probability of “no” is 0.09; the population’s average is 0.75."
    for text in (printed(shown), page_text(shown)):
        assert "For and against “no”" in text and "died = yes (p = 0.91" in text


# ---- plain text -------------------------------------------------------------------------------------------------


def test_an_explanation_prints_as_text() -> None:
    shown = about()
    assert str(shown).splitlines() == [
        shown.title,
        "Rule: Drugs: morphine (last stay); Age: 80–89 years (2 stays before the last).",
        shown.conclusion,
        shown.made_up,
        shown.real,
        shown.effect,
        shown.opposite,
        shown.risk,
        "For “no”: Drugs: morphine (last stay) (+0.432); Age: 80–89 years (2 stays before the last) (+0.200).",
        "Against “no”: Drugs: aspirin (last stay) (-0.100).",
    ]
    assert repr(shown) == "<Explanation patient p7: died = yes (p = 0.91, threshold 0.60), settled>"


@pytest.mark.parametrize(("show", "lines"), [(str, 9), (repr, 1)])
def test_text_of_a_hostile_value_has_no_control_codes(show: Callable[[Explanation], str], lines: int) -> None:
    shown = explanation(sequence="p\x1b[2J\x07\x9b31m\n7", of_class="no", influences=(hostile_effect(),))
    assert all(line.isprintable() for line in show(shown).split("\n"))
    assert len(show(shown).splitlines()) == lines, "nor lines of its own"


def hostile_effect() -> Any:
    return influence(Finding(1, "ward", "x", "Ward: \x1b[2J\n\x07"), 0.3)


# ---- JSON -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shown",
    [explanation(), explanation(rival=None, label=None, influences=()), contested(ASPIRIN, NO_WARD)],
    ids=["settled", "little", "contested"],
)
def test_json_comes_back_as_the_same_explanation(shown: Explanation) -> None:
    body = json.loads(json.dumps(shown.to_json(), allow_nan=False))
    assert Explanation.from_json(body) == shown
    assert body["risk"] == shown.risk
    assert cards_page([Explanation.from_json(body)]) == cards_page([shown])


@pytest.mark.parametrize(
    ("change", "where"),
    [({"verdict": "fine"}, "verdict"), ({"settling": {"answer": "yes"}}, "settling"), ({"answer": None}, "answer")],
)
def test_other_json_is_rejected(change: dict[str, Any], where: str, explained: Explained) -> None:
    explained(
        InputError, lambda: Explanation.from_json(explanation().to_json() | change), "not a valid explanation", where
    )
    explained(InputError, lambda: Explanation.from_json([]), "not a valid explanation")


def test_a_stored_explanation_is_shown_without_heavy_imports() -> None:
    """Without the libraries that read tables and run models."""
    code = """
import json, sys
from tefm.explain.explanation import Explanation
from tefm.explain.render import explanation_card, cards_page
explanation = Explanation.from_json(json.load(sys.stdin))
assert "Drugs: morphine" in cards_page([explanation]) and explanation_card(explanation)
assert not {"polars", "torch", "sklearn", "scipy"} & set(sys.modules)
"""
    body = json.dumps(explanation().to_json())
    done = subprocess.run([sys.executable, "-c", code], input=body, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- terminal ---------------------------------------------------------------------------------------------------


def wordy() -> Explanation:
    """A long value, and one that looks like markup, among the features and the effects."""
    long, script = Finding(1, "dx", "507", f"Diagnosis: {LONG}"), Finding(3, "ward", SCRIPT, f"Ward: {SCRIPT}")
    return explanation(
        settling=Settling("yes", (long, script), share(97)),
        of_class="no",
        influences=(influence(script, 0.3), influence(long, -0.2)),
        joint=None,
    )


@pytest.mark.parametrize("width", [60, 80, 132])
def test_the_card_fits_its_width_and_loses_no_word(width: int) -> None:
    shown = printed(wordy(), width)
    assert {len(line) for line in shown.splitlines()} == {width}
    assert SCRIPT in unwrapped(shown)
    assert LONG.replace(" ", "") in unwrapped(shown).replace(" ", "")
    assert "patient p7: died = yes (p = 0.91" in shown
    for interval in ("+0.300 (+0.290 to +0.310)", "-0.200 (-0.210 to -0.190)"):
        assert interval in shown


def test_a_value_cannot_send_control_codes_to_the_terminal() -> None:
    shown = printed(about(sequence="p\x1b[2J\x07\x9b31m7", influences=(hostile_effect(),)))
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)


# ---- browser ----------------------------------------------------------------------------------------------------


def hostile() -> Explanation:
    """An explanation whose names and values try to break out of the page."""
    died = '<b onclick="x">died</b>'
    field = Finding(1, '"><script>alert(3)</script>', SCRIPT, f"Ward: {SCRIPT}")
    return replace(
        explanation(died),
        sequence='"><img src=x onerror=alert(1)>',
        entity=SCRIPT,
        label=SCRIPT,
        record='<i onload="x">',
        answer=Answer(died, {died: 0.8, "no": 0.2}),
        verdict="contested",
        settling=Settling(died, (field,), share(97)),
        rival=Settling(SCRIPT, (field,), share(95)),
        influences=(influence(field, 0.3), influence(field, -0.2)),
        joint=JointEffect(0.3, 0.2, 0.4, 0.5, (influence(field, 0.5),)),
    )


def test_the_page_escapes_hostile_values() -> None:
    assert_harmless(Page(cards_page([hostile(), hostile()], "</title><script>alert(2)</script>")))


def test_a_notebook_card_escapes_hostile_values() -> None:
    assert_harmless(Page(hostile()._repr_html_()))


def test_a_notebook_shows_the_card() -> None:
    shown = contested(ASPIRIN)
    html = shown._repr_html_()
    page = Page(html)
    text = " ".join("".join(page.words).split())
    for words in (shown.title, shown.conclusion, shown.made_up, shown.real, MORPHINE.words, "last stay", "+0.43"):
        assert words in text
    assert not {"script", "link", "html", "body"} & {tag for tag, _ in page.tags}
    assert not re.search(r"https?:|url\(|@import", html)
    assert not [attributes["id"] for _, attributes in page.tags if "id" in attributes], "two cards may share a page"


def test_the_styles_of_a_notebook_card_apply_to_nothing_else() -> None:
    html = explanation()._repr_html_()
    style = html[html.index("<style>") + len("<style>") : html.index("</style>")]
    selectors = re.findall(r"([^{};]+)\{", re.sub(r"@media[^{]*\{", "", style))
    assert len(selectors) > 20
    for selector in (part.strip() for group in selectors for part in group.split(",")):
        assert selector.removeprefix("}").strip().startswith(".tefm-card"), selector


def test_the_page_loads_nothing() -> None:
    html = cards_page([explanation(), contested(ASPIRIN)], "Two patients")
    page = Page(html)
    assert not re.search(r"https?:|url\(|@import|<link|<script", html)
    assert all(link.startswith("#") for _, attributes in page.tags if (link := attributes.get("href")))
    identities = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    assert (
        {attributes["href"] for tag, attributes in page.tags if tag == "a"}
        == {"#e1", "#e2"}
        <= {f"#{identity}" for identity in identities}
    )
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html


def test_the_list_of_a_page_has_the_verdicts_and_one_explanation_needs_none() -> None:
    text = page_text(explanation(), contested(ASPIRIN))
    listed = [f"{explanation().title} {verdict}" for verdict in ("settled", "contested")]
    assert all(words in text for words in listed)
    assert "<nav" not in cards_page([explanation()])


def test_only_a_settled_answer_has_the_colour_of_success() -> None:
    assert 'class="passed"' in cards_page([explanation()])
    for shown in (contested(ASPIRIN), explanation(verdict="unsettled"), explanation(verdict="default")):
        assert 'class="passed"' not in cards_page([shown])


def test_the_page_links_each_feature_to_its_field() -> None:
    page = Page(cards_page([explanation()]))
    assert [attributes["data-field"] for _, attributes in page.tags if "data-field" in attributes] == ["drugs", "age"]


def test_what_the_codes_blur_is_said_where_it_is_cited() -> None:
    plain = explanation()
    blurred = replace(MORPHINE, decoded="aspirin")
    shown = replace(plain, settling=replace(plain.settling, findings=(blurred, OLD)), joint=None)
    assert shown.blurred == "The codes that the model reads blur: Drugs: morphine (last stay) (read as “aspirin”)."
    assert "blur" in str(shown) and "blur" in cards_page([shown]) and "blur" in printed(shown)
    lost = replace(shown, settling=replace(plain.settling, findings=(replace(blurred, decoded=""),)))
    assert lost.blurred == "The codes that the model reads blur: Drugs: morphine (last stay) (lost)."
    assert plain.blurred == "" and Explanation.from_json(shown.to_json()) == shown
