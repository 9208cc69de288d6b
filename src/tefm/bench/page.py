"""The results of a benchmark as one page: each table with what it says about itself, and a plot where one helps.

What is plotted follows from what a table holds. A key that counts something (sequences, levels, a share that is kept)
goes along the x axis, two of them make a heat map; a table with tokens and accuracy shows one against the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape

from tefm.bench.table import Column, Figure, Row, Table
from tefm.show.axis import Axis
from tefm.show.markdown import to_html
from tefm.show.style import figure, table, whole_page
from tefm.show.svg import Series, chart, heat

#: What is plotted where a table has several figures.
FIRST = ("accuracy", "auroc")
#: A model that reads no tokens and is further than this below those that do is named, not drawn: it would squash them.
NEAR = 0.15
#: Plots of one table, at most.
PLOTS = 8
COLOURS = 8


def bench_page(tables: Sequence[Table], title: str = "Benchmark") -> str:
    """One page that stands alone, with a section per table."""
    links = "".join(f'<li><a href="#{escape(one.name)}">{escape(one.title)}</a></li>' for one in tables)
    return whole_page(
        title,
        f'<nav aria-label="Tables"><ul>{links}</ul></nav>\n' + "".join(_section(one) for one in tables),
    )


def _section(one: Table) -> str:
    header, lines = one.cells()
    paper = frozenset(n for n, name in enumerate(header) if name.endswith(", paper"))
    published = (
        f'<p class="paper">Columns in italics are the paper\'s own figures, on other data: {escape(one.published_on)}'
        "</p>\n"
        if paper
        else ""
    )
    plots = plots_of(one)
    left_out = f'<p class="soft">The first {PLOTS} of {len(plots)} plots.</p>\n' if len(plots) > PLOTS else ""
    made = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(_said(value))}</dd></div>" for name, value in one.made.items()
    )
    return (
        f'<section id="{escape(one.name)}">\n<h2>{escape(one.title)}</h2>\n{to_html(one.about)}'
        + (f'<div class="side">{"".join(plots[:PLOTS])}</div>\n{left_out}' if plots else "")
        + table(header, lines, f"{one.title}: mean ± standard deviation", words=len(one.keys), paper=paper)
        + published
        + (f'<details><summary>How it was made</summary><dl class="facts">{made}</dl></details>\n' if made else "")
        + "</section>\n"
    )


def plots_of(one: Table) -> list[str]:
    """The plots of a table as HTML figures; none where nothing is varied."""
    counted = [key for key in one.keys if _counts([row.keys.get(key, "") for row in one.rows])]
    shown = {column.name: column for column in one.shown}
    column = next((shown[name] for name in FIRST if name in shown), None)
    column = column or next((c for c in one.shown if c.better == "up"), None)
    if column is None:
        return []
    draw: Callable[[str, list[Row]], str]
    if len(counted) == 2:
        rest = [key for key in one.keys if key not in counted]
        draw = lambda name, rows: _grid(name, rows, column, counted[0], counted[1])  # noqa: E731
    elif counted:
        rest = [key for key in one.keys if key != counted[0]]
        series, rest = (rest[-1], rest[:-1]) if len(rest) > 1 else (None, rest)
        draw = lambda name, rows: _curves(name, rows, column, counted[0], series)  # noqa: E731
    elif "tokens" in shown and column.name in FIRST:
        series, rest = one.keys[-1], list(one.keys[:-1])
        draw = lambda name, rows: _against_tokens(name, rows, column, series or "")  # noqa: E731
    else:
        return []
    facets: dict[tuple[str, ...], list[Row]] = {}
    for row in one.rows:
        if column.name in row.figures:
            facets.setdefault(tuple(row.keys.get(key, "") for key in rest), []).append(row)
    drawn = [draw(", ".join(filter(None, names)) or one.title, rows) for names, rows in facets.items()]
    return [plot for plot in drawn if plot]


def _counts(values: Sequence[str]) -> bool:
    """Whether values are numbers, at least two, all but one: `all` is the last of 100, 300, …

    >>> _counts(["100", "1,000", "all"]), _counts(["5%", "10%"]), _counts(["ours", "SHAP"]), _counts(["3", "3"])
    (True, True, False, False)
    """
    distinct = set(filter(None, values))
    return len(distinct) > 1 and len([v for v in distinct if _number(v) is not None]) >= max(2, len(distinct) - 1)


def _number(words: str) -> float | None:
    found = re.fullmatch(r"([\d,]+(?:\.\d+)?)\s*%?", words)
    return float(found[1].replace(",", "")) if found else None


def _ordered(rows: Sequence[Row], key: str) -> list[str]:
    """The values of a key, numbers rising, words behind them."""
    found = dict.fromkeys(row.keys[key] for row in rows if row.keys.get(key))
    return sorted(found, key=lambda words: (_number(words) is None, _number(words) or 0.0))


def _curves(name: str, rows: list[Row], column: Column, along: str, by: str | None) -> str:
    names = _ordered(rows, along)
    if len(names) < 2:
        return ""
    lines: dict[str, list[tuple[int, Figure]]] = {}
    for row in rows:
        if row.keys.get(along):
            at = names.index(row.keys[along])
            lines.setdefault(row.keys.get(by, "") if by else "", []).append((at, row.figures[column.name]))
    series = [
        _with_spread(line, [n for n, _ in found], [f for _, f in found], number, line=True)
        for number, (line, found) in enumerate((line, sorted(f, key=lambda p: p[0])) for line, f in lines.items())
    ]
    return _drawn(name, column, Axis.of_names(along, names), series)


def _against_tokens(name: str, rows: list[Row], column: Column, by: str) -> str:
    read = {row.keys.get(by, ""): f.mean for row in rows if (f := row.figures.get("tokens")) and f.mean > 0}
    if not read:
        return ""
    x = Axis.around("tokens per sequence (logarithmic); dashed: none", read.values(), log=True)
    least = min(row.figures[column.name].mean for row in rows if row.keys.get(by, "") in read) - NEAR
    series, below = [], []
    for number, row in enumerate(rows):
        method, found = row.keys.get(by, ""), row.figures[column.name]
        if method in read:
            series.append(_with_spread(method, [read[method]], [found], number, line=False))
        elif found.mean < least:
            below.append(f"{method} {found.said(column.digits)}")
        else:
            flat = (found.mean, found.mean)
            series.append(Series(method, (x.low, x.high), flat, colour=1 + number % COLOURS, dots=False, dashed=True))
    return _drawn(name, column, x, series, f"; below the plot: {', '.join(below)}" if below else "")


def _grid(name: str, rows: list[Row], column: Column, down: str, across: str) -> str:
    held = {(row.keys.get(down), row.keys.get(across)): row.figures[column.name].mean for row in rows}
    downs, acrosses = _ordered(rows, down), _ordered(rows, across)
    if len(held) < 2:
        return ""
    values = [[held.get((a, b)) for b in acrosses] for a in downs]
    about = "; ".join(f"{down} {a}, {across} {b}: {value:.3f}" for (a, b), value in held.items())
    plot = heat(
        f"{name}: {column.title}", about, [f"{down} {a}" for a in downs], [f"{across} {b}" for b in acrosses], values
    )
    return figure(name, plot, column.title)


def _with_spread(name: str, x: Sequence[float], found: Sequence[Figure], number: int, *, line: bool) -> Series:
    return Series(
        name,
        x,
        [f.mean for f in found],
        [f.mean - f.sd for f in found],
        [f.mean + f.sd for f in found],
        colour=1 + number % COLOURS,
        line=line,
        dashed=number >= COLOURS,
        size=6 if line else 9,
    )


def _drawn(name: str, column: Column, x: Axis, series: Sequence[Series], note: str = "") -> str:
    values = [value for one in series for value in (*one.y, *one.low, *one.high)]
    about = "; ".join(f"{one.name}: {', '.join(f'{y:.3f}' for y in dict.fromkeys(one.y))}" for one in series)
    y = Axis.around(column.title, values)
    plot = chart(f"{name}: {column.title}", about + note, x, y, series)
    return figure(name, plot, f"{column.title}, ± standard deviation{note}")


def _said(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
