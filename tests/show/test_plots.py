"""Plots: everything is drawn, inside the picture, with a text alternative; the same plot is always the same text."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.examples import HOSTILE
from tefm_bench.axes import LogAxis, ShareAxis
from tefm_bench.heat import heat

from tefm.show import plots
from tefm.show.plots import Axis, Level, Plot, Series, curves

numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 6))
LOG, ACCURACY = LogAxis("tokens"), ShareAxis("accuracy")


def texts(plot: Plot) -> list[str]:
    return [element.text or "" for element in root(plot).findall(".//{*}text")]


def root(plot: Plot) -> ET.Element:
    return ET.fromstring(plot.svg)


def groups(plot: Plot, name: str) -> list[ET.Element]:
    """The groups of a class: `points`, `interval`, `level`, `line`, `cell`."""
    return root(plot).findall(f".//{{*}}g[@class='{name}']")


def drawn(element: ET.Element, tag: str) -> int:
    return len(element.findall(f".//{{*}}g/{{*}}{tag}"))


def scatter(points: Sequence[tuple[float, float]], **more: object) -> Plot:
    x, y = [a for a, _ in points], [b for _, b in points]
    low, high = [b - 0.01 for b in y], [b + 0.01 for b in y]
    return curves("a", "Title", "words", Axis("x"), Axis("y"), [Series("one", x, y, low, high)], **more)  # type: ignore[arg-type]


def test_every_point_and_interval_is_drawn() -> None:
    plot = scatter([(1, 0.5), (2, 0.7), (3, 0.6)])
    (points,) = groups(plot, "points")
    assert drawn(points, "use") == 3
    (intervals,) = groups(plot, "interval")
    assert len(intervals.findall("{*}path")) == 3
    assert {"x", "y", "one"} <= set(texts(plot))


def test_a_level_has_no_points_and_stands_in_the_legend() -> None:
    plot = curves("a", "T", "d", LOG, ACCURACY, [Level("LightGBM", 0.8, 2), Series("ours", [9.0], [0.79], line=False)])
    (level,) = groups(plot, "level")
    assert "--c2" in ET.tostring(level, encoding="unicode")
    assert {"LightGBM", "ours", "tokens", "accuracy"} <= set(texts(plot))


def test_heat() -> None:
    plot = heat("a", "T", "d", ["K 2", "K 3"], ["C 64", "C 128"], [[0.1, None], [0.3, 0.4]])
    assert len(groups(plot, "cell")) == 3, "what was not measured is left empty"
    assert [words for words in texts(plot) if words.startswith("0.")] == ["0.100", "0.300", "0.400"]
    assert {"K 2", "K 3", "C 64", "C 128"} <= set(texts(plot))


def test_the_text_alternative() -> None:
    svg = root(scatter([(1, 2)]))
    assert svg.attrib["role"] == "img" and svg.attrib["aria-labelledby"] == "a-title a-desc"
    title, description = svg.find("{*}title"), svg.find("{*}desc")
    assert title is not None and title.text == "Title" and title.attrib["id"] == "a-title"
    assert description is not None and description.text == "words" and description.attrib["id"] == "a-desc"


def test_the_same_plot_is_the_same_text() -> None:
    points = [(1.0, 0.5), (2.0, 0.7)]
    assert scatter(points).svg == scatter(points).svg
    assert not re.search(r"\d{4}-\d\d-\d\d|matplotlib", scatter(points).svg), "no date, no metadata"


def test_two_plots_share_no_id() -> None:
    one, two = (curves(name, "T", "d", Axis("x"), Axis("y"), [Series("s", [1, 2], [1, 2])]) for name in "ab")
    ids = [set(re.findall(r'\bid="([^"]+)"', plot.svg)) for plot in (one, two)]
    assert ids[0] and not ids[0] & ids[1]
    references = re.findall(r"#(a-[^\")]+)", one.svg)
    assert references and set(references) <= ids[0]


def test_colours_are_those_of_the_page() -> None:
    svg = scatter([(1, 2), (2, 3)]).svg
    assert "var(--c1, #0072b2)" in svg and "var(--soft, currentColor)" in svg
    assert "<style" not in svg, "a style sheet in a drawing would apply to the whole page"
    assert not re.search(r"(?:fill|stroke): #", svg), "nothing has a colour that dark mode cannot change"


@pytest.mark.parametrize("words", [HOSTILE, "_leading", "cost in $ and $x^$", "\\frac{", "漢字", "a\x00\x1bb\nc", ""])
def test_any_name(words: str) -> None:
    made = [
        curves("a", words, words, Axis(words), Axis(words), [Series(words, [1, 2], [1, 2]), Level(words, 1)],
               note=words),
        curves("a", words, words, Axis(words, names=(words, "b")), Axis(words), [Series(words, [0, 1], [1, 2])]),
        heat("a", words, words, [words], [words, words], [[0.1, 0.2]]),
    ]  # fmt: skip
    for plot in made:
        assert root(plot).find("{*}title") is not None
        assert "<script" not in plot.svg
    if words.isprintable() and words and len(words) < plots.LABEL:
        assert words in texts(made[0])


@settings(max_examples=25, deadline=None)
@example([(0.0, 0.0)])
@example([(1e-9, 1e6), (0.0, -1e6)])
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=5))
def test_points_stay_inside_the_picture(points: list[tuple[float, float]]) -> None:
    plot = scatter(points)
    _, _, wide, high = map(float, root(plot).attrib["viewBox"].split())
    assert wide == plots.WIDTH
    (group,) = groups(plot, "points")
    assert drawn(group, "use") == len(points)
    for use in group.findall(".//{*}use"):
        assert 0 <= float(use.attrib["x"]) <= wide and 0 <= float(use.attrib["y"]) <= high
    assert "nan" not in plot.svg


@pytest.mark.parametrize("values", [(8.7, 8.7), (8.0, 9.0), (5.0, 60.0), (1.0, 9_000.0), (0.02, 3.0)])
def test_a_logarithmic_axis_has_ticks(values: tuple[float, float]) -> None:
    plot = curves("a", "T", "d", LOG, ACCURACY, [Series("s", values, (0.6, 0.7))])
    ticks = [
        words for words in texts(plot) if re.fullmatch(r"[\d,.]+", words) and not re.fullmatch(r"0\.[67]\d*", words)
    ]
    assert 1 <= len(ticks) <= 8


def test_shares_end_at_one() -> None:
    series = Series("s", [10, 20], [0.99, 1.0], [0.98, 1.0], [1.0, 1.0])
    plot = curves("a", "T", "d", Axis("x"), ACCURACY, [series])
    values = [float(words) for words in texts(plot) if re.fullmatch(r"[01]\.\d+", words)]
    assert values and max(values) == 1.0


def test_without_matplotlib_the_description_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert not plots.available()
    plot = curves("a", "T", "values < 1", LOG, ACCURACY, [Series("s", [1], [1])])
    assert plot.svg == "" and "values &lt; 1" in plot.body


def test_a_notebook_shows_a_plot_by_itself() -> None:
    html = scatter([(1, 2)])._repr_html_()
    assert html.startswith("<figure>") and "<svg" in html and "Title" in html
