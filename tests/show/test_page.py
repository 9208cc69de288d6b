"""The report as a page: well-formed, loads nothing from the network, shows every figure, and no text breaks it."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from markupsafe import escape
from support.examples import HOSTILE, codes, curve, explained, figures, scores
from support.explanations import ASPIRIN, contested, explanation

from tefm.explain.explanation import Explanation
from tefm.explain.summary import FIELDS, RULES, Summary
from tefm.scoring.breakdown import ClassScores, Confusion
from tefm.show import performance, plots
from tefm.show.figures import Case, Figures, Method
from tefm.show.plots import Plot
from tefm.show.report_page import report_page

#: The plots of all pages: most are the same on every one.
DRAWN: dict[str, Plot] = {}


@pytest.fixture(autouse=True)
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same plot is drawn once for all pages."""

    def once(draw: Callable[..., Plot]) -> Callable[..., Plot]:
        def drawn(*given: Any, **options: Any) -> Plot:
            key = repr((draw.__name__, plots.available(), given, options))
            DRAWN[key] = DRAWN.get(key) or draw(*given, **options)
            return DRAWN[key]

        return drawn

    monkeypatch.setattr(performance, "curves", once(plots.curves))


EMPTY = {"meta", "br", "hr", "img", "input", "link"}


class Outline(HTMLParser):
    """Which elements there are, and whether each is closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(name)
        values = dict(attributes)
        self.ids += [str(values["id"])] if "id" in values else []
        self.addresses += [str(values[key]) for key in ("src", "href", "srcset", "data", "action") if key in values]
        assert not [key for key in values if key.startswith("on")], "nothing runs"
        if name not in EMPTY:
            self.open.append(name)

    def handle_startendtag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(name, attributes)
        if name not in EMPTY:
            self.handle_endtag(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open and self.open[-1] == name, f"</{name}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self.open[-1:] != ["style"]:
            self.text += data


def checked(page: str) -> Outline:
    """A page that stands alone and is well-formed."""
    outline = Outline(page)
    assert len(outline.ids) == len(set(outline.ids)), "an id is there once"
    assert all(address.startswith("#") and address[1:] in outline.ids for address in outline.addresses)
    assert not {"link", "img", "iframe", "object"} & set(outline.tags)
    assert len(outline.scripts) == outline.tags.count("script") <= 2, "the slider and its data, nothing else"
    if outline.scripts:  # the page allows the slider by its hash, and no other script
        data, code = outline.scripts
        json.loads(data)
        assert f"script-src 'sha256-{b64encode(sha256(code.encode()).digest()).decode()}'" in unescape(page)
    else:
        assert "script-src" not in page
    assert not re.search(r"@import|url\((?!#)", page)
    for svg in re.findall(r"<svg.*?</svg>", page, re.S):
        root = ET.fromstring(svg)  # also where HTML would forgive
        assert root.find("{*}title") is not None and root.find("{*}desc") is not None
        assert "nan" not in svg
    return outline


def test_every_figure_is_shown() -> None:
    page = report_page(figures())
    text = " ".join(checked(page).text.split())
    for words in (
        "died from the stays of one patient", "are those of died = yes. ", "probability of died = yes",
        "328 with 602 stays", "These may have been learned from.",
        "0.803 [0.773, 0.823]", "0.810 [0.780, 0.830]", "lightgbm", "logistic", "0.123 [0.093, 0.143]",
        "412.0", "prose", "toon", "tokens per sequence", "48.3%", "first 200 sequences",
        "0.120", "0.600 [0.400, 0.750]", "215", "Expected calibration error (ECE): 0.045 [0.015, 0.065].",
        "A sequence has 1 to 12 records, 1.8 on average; the median is 2.", "14 records (2.3%) have the same time",
        "2 of 9 fields have missing values.", "weight", "96.9%",
        "0.9123", "0.8123", "field 3", "0.875", "level 1 has collapsed. Use fewer entries.",
        "1,111 distinct records have 987 distinct codes",
        "40 answers explained: 33 settled, 4 unsettled, 3 default; ", explanation().title,
        "Drugs: morphine", "Recorded: died = yes. The prediction is correct.",
        explanation().conclusion, explanation().made_up, explanation().real, "95% interval",
    ):  # fmt: skip
        assert words in text, words


def headings(page: str) -> list[str]:
    return re.findall(r"<h2[^>]*>(.*?)</h2>", page)


def test_the_story_of_the_user_comes_first() -> None:
    page = report_page(figures())
    assert page.index(figures().verdict) < page.index('<dl class="facts">') < page.index("<h2")
    titles = [
        "Right and wrong predictions", "How well it predicts", "Ranking and thresholds", "Calibration",
        "Results by group", "The data",
        "What settles the answers", "Example explanations", "Tokens", "What the codes lose, field by field",
    ]  # fmt: skip
    assert [heading for heading in headings(page) if not heading.startswith("patient p7")] == titles
    assert 'class="verdict"' not in report_page(figures(verdict=None)), "there is no empty place"


def cells(page: str, caption: str) -> list[list[str]]:
    """The rows of the table with this caption."""
    (body,) = re.findall(rf"<caption>{re.escape(str(escape(caption)))}</caption>(.*?)</table>", page, re.S)
    rows = re.findall(r"<tr>(.*?)</tr>", body, re.S)
    return [[unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)] for row in rows]


def test_the_confusion_matrix_has_counts_and_shares() -> None:
    assert cells(report_page(figures()), "died: recorded against predicted, with shares of each row") == [
        ["recorded", "predicted no", "predicted yes", "sequences"],
        ["no", "140 (85%)", "24 (15%)", "164"],
        ["yes", "41 (25%)", "123 (75%)", "164"],
    ]
    assert "for every sequence" not in checked(report_page(figures())).text


def test_one_class_for_everybody_is_said() -> None:
    _, text = without(confusion=Confusion(("no", "yes"), ((300, 0), (28, 0))))
    assert "The model predicts died = no for every sequence." in text


def test_two_classes_have_a_slider_and_a_table_without_it() -> None:
    page = report_page(figures())
    data = json.loads(checked(page).scripts[0])
    assert len(data["thresholds"]) == 102 and data["thresholds"][data["own"]] == 0.437
    slider = re.search(r'<input id="threshold-slider"[^>]*>', page)
    assert slider and 'type="range"' in slider[0] and 'max="101"' in slider[0]
    assert '<label for="threshold-slider">' in page and 'class="threshold" hidden' in page, "shown by the script only"
    header, *rows = cells(page, "predicting died = yes from each probability on")
    assert [row[0] for row in rows] == [
        "0.0", "0.1", "0.2", "0.3", "0.4", "0.437 (the model's)", "0.5", "0.6", "0.7", "0.8", "0.9", "1.0"
    ]  # fmt: skip
    named = dict(zip(header, rows[5], strict=True))
    hits, alarms = (int(named[name]) for name in ("true positives", "false positives"))
    assert (hits, alarms) == tuple(data[name][data["own"]] for name in ("true_positives", "false_positives"))
    assert named["sensitivity"] == f"{hits / data['positives']:.3f}"
    assert named["specificity"] == f"{1 - alarms / data['negatives']:.3f}"
    assert named["precision"] == f"{hits / (hits + alarms):.3f}"
    assert named["F1"] == f"{2 * hits / (hits + alarms + data['positives']):.3f}"
    assert named["called positive"] == f"{(hits + alarms) / 328:.3f}"
    assert rows[-1][-3:] == ["–", "0.000", "0.000"], "nothing is called positive at 1"


def test_several_classes_have_curves_and_no_slider() -> None:
    classes = [curve(f"attack {n}") for n in range(6)]
    page = report_page(figures(positive=None, curves=tuple(classes), thresholds=None))
    outline = checked(page)
    assert not outline.scripts and "Another threshold" not in outline.text
    assert "attack 5: AUROC 0.883" in outline.text and "attack 0: AUPRC 0.871" in outline.text
    (roc,) = (svg for svg in re.findall(r"<svg.*?</svg>", page, re.S) if "plot-roc-title" in svg)
    assert roc.count('class="points"') == 6, "a mark per class"


def test_groups_have_intervals_and_small_ones_are_called_too_small() -> None:
    page = report_page(figures())
    header, *rows = cells(page, "by group, the fields with the largest differences first")
    assert header == ["group", "sequences", "accuracy", "died = yes", "AUROC"]
    assert rows[:3] == [
        ["field 0: low", "160", "0.750 [0.700, 0.800]", "25.0%", "0.810 [0.760, 0.860]"],
        ["field 0: high", "150", "0.750 [0.700, 0.800]", "100.0%", "–"],
        ["field 0: missing", "18", "too small (fewer than 20)", "–", "–"],
    ]
    assert len(rows) == 6 * 3 and len(cells(page, "by group, further fields")) == 1 + 3 * 3
    assert "3 more fields; 3 others differ less" in checked(page).text
    assert "No field divides these sequences into groups" in without(groups=(), more_groups=0)[1]
    several = report_page(figures(positive=None, thresholds=None))
    assert cells(several, "by group, further fields")[0] == ["group", "sequences", "accuracy"]


def test_class_balance_of_every_part() -> None:
    assert cells(report_page(figures()), "labelled sequences by class") == [
        ["died", "train", "test"],
        ["yes", "1,311 (50.0%)", "164 (50.0%)"],
        ["no", "1,311 (50.0%)", "164 (50.0%)"],
        ["all", "2,622", "328"],
    ]
    many = replace(
        figures().overview, classes={"this table": {f"attack {n}": 1 for n in range(50)}}, missing={}, tied=0
    )
    page = report_page(figures(overview=many))
    assert cells(page, "labelled sequences by class")[-2:] == [["25 more classes", "25 (50.0%)"], ["all", "50"]]
    text = checked(page).text
    assert "Every record has a value in every field." in text and "No two records of a sequence have" in text


def test_rules_have_their_precision_and_coverage() -> None:
    assert cells(report_page(figures()), RULES) == [
        ["rule", "answer", "precision", "real cases", "explained sequences"],
        [
            "Drugs: morphine (last stay); Age: 80–89 years (last stay)",
            "yes",
            "97.0% [92.0%, 100.0%]",
            "4.0%, 95% the same answer",
            "12",
        ],
        ["Ward: heart (1 stay before the last)", "no", "94.0% [89.0%, 99.0%]", "20.5%, 92% the same answer", "9"],
    ]


def test_fields_have_what_they_raise_and_lower() -> None:
    assert cells(report_page(figures()), FIELDS) == [
        ["class", "field", "raises p by", "lowers p by"],
        ["yes", "drugs", "0.250", "0.125"],
        ["yes", "age", "0.100", "0.000"],
    ]


def test_without_a_rule_or_an_effect_there_is_no_empty_table() -> None:
    nothing = Summary(40, {"unsettled": 40}, None, (), ())
    page = report_page(figures(explained=explained(summary=nothing)))
    text = checked(page).text
    assert "40 answers explained: 40 unsettled." in text
    for header in ("explained sequences</th>", "raises p by</th>"):
        assert header in report_page(figures()) and header not in page


def test_the_operating_point_is_marked_and_described() -> None:
    page = report_page(figures())
    text = checked(page).text
    assert "threshold 0.437 (0.15, 0.75)" in text and "threshold 0.437 (0.75, 0.84)" in text
    assert "yes: AUROC 0.883" in text and "chance: 0.500" in text
    assert "There are no curves" in without(curves=())[1]


def test_the_page_says_what_the_check_of_an_explanation_does_not_show() -> None:
    text = " ".join(checked(report_page(figures())).text.split())
    assert "What “settled” means: whoever satisfies the rule gets the same answer, at least 90% with 95%" in text
    assert "What it does not mean: that the features cause the outcome." in text
    for verdict in ("Contested", "Unsettled", "Default"):
        assert f"“{verdict}”: " in text, "every verdict is explained"
    assert "Clopper and Pearson for look-alikes" in text
    assert "Clopper" not in without(explained=None)[1]


def test_without_matplotlib_the_page_has_its_figures_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "pip install" not in checked(report_page(figures())).text
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    page = report_page(figures())
    text = checked(page).text
    assert "<svg" not in page
    assert text.count("pip install 'tefm[plots]'") == 1
    assert "0.803 [0.773, 0.823]" in text and "yes: AUROC 0.883" in text


def test_the_same_figures_give_the_same_page() -> None:
    first = report_page(figures())
    DRAWN.clear()
    assert report_page(figures()) == first


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    frame = report_page(figures())._repr_html_()
    assert frame.startswith("<iframe srcdoc=") and "sandbox" in frame
    assert "<!doctype" not in frame, "the page is one attribute of the frame"
    assert "<!doctype html>" in unescape(frame)


def test_figures_are_json() -> None:
    body = json.loads(json.dumps(figures().to_dict()))
    assert body["methods"][0]["scores"]["accuracy"]["value"] == 0.803
    assert body["codes"]["fidelity"]["fields"][0]["name"] == "field 0"
    assert body["calibration"][1]["observed"] == {"value": 0.6, "low": 0.4, "high": 0.75}
    (case,) = body["explained"]["cases"]
    assert case["label"] == "yes" and Explanation.from_json(case["explanation"]) == explanation()
    summary = body["explained"]["summary"]
    assert summary["verdicts"] == {"settled": 33, "unsettled": 4, "default": 3}
    assert summary["rules"][1]["features"] == ["Ward: heart (1 stay before the last)"]
    assert summary["rules"][1]["precision"] == {"count": 188, "of": 200, "low": 0.89, "high": 0.99}
    assert summary["fields"][0] == {"field": "drugs", "of_class": "yes", "raised": 0.25, "lowered": -0.125}


def hostile_summary() -> Summary:
    summary = explained().summary
    return replace(
        summary,
        rules=tuple(replace(rule, answer=HOSTILE, features=(HOSTILE, HOSTILE)) for rule in summary.rules),
        fields=tuple(replace(effect, field=HOSTILE, of_class=HOSTILE) for effect in summary.fields),
    )


def test_nothing_in_a_table_can_break_the_page() -> None:
    hostile = figures(
        title=HOSTILE,
        verdict=HOSTILE,
        confusion=replace(figures().confusion, classes=("no", HOSTILE)),
        curves=tuple(replace(curve, name=HOSTILE) for curve in figures().curves),
        facts={HOSTILE: HOSTILE},
        positive=HOSTILE,
        methods=(Method(HOSTILE, scores(0.8), 9.0), Method(HOSTILE, scores(0.7), 0.0)),
        tokens=tuple(replace(account, format=f"{account.format} {HOSTILE}") for account in figures().tokens),
        codes=codes(name=HOSTILE),
        explained=explained(summary=hostile_summary(), cases=(Case(explanation(HOSTILE, label=HOSTILE), HOSTILE),)),
        warnings=(HOSTILE,),
    )
    page = report_page(hostile)
    assert HOSTILE in checked(page).text, "it is shown as it is"
    assert page.count("<script") == report_page(figures()).count("<script")


@pytest.mark.parametrize("fields", [1, 5, 60])
def test_any_number_of_fields(fields: int) -> None:
    text = checked(report_page(figures(codes=codes(fields=fields)))).text
    assert all(f"field {n}" in text for n in range(fields))


def without(**changes: object) -> tuple[Figures, str]:
    shown = figures(**changes)
    return shown, checked(report_page(shown)).text


def test_a_model_that_only_predicts_has_no_section_about_explanations() -> None:
    shown, text = without(explained=None)
    assert "Example explanations" not in text and "What settles" not in text
    assert "What the codes lose" in text
    assert shown.to_dict()["explained"] is None


def test_several_classes_are_about_the_predicted_one() -> None:
    _, text = without(positive=None, methods=(Method("TEFM (codes)", scores(0.9, ("a", "b", "c")), 33.0),))
    assert "probability of the predicted class" in text
    assert "are those of" not in text
    assert "AUROC, AUPRC and macro F1 are means over the classes that occur, each against the rest" in text
    assert "There is no tabular model to compare with" in text


def test_several_classes_have_a_row_each() -> None:
    classes = tuple(ClassScores(f"attack {n}", 40 - n, 0.9, 0.8, 0.847) for n in range(30))
    _, text = without(positive=None, by_class=(*classes, ClassScores("never", 0, None, None, None)))
    assert "attack 0400.9000.8000.847" in text.replace("\n", ""), "a row of the table"
    assert "20 (few)" not in text and "19 (few)" in text, "fewer than 20 are marked"
    assert "attack 24" in text and "attack 25" not in text and "and 6 less frequent classes" in text
    assert "(codes) by class" not in without()[1], "the scores cover two classes"


@pytest.mark.parametrize(("sequences", "few"), [(8, True), (49, True), (50, False)])
def test_few_sequences_are_called_few_beside_their_intervals(sequences: int, few: bool) -> None:
    _, text = without(methods=(Method("TEFM (codes)", scores(0.8) | {"n": sequences}, 9.0),))
    assert ("too few for reliable intervals" in text) == few


@pytest.mark.parametrize(
    ("wrong", "words"),
    [(0, "is wrong."), (1, "and the only wrong one."), (1_402, "and one of the 1,402 wrong ones.")],
)
def test_the_page_says_whether_there_are_wrong_predictions(wrong: int, words: str) -> None:
    assert words in without(explained=explained(wrong=wrong))[1]


def test_what_is_recorded_is_named_with_its_column() -> None:
    case = Case(explanation("1", "0", label="expired"), "0")
    _, text = without(explained=explained(cases=(case,)))
    assert "Recorded: expired = 0. The prediction is wrong." in text
    assert case.explanation.title in " ".join(text.split()) and "expired = 1" in case.explanation.title


def test_examples_have_places_of_their_own() -> None:
    cases = (Case(explanation(), "yes"), Case(contested(ASPIRIN), "no"))
    page = report_page(figures(explained=explained(cases=cases)))
    outline = checked(page)
    assert {"case1", "case2"} <= set(outline.ids)
    assert outline.text.index("The prediction is correct.") < outline.text.index("The prediction is wrong.")


def test_one_stylesheet_for_light_and_dark_and_narrow_screens() -> None:
    page = unescape(report_page(figures()))
    assert page.count("<style>") == 1
    assert "prefers-color-scheme: dark" in page and "width=device-width" in page
    # a table is always in a box of its own that scrolls, or in a card that wraps
    for at in (found.start() for found in re.finditer("<table", page)):
        before = page[:at]
        boxed = before.rfind('<div class="scroll"') > before.rfind("</div>")
        assert boxed or before.rfind("<article") > before.rfind("</article>")
