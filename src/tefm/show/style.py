"""What the pages look like: the rationale page's stylesheet, and what plots and tables of figures need beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tefm.rationale.render import whole_page as plain_page
from tefm.show.markdown import inline

# The eight colours are those of Okabe and Ito, told apart by people of all kinds of colour vision; yellow is darkened
# on white and black follows the ink. In the dark all are lighter.
_PLOTS = """
:root { --c0: #9aa1ab; --c1: #0072b2; --c2: #d55e00; --c3: #009e73; --c4: #b8528c; --c5: #e69f00; --c6: #56b4e9;
  --c7: #8f7f00; --c8: var(--ink); }
@media (prefers-color-scheme: dark) { :root { --c0: #5d6570; --c1: #5ab0f0; --c2: #f0803c; --c3: #2cc295;
  --c4: #e69cc6; --c5: #f2b84b; --c6: #9bd8ff; --c7: #e0d24a; } }
body > main > section { margin: 2.5rem 0; } body { max-width: 60rem; }
figure { margin: 1rem 0; max-width: 30rem; } figcaption { font-weight: 600; margin-bottom: .35rem; }
figcaption small { font-weight: normal; color: var(--soft); display: block; }
.side { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: 0 2rem; }
svg { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; overflow: visible; }
svg text { fill: var(--soft); } svg .label { fill: var(--ink); }
.grid { stroke: var(--line); stroke-width: .6; } .axis { stroke: var(--soft); } .tick { stroke: var(--ink);
  stroke-width: 2; } .mark { stroke: var(--soft); stroke-dasharray: 1 2; }
.curve { fill: none; stroke-width: 2; } .dashed { stroke-dasharray: 5 4; } .dots { fill: none; stroke-linecap: round; }
.square { stroke-linecap: square; } .whisker { stroke-width: 1.2; opacity: .65; }
g.c0 { stroke: var(--c0); } g.c1 { stroke: var(--c1); } g.c2 { stroke: var(--c2); } g.c3 { stroke: var(--c3); }
g.c4 { stroke: var(--c4); } g.c5 { stroke: var(--c5); } g.c6 { stroke: var(--c6); } g.c7 { stroke: var(--c7); }
g.c8 { stroke: var(--c8); } .fill { stroke: none; fill: var(--c1); } .tick.dashed { stroke-width: 1; }
.scroll { overflow-x: auto; margin: .75rem 0; border: 1px solid var(--line); border-radius: .5rem; }
.scroll table { width: auto; min-width: 100%; table-layout: auto; margin: 0; font-variant-numeric: tabular-nums;
  overflow-wrap: normal; font-size: .9375rem; }
.scroll th, .scroll td { padding: .3rem .75rem; text-align: right; white-space: nowrap; width: auto;
  border-bottom: 1px solid var(--line); } .scroll tr:last-child > * { border-bottom: 0; }
.scroll th:first-child, .scroll .words { text-align: left; width: auto; } .scroll .words { white-space: normal; }
.scroll th:first-child { position: sticky; left: 0; background: var(--ground); }
.scroll caption { padding: .4rem .75rem; } .paper { color: var(--soft); font-style: italic; }
.warning { border-left: .3rem solid var(--doubt); padding-left: .75rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 15rem), 1fr)); gap: .5rem 1.5rem;
  margin: 1rem 0; } .facts dt { color: var(--soft); font-size: .875rem; } .facts dd { margin: 0; }
nav li { display: inline-block; margin-right: 1rem; } nav ol, nav ul { list-style: none; padding: 0; }
@media print { section { break-inside: avoid-page; } }
"""


def whole_page(title: str, inside: str) -> str:
    """A page of rationales' style, with that of plots and tables; `inside` is HTML already."""
    return plain_page(title, inside, _PLOTS)


def figure(title: str, svg: str, note: str = "") -> str:
    """A plot below its title."""
    small = f"<small>{escape(note)}</small>" if note else ""
    return f"<figure><figcaption>{escape(title)}{small}</figcaption>\n{svg}</figure>\n"


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    caption: str = "",
    *,
    words: int = 1,
    paper: frozenset[int] = frozenset(),
) -> str:
    """Figures in a box that scrolls by itself; the first columns are words, those of the `paper` are set apart."""

    def look(n: int) -> str:
        names = [name for name, is_so in (("words", n < words), ("paper", n in paper)) if is_so]
        return f' class="{" ".join(names)}"' if names else ""

    def room(n: int) -> str:
        """Words wrap, but not before they have some room."""
        longest = max((len(row[n]) for row in rows), default=0)
        return f' style="min-width:{min(longest + 5, 18)}ch"' if n < words else ""

    head = "".join(f'<th scope="col"{look(n)}{room(n)}>{escape(name)}</th>' for n, name in enumerate(header))
    lines = "".join(
        "<tr>"
        + "".join(
            f'<th scope="row"{look(n)}>{escape(cell)}</th>' if n == 0 else f"<td{look(n)}>{escape(cell)}</td>"
            for n, cell in enumerate(row)
        )
        + "</tr>\n"
        for row in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    # a box that scrolls can be reached with the keyboard
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption or "table")}">'
        f"<table>{title}<thead><tr>{head}</tr></thead><tbody>\n{lines}</tbody></table></div>\n"
    )


def read(words: str) -> str:
    """The sentence that says how to read what follows."""
    return f'<p class="soft">{inline(words)}</p>\n'


# ---- figures in words -------------------------------------------------------------------------------------------


def bounds(found: Mapping[str, Any]) -> tuple[float, float]:
    """The ends of an interval; without one, the figure itself."""
    value = found["value"]
    low, high = found.get("low"), found.get("high")
    return (value if low is None else low), (value if high is None else high)


def interval(found: Mapping[str, Any]) -> str:
    """
    >>> interval({"value": 0.81234, "low": 0.77, "high": 0.85})
    '0.812 [0.770, 0.850]'
    """
    if found["value"] is None:
        return "–"
    low, high = bounds(found)
    return f"{found['value']:.3f} [{low:.3f}, {high:.3f}]"


def decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def spread(mean: float | None, std: float | None) -> str:
    return "–" if mean is None or std is None else f"{mean:.3f} ± {std:.3f}"
