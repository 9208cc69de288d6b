"""An explanation as a case: paragraphs by field, from templates, with the corroboration below."""

from __future__ import annotations

from dataclasses import replace

from support.explanations import ASPIRIN, MORPHINE, OLD, explanation, influence, on_terminal

from tefm.explain.counts import Observed
from tefm.explain.explanation import Explanation, Settling
from tefm.explain.render import OTHERS, SUMMARY, cards_page, case_card, case_of
from tefm.tables.references import Reference

DRUG = replace(
    MORPHINE, of_set=True, references=(Reference("drugs", "morphine", "An opioid.", "A formulary"),), decoded="aspirin"
)


def patient(**changes: object) -> Explanation:
    """Morphine, which has a reference and an effect, and age settle the answer; aspirin speaks against it."""
    plain = explanation()
    shares = (replace(influence(DRUG, 0.4321), observed=Observed(100, 60, 900, 100)), influence(OLD, 0.2))
    settling = Settling("yes", (DRUG, OLD), plain.settling.precision, plain.settling.real)
    joint = replace(plain.joint, shares=shares) if plain.joint else None
    against = (influence(replace(ASPIRIN, of_set=True), -0.1),)
    return replace(plain, settling=settling, joint=joint, influences=against, **changes)


def test_a_case_has_a_summary_a_paragraph_per_set_and_one_for_the_rest() -> None:
    summary, drugs, others = case_of(patient())
    assert [summary.heading, drugs.heading, others.heading] == [SUMMARY, "Drugs", OTHERS]
    assert summary.words.startswith("Settled: ") and "The probability of “yes” is 0.91" in summary.words
    assert drugs.words == (
        "morphine (last stay) raises the probability of “yes” by 0.432 and is one of the conditions that settle the "
        "answer. aspirin (last stay) lowers the probability of “yes” by 0.100."
    )
    assert drugs.corroboration[0].startswith("morphine: observed for 60% of 100 training sequences with it")
    assert drugs.corroboration[1] == "morphine: An opioid. [1]"
    assert others.words.startswith("Age: 80–89 years (2 stays before the last) raises") and not others.corroboration
    text = on_terminal(case_card(patient(), bibliography=True))
    assert "[1] A formulary" in text and text.index("Summary.") < text.index("Drugs.") < text.index("Other fields.")


def test_a_set_that_does_not_settle_the_answer_is_not_said_to() -> None:
    words = " ".join(paragraph.words for paragraph in case_of(patient(verdict="unsettled")))
    assert "belongs to the best rule found" in words and "settle the answer" not in words


def test_a_default_answer_names_effects_only() -> None:
    words = " ".join(paragraph.words for paragraph in case_of(patient(verdict="default"))[1:])
    assert "lowers the probability" in words and "settle" not in words


def test_what_the_codes_blur_is_said_where_it_is_cited() -> None:
    assert patient().blurred == "The codes that the model reads blur: Drugs: morphine (last stay) (read as “aspirin”)."
    lost = replace(DRUG, decoded="")
    cited = replace(
        patient(), settling=Settling("yes", (lost,), patient().settling.precision), influences=(), joint=None
    )
    assert cited.blurred == "The codes that the model reads blur: Drugs: morphine (last stay) (lost)."
    assert explanation().blurred == "" and "blur" in str(patient())


def test_the_page_has_the_case_and_json_keeps_all_of_it() -> None:
    page = cards_page([patient()])
    assert "As a case" in page and "raises the probability of “yes” by 0.432" in page and "blur" in page
    assert Explanation.from_json(patient().to_json()) == patient()
