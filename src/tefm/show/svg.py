"""Plots as inline SVG, in the colours of the page (`style.py`): curves, dots, bars, columns, heat.

All are 380 units wide, about a phone's width, so that their text keeps its size there; wider screens show them side by
side. What the text of a plot would overlap is worked out from its length: a label that finds no place is left out of
the picture and stays in the description. Each plot has a `<title>` and a `<desc>` that says its figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from tefm.show.axis import Axis

WIDTH = 380
#: The width of a character of 12 units, generously: what is too narrow overlaps, what is too wide only leaves a gap.
LETTER = 6.8
#: A line of text.
LINE = 16


@dataclass(frozen=True)
class Series:
    """Points that belong together; `low` and `high` are the intervals of their y."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    #: 1 to 8; 0 is grey
    colour: int = 1
    line: bool = True
    dots: bool = True
    dashed: bool = False
    #: the size of a dot
    size: float = 6

    @property
    def look(self) -> str:
        return f"c{self.colour}"


def chart(
    title: str,
    about: str,
    x: Axis,
    y: Axis,
    series: Sequence[Series],
    *,
    marks: Sequence[tuple[float, str]] = (),
    height: int = 210,
) -> str:
    """Curves and dots; `marks` are places on the x axis that have a name and no y."""
    left = 10 + max(_wide(words) for _, words in y.ticks())
    top, right = 24.0, WIDTH - 14.0
    bottom = top + height

    def across(value: float) -> float:
        return left + x.at(value) * (right - left)

    def up(value: float) -> float:
        return bottom - y.at(value) * height

    parts = [_text(0, 11, y.label, "label")]
    for value, words in y.ticks():
        parts.append(_line(left, up(value), right, up(value), "grid"))
        parts.append(_text(left - 6, up(value) + 4, words, anchor="end"))
    for value, words in _fitting(x, right - left):
        parts.append(_line(across(value), bottom, across(value), bottom + 4, "axis"))
        parts.append(_text(across(value), bottom + LINE + 2, words, anchor="middle"))
    parts.append(_line(left, bottom, right, bottom, "axis"))
    parts.append(_text((left + right) / 2, bottom + 2 * LINE + 5, x.label, "label", "middle"))
    parts += _marks([(across(value), words) for value, words in marks], left, right, bottom, height)
    for one in series:
        parts.append(_series(one, [(across(a), up(b)) for a, b in zip(one.x, one.y, strict=True)], up))
    legend, below = _legend([one for one in series if one.name], bottom + 2 * LINE + 13)
    return _svg(title, about, below, [*parts, *legend])


def bars(
    title: str,
    about: str,
    rows: Sequence[tuple[str, float, float | None, str]],
    names: tuple[str, str],
    *,
    most: float = 1.0,
) -> str:
    """Lying bars: what each is called, its length, where its tick stands, and its figure; `names` are those of both."""
    letters = 19
    left, right = letters * LETTER, WIDTH - 8 - max(_wide(row[3]) for row in rows)
    parts, y = [], 4.0
    for label, value, tick, words in rows:
        inside = [
            tag("title", escape(f"{label}: {words}")),
            _text(left - 6, y + 12, shortened(label, letters - 2), anchor="end"),
            _rect(left, y + 2, max(0.0, value / most) * (right - left), 12, "c1 fill"),
            _text(WIDTH - 4, y + 12, words, anchor="end"),
        ]
        if tick is not None:
            at = left + tick / most * (right - left)
            inside.append(_line(at, y, at, y + LINE, "tick"))
        parts.append(tag("g", *inside))
        y += LINE + 2
    legend, below = _legend([Series(names[0], (), (), colour=1, line=False)], y + 4)
    if any(row[2] is not None for row in rows):
        x = 24 + _wide(names[0]) + 16
        parts += [_line(x, y + 4, x, y + 4 + LINE, "tick"), _text(x + 8, y + LINE, names[1])]
    return _svg(title, about, below, [*parts, *legend])


