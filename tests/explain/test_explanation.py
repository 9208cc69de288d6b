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
    contested,
    explanation,
    influence,
    printed,
    share,
)

from tefm.base.errors import InputError
from tefm.explain.explanation import SHOWN, Explanation, Finding, Settling
from tefm.explain.render import cards_page
from tefm.rationale.verify import Answer

LOOK_ALIKES = (
    "of 200 look-alikes that share these 2 features and have everything else from another patient, 97% get the same "
    "answer (at least 92% with 95% confidence)."
)
LONE = Settling("yes", (MORPHINE,), share(97))


def page_text(*explanations: Explanation) -> str:
    return " ".join("".join(Page(cards_page(explanations)).words).split())


# ---- the verdict ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "conclusion"),
    [
        (explanation(), f"Settled: {LOOK_ALIKES}"),
        (explanation(rival=None), f"Settled: {LOOK_ALIKES}"),
        (
            contested(ASPIRIN, NO_WARD),
            f"Contested: {LOOK_ALIKES} But other features of the same patient settle “no” (95% of 200 look-alikes): "
            "Drugs: aspirin (stay 3 of 3); Ward: not recorded (stay 2 of 3).",
        ),
        (
            contested(ASPIRIN),
            f"Contested: {LOOK_ALIKES} But another feature of the same patient settles “no” (95% of 200 look-alikes): "
            "Drugs: aspirin (stay 3 of 3).",
        ),
        (
            explanation(verdict="unsettled"),
            f"Unsettled: no set of up to 10 features was found that settles this answer. Best set found: {LOOK_ALIKES}",
        ),
        (
            explanation(verdict="unsettled", most=1, settling=LONE),
            "Unsettled: no single feature was found that settles this answer. Best set found: of 200 look-alikes that "
            "share this feature and have everything else from another patient, 97% get the same answer (at least 92% "
            "with 95% confidence).",
        ),
        (
            explanation(verdict="default", base=share(96, 1_000)),
            "Default answer: the model answers “yes” for 96% of the population, so no feature is needed for it.",
        ),
        (
            explanation(verdict="unsettled", distinct=False),
            "Unsettled: little sets this patient apart. The probability of “yes”, 0.91, is not clearly above the "
            "population’s average.",
        ),
    ],
    ids=[
        "settled",
        "no rival",
        "contested",
        "by one feature",
        "unsettled",
        "no single feature",
        "default",
        "not distinct",
    ],
)
def test_the_conclusion_in_plain_words(shown: Explanation, conclusion: str) -> None:
    assert shown.conclusion == conclusion
    assert conclusion in unwrapped(printed(shown))
    assert conclusion in page_text(shown)
    assert shown.to_json()["conclusion"] == conclusion
    assert conclusion in str(shown)
    assert shown.verified == (shown.verdict in ("settled", "contested"))


def test_a_rival_that_does_not_settle_is_not_mentioned() -> None:
    assert "aspirin" not in explanation().conclusion + explanation(verdict="unsettled").conclusion


def test_how_common_the_features_are_and_what_happens_without_them() -> None:
    shown = explanation()
    assert shown.context == (
        "4% of the population have these 2 features; 30% of the population get this answer anyway. Replacing them with "
        "the values of others changes the answer in 62% of cases."
    )
    assert shown.context in unwrapped(printed(shown)) and shown.context in page_text(shown)
    assert shown.to_json()["context"] == shown.context
    single = explanation(settling=LONE).context
    assert "have this feature;" in single and "Replacing it with" in single


def test_an_answer_that_needs_no_features() -> None:
    nothing = explanation(settling=Settling("yes", (), share(93)))
    assert nothing.context == "" and "that share no feature and" in nothing.conclusion
    assert nothing.unnamed == "None from stays 1–3."


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
    shown = explanation(mean_p=mean)
    assert shown.risk == f"The probability of “yes” {compared}"
    assert shown.risk in unwrapped(printed(shown)) and shown.risk in page_text(shown)


@pytest.mark.parametrize(
    ("count", "percent"), [(1, "0.1%"), (4, "0.4%"), (500, "50%"), (997, "99.7%"), (1_000, "100%")]
)
def test_a_rare_feature_is_not_called_absent_nor_a_common_one_universal(count: int, percent: str) -> None:
    shown = explanation(coverage=replace(share(50), count=count, of=1_000))
    assert shown.context.startswith(f"{percent} of the population have these 2 features;")


def test_features_that_nobody_else_has() -> None:
    shown = explanation(coverage=replace(share(50), count=0, of=1_000))
    assert shown.context.startswith("None of 1,000 training sequences have these 2 features;")


def test_a_class_has_its_column_in_the_title() -> None:
    assert explanation().title == "patient p7: died = yes (p = 0.91)"
    assert explanation(label=None).title == "patient p7: yes (p = 0.91)"
    assert explanation(verdict="unsettled").named("no") == "died = no"


# ---- features ---------------------------------------------------------------------------------------------------


def test_features_stand_under_the_heading_of_their_record_in_its_order() -> None:
    shown = explanation()
    assert shown.by_record == {"Stay 1 of 3": [OLD], "Stay 3 of 3": [MORPHINE]}
    assert shown.unnamed == "None from stay 2."
    for text in (unwrapped(printed(shown)), page_text(shown)):
        in_order = ["Stay 1 of 3", OLD.words, "Stay 3 of 3", MORPHINE.words, "None from stay 2.", "For and against"]
        places = [text.index(words) for words in in_order]
        assert places == sorted(places)


