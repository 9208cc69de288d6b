"""Markdown as HTML, for introductions of tables and findings; and text of tables within Markdown."""

from __future__ import annotations

import re
from functools import cache

from markdown_it import MarkdownIt
from markupsafe import Markup


def to_html(text: str) -> Markup:
    """Paragraphs, lists, code and links; raw HTML and images are shown as text.

    >>> print(to_html("**Ours** is `a < b`, <b>not</b> bold."))
    <p><strong>Ours</strong> is <code>a &lt; b</code>, &lt;b&gt;not&lt;/b&gt; bold.</p>
    <BLANKLINE>
    """
    return Markup(_converter().render(text))


def inline(text: str) -> Markup:
    """One line, without a paragraph around it.

    >>> print(inline("*slot accuracy*, [docs](https://example.org), 2 * 3 * 4"))
    <em>slot accuracy</em>, <a href="https://example.org">docs</a>, 2 * 3 * 4
    """
    return Markup(_converter().renderInline(text))


def markdown_words(text: str) -> str:
    r"""Text from a table that Markdown shows as it is, on one line.

    >>> print(markdown_words("a*b\n<i>|"))
    a\*b \<i>\|
    """
    return re.sub(r"([\\`*<\[|])", r"\\\1", " ".join(text.split()))


@cache
def _converter() -> MarkdownIt:
    # an image would be fetched from the network, and a heading has no place within a section
    return MarkdownIt("commonmark", {"html": False}).disable(["image", "heading", "lheading"])