def columns(
    title: str, about: str, values: Sequence[float], y: Axis, even: float | None = None, *, height: int = 90
) -> str:
    """Upright bars side by side, with a line where all of them would be if they were `even`."""
    left = 10 + max(_wide(words) for _, words in y.ticks(3))
    top, right = 24.0, WIDTH - 8.0
    bottom = top + height
    each = (right - left) / max(len(values), 1)
    parts = [_text(0, 11, y.label, "label")]
    for value, words in y.ticks(3):
        at = bottom - y.at(value) * height
        parts += [_line(left, at, right, at, "grid"), _text(left - 6, at + 4, words, anchor="end")]
    for n, value in enumerate(values):
        tall = max(0.0, y.at(value)) * height
        parts.append(_rect(left + n * each, bottom - tall, max(each - 0.4, 0.4), tall, "c1 fill"))
    parts.append(_line(left, bottom, right, bottom, "axis"))
    if even is not None:
        at = bottom - y.at(even) * height
        parts.append(_line(left, at, right, at, "tick dashed"))
    return _svg(title, about, bottom + 6, parts)


def heat(
    title: str, about: str, rows: Sequence[str], across: Sequence[str], values: Sequence[Sequence[float | None]]
) -> str:
    """A grid of figures, the higher the darker; the figure itself stands in each cell."""
    known = [value for row in values for value in row if value is not None]
    low, spread = min(known), (max(known) - min(known)) or 1.0
    left = 8 + max(map(_wide, rows))
    each, tall = (WIDTH - left) / len(across), 28
    parts = [_text(left + (n + 0.5) * each, 12, name, anchor="middle") for n, name in enumerate(across)]
    for m, (name, row) in enumerate(zip(rows, values, strict=True)):
        y = 18 + m * tall
        parts.append(_text(left - 6, y + 18, name, anchor="end"))
        for n, value in enumerate(row):
            if value is None:
                continue
            shade = 0.08 + 0.5 * (value - low) / spread
            parts.append(_rect(left + n * each, y, each - 2, tall - 2, "c1 fill", f"{shade:.2f}"))
            parts.append(_text(left + (n + 0.5) * each - 1, y + 18, f"{value:.3f}", "label", "middle"))
    return _svg(title, about, 20 + len(rows) * tall, parts)


# ---- parts ----------------------------------------------------------------------------------------------------------


