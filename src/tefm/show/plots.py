"""Plots as inline SVG, drawn with matplotlib in the colours of the page.

Every plot is 380 units wide, about a phone; wide screens show them side by side. Colours are CSS variables of the page
(with fallbacks for notebooks), so one drawing serves light and dark. A `<desc>` has the figures in words.

Without matplotlib a plot has no drawing, and its description is shown instead.
"""

from __future__ import annotations

import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from markupsafe import Markup

from tefm.explain.cards import printable

WIDTH = 380
#: Height of one line of text.
LINE = 16
#: Characters of a label: as many as fit into a third of the width, or into a whole line of the legend.
LABEL, LEGEND = 19, 50

#: Grey, and the eight colours of Okabe and Ito, which people with any kind of colour vision can distinguish. Yellow is
#: darker here, to be visible on white; the last one is the colour of the text.
COLOURS = ("#9aa1ab", "#0072b2", "#d55e00", "#009e73", "#b8528c", "#e69f00", "#56b4e9", "#8f7f00", "#16191d")
TEXT, LINES = "#565e69", "#cfd4da"
#: What the drawing says instead of each colour: a variable of the page, or outside a page something that works on
#: light and dark grounds.
CSS_COLOURS = {
    **{colour: f"var(--c{number}, {colour})" for number, colour in enumerate(COLOURS)},
    COLOURS[8]: "var(--c8, currentColor)",
    TEXT: "var(--soft, currentColor)",
    LINES: "var(--line, #80808066)",
}
#: Text stays text, a `$` in a name is a dollar, and the same plot is drawn the same way every time.
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tefm",
    "text.parse_math": False,
    "font.size": 12,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "axes.edgecolor": TEXT,
    "axes.labelcolor": COLOURS[8],
}
SVG = "http://www.w3.org/2000/svg"
#: Markers and dashes differ too, so that series can be distinguished without colours.
MARKERS = ("o", "o", "s", "^", "D", "v", "P", "X", "o")


@dataclass(frozen=True)
class Plot:
    """A drawing with its title, its figures in words, and a note to print below the title."""

    title: str
    description: str
    note: str = ""
    #: empty without matplotlib
    svg: Markup = field(default_factory=Markup)

    def _repr_html_(self) -> str:
        return str(Markup("<figure><figcaption>{}</figcaption>{}</figure>").format(self.title, self.body))

    @property
    def body(self) -> Markup:
        """The drawing, or the description if there is none."""
        return self.svg or Markup('<p class="soft">{}</p>').format(self.description)


@dataclass(frozen=True)
class Axis:
    """What an axis shows. Where `low` or `high` is None, the data decide."""

    label: str
    low: float | None = None
    high: float | None = None
    #: words at 0, 1, 2, … instead of numbers
    names: tuple[str, ...] = ()

    def scale(self, axes: Any, axis: Any) -> None:
        """Limits, ticks and numbers of one axis of a drawing."""
        from matplotlib import ticker

        name = axis.axis_name
        if self.names:
            letters = fitting(len(self.names)) if name == "x" else LABEL
            axis.set_ticks(range(len(self.names)), [shortened(words, letters) for words in self.names])
            if name == "x":
                axes.set_xlim(-0.4, len(self.names) - 0.6)
            return
        low, high = axis.get_view_interval()
        axes.set(**{f"{name}lim": (low if self.low is None else self.low, high if self.high is None else self.high)})
        axis.set_minor_locator(ticker.NullLocator())
        axis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 5, 10]))
        axis.get_major_formatter().set_useOffset(False)


@dataclass(frozen=True)
class Series:
    """Points that belong together; `low` and `high` are the ends of the interval of each y."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    #: number in COLOURS; 0 is grey
    colour: int = 1
    line: bool = True
    points: bool = True
    dashed: bool = False
    #: diameter of a point
    size: float = 6


@dataclass(frozen=True)
class Level:
    """A horizontal line over the whole width, for a value that has no x."""

    name: str
    y: float
    colour: int = 0


def available() -> bool:
    """Whether matplotlib is installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


# ---- kinds of plots ---------------------------------------------------------------------------------------------


