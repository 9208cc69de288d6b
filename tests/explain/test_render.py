"""A rationale as a card for the terminal, the browser and notebooks: readable everywhere, and safe to show."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO

import pytest
from rich.console import Console
from support.cards import LONG, SCRIPT, X_ND, everything, printed, selecting, unwrapped, verified

from tefm.explain.rationale_card import Rationale
from tefm.explain.render import card, cards_page
from tefm.rationale.verify import Answer

# ---- terminal -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 132])
def test_the_card_fits_its_width_and_loses_no_word(width: int) -> None:
    rationale = everything(X_ND[[2, 1]])  # with the long value and the one that looks like markup
    shown = printed(rationale, width)
    assert {len(line) for line in shown.splitlines()} == {width}
    assert SCRIPT in unwrapped(shown)
    assert LONG.replace(" ", "") in unwrapped(shown).replace(" ", "")
    assert "patient p7: died (p = 0.90)" in shown
    assert f"out of {2 * X_ND.shape[1]} possible" in unwrapped(shown)
    assert "selected" in shown  # colour only repeats what the words say


def test_a_value_cannot_send_control_codes_to_the_terminal() -> None:
    rationale = replace(everything(X_ND[:1]), sequence="p\x1b[2J\x07\x9b31m7")
    console = Console(file=StringIO(), width=80, no_color=True, force_terminal=False)
    console.print(card(rationale))
    assert isinstance(console.file, StringIO)
    assert not {"\x1b", "\x07", "\x9b"} & set(console.file.getvalue())


# ---- browser --------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects tags and text."""

    VOID = ("meta", "br")

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


def hostile() -> Rationale:
    """A rationale whose names and values try to break out of the page."""
    died = '<b onclick="x">died</b>'
    answers = {name: Answer(died, {died: 0.8, "lived": 0.2}) for name in ("full", "alone", "without", "nothing")}
    return replace(everything(X_ND[[2]]), sequence='"><img src=x onerror=alert(1)>', entity=SCRIPT, **answers)


def assert_harmless(page: Page) -> None:
    """No tag or attribute of a hostile value became one of the page; the value is still there as text."""
    assert not {"script", "img", "link", "iframe"} & {tag for tag, _ in page.tags}
    assert not {name for _, attributes in page.tags for name in attributes if name.startswith("on")}
    assert SCRIPT in "".join(page.words)


def test_the_page_escapes_hostile_values() -> None:
    assert_harmless(Page(cards_page([hostile()], "</title><script>alert(2)</script>")))


def test_a_notebook_shows_the_card() -> None:
    rationale = everything(X_ND[:2])
    html = rationale._repr_html_()
    page = Page(html)
    text = " ".join("".join(page.words).split())
    for words in (rationale.title, rationale.conclusion, rationale.kept, "Ward: heart", "only the selected features"):
        assert words in text
    assert not {"script", "link", "html", "body"} & {tag for tag, _ in page.tags}
    assert not re.search(r"https?:|url\(|@import", html)
    assert not [attributes["id"] for _, attributes in page.tags if "id" in attributes], "two cards may share a page"


def test_the_styles_of_a_notebook_card_apply_to_nothing_else() -> None:
    html = everything(X_ND[:1])._repr_html_()
    style = html[html.index("<style>") + len("<style>") : html.index("</style>")]
    selectors = re.findall(r"([^{};]+)\{", re.sub(r"@media[^{]*\{", "", style))
    assert len(selectors) > 20
    for selector in (part.strip() for group in selectors for part in group.split(",")):
        assert selector.removeprefix("}").strip().startswith(".tefm-card"), selector


def test_a_notebook_card_escapes_hostile_values() -> None:
    assert_harmless(Page(hostile()._repr_html_()))


def test_the_page_of_an_empty_selection_is_well_formed() -> None:
    verification = verified("insufficient", alone=0.4, without=0.9)
    Page(cards_page([selecting(X_ND[:1], X_ND[:1] < 0, verification=verification)]))


def test_the_page_loads_nothing() -> None:
    html = cards_page([everything(X_ND[:2]), everything(X_ND[2:3])], "Two patients")
    page = Page(html)
    assert not re.search(r"https?:|url\(|@import|<link|<script", html)
    assert all(link.startswith("#") for _, attributes in page.tags if (link := attributes.get("href")))
    identities = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    assert {attributes["href"] for tag, attributes in page.tags if tag == "a"} == {"#r1", "#r2"}
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html


def test_the_page_links_each_feature_to_its_field() -> None:
    rationale = everything(X_ND[:1])
    page = Page(cards_page([rationale]))
    tied = [attributes["data-field"] for _, attributes in page.tags if "data-field" in attributes]
    assert tied == [finding.field for finding in rationale.findings]
    widths = [attributes["style"] for tag, attributes in page.tags if tag == "i"]
    assert widths == ["width:90.0%", "width:80.0%", "width:30.0%", "width:40.0%"]
