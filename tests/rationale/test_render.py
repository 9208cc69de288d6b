"""A rationale in words and pictures: nothing but what was kept, said so that nobody is misled, readable everywhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import Explained
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tefm.base.errors import InputError
from tefm.rationale.card import Answer, Rationale, describe_rationale, from_json, to_json
from tefm.rationale.render import card, to_html
from tefm.rationale.verdict import Verdict
from tefm.rationale.verify import Verification
from tefm.records.describe import statements
from tefm.records.layout import Slots
from tefm.records.schema import Field, Schema
from tefm.records.vectorise import Vectoriser

SCRIPT = "<script>alert('ward')</script> & [bold]co[/bold]"
LONG = "pneumonitis due to " + "inhalation of very solid and very liquid things " * 4 + "x" * 120
NAMES = {"507": LONG, "038": "septicemia", "250": "diabetes", "428": "cardiac failure", "518": "respiratory failure"}
SCHEMA = Schema(
    record="stay",
    entity="patient",
    fields=(
        Field(name="age", kind="number", title="Age", unit="years", buckets=3),
        Field(name="ward", kind="category", title="Ward", group="Stay"),
        Field(name="days", kind="number", title="Length of stay", unit="days", buckets=3, group="Stay"),
        Field(name="icu", kind="flag", title="Intensive care", group="Stay"),
        Field(name="dead", kind="flag", title="Declared lost"),
        Field(name="dx", kind="set", delimiter=";", title="Diagnoses", group="Diagnoses", names=NAMES),
    ),
)
TABLE = pl.DataFrame(
    {
        "age": [31, 52, 73, 34, 55, 76],
        "ward": ["heart", "lung", SCRIPT, "heart", "lung", SCRIPT],
        "days": [2, 4, 8, 3, 5, 9],
        "icu": [1, 0, 1, 1, 0, 1],
        "dead": [1, 1, 0, 1, 0, 1],
        "dx": ["428;518", "250;428;518;038", "507", "038;250", "518;250", None],
    }
)
VECTORISER = Vectoriser.fit(TABLE, SCHEMA)
X_ND = VECTORISER.transform(TABLE)
SIZES_D = VECTORISER.layout.sizes_D
DIED, LIVED = 0, 1


def verified(
    verdict: Verdict = "sufficient", full: float = 0.9, alone: float = 0.8, without: float = 0.3, nothing: float = 0.4
) -> Verification:
    """What a judge found, by the probability of death."""
    ps = (full, alone, without, nothing)
    return Verification(*(DIED if p >= 0.5 else LIVED for p in ps), *((p, 1 - p) for p in ps), verdict)


def rationale(
    x_ND: Slots, keep_ND: Any, scores_ND: Any = None, decoded_ND: Slots | None = None, **how: Any
) -> Rationale:
    return describe_rationale(
        VECTORISER,
        x_ND,
        np.asarray(keep_ND, dtype=bool),
        np.arange(x_ND.size, dtype=float).reshape(x_ND.shape) if scores_ND is None else scores_ND,
        how.pop("verification", verified()),
        sequence="p7",
        classes=("died", "lived"),
        codes=[f"<sta_a_{i}><sta_b_7>" for i in range(len(x_ND))],
        decoded_ND=x_ND if decoded_ND is None else decoded_ND,
        **how,
    )


def everything(x_ND: Slots, **how: Any) -> Rationale:
    return rationale(x_ND, np.ones_like(x_ND, dtype=bool), **how)


def printed(found: Rationale, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width, no_color=True, force_terminal=True, legacy_windows=False)
    console.print(card(found))
    assert isinstance(console.file, StringIO)
    return re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())


def unwrapped(shown: str) -> str:
    """The words of a card without its frame and line breaks."""
    return " ".join(re.sub("[│╭╰╮╯]", " ", shown).split())


def slot_words(x_D: Slots, slot: int) -> str:
    """What one slot says in itself, without the name of its field; a flag is its name."""
    only_D = np.zeros_like(x_D)
    only_D[slot] = x_D[slot]
    return statements(VECTORISER, only_D)[0].words.split(": ", 1)[-1]


# ---- nothing but what was kept --------------------------------------------------------------------------------------


@given(st.data())
def test_only_kept_values_are_ever_said(data: st.DataObject) -> None:
    x_ND = X_ND[[data.draw(st.integers(0, len(X_ND) - 1))]]
    keep_D = np.array(data.draw(st.lists(st.booleans(), min_size=x_ND.shape[1], max_size=x_ND.shape[1])))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    # in the slots that were not kept, the codes give back the record itself: the worst case
    decoded_ND = np.where(keep_D, rng.integers(0, SIZES_D + 1, size=x_ND.shape), x_ND).astype(x_ND.dtype)
    found = rationale(x_ND, keep_D[None], rng.normal(size=x_ND.shape), decoded_ND)
    (record,) = found.records
    said = "\n".join([found.text, record.decoded_text, found.conclusion, repr(record.statements), repr(record.decoded)])
    unkept = {bar.words.split(": ", 1)[-1] for bar in record.bars if not bar.kept}
    for slot in np.flatnonzero(x_ND[0]):
        words = slot_words(x_ND[0], int(slot))
        if not keep_D[slot]:
            assert words not in said
            assert words in unkept, "its bar names it, marked as not kept"
        elif "in all" not in words:  # a count is left out where the listed members say it
            assert words in found.text
    kept = {slot for statement in found.records[0].statements for slot in statement.slots}
    assert kept == set(np.flatnonzero(x_ND[0] * keep_D).tolist())
    assert found.retention.kept == len(kept)


def test_the_other_records_of_a_sequence_are_kept_from_the_words_too() -> None:
    keep_ND = np.zeros_like(X_ND[:3], dtype=bool)
    keep_ND[1] = True
    found = rationale(X_ND[:3], keep_ND, labels=["May", "June", "July"])
    assert found.text.startswith("Stay 2 of 3 (June): Age: 52–55 years; Declared lost. Stay: Ward: lung;")
    assert found.text.endswith("Nothing kept of stays 1, 3.")
    for shown in (found.text, to_html([found]), printed(found)):
        assert "heart" not in shown
        assert "alert" not in shown


def test_groups_become_sentences_and_a_group_is_not_named_twice() -> None:
    found = everything(X_ND[:1])
    assert found.records[0].text == (
        "Age: ≤ 34 years; Declared lost. Stay: Ward: heart; Length of stay: ≤ 3 days; Intensive care. "
        "Diagnoses: respiratory failure (518), cardiac failure (428)."
    )


def test_absent_slots_are_never_kept() -> None:
    found = everything(X_ND[:1])
    assert found.retention.kept == found.retention.present == (X_ND[0] > 0).sum()
    assert found.retention.slots == X_ND.shape[1]
    assert found.retention.of_present == 1.0
    assert "diabetes" not in found.text


def test_what_the_codes_lost_and_changed_is_marked() -> None:
    ward, icu = (int(VECTORISER.layout.of_field(name)[0]) for name in ("ward", "icu"))
    decoded_ND = X_ND[:1].copy()
    decoded_ND[0, ward], decoded_ND[0, icu] = X_ND[1, ward], 0
    said = everything(X_ND[:1], decoded_ND=decoded_ND).records[0].decoded_text
    assert said.startswith("Age: ≤ 34 years; Ward: lung [not heart]; Length of stay: ≤ 3 days;")
    assert "[lost: Intensive care]" in said


def test_a_loss_is_explained_where_there_is_one() -> None:
    icu = int(VECTORISER.layout.of_field("icu")[0])
    decoded_ND = X_ND[:1].copy()
    decoded_ND[0, icu] = 0
    lossy = everything(X_ND[:1], decoded_ND=decoded_ND)
    assert "what the stay says and its codes do not give back" in lossy.on_losses
    assert lossy.on_losses in unwrapped(printed(lossy))
    assert lossy.on_losses in to_html([lossy])
    assert "In brackets" not in printed(everything(X_ND[:1])) + to_html([everything(X_ND[:1])])
    keep_ND = np.ones_like(decoded_ND, dtype=bool)
    keep_ND[0, icu] = False
    assert not rationale(X_ND[:1], keep_ND, decoded_ND=decoded_ND).on_losses, "only of what was kept"


def test_a_class_stands_with_its_column_above_and_in_quotes_within_sentences() -> None:
    found = replace(everything(X_ND[:1]), label="outcome")
    assert found.title == "patient p7: outcome = died (p = 0.90)"
    assert "p is the probability of “died”" in unwrapped(printed(found))
    assert "<caption>Probability of “died”</caption>" in to_html([found])
    labelled = Vectoriser.fit(TABLE.with_columns(end=pl.lit("x")), SCHEMA.model_copy(update={"label": "end"}))
    assert labelled.table_schema.label == "end"
    made = describe_rationale(
        labelled, X_ND[:1], X_ND[:1] > 0, X_ND[:1].astype(float), verified(), sequence="p7", classes=("died", "lived"),
        codes=["<sta_a_0>"], decoded_ND=X_ND[:1],
    )  # fmt: skip
    assert made.label == "end"


# ---- bars -----------------------------------------------------------------------------------------------------------


@given(scale=st.sampled_from([1e-3, 1.0, 1e3]), shift=st.sampled_from([-5e3, 0.0, 5.0]))
def test_bars_follow_the_ranking_whatever_its_scale(scale: float, shift: float) -> None:
    scores_ND = np.random.default_rng(0).random(X_ND[:2].shape) * scale + shift
    found = rationale(X_ND[:2], X_ND[:2] > 0, scores_ND)
    for record, x_D, scores_D in zip(found.records, X_ND, scores_ND, strict=False):
        ranked = sorted(np.flatnonzero(x_D), key=lambda slot: -scores_D[slot])[:12]
        assert [bar.words.split(": ")[-1] for bar in record.bars] == [slot_words(x_D, slot) for slot in ranked]
        weights = [bar.weight for bar in record.bars]
        assert weights == sorted(weights, reverse=True)
        assert 0 <= min(weights) <= max(weights) <= 1
    assert max(bar.weight for record in found.records for bar in record.bars) == 1


@pytest.mark.parametrize("score", [0.0, 3.0, -3.0, -np.inf])
def test_a_ranking_without_preference_still_has_bars(score: float) -> None:
    found = rationale(X_ND[:1], X_ND[:1] > 0, np.full(X_ND[:1].shape, score))
    assert {bar.weight for bar in found.records[0].bars} == {1.0}


def test_a_bar_names_its_feature_whether_it_was_kept_or_not() -> None:
    found = rationale(X_ND[:1], np.zeros_like(X_ND[:1], dtype=bool))
    assert {bar.words for bar in found.records[0].bars} == {bar.words for bar in everything(X_ND[:1]).records[0].bars}
    assert {bar.words for bar in found.records[0].bars} >= {
        "Ward: heart", "Intensive care", "Declared lost", "Diagnoses: cardiac failure (428)",
    }  # fmt: skip
    assert not any(bar.kept for bar in found.records[0].bars)
    one = np.zeros_like(X_ND[:1], dtype=bool)
    one[0, 0] = True
    page = re.sub(r"<[^>]*>", " ", to_html([rationale(X_ND[:1], one)]))
    assert re.search(r"Diagnoses: cardiac failure \(428\) +[\d.]+ not kept", page)


def test_kept_slots_without_a_bar_are_counted() -> None:
    found = everything(X_ND[1:2], bars=3)
    more = f"and {found.retention.kept - 3} more, kept"
    assert more in printed(found)
    assert more in to_html([found])
    assert "more, kept" not in to_html([everything(X_ND[1:2])])


# ---- the verdict ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verification", "records", "said"),
    [
        (
            verified(),
            1,
            "Kept alone, these 7 features give the same answer, “died” (p = 0.80); "
            "without them the model says “lived” (p = 0.70).",
        ),
        (
            verified(without=0.6),
            1,
            "Kept alone, these 7 features give the same answer, “died” (p = 0.80); the rest of the stay alone gives "
            "the same answer too (p = 0.60): the evidence is redundant.",
        ),
        (
            verified("default", alone=0.9, without=0.9, nothing=0.88),
            1,
            "The model says the same of an empty stay, “died” (p = 0.88, with all features 0.90): "
            "nothing in this stay argues for it beyond that.",
        ),
        (
            verified("default", alone=0.9, without=0.9, nothing=0.88),
            2,
            "The model says the same of empty stays, “died” (p = 0.88, with all features 0.90): "
            "nothing in these stays argues for it beyond that.",
        ),
        (
            verified("insufficient", alone=0.2),
            1,
            "These 7 features alone do not give the same answer: “lived” (p = 0.80) instead of “died” (p = 0.90).",
        ),
        (
            verified("insufficient", alone=0.55, nothing=0.5),
            1,
            "Kept alone, these 7 features give the same answer, “died” (p = 0.55), but too little of the evidence for "
            "it: nothing gives p = 0.50, the whole stay p = 0.90.",
        ),
    ],
    ids=["sufficient", "redundant", "default", "default of several", "insufficient", "too little"],
)
def test_the_verdict_in_plain_words(verification: Verification, records: int, said: str) -> None:
    keep_ND = np.zeros_like(X_ND[:records], dtype=bool)
    keep_ND[0] = np.cumsum(X_ND[0] > 0) <= 7
    found = rationale(X_ND[:records], keep_ND, verification=verification)
    assert found.conclusion == said
    assert said in unwrapped(printed(found))
    assert said in to_html([found])
    assert to_json(found)["conclusion"] == said
    assert found.passed == (verification.verdict == "sufficient")
    assert ("not passed" in printed(found)) != found.passed


def test_nothing_kept_is_said_as_such() -> None:
    found = rationale(X_ND[:1], X_ND[:1] < 0, verification=verified("insufficient", alone=0.4, without=0.9))
    assert found.conclusion == "No feature is kept, and of nothing the model says “lived” (p = 0.60)."
    assert found.text == "Nothing kept of stay 1."
    assert found.conclusion in unwrapped(printed(found))
    Page(to_html([found]))


def test_one_feature_is_not_several() -> None:
    keep_ND = np.zeros_like(X_ND[:1], dtype=bool)
    keep_ND[0, 0] = True
    assert rationale(X_ND[:1], keep_ND).conclusion.startswith("Kept alone, this feature gives the same answer")
    assert "without it the model says “lived”" in rationale(X_ND[:1], keep_ND).conclusion
    unlike = rationale(X_ND[:1], keep_ND, verification=verified("insufficient", alone=0.1))
    assert unlike.conclusion.startswith("This feature alone does not give the same answer")


def test_a_loss_of_nothing_has_no_sign() -> None:
    found = everything(X_ND[:1], verification=verified(full=0.8, alone=0.8 + 1e-9))
    assert "Sufficiency 0.000" in printed(found)
    assert "Sufficiency 0.000" in to_html([found])


def test_the_probabilities_are_all_of_the_predicted_class() -> None:
    found = everything(X_ND[:1])
    rows = re.findall(
        r"(all features|the rationale alone|all but the rationale|nothing) +\S+ +(\S+) +(\w+)", printed(found)
    )
    assert rows == [
        ("all features", "0.900", "died"),
        ("the rationale alone", "0.800", "died"),
        ("all but the rationale", "0.300", "lived"),
        ("nothing", "0.400", "lived"),
    ]


# ---- terminal -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 132])
def test_the_card_keeps_to_its_width_and_loses_no_word(width: int) -> None:
    found = everything(X_ND[[2, 1]])  # with the long value and the one that looks like markup
    shown = printed(found, width)
    assert {len(line) for line in shown.splitlines()} == {width}
    assert SCRIPT in unwrapped(shown)
    assert LONG.replace(" ", "") in unwrapped(shown).replace(" ", "")
    assert "<sta_a_0><sta_b_7>" in shown
    assert "patient p7: died (p = 0.90)" in shown
    assert f"of all {2 * X_ND.shape[1]}." in unwrapped(shown)
    assert "kept" in shown  # what colour would say stands there in words


def test_a_value_cannot_steer_the_terminal() -> None:
    found = replace(everything(X_ND[:1]), sequence="p\x1b[2J\x07\x9b31m7")
    console = Console(file=StringIO(), width=80, no_color=True, force_terminal=False)
    console.print(card(found))
    assert isinstance(console.file, StringIO)
    assert not {"\x1b", "\x07", "\x9b"} & set(console.file.getvalue())


# ---- browser --------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Checks that every tag is closed where it should be, and collects what the page is made of."""

    VOID = ("meta",)

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_escapes_whatever_stands_in_the_table() -> None:
    hostile = replace(everything(X_ND[[2]]), sequence='"><img src=x onerror=alert(1)>', entity=SCRIPT)
    died = '<b onclick="x">died</b>'
    hostile = replace(
        hostile,
        **{name: Answer(died, {died: 0.8, "lived": 0.2}) for name in ("full", "alone", "without", "nothing")},
    )
    page = Page(to_html([hostile], "</title><script>alert(2)</script>"))
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert not {name for _, attributes in page.tags for name in attributes if name.startswith("on")}
    assert SCRIPT in "".join(page.words)