def curves(
    anchor: str,
    title: str,
    description: str,
    x: Axis,
    y: Axis,
    series: Sequence[Series | Level],
    *,
    note: str = "",
    height: int = 210,
) -> Plot:
    """Lines and points."""
    named = [one for one in series if one.name]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        handles = {id(one): _series(axes, one) for one in series}
        _style(axes, x, y)
        axes.set_xlabel(shortened(x.label, LEGEND))
        if named:
            point = min((one.size for one in named if isinstance(one, Series) and one.points), default=6)
            _legend(figure, [(handles[id(one)], one.name) for one in named], point=point)

    lines = -(-len(named) // _legend_columns([one.name for one in named]))
    return drawn(anchor, title, description, note, height + 66 + lines * (LINE + 2), draw)


# ---- parts ------------------------------------------------------------------------------------------------------


def _series(axes: Any, one: Series | Level) -> Any:
    """Draw a series; return what stands for it in the legend."""
    colour = COLOURS[one.colour]
    dashes = (0, (2.5, 2))
    if isinstance(one, Level):
        return axes.axhline(one.y, color=colour, linewidth=2, linestyle=dashes, gid="plot-level")
    if one.low:
        axes.vlines(one.x, one.low, one.high, color=(colour, 0.65), linewidth=1.2, gid="plot-interval")
    (line,) = axes.plot(
        one.x,
        one.y,
        color=colour,
        linewidth=2,
        linestyle="none" if not one.line else dashes if one.dashed else "-",
        marker=MARKERS[one.colour] if one.points else "none",
        markersize=one.size,
        markeredgewidth=0,
        clip_on=not one.points,
        gid="plot-points" if one.points else "plot-line",
    )
    line.set_in_layout(False)
    return line


def _style(axes: Any, x: Axis, y: Axis) -> None:
    """Labels, ticks and limits of both axes."""
    if y.label:
        axes.set_title(shortened(y.label, LEGEND), loc="left", fontsize=12, color=COLOURS[8])
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_axisbelow(True)
    if not y.names:
        axes.grid(axis="y", color=LINES, linewidth=0.6)
    x.scale(axes, axes.xaxis)
    y.scale(axes, axes.yaxis)


def _legend(figure: Any, entries: Sequence[tuple[Any, str]], *, point: float = 6) -> None:
    """Names below the plot; `point` is the size of the points drawn, which are larger here if they are tiny."""
    labels = [shortened(name, LEGEND) for _, name in entries]
    figure.legend(
        [handle for handle, _ in entries],
        labels,
        loc="outside lower left",
        ncols=_legend_columns(labels),
        frameon=False,
        labelcolor=TEXT,
        handlelength=1.6,
        labelspacing=0.3,
        borderpad=0.3,
        markerscale=max(1.0, 6 / point),
    )


def _legend_columns(labels: Sequence[str]) -> int:
    """Short names stand in two columns."""
    return 2 if len(labels) > 2 and max(map(len, labels)) <= LABEL + 2 else 1


def fitting(names: int) -> int:
    """How many characters each of some names may have, side by side."""
    return max(1, int((WIDTH - 60) / names / 7))


def shortened(words: str, letters: int) -> str:
    """Words of at most this many characters, without characters that XML does not allow.

    >>> shortened("admission type", 8)
    'admissi…'
    """
    words = printable(words)
    return words if len(words) <= letters else words[: letters - 1] + "…"


# ---- drawing ----------------------------------------------------------------------------------------------------


def drawn(anchor: str, title: str, description: str, note: str, height: float, draw: Callable[[Any], None]) -> Plot:
    """Draw on a new figure; `anchor` makes the ids in the drawing different from those of other plots of the page."""
    if not available():
        return Plot(title, description, note)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS), warnings.catch_warnings():
        # the browser draws the text: a letter that matplotlib's own font lacks is no problem
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72, layout="constrained")
        draw(figure)
        file = StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return Plot(title, description, note, inline_svg(file.getvalue(), anchor, title, description))


# ---- matplotlib's SVG as part of a page -----------------------------------------------------------------------------


def inline_svg(svg: str, anchor: str, title: str, description: str) -> Markup:
    """Prepare a drawing for the body of an HTML page.

    Metadata and the style sheet go, since a style sheet in a drawing applies to the whole page. Groups whose id
    begins with `plot-` get that name as their class, other groups lose it; ids of what is used begin with `anchor`.
    """
    root = ET.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.tail = None  # indentation
        if not (element.text or "").strip():
            element.text = None
        element.attrib = _attributes(element, anchor)
    root.attrib = {
        "xmlns": SVG,
        "viewBox": root.attrib["viewBox"],
        "class": "plot",
        "role": "img",
        "aria-labelledby": f"{anchor}-title {anchor}-desc",
    }
    for name, text in (("desc", description), ("title", title)):
        element = ET.Element(name, {"id": f"{anchor}-{name}"})
        element.text = printable(text)
        root.insert(0, element)
    return Markup(ET.tostring(root, encoding="unicode"))


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _attributes(element: ET.Element, anchor: str) -> dict[str, str]:
    result = {}
    for key, value in ((_local(key), value) for key, value in element.attrib.items()):
        if key == "id" and element.tag == "g":
            if value.startswith("plot-"):
                result["class"] = value.removeprefix("plot-")
        elif key == "id":
            result[key] = f"{anchor}-{value}"
        elif key in ("href", "clip-path"):
            result[key] = value.replace("#", f"#{anchor}-")
        elif key == "style":
            result[key] = _style_of_page(value)
        elif key != "transform" or not value.startswith("rotate(-0 "):
            result[key] = re.sub(r"\d+\.\d{3,}", lambda match: f"{float(match[0]):.2f}", value)
    return result


def _style_of_page(style: str) -> str:
    """The colours of the page instead of those of the drawing; the font is the page's, its size the drawing's."""
    style = re.sub(r"#[0-9a-f]{6}", lambda match: CSS_COLOURS.get(match[0], match[0]), style)
    return re.sub(r"font-family: [^;]*; ", "", style)
