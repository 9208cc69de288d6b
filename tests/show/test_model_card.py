"""The model card: every fact is in it, parts that a model lacks are not, and no name breaks it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from support.examples import HOSTILE, scores

from tefm.language.alignment import Alignment
from tefm.rationale.surrogate import Agreement
from tefm.show.html import to_html
from tefm.show.model_card import ModelCardFacts, model_card

FACTS = ModelCardFacts(
    title="died from the stays of one patient",
    base_model="smollm2-135m",
    classes=("no", "yes"),
    one_sequence="the stays of one patient",
    blocks=6,
    parameters=49_775_040,
    temperature=1.234,
    threshold=0.4,
    positive="yes",
    slots=458,
    levels=3,
    entries=128,
    task_aware=True,
    alignment=Alignment(1_000, 0.91, 0.92, 0.95, 0.96, 0.81, (0.5, 0.25), 1.5, 2.5),
    explains=True,
    donors=2_500,
    agreement=Agreement(0.987, 0.01, 0.954, 0.02, 321),
    scores={"test": {**scores(0.803), "tokens_mean": 8.71}},
)


def header(card: str) -> dict[str, Any]:
    _, front, _ = card.split("---\n", 2)
    return dict(yaml.safe_load(front))


def test_every_fact_is_in_the_card() -> None:
    card = model_card(FACTS)
    assert header(card) == {"base_model": "smollm2-135m", "library_name": "tefm"}
    for words in (
        "# died from the stays of one patient\n", "Classes: no, yes. One sequence is the stays of one patient.",
        "6 blocks, 49,775,040 parameters", "458 slots become 3 numbers with 128 values each", "task-aware",
        "1,000 held-out records", "0.9100", "0.9500", "0.8100", "0.50 / 0.25", "1.500", "2.500",
        "98.7% of held-out sequences and 95.4% of their mixtures with others (321 in all)",
        "holds the features of 2,500 training sequences, without names or identifiers:** share it like the training",
        "## Scores on the test part (328 sequences)", "| accuracy | 0.8030 | 0.7730–0.8230 |",
        "| tokens per sequence | 8.7 | |", "temperature 1.234",
        "“yes” is predicted if its probability is at least 0.400",
        'print(model.explain("new records.csv")[0])',
    ):  # fmt: skip
        assert words in card, words
    assert "auprc" not in card, "a score that is not defined has no row"


def test_trees_beside_the_language_model_are_named_with_their_share() -> None:
    card = model_card(replace(FACTS, trees=1_200, model_share=0.3))
    assert "1,200 boosted trees on the fields answer. The language model has a share of 0.3" in card
    assert "trees" not in model_card(FACTS)


def test_the_card_says_what_the_check_does_not_show() -> None:
    card = model_card(FACTS)
    assert "settled by some features if look-alikes that share them" in card
    assert "This does not show that the features cause the outcome." in card


def test_a_model_without_alignment_and_explanations() -> None:
    card = model_card(replace(FACTS, alignment=None, explains=False, agreement=None, scores={}, threshold=None))
    assert "458 slots become 3 numbers" in card and "most probable class" in card
    assert not any(words in card for words in ("Alignment", "Explanations", "## ", "model.explain(", "None"))
    assert "unsupervised" in model_card(replace(FACTS, task_aware=False))


def test_the_lines_of_a_list_and_the_rows_of_a_table_stay_together() -> None:
    lines = model_card(FACTS).splitlines()
    bullets = [number for number, line in enumerate(lines) if line.startswith("- ")]
    assert bullets == list(range(bullets[0], bullets[0] + 5))
    rows = [number for number, line in enumerate(lines) if line.startswith("|")]
    assert rows == list(range(rows[0], rows[0] + 8))


@pytest.mark.parametrize("words", [HOSTILE, "a | b", "# heading\n---\nx: y", "`code` *x* [l](javascript:1)"])
def test_names_of_a_table_are_shown_as_they_are(words: str) -> None:
    card = model_card(replace(FACTS, title=words, classes=("b", words), one_sequence=words))
    assert header(card)["base_model"] == "smollm2-135m"
    html = to_html(card.split("---\n", 2)[2])
    assert "<script" not in html and "<a " not in html and "<em>" not in html


@pytest.mark.parametrize("name", ["org/model-1.5", "/a folder/with: colon", "two\nlines", "C:\\models"])
def test_the_header_is_valid_whatever_the_model_is_called(name: str) -> None:
    assert header(model_card(replace(FACTS, base_model=name)))["base_model"] == name