def test_the_page_stands_alone() -> None:
    html = to_html([everything(X_ND[:2]), everything(X_ND[2:3])], "Two patients")
    page = Page(html)
    assert not re.search(r"https?:|url\(|@import|<link|<script", html)
    assert all(link.startswith("#") for _, attributes in page.tags if (link := attributes.get("href")))
    identities = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    assert {attributes["href"] for tag, attributes in page.tags if tag == "a"} == {"#r1", "#r2"}
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html


def test_the_page_ties_each_statement_to_its_field_and_slots() -> None:
    found = everything(X_ND[:1])
    page = Page(to_html([found]))
    tied = {
        attributes["data-field"]: attributes["data-slots"] for _, attributes in page.tags if "data-field" in attributes
    }
    assert tied == {s.field: " ".join(map(str, s.slots)) for s in found.records[0].statements}
    widths = [attributes["style"] for tag, attributes in page.tags if tag == "i"]
    assert widths[:4] == ["width:90.0%", "width:80.0%", "width:30.0%", "width:40.0%"]
    assert len(widths) == 4 + len(found.records[0].bars)


# ---- machines -------------------------------------------------------------------------------------------------------


def test_json_comes_back_as_the_same_rationale() -> None:
    found = everything(X_ND[:3], labels=["May", None, "July"])
    body = json.loads(json.dumps(to_json(found), allow_nan=False))
    assert from_json(body) == found
    assert body["text"] == found.text
    assert to_html([from_json(body)]) == to_html([found])


@pytest.mark.parametrize(
    ("change", "where"),
    [({"verdict": "fine"}, "verdict"), ({"records": [{"number": 1}]}, "records.0"), ({"full": None}, "full")],
)
def test_json_of_something_else_is_refused(change: dict[str, Any], where: str, explained: Explained) -> None:
    explained(InputError, lambda: from_json(to_json(everything(X_ND[:1])) | change), "no rationale", where)
    explained(InputError, lambda: from_json([]), "no rationale")


def test_a_stored_rationale_is_shown_at_once() -> None:
    """Without the libraries of tables and models."""
    body = json.dumps(to_json(everything(X_ND[:1])))
    code = """
import json, sys
from tefm.rationale.card import from_json
from tefm.rationale.render import card, to_html
found = from_json(json.load(sys.stdin))
assert "Ward: heart" in to_html([found]) and card(found)
assert not {"polars", "torch", "sklearn"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], input=body, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