def test_the_only_record_has_no_place() -> None:
    shown = explanation(records=1, settling=Settling("yes", (replace(MORPHINE, record=1),), share(97)))
    assert shown.placed(replace(MORPHINE, record=1)) == "Drugs: morphine"
    assert shown.unnamed == ""
    assert "Features: Drugs: morphine." in str(shown)


@pytest.mark.parametrize("change", [{"verdict": "default"}, {"verdict": "unsettled", "distinct": False}])
def test_features_that_say_nothing_are_not_listed(change: dict[str, Any]) -> None:
    shown = explanation(influences=(), **change)
    assert shown.context == ""
    for text in (str(shown), printed(shown), page_text(shown)):
        assert not any(words in text for words in ("morphine", "Age", "None from"))


def test_effects_for_and_against_have_their_sign_and_the_strongest_come_first() -> None:
    shown = explanation(influences=tuple(reversed(explanation().influences)))
    assert [one.finding for one in shown.supporting] == [MORPHINE, OLD], "the sign of the ward's cannot be told"
    assert [one.finding for one in shown.opposing] == [ASPIRIN]
    rows = re.findall(r"(\w+) \(stay [^\n]*?([+-]0\.\d{3}) \(([+-]0\.\d{3}) to ([+-]0\.\d{3})\)", printed(shown, 120))
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


def test_bars_are_shares_of_the_largest_effect() -> None:
    page = Page(cards_page([explanation()]))
    widths = [attributes["style"] for tag, attributes in page.tags if tag == "i"]
    assert widths == ["width:100.0%", "width:46.3%", "width:23.1%"]
    rows = [line for line in printed(explanation(), 120).splitlines() if " to " in line]
    assert [line.count("█") for line in rows] == [16, 7, 0]
    assert [line.count("▒") for line in rows] == [0, 0, 4], "an effect against looks different without colour"


def test_a_card_lists_the_strongest_effects_only() -> None:
    findings = [Finding(1, "dx", str(n), f"Diagnosis {n}") for n in range(2 * SHOWN)]
    effects = [influence(finding, sign * (0.5 - n / 50)) for n, finding in enumerate(findings) for sign in (1, -1)]
    shown = explanation(influences=tuple(effects))
    assert [one.finding for one in shown.supporting] == findings[:SHOWN]
    assert [one.finding for one in shown.opposing] == findings[:SHOWN]
    assert printed(shown).count("Diagnosis") == 2 * SHOWN
    assert printed(shown, shown=2).count("Diagnosis") == 4


@pytest.mark.parametrize("effects", [(), (influence(OLD, 0.0004, 0.0001),), (influence(OLD, 0.2, 0.3),)])
def test_no_visible_effect_is_said(effects: tuple[Any, ...]) -> None:
    shown = explanation(influences=effects)
    words = "No single feature changes the probability noticeably."
    assert words in unwrapped(printed(shown)) and words in page_text(shown)
    assert "For “yes”" not in str(shown)


def test_the_evidence_may_be_about_another_class_than_the_answer() -> None:
    shown = explanation(of_class="no", mean_p=0.75)
    assert shown.risk == "The probability of “no” is 0.09; the population’s average is 0.75."
    for text in (printed(shown), page_text(shown)):
        assert "For and against “no”" in text and "died = yes (p = 0.91)" in text


# ---- plain text -------------------------------------------------------------------------------------------------


def test_an_explanation_prints_as_text() -> None:
    shown = explanation()
    assert str(shown).splitlines() == [
        shown.title,
        "Features: Drugs: morphine (stay 3 of 3); Age: 80–89 years (stay 1 of 3).",
        shown.conclusion,
        shown.context,
        shown.risk,
        "For “yes”: Drugs: morphine (stay 3 of 3) (+0.432); Age: 80–89 years (stay 1 of 3) (+0.200).",
        "Against “yes”: Drugs: aspirin (stay 3 of 3) (-0.100).",
    ]
    assert repr(shown) == "<Explanation patient p7: died = yes (p = 0.91), settled>"


@pytest.mark.parametrize(("show", "lines"), [(str, 7), (repr, 1)])
def test_text_of_a_hostile_value_has_no_control_codes(show: Callable[[Explanation], str], lines: int) -> None:
    shown = explanation(sequence="p\x1b[2J\x07\x9b31m\n7", influences=(*explanation().influences, hostile_effect()))
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
        settling=Settling("yes", (long, script), share(97)), influences=(influence(script, 0.3), influence(long, -0.2))
    )


@pytest.mark.parametrize("width", [60, 80, 132])
def test_the_card_fits_its_width_and_loses_no_word(width: int) -> None:
    shown = printed(wordy(), width)
    assert {len(line) for line in shown.splitlines()} == {width}
    assert SCRIPT in unwrapped(shown)
    assert LONG.replace(" ", "") in unwrapped(shown).replace(" ", "")
    assert "patient p7: died = yes (p = 0.91)" in shown
    for interval in ("+0.300 (+0.290 to +0.310)", "-0.200 (-0.210 to -0.190)"):
        assert interval in shown


def test_a_value_cannot_send_control_codes_to_the_terminal() -> None:
    shown = printed(explanation(sequence="p\x1b[2J\x07\x9b31m7", influences=(hostile_effect(),)))
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
    for words in (shown.title, shown.conclusion, shown.context, shown.risk, MORPHINE.words, "Stay 1 of 3", "+0.432"):
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
    assert [attributes["data-field"] for _, attributes in page.tags if "data-field" in attributes] == ["age", "drugs"]
