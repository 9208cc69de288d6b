"""Pages from templates: one HTML file each, which loads nothing from the network and runs no script but its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any

from jinja2 import Environment

from tefm.base.templates import environment
from tefm.show.markdown import inline, markdown_words, to_html


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
    #: columns that hold figures of a publication, which look different
    paper: frozenset[int] = frozenset()

    def look(self, column: int) -> str:
        """The CSS classes of a column."""
        names = [name for name, applies in (("words", column < self.words), ("paper", column in self.paper)) if applies]
        return " ".join(names)

    def width(self, column: int) -> int:
        """Characters that a column of words has room for before it wraps; 0 for figures."""
        longest = max((len(row[column]) for row in self.rows), default=0)
        return min(longest + 5, 18) if column < self.words else 0


def render(template: str, **values: Any) -> str:
    """Fill in a template; in HTML, values are escaped unless they are `Markup`."""
    return _environment().get_template(f"show/{template}").render(values)


@cache
def _environment() -> Environment:
    templates = environment("show", "rationale")  # a page shows cards of rationales, in their own style
    templates.filters["words"] = markdown_words
    templates.filters["markdown"] = to_html
    templates.filters["markdown_inline"] = inline
    return templates


# ---- numbers in words -------------------------------------------------------------------------------------------


def decimal(value: float | None, digits: int = 4) -> str:
    """
    >>> decimal(0.5), decimal(None)
    ('0.5000', '–')
    """
    return "–" if value is None else f"{value:.{digits}f}"


def spread(mean: float | None, std: float | None) -> str:
    """
    >>> spread(1.25, 0.25)
    '1.250 ± 0.250'
    """
    return "–" if mean is None or std is None else f"{mean:.3f} ± {std:.3f}"
