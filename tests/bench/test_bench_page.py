"""Benchmark tables as a page: every cell is shown, the paper's are marked, and plots follow from what a table holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from show.test_page import Outline
from show.test_plots import drawn, groups, texts
from support.examples import HOSTILE
from tefm_bench.page import bench_page, plots_of
from tefm_bench.table import Column, Figure, Row, Table

TOKENS, ACCURACY = Column("tokens", "tokens", 1, "down"), Column("accuracy", "accuracy", 3, "up")


def table_of(keys: Sequence[str], rows: Sequence[tuple[Sequence[str], dict[str, Figure]]], **more: object) -> Table:
    lines = tuple(Row(dict(zip(keys, names, strict=True)), figures) for names, figures in rows)
    parts = {"name": "one", "title": "One", "about": "", "columns": (TOKENS, ACCURACY), "rows": lines, **more}
    return Table(keys=tuple(keys), **parts)  # type: ignore[arg-type]


def at(accuracy: float, tokens: float | None = None) -> dict[str, Figure]:
    spread = Figure((accuracy - 0.01, accuracy + 0.01))
    return {"accuracy": spread} | ({"tokens": Figure((tokens, tokens))} if tokens else {})


PREDICTION = table_of(
    ("data", "method"),
    [
        (("Diabetes130", "codes"), at(0.8, 8.7)),
        (("Diabetes130", "text"), at(0.79, 199.0)),
        (("Diabetes130", "LightGBM"), at(0.81)),
        (("Diabetes130", "majority class"), at(0.5)),
        (("DDoS", "codes"), at(0.99, 33.0)),
    ],
)


def test_every_cell_is_on_the_page() -> None:
    paper = Row({"data": "Diabetes130", "method": "codes"}, at(0.8, 8.7), {"accuracy": 0.821})
    table = replace(
        PREDICTION,
        rows=(paper, *PREDICTION.rows[1:]),
        published_on="MIMIC-III",
        made={"splits": (10, 11), "machine": "ours"},
        about="What *was* measured.",
    )
    page = bench_page([table, replace(PREDICTION, name="two")], "Results")
    outline = Outline(page)
    for cells in (table.cells()[0], *table.cells()[1]):
        assert all(cell in outline.text for cell in cells)
    assert {"#one", "#two"} <= set(outline.addresses) and {"one", "two"} <= set(outline.ids)
    assert "10, 11" in outline.text and "<em>was</em>" in page
    # the paper's column, and nothing else of the table, is set apart and explained
    assert re.findall(r'<td class="paper">(.*?)</td>', page) == ["0.821", "–", "–", "–", "–"]
    assert "on other data: MIMIC-III" in outline.text


def test_no_paper_no_word_of_it() -> None:
    assert 'class="paper"' not in bench_page([PREDICTION])


def test_accuracy_against_tokens_one_plot_per_data_set() -> None:
    first, second = plots_of(PREDICTION)
    assert (first.title, second.title) == ("Diabetes130", "DDoS")
    assert len(groups(first, "level")) == 1, "LightGBM reads no tokens"
    assert [drawn(group, "use") for group in groups(first, "points")] == [1, 1]
    assert {"codes", "text", "LightGBM"} <= set(texts(first)) and "majority class" not in texts(first)
    assert "below the plot: majority class 0.500 ± 0.014" in first.note


@pytest.mark.parametrize("values", [("100", "300", "1,000", "all"), ("5%", "10%", "20%", "30%"), ("1", "2", "3", "8")])
def test_what_counts_something_goes_along_the_axis(values: tuple[str, ...]) -> None:
    rows = [(("d", method, value), at(0.5 + n / 10)) for method in ("ours", "SHAP") for n, value in enumerate(values)]
    (plot,) = plots_of(table_of(("data", "method", "count"), rows[::-1]))
    lines = groups(plot, "points")
    assert [drawn(line, "use") for line in lines] == [len(values)] * 2
    assert [words for words in texts(plot) if words in values] == list(values), "in order, whatever that of the rows"
    heights = [float(use.attrib["y"]) for use in lines[0].findall(".//{*}use")]
    assert heights == sorted(heights, reverse=True), "accuracy rises to the right"


def test_two_that_count_make_a_grid() -> None:
    rows = [(("d", "task-aware", k, c), at(int(k) / 10)) for k in ("2", "3") for c in ("64", "128")]
    (plot,) = plots_of(table_of(("data", "codes", "K", "C"), rows))
    assert len(groups(plot, "cell")) == 4 and {"K 3", "C 128", "0.300"} <= set(texts(plot))


def test_a_table_of_words_has_no_plot() -> None:
    rows = [(("d", "ours"), at(0.5)), (("d", "theirs"), at(0.6))]
    assert plots_of(table_of(("data", "codes"), rows)) == []
    assert plots_of(table_of(("data",), [])) == []
    Outline(bench_page([table_of(("data",), [])]))


def test_hostile_words() -> None:
    table = table_of(
        ("data", "method"),
        [((HOSTILE, HOSTILE), at(0.8, 9.0)), ((HOSTILE, "b"), at(0.7))],
        title=HOSTILE,
        about=f"{HOSTILE} [click](javascript:alert(1)) `{HOSTILE}`",
        made={HOSTILE: HOSTILE},
    )
    page = bench_page([table], HOSTILE)
    outline = Outline(page)
    assert HOSTILE in outline.text and "<script" not in page
    assert all(address == "#one" or address.startswith("#plot-") for address in outline.addresses)


def test_ids_are_unique_also_where_tables_are_alike() -> None:
    ids = Outline(bench_page([PREDICTION, replace(PREDICTION, name="two")])).ids
    assert len(ids) == len(set(ids))
