"""Plots: round ticks, everything inside the picture, no text across another."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tefm.show.axis import Axis
from tefm.show.svg import LETTER, WIDTH, Series, bars, chart, columns, heat

NAMESPACE = "{http://www.w3.org/2000/svg}"
numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 6))


def texts(svg: str) -> list[tuple[float, float, float, str]]:
    """From where to where each text reaches, in which line."""
    found = []
    for one in ET.fromstring(svg).iter(f"{NAMESPACE}text"):
        words, x = one.text or "", float(one.attrib["x"])
        wide = len(words) * LETTER * 0.9  # the plots reckon generously
        begin = x - {"start": 0, "middle": wide / 2, "end": wide}[one.attrib["text-anchor"]]
        found.append((begin, begin + wide, float(one.attrib["y"]), words))
    return found


def check_texts(svg: str) -> None:
    placed = texts(svg)
    height = float(ET.fromstring(svg).attrib["viewBox"].split()[3])
    for n, (begin, end, y, words) in enumerate(placed):
        assert begin >= -1 and end <= WIDTH + 1, words
        assert 0 <= y <= height, words
        for other_begin, other_end, other_y, other in placed[n + 1 :]:
            assert abs(y - other_y) >= 10 or end <= other_begin or other_end <= begin, f"{words} across {other}"


@given(st.lists(numbers, min_size=1, max_size=5), st.integers(2, 8))
@example([372341.0], 2)
def test_ticks_are_few_rising_and_inside(values: list[float], most: int) -> None:
    axis = Axis.around("x", values)
    ticks = axis.ticks(most)
    assert 1 <= len(ticks) <= most + 1
    assert [value for value, _ in ticks] == sorted({value for value, _ in ticks})
    assert all(-1e-6 <= axis.at(value) <= 1 + 1e-6 for value, _ in ticks)
    assert len({words for _, words in ticks}) == len(ticks), "two ticks are written differently"


@given(st.lists(st.floats(1, 1e5), min_size=1, max_size=5))
def test_logarithmic_ticks_are_inside(values: list[float]) -> None:
    axis = Axis.around("tokens", values, log=True)
    assert all(0 <= axis.at(value) <= 1 for value, _ in axis.ticks())
    assert all(0 <= axis.at(value) <= 1 for value in values)


@given(st.lists(st.tuples(st.floats(5, 2_000), st.text("abcdefghij ", min_size=2, max_size=12)), max_size=8))
def test_marks_never_cross_each_other(marks: list[tuple[float, str]]) -> None:
    x, y = Axis("tokens", 4, 2_500, log=True), Axis("accuracy", 0.7, 0.9)
    svg = chart("t", "d", x, y, [Series("ours", (9,), (0.8,), line=False)], marks=marks)
    check_texts(svg)
    root = ET.fromstring(svg)
    stalks = [line for line in root.iter(f"{NAMESPACE}line") if line.attrib["class"] == "mark"]
    names = [text for group in root.iter(f"{NAMESPACE}g") for text in group.findall(f"{NAMESPACE}text")]
    for stalk in stalks:
        at, top = float(stalk.attrib["x1"]), float(stalk.attrib["y2"])
        for name in names:
            wide = len(name.text or "") * LETTER * 0.9
            begin = float(name.attrib["x"]) - (wide if name.attrib["text-anchor"] == "end" else 0)
            assert float(name.attrib["y"]) < top or not begin < at < begin + wide


@pytest.mark.parametrize("count", [1, 3, 12])
def test_legends_wrap(count: int) -> None:
    series = [
        Series(f"way number {n} of choosing features", (0, 1), (n, n + 1), colour=1 + n % 8) for n in range(count)
    ]
    svg = chart("t", "d", Axis("x", 0, 1), Axis.around("y", range(count + 1)), series)
    check_texts(svg)
    assert sum("way number" in words for *_, words in texts(svg)) == count


def test_names_of_an_axis_are_shortened_to_their_room() -> None:
    names = [f"a rather long name {n}" for n in range(9)]
    svg = chart("t", "d", Axis.of_names("x", names), Axis("y", 0, 1), [Series("", range(9), [0.5] * 9)])
    check_texts(svg)


def test_points_and_intervals_are_where_the_axes_say() -> None:
    svg = chart(
        "t", "d", Axis("x", 0, 10), Axis("y", 0, 1), [Series("a", (0, 10), (0, 1), (0, 0.5), (0.5, 1))], height=200
    )
    curve = next(p for p in ET.fromstring(svg).iter(f"{NAMESPACE}path") if p.attrib["class"] == "curve")
    (x0, y0), (x1, y1) = [tuple(map(float, pair.split())) for pair in curve.attrib["d"][1:].split("L")]
    assert x0 < x1 == WIDTH - 14
    assert y0 - y1 == 200
    whiskers = [w for w in ET.fromstring(svg).iter(f"{NAMESPACE}line") if w.attrib["class"] == "whisker"]
    assert [float(w.attrib["y1"]) - float(w.attrib["y2"]) for w in whiskers] == [100, 100]


def test_bars_are_as_long_as_their_values() -> None:
    svg = bars("t", "d", [("whole", 1.0, 0.5, "1.000"), ("half", 0.5, None, "0.500")], ("codes", "mode"))
    check_texts(svg)
    wide = [float(rect.attrib["width"]) for rect in ET.fromstring(svg).iter(f"{NAMESPACE}rect")]
    assert wide[0] == pytest.approx(2 * wide[1], abs=0.02)


def test_columns_and_heat() -> None:
    svg = columns("t", "d", [0.5, 0.25, 0.0], Axis("share", 0, 0.5, percent=True), 1 / 3)
    check_texts(svg)
    tall = [float(rect.attrib["height"]) for rect in ET.fromstring(svg).iter(f"{NAMESPACE}rect")]
    assert tall[0] == 2 * tall[1] and tall[2] == 0
    grid = heat("t", "d", ["K 2", "K 3"], ["C 64", "C 128"], [[0.7, 0.8], [None, 0.9]])
    check_texts(grid)
    shades = [float(found) for found in re.findall(r'fill-opacity="([\d.]+)"', grid)]
    assert len(shades) == 3 and shades == sorted(shades)