def tag(name: str, *inside: str, **attributes: object) -> str:
    """An element; a trailing underscore keeps a name from being a word of Python's.

    >>> tag("line", x1=1.25, class_="a")
    '<line x1="1.25" class="a"/>'
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"' for key, value in attributes.items()
    )
    return f"<{name}{said}>{''.join(inside)}</{name}>" if inside else f"<{name}{said}/>"


def shortened(words: str, letters: int) -> str:
    """
    >>> shortened("Admitting specialty", 12)
    'Admitting s…'
    """
    return words if len(words) <= letters else words[: letters - 1] + "…"


def _svg(title: str, about: str, height: float, parts: Sequence[str]) -> str:
    return tag(
        "svg",
        tag("title", escape(title)),
        tag("desc", escape(about)),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        viewBox=f"0 0 {WIDTH} {math.ceil(height)}",
    )


def _wide(words: str) -> float:
    """About how wide these words are."""
    return LETTER * (len(words) + 0.6 * words.count("%"))


def _number(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _text(x: float, y: float, words: str, look: str = "", anchor: str = "start") -> str:
    return tag("text", escape(words), x=float(x), y=float(y), class_=look, text_anchor=anchor)


def _line(x1: float, y1: float, x2: float, y2: float, look: str) -> str:
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=look)


def _rect(x: float, y: float, width: float, height: float, look: str, opacity: str = "1") -> str:
    return tag(
        "rect",
        x=float(x),
        y=float(y),
        width=float(width),
        height=float(height),
        class_=look,
        fill_opacity=opacity,
    )


def _series(one: Series, points: Sequence[tuple[float, float]], up: Callable[[float], float]) -> str:
    inside = [tag("title", escape(one.name))] if one.name else []
    for (at, _), low, high in zip(points, one.low, one.high, strict=False):
        inside.append(_line(at, up(low), at, up(high), "whisker"))
    if one.line and len(points) > 1:
        path = "M" + "L".join(f"{_number(a)} {_number(b)}" for a, b in points)
        inside.append(tag("path", d=path, class_="curve dashed" if one.dashed else "curve"))
    if one.dots:
        # a dot is a line without length and with a broad end: all of a series are one path
        path = "".join(f"M{_number(a)} {_number(b)}h.01" for a, b in points)
        inside.append(tag("path", d=path or "M0 0", class_=_ends(one), stroke_width=one.size))
    return tag("g", *inside, class_=one.look) if inside else ""


def _ends(one: Series) -> str:
    """Every other colour has square dots: told apart without colour too."""
    return "dots" if one.colour % 2 or not one.colour else "dots square"


def _marks(
    marks: Sequence[tuple[float, str]], left: float, right: float, bottom: float, height: float
) -> Iterable[str]:
    """Names at places of the x axis, each in the lowest line where it crosses no other name and no stalk."""
    placed: list[tuple[float, float, float, int]] = []  # from, to, stalk, line

    def free(begin: float, end: float, at: float, line: int) -> bool:
        return all(
            (line != there or end < a or b < begin)  # beside the other name
            and (line > there or not begin - 2 < stalk < end + 2)  # not across its stalk
            and (there > line or not a - 2 < at < b + 2)  # nor the own stalk across the name
            for a, b, stalk, there in placed
        )

    for at, words in sorted(marks, reverse=True):
        wide = _wide(words)
        # to the right wherever there is a line for it: names to the left stand in the way of stalks yet to come
        places = [(line, begin) for begin in (at + 4, at - 4 - wide) for line in range(int(height // LINE))]
        for line, begin in places:
            if left <= begin and begin + wide <= right and free(begin, begin + wide, at, line):
                placed.append((begin, begin + wide, at, line))
                y = bottom - 6 - line * LINE
                name = _text(begin, y, words) if begin > at else _text(at - 4, y, words, anchor="end")
                yield tag("g", _line(at, bottom, at, y - 9, "mark"), name)
                break


def _legend(series: Sequence[Series], y: float) -> tuple[list[str], float]:
    """Swatches with names, as many in a line as fit; and where they end."""
    parts: list[str] = []
    x, line = 0.0, y
    for one in series:
        words = shortened(one.name, 50)
        wide = 24 + _wide(words) + 12
        if x and x + wide > WIDTH:
            x, line = 0.0, line + LINE
        inside = []
        if one.line:
            path = f"M{_number(x + 2)} {_number(line + 8)}h16"
            inside.append(tag("path", d=path, class_="curve dashed" if one.dashed else "curve"))
        if one.dots:
            path = f"M{_number(x + 10)} {_number(line + 8)}h.01"
            inside.append(tag("path", d=path, class_=_ends(one), stroke_width=max(one.size, 6.0)))
        parts += [tag("g", *inside, class_=one.look), _text(x + 24, line + 12, words)]
        x += wide
    return parts, line + LINE + 4 if parts else y


def _fitting(axis: Axis, room: float) -> list[tuple[float, str]]:
    """As many ticks as have room for their words; names are all there, and shortened instead."""
    if axis.names:
        letters = max(1, int(room / len(axis.names) / LETTER) - 1)
        return [(value, shortened(words, letters)) for value, words in axis.ticks()]
    for most in (6, 5, 4, 3, 2):
        ticks = axis.ticks(most)
        if sum(_wide(words) + 12 for _, words in ticks) <= room:
            break
    return ticks
