"""The model card: every fact is in it, parts that a model lacks are not, and no name breaks it."""

from __future__ import annotations

from types import SimpleNamespace as Of
from typing import Any

import pytest
import yaml
from support.examples import HOSTILE, scores

from tefm.model.bundle import Bundle, card_of
from tefm.rationale.surrogate import Agreement
from tefm.scoring.calibration import Calibration
from tefm.show.html import converter


def card_with(**changes: Any) -> str:
    """The card of a model that has only what a card reads."""
    facts: dict[str, Any] = {
        "title": "died from the stays of one patient",
        "one_sequence": "the stays of one patient",
        "base_model": "smollm2-135m",
        "classes": ("no", "yes"),
        "task_aware": True,
        "threshold": 0.4,
        "trees": None,
        "share": 1.0,
        "look_alikes": Of(cases=range(2_500), agreement=Agreement(0.987, 0.01, 0.954, 0.02, 321)),
        "figures": {"test": {**scores(0.803), "tokens_mean": 8.71, "compared": {"LightGBM": scores(0.8125)}}},
        **changes,
    }
    language_model = Of(config=Of(num_hidden_layers=6), num_parameters=lambda: 49_775_040)
    fitted = Of(
        config=Of(backbone=facts["base_model"], quick=False),
        classes=facts["classes"],
        classifier=Of(backbone=Of(model=language_model)),
        coder=Of(
            layout=Of(width=458),
            config=Of(levels=3, entries=128),
            classes_=facts["classes"] if facts["task_aware"] else (),
        ),
        calibration=Calibration(temperature=1.234, threshold=facts["threshold"]),
        answerer=Of(share=facts["share"]),
        buckets=None,
        **{name: facts[name] for name in ("trees", "look_alikes")},
    )
    return card_of(Bundle(fitted, Of(title=facts["title"], one_sequence=facts["one_sequence"]), facts["figures"]))  # type: ignore[arg-type]


def header(card: str) -> dict[str, Any]:
    _, front, _ = card.split("---\n", 2)
    return dict(yaml.safe_load(front))


def test_every_fact_is_in_the_card() -> None:
    card = card_with()
    assert header(card) == {"base_model": "smollm2-135m", "library_name": "tefm"}
    for words in (
        "# died from the stays of one patient\n", "Classes: no, yes. One sequence is the stays of one patient.",
        "6 blocks, 49,775,040 parameters", "458 slots become 3 numbers with 128 values each", "task-aware",
        "98.7% of held-out sequences and 95.4% of their mixtures with others (321 in all)",
        "holds the features of 2,500 training sequences, without names or identifiers:** share it like the training",
        "## Scores on the test part (328 sequences)", "| accuracy | 0.8030 | 0.7730–0.8230 |",
        "| tokens per sequence | 8.7 | |", "| auroc of LightGBM | 0.8925 | 0.8625–0.9125 |", "temperature 1.234",
        "“yes” is predicted if its probability is at least 0.400",
        'print(model.explain("new records.csv")[0])',
    ):  # fmt: skip
        assert words in card, words
    assert "auprc" not in card, "a score that is not defined has no row"


def test_trees_beside_the_language_model_are_named_with_their_share() -> None:
    card = card_with(trees=Of(count=1_200), share=0.3)
    assert (
        "1,200 boosted trees on the fields answer together with the language model, which has a weight of 0.3" in card
    )
    assert "trees" not in card_with()


def test_the_card_says_what_the_check_does_not_show() -> None:
    card = card_with()
    assert "settled by some features if look-alikes that share them" in card
    assert "This does not show that the features cause the outcome." in card


def test_a_model_without_explanations() -> None:
    card = card_with(look_alikes=None, figures={}, threshold=None)
    assert "458 slots become 3 numbers" in card and "most probable class" in card
    assert not any(words in card for words in ("Explanations", "## ", "model.explain(", "None"))
    assert "unsupervised" in card_with(task_aware=False)


def test_the_lines_of_a_list_and_the_rows_of_a_table_stay_together() -> None:
    lines = card_with().splitlines()
    bullets = [number for number, line in enumerate(lines) if line.startswith("- ")]
    assert bullets == list(range(bullets[0], bullets[0] + 4))
    rows = [number for number, line in enumerate(lines) if line.startswith("|")]
    assert rows == list(range(rows[0], rows[0] + 10))


@pytest.mark.parametrize("words", [HOSTILE, "a | b", "# heading\n---\nx: y", "`code` *x* [l](javascript:1)"])
def test_names_of_a_table_are_shown_as_they_are(words: str) -> None:
    card = card_with(title=words, classes=("b", words), one_sequence=words)
    assert header(card)["base_model"] == "smollm2-135m"
    html = converter().render(card.split("---\n", 2)[2])
    assert "<script" not in html and "<a " not in html and "<em>" not in html


@pytest.mark.parametrize("name", ["org/model-1.5", "/a folder/with: colon", "two\nlines", "C:\\models"])
def test_the_header_is_valid_whatever_the_model_is_called(name: str) -> None:
    assert header(card_with(base_model=name))["base_model"] == name
