"""Rationales as a page of their own."""

from __future__ import annotations

from show.examples import HOSTILE, rationale
from show.test_page import checked

from tefm.show.cards import rationale_page


def test_a_card_shows_the_check_and_the_features() -> None:
    text = " ".join(checked(rationale_page([rationale()])).text.split())
    for words in ("patient p7: yes (p = 0.91)", "Passed: sufficient.", "Probability of “yes”", "0.820",
                  "0.310", "drugs: morphine", "1.00 kept", "0.50 not kept", "<sta_a_3><sta_b_7>",
                  "Sufficiency 0.090"):  # fmt: skip
        assert words in text, words


def test_several_are_listed_first() -> None:
    outline = checked(rationale_page([rationale(), rationale(passed=False)], "Two patients"))
    assert outline.addresses == ["#r1", "#r2"]
    assert "not passed: insufficient" in outline.text
    assert "nav" not in checked(rationale_page([rationale()])).tags


def test_hostile_values() -> None:
    page = rationale_page([rationale(HOSTILE, "b")], HOSTILE)
    assert HOSTILE in checked(page).text and "<script" not in page
