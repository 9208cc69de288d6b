"""A rationale in words and as JSON: it mentions what was selected, and claims no more than the check shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import Explained
from hypothesis import given
from hypothesis import strategies as st
from support.cards import (
    SCHEMA,
    SIZES_D,
    TABLE,
    VECTORISER,
    X_ND,
    everything,
    printed,
    selecting,
    slot_words,
    unwrapped,
    verified,
)

from tefm.base.errors import InputError
from tefm.explain.conditions import Condition
from tefm.explain.in_words import describe_rationale, finding_of
from tefm.explain.rationale_card import Rationale
from tefm.explain.render import cards_page
from tefm.rationale.verify import Verification
from tefm.tables.schema import Schema
from tefm.tables.vectorise import Vectoriser

# ---- only what was selected -----------------------------------------------------------------------------------------


@given(st.data())
def test_only_selected_values_are_mentioned(data: st.DataObject) -> None:
    x_ND = X_ND[[data.draw(st.integers(0, len(X_ND) - 1))]]
    keep_D = np.array(data.draw(st.lists(st.booleans(), min_size=x_ND.shape[1], max_size=x_ND.shape[1])))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    # in the slots that were not selected, the codes preserve the record: the worst case
    decoded_ND = np.where(keep_D, rng.integers(0, SIZES_D + 1, size=x_ND.shape), x_ND).astype(x_ND.dtype)
    rationale = selecting(x_ND, keep_D[None], decoded_ND)
    text = "\n".join([rationale.text, rationale.blurred, rationale.conclusion, repr(rationale.findings)])
    for slot in np.flatnonzero(x_ND[0]):
        words = slot_words(x_ND[0], int(slot))
        assert (words in rationale.text) == bool(keep_D[slot])
        if not keep_D[slot]:
            assert words.split(": ", 1)[-1] not in text
    assert len(rationale.findings) == rationale.retention.kept == (x_ND[0] * keep_D > 0).sum()


def test_other_records_of_a_sequence_are_not_mentioned_either() -> None:
    keep_ND = np.zeros_like(X_ND[:3], dtype=bool)
    keep_ND[1] = True
    rationale = selecting(X_ND[:3], keep_ND)
    assert rationale.text.startswith("Age: 52–55 years (1 stay before the last); Ward: lung (1 stay before the last);")
    for shown in (rationale.text, cards_page([rationale]), printed(rationale)):
        assert "heart" not in shown
        assert "alert" not in shown


def test_every_selected_slot_is_named_with_its_field() -> None:
    assert everything(X_ND[:1]).text == (
        "Age: ≤ 34 years; Ward: heart; Length of stay: ≤ 3 days; Intensive care; Declared lost; Diagnoses: 2 in all; "
        "Diagnoses: respiratory failure (518); Diagnoses: cardiac failure (428)."
    )


def test_absent_slots_are_never_selected() -> None:
    rationale = everything(X_ND[:1])
    assert rationale.retention.kept == rationale.retention.present == (X_ND[0] > 0).sum()
    assert rationale.retention.slots == X_ND.shape[1]
    assert "(100.0%)" in rationale.kept
    assert "diabetes" not in rationale.text


def test_values_that_the_codes_lost_or_changed_are_told() -> None:
    ward, icu = (int(VECTORISER.layout.of_field(name)[0]) for name in ("ward", "icu"))
    decoded_ND = X_ND[:1].copy()
    decoded_ND[0, ward], decoded_ND[0, icu] = X_ND[1, ward], 0
    lossy = everything(X_ND[:1], decoded_ND=decoded_ND)
    assert lossy.blurred == (
        "The codes that the model reads blur: Ward: heart (read as “lung”); Intensive care (lost)."
    )
    assert lossy.blurred in unwrapped(printed(lossy))
    assert lossy.blurred in cards_page([lossy])
    assert "blur" not in printed(everything(X_ND[:1])) + cards_page([everything(X_ND[:1])])
    keep_ND = np.ones_like(decoded_ND, dtype=bool)
    keep_ND[0, [ward, icu]] = False
    assert not selecting(X_ND[:1], keep_ND, decoded_ND).blurred, "they were not selected"


def test_a_class_has_its_column_in_the_title_and_quotes_in_sentences() -> None:
    rationale = replace(everything(X_ND[:1]), label="outcome")
    assert rationale.title == "patient p7: outcome = died (p = 0.90)"
    assert "p is the probability of “died”" in unwrapped(printed(rationale))
    assert "<caption>Probability of “died”</caption>" in cards_page([rationale])
    labelled = Vectoriser.fit(TABLE.with_columns(end=pl.lit("x")), SCHEMA.model_copy(update={"label": "end"}))
    assert labelled.table_schema.label == "end"
    described = describe_rationale(
        labelled, X_ND[:1], X_ND[:1] > 0, verified(), entity="patient", sequence="p7", classes=("died", "lived"),
        decoded_ND=None,
    )  # fmt: skip
    assert described.label == "end"


# ---- the verdict ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verification", "records", "conclusion"),
    [
        (
            verified(),
            1,
            "With only these 7 features the model gives the same answer, “died” (p = 0.80); "
            "without them the model predicts “lived” (p = 0.70).",
        ),
        (
            verified(without=0.6),
            1,
            "With only these 7 features the model gives the same answer, “died” (p = 0.80). Without them the model "
            "still predicts “died” (p = 0.60): they are sufficient for this answer, but not needed.",
        ),
        (
            verified("default", alone=0.9, without=0.9, nothing=0.88),
            1,
            "Default answer: the model also predicts “died” with no features (p = 0.88, with all features 0.90), "
            "so no features can be shown to support it.",
        ),
        (
            verified("default", alone=0.9, without=0.9, nothing=0.88),
            2,
            "Default answer: the model also predicts “died” with no features (p = 0.88, with all features 0.90), "
            "so no features can be shown to support it.",
        ),
        (
            verified("insufficient", alone=0.2),
            1,
            "With only these 7 features the model predicts “lived” (p = 0.80), not “died” as with all features "
            "(p = 0.90).",
        ),
        (
            verified("insufficient", alone=0.55, nothing=0.5),
            1,
            "With only these 7 features the model gives the same answer, “died” (p = 0.55), but less surely: p is 0.50 "
            "with no features and 0.90 with all, and the selected features give less than half of that increase.",
        ),
        (
            verified("insufficient", full=0.51, alone=0.505, nothing=0.49),
            1,
            "With only these 7 features the model gives the same answer, “died” (p = 0.51), but all features together "
            "raise p by less than 0.05: it is 0.49 with no features and 0.51 with all.",
        ),
    ],
    ids=["sufficient", "not needed", "default", "default of several", "insufficient", "too little", "no evidence"],
)
def test_the_conclusion_in_plain_words(verification: Verification, records: int, conclusion: str) -> None:
    keep_ND = np.zeros_like(X_ND[:records], dtype=bool)
    keep_ND[0] = np.cumsum(X_ND[0] > 0) <= 7
    rationale = selecting(X_ND[:records], keep_ND, verification=verification)
    assert rationale.conclusion == conclusion
    assert conclusion in unwrapped(printed(rationale))
    assert conclusion in cards_page([rationale])
    assert rationale.to_json()["conclusion"] == conclusion
    assert rationale.passed == (verification.verdict == "sufficient")
    assert ("not passed" in printed(rationale)) != rationale.passed


def test_an_empty_selection_is_reported_as_such() -> None:
    rationale = selecting(X_ND[:1], X_ND[:1] < 0, verification=verified("insufficient", alone=0.4, without=0.9))
    assert rationale.conclusion == "No features were selected; with no features the model predicts “lived” (p = 0.60)."
    assert rationale.text == "No features selected."
    assert rationale.conclusion in unwrapped(printed(rationale))


def test_a_single_feature_is_singular() -> None:
    keep_ND = np.zeros_like(X_ND[:1], dtype=bool)
    keep_ND[0, 0] = True
    assert selecting(X_ND[:1], keep_ND).conclusion.startswith("With only this feature the model gives the same answer")
    assert "without it the model predicts “lived”" in selecting(X_ND[:1], keep_ND).conclusion
    unlike = selecting(X_ND[:1], keep_ND, verification=verified("insufficient", alone=0.1))
    assert unlike.conclusion.startswith("With only this feature the model predicts “lived” (p = 0.90), not “died”")
    spare = selecting(X_ND[:1], keep_ND, verification=verified(without=0.6))
    assert spare.conclusion.endswith("(p = 0.60): it is sufficient for this answer, but not needed.")


def test_a_zero_has_no_sign() -> None:
    rationale = everything(X_ND[:1], verification=verified(full=0.8, alone=0.8 + 1e-9))
    assert "Sufficiency 0.000" in printed(rationale)
    assert "Sufficiency 0.000" in cards_page([rationale])


def test_the_probabilities_are_all_of_the_predicted_class() -> None:
    rationale = everything(X_ND[:1])
    rows = re.findall(
        r"(all features|only the selected features|all other features|no features) +\S+ +(\S+) +(\w+)",
        printed(rationale),
    )
    assert rows == [
        ("all features", "0.900", "died"),
        ("only the selected features", "0.800", "died"),
        ("all other features", "0.300", "lived"),
        ("no features", "0.400", "lived"),
    ]


# ---- plain text ------------------------------------------------------------------------------------------------------


def test_a_rationale_prints_as_text() -> None:
    rationale = everything(X_ND[:1])
    lines = str(rationale).splitlines()
    assert lines == [rationale.title, f"Selected: {rationale.kept}.", rationale.text, rationale.conclusion]
    assert repr(rationale) == "<Rationale patient p7: died (p = 0.90), 7 of 7 features selected, sufficient>".replace(
        "7 of 7", f"{rationale.retention.kept} of {rationale.retention.present}"
    )


@pytest.mark.parametrize("show", [str, repr])
def test_text_of_a_hostile_value_has_no_control_codes(show: Callable[[Rationale], str]) -> None:
    rationale = replace(everything(X_ND[:1]), sequence="p\x1b[2J\x07\x9b31m\n7")
    assert all(line.isprintable() for line in show(rationale).split("\n"))
    assert len(show(rationale).splitlines()) == {str: 4, repr: 1}[show], "nor lines of its own"


# ---- JSON -----------------------------------------------------------------------------------------------------------


def test_json_comes_back_as_the_same_rationale() -> None:
    rationale = everything(X_ND[:3])
    body = json.loads(json.dumps(rationale.to_json(), allow_nan=False))
    assert Rationale.from_json(body) == rationale
    assert body["text"] == rationale.text
    assert cards_page([Rationale.from_json(body)]) == cards_page([rationale])


@pytest.mark.parametrize(
    ("change", "where"),
    [({"verdict": "fine"}, "verdict"), ({"findings": [{"record": 1}]}, "findings.0"), ({"full": None}, "full")],
)
def test_other_json_is_rejected(change: dict[str, Any], where: str, explained: Explained) -> None:
    explained(
        InputError, lambda: Rationale.from_json(everything(X_ND[:1]).to_json() | change), "not a valid rationale", where
    )
    explained(InputError, lambda: Rationale.from_json([]), "not a valid rationale")


def test_a_stored_rationale_is_shown_without_heavy_imports() -> None:
    """Without the libraries that read tables and run models."""
    body = json.dumps(everything(X_ND[:1]).to_json())
    code = """
import json, sys
from tefm.explain.rationale_card import Rationale
from tefm.explain.render import card, cards_page
rationale = Rationale.from_json(json.load(sys.stdin))
assert "Ward: heart" in cards_page([rationale]) and card(rationale)
assert not {"polars", "torch", "sklearn"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], input=body, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        ((1, 2), "ward: a or b"),
        ((0, 1, 2, 3, 5), "ward: not d"),
        ((0, 1, 2, 3), "ward: not d or other"),
        ((1, 2, 3, 4), "ward: any known value"),
        ((1, 2, 3, 5), "ward: any value but d"),
        ((1, 2, 3), "ward: a, b or c"),
    ],
)
def test_values_in_words(allowed: tuple[int, ...], words: str) -> None:
    """The last value stands for those that are rare or new, 0 for none."""
    schema = Schema.from_yaml("{fields: {ward: category}}")
    vectoriser = Vectoriser.fit(pl.DataFrame({"ward": [*"abcd"] * 4}), schema)
    assert finding_of(vectoriser, Condition((0,), allowed), np.zeros((1, 1), np.uint8)).words == words
