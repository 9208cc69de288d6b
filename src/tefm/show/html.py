"""Pages from templates: one HTML file each, which loads nothing from the network and runs no script but its own.

Markdown in findings becomes HTML; text of tables is escaped for Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any

from jinja2 import Environment
from markdown_it import MarkdownIt
from markupsafe import Markup

from tefm.base.templates import environment


class Page(str):
    """The text of an HTML file, which a notebook shows as a page."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        # a frame keeps the styles of page and notebook apart
        return f'<iframe srcdoc="{escape(self)}" style="width:100%;height:40rem;border:0" sandbox></iframe>'


@dataclass(frozen=True)
class HtmlTable:
    """A table of a page; all cells are text."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    #: the first columns hold words and may wrap
    words: int = 1

    def look(self, column: int) -> str:
        """The CSS classes of a column."""
        return "words" if column < self.words else ""

    def width(self, column: int) -> int:
        """Characters that a column of words has room for before it wraps; 0 for figures."""
        longest = max((len(row[column]) for row in self.rows), default=0)
        return min(longest + 5, 18) if column < self.words else 0


def tabled(items: Iterable[Any], cells: Mapping[str, str], caption: str, words: int = 1) -> HtmlTable:
    """A table with a line per item; each column has a header, and the format of its cells.

    >>> tabled([("age", 0.25)], {"field": "{[0]}", "missing": "{[1]:.1%}"}, "missing values").rows
    [['age', '25.0%']]
    """
    rows = [[cell.format(item) for cell in cells.values()] for item in items]
    return HtmlTable(list(cells), rows, caption, words)


def render(template: str, **values: Any) -> str:
    """Fill in a template such as `show/report.html`; in HTML, values are escaped unless they are `Markup`."""
    return page_environment().get_template(template).render(values)


@cache
def page_environment() -> Environment:
    """The templates of all rooms, with the filters that pages use."""
    templates = environment()
    templates.filters["tabled"] = tabled
    templates.filters["words"] = markdown_words
    templates.filters["markdown_inline"] = inline
    return templates


# ---- Markdown -------------------------------------------------------------------------------------------------------


def inline(text: str) -> Markup:
    """One line, without a paragraph around it.

    >>> print(inline("*slot accuracy*, [docs](https://example.org), 2 * 3 * 4"))
    <em>slot accuracy</em>, <a href="https://example.org">docs</a>, 2 * 3 * 4
    """
    return Markup(converter().renderInline(text))


def markdown_words(text: str) -> str:
    r"""Text from a table that Markdown shows as it is, on one line.

    >>> print(markdown_words("a*b\n<i>|"))
    a\*b \<i>\|
    """
    return re.sub(r"([\\`*<\[|])", r"\\\1", " ".join(text.split()))


@cache
def converter() -> MarkdownIt:
    """Markdown as HTML; raw HTML and images are shown as text."""
    # an image would be fetched from the network, and a heading has no place within a section
    return MarkdownIt("commonmark", {"html": False}).disable(["image", "heading", "lheading"])


# ---- numbers in words -------------------------------------------------------------------------------------------


def decimal(value: float | None, digits: int = 4) -> str:
    """
    >>> decimal(0.5), decimal(None)
    ('0.5000', '–')
    """
    return "–" if value is None else f"{value:.{digits}f}"
