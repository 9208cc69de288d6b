"""The results of a benchmark as one page: each table with its introduction, and with plots where they help.

The plots follow from what a table holds. A key that counts something (sequences, levels, a share that is kept) goes
along the x axis, two of them make a heat map; a table with tokens and accuracy shows one against the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import ChoiceLoader, FileSystemLoader
from markupsafe import Markup

from tefm.show import plots
from tefm.show.html import HtmlTable, Page, converter, page_environment
from tefm.show.plots import Axis, Level, Plot, Series
from tefm_bench.axes import LogAxis, ShareAxis
from tefm_bench.heat import heat
from tefm_bench.table import Column, Figure, Row, Table

#: The column that is plotted, if the table has it.
FIRST = ("accuracy", "auroc")
#: Models that read no tokens and are worse by more than this are named, not drawn: they would squash the others.
NEAR = 0.15
#: Plots of one table, at most.
PLOTS = 8
COLOURS = 8


def bench_page(tables: Sequence[Table], title: str = "Benchmark") -> Page:
    """One HTML file with a section per table."""
    sections = [Section.of(table) for table in tables]
    pages = page_environment()
    assert pages.loader is not None, "it finds the base of all pages"
    own = FileSystemLoader(Path(__file__).parent / "templates")
    pages = pages.overlay(loader=ChoiceLoader([own, pages.loader]))
    pages.filters["markdown"] = to_html
    template = pages.get_template("bench.html")
    return Page(template.render(title=title, tables=sections, plots_available=plots.available()))


def to_html(text: str) -> Markup:
    """Paragraphs, lists, code and links; raw HTML and images are shown as text.

    >>> print(to_html("**Ours** is `a < b`, <b>not</b> bold."))
    <p><strong>Ours</strong> is <code>a &lt; b</code>, &lt;b&gt;not&lt;/b&gt; bold.</p>
    <BLANKLINE>
    """
    return Markup(converter().render(text))


@dataclass(frozen=True)
class BenchTable(HtmlTable):
    """A table of a benchmark."""

    #: columns that hold figures of a publication, which look different
    paper: frozenset[int] = frozenset()

    def look(self, column: int) -> str:
        """The CSS classes of a column."""
        names = [super().look(column), "paper" if column in self.paper else ""]
        return " ".join(filter(None, names))


@dataclass(frozen=True)
class Section:
    """What the template shows of one table."""

    name: str
    title: str
    about: str
    plots: list[Plot]
    more_plots: int
    table: BenchTable
    published_on: str
    made: dict[str, str]

    @classmethod
    def of(cls, table: Table) -> Section:
        header, rows = table.cells()
        paper = frozenset(number for number, name in enumerate(header) if name.endswith(", paper"))
        caption = f"{table.title}: mean ± standard deviation"
        drawn = plots_of(table)
        return cls(
            name=table.name,
            title=table.title,
            about=table.about,
            plots=drawn[:PLOTS],
            more_plots=max(0, len(drawn) - PLOTS),
            table=BenchTable(header, rows, caption, words=len(table.keys), paper=paper),
            published_on=table.published_on,
            made={name: _listed(value) for name, value in table.made.items()},
        )


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


# ---- which plots ------------------------------------------------------------------------------------------------


def plots_of(table: Table) -> list[Plot]:
    """The plots of a table, one per data set or other key; none where nothing is varied."""
    counts = [key for key in table.keys if _counts([row.keys.get(key, "") for row in table.rows])]
    columns = {column.name: column for column in table.shown}
    column = next((columns[name] for name in FIRST if name in columns), None)
    column = column or next((c for c in table.shown if c.better == "up"), None)
    if column is None:
        return []
    draw: Callable[[_Facet], Plot | None]
    if len(counts) == 2:
        facet_keys = [key for key in table.keys if key not in counts]
        draw = lambda facet: _grid(facet, counts[0], counts[1])  # noqa: E731
    elif counts:
        facet_keys = [key for key in table.keys if key != counts[0]]
        line_key = facet_keys.pop() if len(facet_keys) > 1 else None
        draw = lambda facet: _curves(facet, counts[0], line_key)  # noqa: E731
    elif "tokens" in columns and column.name in FIRST:
        *facet_keys, method_key = table.keys
        draw = lambda facet: _against_tokens(facet, method_key)  # noqa: E731
    else:
        return []
    facets: dict[tuple[str, ...], list[Row]] = {}
    for row in table.rows:
        if column.name in row.figures:
            facets.setdefault(tuple(row.keys.get(key, "") for key in facet_keys), []).append(row)
    drawn = [
        draw(_Facet(_anchor(table, number), ", ".join(filter(None, names)) or table.title, rows, column))
        for number, (names, rows) in enumerate(facets.items(), start=1)
    ]
    return [plot for plot in drawn if plot is not None]


@dataclass(frozen=True)
class _Facet:
    """The rows of one plot, and the column that it shows."""

    anchor: str
    name: str
    rows: list[Row]
    column: Column

    def figure(self, row: Row) -> Figure:
        return row.figures[self.column.name]


def _anchor(table: Table, number: int) -> str:
    return f"plot-{re.sub(r'[^a-zA-Z0-9]+', '-', table.name)}-{number}"


def _counts(values: Sequence[str]) -> bool:
    """Whether values are numbers, at least two; one may be a word: `all` is the last of 100, 300, …

    >>> _counts(["100", "1,000", "all"]), _counts(["5%", "10%"]), _counts(["ours", "SHAP"]), _counts(["3", "3"])
    (True, True, False, False)
    """
    distinct = set(filter(None, values))
    return len(distinct) > 1 and len([v for v in distinct if _number(v) is not None]) >= max(2, len(distinct) - 1)


def _number(words: str) -> float | None:
    match = re.fullmatch(r"([\d,]+(?:\.\d+)?)\s*%?", words)
    return float(match[1].replace(",", "")) if match else None


def _ordered(rows: Sequence[Row], key: str) -> list[str]:
    """The values of a key, numbers rising, words behind them."""
    values = dict.fromkeys(row.keys[key] for row in rows if row.keys.get(key))
    return sorted(values, key=lambda words: (_number(words) is None, _number(words) or 0.0))


# ---- the plots --------------------------------------------------------------------------------------------------


def _curves(facet: _Facet, along: str, line_key: str | None) -> Plot | None:
    names = _ordered(facet.rows, along)
    if len(names) < 2:
        return None
    lines: dict[str, list[tuple[int, Figure]]] = {}
    for row in facet.rows:
        if row.keys.get(along):
            name = row.keys.get(line_key, "") if line_key else ""
            lines.setdefault(name, []).append((names.index(row.keys[along]), facet.figure(row)))
    series = []
    for number, (name, points) in enumerate(lines.items()):
        points.sort(key=lambda point: point[0])
        series.append(_with_spread(name, [x for x, _ in points], [f for _, f in points], number, line=True))
    return _drawn(facet, Axis(along, names=tuple(names)), series)


def _against_tokens(facet: _Facet, method_key: str) -> Plot | None:
    tokens = {
        row.keys.get(method_key, ""): figure.mean
        for row in facet.rows
        if (figure := row.figures.get("tokens")) and figure.mean > 0
    }
    if not tokens:
        return None
    least = min(facet.figure(row).mean for row in facet.rows if row.keys.get(method_key, "") in tokens) - NEAR
    series: list[Series | Level] = []
    below = []
    for number, row in enumerate(facet.rows):
        method, figure = row.keys.get(method_key, ""), facet.figure(row)
        if method in tokens:
            series.append(_with_spread(method, [tokens[method]], [figure], number, line=False))
        elif figure.mean < least:
            below.append(f"{method} {figure.text(facet.column.digits)}")
        else:
            series.append(Level(method, figure.mean, colour=1 + number % COLOURS))
    x = LogAxis("tokens per sequence (logarithmic); dashed: none")
    return _drawn(facet, x, series, f"; below the plot: {', '.join(below)}" if below else "")


def _grid(facet: _Facet, down: str, across: str) -> Plot | None:
    cells = {(row.keys.get(down), row.keys.get(across)): facet.figure(row).mean for row in facet.rows}
    if len(cells) < 2:
        return None
    downs, acrosses = _ordered(facet.rows, down), _ordered(facet.rows, across)
    return heat(
        facet.anchor,
        facet.name,
        "; ".join(f"{down} {a}, {across} {b}: {value:.3f}" for (a, b), value in cells.items()),
        [f"{down} {a}" for a in downs],
        [f"{across} {b}" for b in acrosses],
        [[cells.get((a, b)) for b in acrosses] for a in downs],
        note=facet.column.title,
    )


def _with_spread(name: str, x: Sequence[float], figures: Sequence[Figure], number: int, *, line: bool) -> Series:
    return Series(
        name,
        x,
        [f.mean for f in figures],
        [f.mean - f.sd for f in figures],
        [f.mean + f.sd for f in figures],
        colour=1 + number % COLOURS,
        line=line,
        dashed=number >= COLOURS,
        size=6 if line else 9,
    )


def _drawn(facet: _Facet, x: Axis, series: Sequence[Series | Level], note: str = "") -> Plot:
    values = {one.name: [one.y] if isinstance(one, Level) else one.y for one in series}
    description = "; ".join(f"{name}: {', '.join(f'{y:.3f}' for y in y_values)}" for name, y_values in values.items())
    return plots.curves(
        facet.anchor,
        facet.name,
        description + note,
        x,
        (ShareAxis if facet.column.name in FIRST else Axis)(facet.column.title),
        series,
        note=f"{facet.column.title}, ± standard deviation{note}",
    )
