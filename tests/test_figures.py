"""The figures on the pages are those of the stored results.

A comment right above a table, a paragraph or a list item says where its figures come from. Above a table it names the
file under `results/` and what all cells have in common; a cell adds the first cell of its line and its header:

    <!-- figures: prediction; Diabetes130 -->

Above text it has one line per figure, in the order of the text. `lowest`, `highest`, `median` and `split 12` pick from
the splits (the last lines of a table have the values of all tables in their place), `behind` counts those below zero,
`rest` is what is missing to 1, `A minus B` the difference of two rows, split by split, `paper` the published figure,
and `not stored` is for what was measured by hand, which the text must say. `refits; AUROC` is the standard deviation
between two fits of one setting:

    <!-- figures
    0.902 ± 0.015 = prediction; SmolLM2-135M (6 blocks) on task-aware codes; AUROC
    20 times = benchmarks/throughput; rows.0.ratio
    0.916 = not stored
    -->

The README is read as it is, so it has no comments: its references are in `tests/readme_figures.txt`. `>` begins those
of the block with these first words; `all cells` is the line that a table would have above it:

    > | AUROC | TEFM
    all cells = tables; AUROC

    > - **Not better
    0.916 = not stored

In the README, whole numbers that count something need a reference too. What a program printed, there, on the page of
the demo and in the picture, is in a stored transcript (`results/transcripts`).
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path

import pytest
from tefm_bench.table import Figure, Row, Table
from tefm_bench.tables import TABLES

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "results"
#: What programs printed, as it was.
TRANSCRIPTS = RESULTS / "transcripts"
EARLIER = ROOT / "docs" / "results" / "earlier.md"
#: Pages that people write; the others under docs/results are generated.
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
    ROOT / "docs" / "results" / "index.md",
    EARLIER,
]
#: Tables without a command have no page of their own.
GENERATED = {
    path: ROOT / "docs" / "results" / f"{path.stem}.md"
    for path in sorted(RESULTS.glob("*.json"))
    if path.stem in TABLES
}

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FIGURES = re.compile(r"<!-- figures(?P<table>:[^\n]*?)?(?P<lines>\n.*?)?\s*-->\n(?P<rest>.*)", re.DOTALL)
NUMBER = re.compile(r"−?\d[\d,]*(?:\.\d+)?")  # with a real minus: a hyphen may join two numbers
#: A decimal number, but not that of a name such as TinyLlama-1.1B.
DECIMAL = re.compile(r"(?<![\w.])(?<!\w-)\d+\.\d+(?!\w)")
#: What must have a source: a mean with its spread, or three digits and more.
CLAIM = re.compile(r"±\s+\d|\d\.\d{3}")
#: What counts something: shares, ratios, speeds, `6 of 10`.
COUNT = re.compile(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?:%|(?: of \d+)? (?:times|tokens|rows|MiB|of \d+)\b| of \d+\b)")
#: A figure that a program printed.
PRINTED = re.compile(r"\d\.\d|\d%|relative risk")
#: Who is compared: a figure of theirs stands in a text that names them.
NAMES = ("LightGBM", "XGBoost", "SHAP", "TinyLlama", "Set Transformer", "logistic regression")
#: What a reference can pick from the values of a figure.
PICKS = ("lowest", "highest", "median", "behind", "rest", "paper")
MINUS = " minus "
#: How a text says that a figure is in no stored result. † is explained on the page, and needs no comment.
NOT_STORED = ("by hand", "†")


class FigureError(AssertionError):
    """A figure of a page that the stored results do not have."""


# ---- what is stored -------------------------------------------------------------------------------------------------


@cache
def stored_table(name: str) -> Table:
    return Table.load(RESULTS / f"{name}.json")


def picked(pick: str, values: tuple[float, ...], splits: list[int]) -> float:
    """One number from the values of a figure."""
    if pick.startswith("split "):
        return values[splits.index(int(pick[6:]))]
    return {
        "lowest": min(values),
        "highest": max(values),
        "median": statistics.median(values),
        "behind": sum(value < 0 for value in values),
        "rest": 1 - statistics.fmean(values),
    }[pick]


def row_of(table: Table, keys: set[str]) -> Row:
    rows = [row for row in table.rows if keys <= set(row.keys.values())]
    if len(rows) != 1:
        raise FigureError(f"{'; '.join(sorted(keys))}: {len(rows)} rows in {table.name}.json")
    return rows[0]


def refits(title: str) -> Figure:
    """How far two fits with the same settings are apart: a standard deviation over all tables and splits.

    Every split of `tables` has two fits, one after the other.
    """
    table = stored_table("tables")
    column, pairs = next(column.name for column in table.columns if column.title == title), []
    for row in table.rows:
        values = row.figures[column].values if row.keys["method"] == "TEFM" and column in row.figures else ()
        if len(values) == 2 * len(table.made["splits"]):  # of others a fit is missing, one cannot tell which
            pairs += zip(values[::2], values[1::2], strict=True)
    return Figure((math.sqrt(statistics.fmean((a - b) ** 2 for a, b in pairs) / 2),))


def stored(parts: list[str]) -> Figure:
    """The stored figure that a reference names."""
    name, *rest = parts
    if name == "refits":
        return refits(rest[0])
    if name.startswith("benchmarks/"):
        value = json.loads((ROOT / "benchmarks" / "results" / f"{name[11:]}.json").read_text(encoding="utf-8"))
        for step in rest[0].split("."):
            value = value[int(step)] if isinstance(value, list) else value[step]
        return Figure((value,))
    table = stored_table(name)
    columns = [c for part in rest for c in table.columns if part in (c.name, c.title)]
    picks = [part for part in rest if part in PICKS or part.startswith("split ")]
    keys = {part for part in rest if part not in picks and part not in {n for c in columns for n in (c.name, c.title)}}
    if len(columns) != 1:
        raise FigureError(f"{'; '.join(parts)}: {len(columns)} columns in {name}.json")
    column = columns[0].name
    pair = next((part.split(MINUS) for part in keys if MINUS in part), None)
    rows = [row_of(table, keys)] if pair is None else [row_of(table, {*without(keys, MINUS), key}) for key in pair]
    if picks == ["paper"]:
        return Figure((rows[0].published[column],))
    if any(column not in row.figures for row in rows):
        raise FigureError(f"{'; '.join(parts)}: {name}.json has no such figure")
    values = rows[0].figures[column].values
    if pair is not None:
        values = tuple(a - b for a, b in zip(values, rows[1].figures[column].values, strict=True))
    if not picks:
        return Figure(values)
    return Figure((picked(picks[0], values, table.made["splits"]),))


def without(keys: set[str], word: str) -> set[str]:
    return {key for key in keys if word not in key}


def check(text: str, parts: list[str]) -> None:
    """Does a text, such as `0.902 ± 0.015` or `31 times`, say what is stored? With as many digits as it has."""
    figure, percent = stored(parts), "%" in text
    numbers = NUMBER.findall(text)
    expected = [figure.mean, figure.sd] if "±" in text else [figure.mean]
    if len(numbers) < len(expected):
        raise FigureError(f"{text!r} holds no figure")
    for said, value in zip(numbers, expected, strict=False):
        digits = len(said.partition(".")[2])
        right = f"{value * (100 if percent else 1):.{digits}f}".replace("-", "−")
        if float(right.replace("−", "-")) == 0:
            right = right.removeprefix("−") if not said.startswith("−") else right  # −0.000 may be called 0.000
        if said.replace(",", "") != right:
            raise FigureError(f"{text!r} should be {right}: {'; '.join(parts)}")


# ---- what a page says -----------------------------------------------------------------------------------------------


def block_of(text: str) -> str:
    """The table, paragraph or list item that a text begins with."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if number and (not line.strip() or line.lstrip().startswith(("- ", "<!--", "#", "```"))):
            return "\n".join(lines[:number])
    return text


def blocks(page: str) -> Iterator[tuple[str | None, str]]:
    """Each block of a page with the comment about figures above it, code left out."""
    page = FENCE.sub("", page)
    place = 0
    while place < len(page):
        comment = COMMENT.match(page, place)
        about = None
        if comment:
            about = comment.group() if comment.group().startswith("<!-- figures") else None
            place = comment.end() + 1
        block = block_of(page[place:])
        yield about, block
        place += len(block) + 1


def unfolded(page: str, references: str) -> str:
    """A page whose references are elsewhere, with each of them above its block."""
    for group in re.split(r"^> ", references, flags=re.MULTILINE)[1:]:
        words, *lines = group.strip().splitlines()
        begins = [found.start() for found in re.finditer(rf"^{re.escape(words)}", page, re.MULTILINE)]
        if len(begins) != 1:
            raise FigureError(f"{len(begins)} blocks begin with {words!r}")
        cells = lines[0].startswith("all cells = ")
        comment = f": {lines[0].removeprefix('all cells = ')}" if cells else "\n" + "\n".join(lines) + "\n"
        page = f"{page[: begins[0]]}<!-- figures{comment} -->\n{page[begins[0] :]}"
    return page


def front(page: str | None = None) -> str:
    """The README, or a changed one, with its references above their blocks."""
    references = (Path(__file__).parent / "readme_figures.txt").read_text(encoding="utf-8")
    return unfolded(page or README.read_text(encoding="utf-8"), references)


def plain(text: str) -> str:
    """A text without emphasis, code, and the targets of links, on one line."""
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text)
    return " ".join(text.replace("*", "").replace("[", " ").split())


def check_table(common: str, block: str) -> int:
    lines = [[plain(cell) for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
    header, _, *rows = lines
    checked = 0
    for label, *cells in rows:
        for title, cell in zip(header[1:], cells, strict=True):
            if NUMBER.search(cell):
                check(cell, [*common.split("; "), label, title])
                checked += 1
    return checked


def check_names(source: str, block: str) -> None:
    """A figure of another method stands in a text that names the method."""
    about = source.partition("; ")[2].replace("LightGBM + TreeSHAP", "TreeSHAP")
    for name in NAMES:
        if name in about and name not in block:
            raise FigureError(f"the text with the figure of {source!r} does not name {name}")


def check_text(references: list[str], block: str, counts: bool = False) -> int:
    text, place = plain(block), 0
    rest = text
    for line in references:
        said, _, source = (part.strip() for part in line.partition(" = "))
        found = re.compile(rf"(?<![\d.,]){re.escape(said)}(?!\d|[.,]\d)").search(text, place)
        if not found:
            raise FigureError(f"{said!r} is not in the text below its reference, or not in this order")
        place = found.end()
        rest = rest[: found.start()] + " " * (found.end() - found.start()) + rest[found.end() :]
        if source != "not stored":
            check(said, source.split("; "))
            check_names(source, block)
        elif not any(word in text for word in NOT_STORED):
            raise FigureError(f"{said!r} is in no stored result, and the text does not say so")
    left = DECIMAL.findall(rest) + (uncounted(rest) if counts else [])
    if left:
        raise FigureError(f"figures without a reference: {left}")
    return len(references)


def uncounted(text: str) -> list[str]:
    return [found.group() for found in COUNT.finditer(text)]


def check_page(page: str, counts: bool = False) -> int:
    """How many figures of a page were compared; the first wrong one is an error.

    With `counts`, whole numbers that count something are figures too.
    """
    checked = 0
    for about, block in blocks(page):
        if about is None:
            text = plain(block)
            if (CLAIM.search(text) and "†" not in block) or (counts and uncounted(text)):
                raise FigureError(f"figures without a source: {block.strip()[:200]}")
            continue
        parsed = FIGURES.match(f"{about}\n{block}")
        assert parsed, about
        if parsed["table"]:
            checked += check_table(parsed["table"].removeprefix(":").strip(), block)
        else:
            checked += check_text([line for line in parsed["lines"].splitlines() if line.strip()], block, counts)
    return checked


def check_printed(page: str) -> int:
    """How many lines with figures in the blocks of a page are lines of a stored transcript, as all must be."""
    lines = {line.strip() for path in TRANSCRIPTS.glob("*.txt") for line in path.read_text("utf-8").splitlines()}
    printed = [line for fence in FENCE.findall(page) for line in fence.splitlines() if PRINTED.search(line)]
    for line in printed:
        if line.split("  # ")[-1].strip() not in lines:
            raise FigureError(f"printed by no stored run: {line!r}")
    return len(printed)


# ---- the tests ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_are_the_stored_ones(page: Path) -> None:
    check_page(page.read_text(encoding="utf-8"))


def test_figures_of_the_readme_are_the_stored_ones() -> None:
    check_page(front(), counts=True)


def test_enough_figures_are_compared() -> None:
    assert check_page(front(), counts=True) > 60
    assert check_page(EARLIER.read_text(encoding="utf-8")) > 60
    assert check_page((ROOT / "docs" / "results" / "index.md").read_text(encoding="utf-8")) > 20


def test_what_programs_printed_is_in_a_transcript() -> None:
    assert check_printed(README.read_text(encoding="utf-8")) > 5
    demo = (ROOT / "docs" / "demo.md").read_text(encoding="utf-8")
    assert (TRANSCRIPTS / "demo.txt").read_text(encoding="utf-8") in demo
    for picture in (ROOT / "docs" / "images").glob("*.svg"):
        printed = (TRANSCRIPTS / "quickstart.txt").read_text(encoding="utf-8")
        for text in re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text(encoding="utf-8")):
            assert all(figure in printed for figure in re.findall(r"\d+\.\d+%?|\d+%|<adm_\w+>", unescape(text))), text


@pytest.mark.parametrize("path", list(GENERATED), ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_are_generated_from_the_stored_results(path: Path, tmp_path: Path) -> None:
    table = Table.load(path)
    assert GENERATED[path].read_text(encoding="utf-8") == table.page()
    table.save(tmp_path / "again.json")
    assert path.read_text(encoding="utf-8") == (tmp_path / "again.json").read_text(encoding="utf-8")


def test_every_generated_page_has_its_result() -> None:
    written = set((ROOT / "docs" / "results").glob("*.md")) - {ROOT / "docs" / "results" / "index.md", EARLIER}
    assert written == set(GENERATED.values())


# ---- the checker finds what it is for -------------------------------------------------------------------------------

LIGHTGBM = "prediction; LightGBM on slots; AUROC"
XGBOOST = "prediction; XGBoost on slots; AUROC"


def said(reference: str) -> str:
    return stored(reference.split("; ")).text(3)


def a_table(first: str, second: str) -> str:
    return (
        "<!-- figures: prediction; Diabetes130 -->\n| | AUROC |\n| --- | --- |\n"
        f"| LightGBM on slots | **{first}** |\n| XGBoost on slots | {second} |\n"
    )


def a_text(first: str, second: str, body: str) -> str:
    return f"<!-- figures\n{first} = {LIGHTGBM}\n{second} = {XGBOOST}\n-->\n{body}\n"


def other_digit(text: str, place: int) -> str:
    return text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]


def test_right_figures_pass() -> None:
    ours, theirs = said(LIGHTGBM), said(XGBOOST)
    assert ours != theirs
    assert check_page(a_table(ours, theirs)) == 2
    assert check_page(a_text(ours, theirs, f"LightGBM scores {ours},\nXGBoost {theirs}.")) == 2
    assert check_page(a_text(ours[:5], theirs[:5], f"- LightGBM {ours[:5]}, XGBoost {theirs[:5]}\n- nothing here")) == 2


def test_another_digit_is_found() -> None:
    ours, theirs = said(LIGHTGBM), said(XGBOOST)
    wrong = other_digit(ours, 4)
    for page in (
        a_table(wrong, theirs),
        a_table(other_digit(ours, -2), theirs),
        a_text(ours, theirs, f"LightGBM scores {wrong}, XGBoost {theirs}."),
        a_text(wrong, theirs, f"LightGBM scores {wrong}, XGBoost {theirs}."),
        a_text(ours, theirs, f"LightGBM scores {ours}, XGBoost {theirs}, a third 0.951."),
    ):
        with pytest.raises(FigureError):
            check_page(page)


def test_swapped_figures_are_found() -> None:
    ours, theirs = said(LIGHTGBM), said(XGBOOST)
    for page in (
        a_table(theirs, ours),
        a_text(ours, theirs, f"LightGBM scores {theirs}, XGBoost {ours}."),
        a_text(theirs, ours, f"LightGBM scores {theirs}, XGBoost {ours}."),
    ):
        with pytest.raises(FigureError):
            check_page(page)


FRONT = front()


def places_of_figures(page: str) -> list[int]:
    """Where the last digits of the figures of a page are, code and comments left out."""
    hidden = [found.span() for pattern in (FENCE, COMMENT) for found in pattern.finditer(page)]
    return [
        found.end() - 1
        for found in re.finditer(r"(?<![\w.])(?<!\w-)\d\.\d{3,}", page)
        if not any(start <= found.start() < end for start, end in hidden)
    ]


@pytest.mark.parametrize("page", [FRONT, EARLIER.read_text(encoding="utf-8")], ids=["README.md", "earlier.md"])
def test_any_other_digit_is_found(page: str) -> None:
    places = places_of_figures(page)
    assert len(places) > 50
    for place in places:
        with pytest.raises(FigureError):
            check_page(other_digit(page, place))


def test_another_count_of_the_readme_is_found() -> None:
    for said in ("20 times", "4 of 10", "33 tokens", "5,066 tokens"):
        place = FRONT.rindex(said) + len(re.match(r"[\d,]+", said).group()) - 1  # type: ignore[union-attr]
        with pytest.raises(FigureError):
            check_page(other_digit(FRONT, place), counts=True)
    with pytest.raises(FigureError, match="without a source"):
        check_page("It answers 40 times as fast as LightGBM, in 7 of 10 tests.\n", counts=True)


def test_another_printed_figure_of_the_readme_is_found() -> None:
    page = README.read_text(encoding="utf-8")
    for said in ("0.912 [", "69%", "+0.11", "p = 0.27"):
        with pytest.raises(FigureError):
            check_printed(other_digit(page, page.index(said) + len(said.rstrip(" [%")) - 1))


def test_figures_of_another_method_are_found() -> None:
    page = "<!-- figures\n{} = {}\n-->\n{} scores {}.\n"
    check_page(page.format(said(LIGHTGBM), LIGHTGBM, "LightGBM", said(LIGHTGBM)))
    with pytest.raises(FigureError, match="does not name"):
        check_page(page.format(said(LIGHTGBM), LIGHTGBM, "XGBoost", said(LIGHTGBM)))


def test_swapped_lines_are_found() -> None:
    earlier = EARLIER.read_text(encoding="utf-8")
    for page, one, other in (
        (earlier, "XGBoost on slots", "LightGBM on slots"),
        (earlier, "SHAP", "random"),
        (earlier, "unsupervised", "task-aware"),
        (FRONT, "Adult", "BPIC 2012"),
    ):
        swapped = page.replace(f"\n| {one} |", "\n| @ |").replace(f"\n| {other} |", f"\n| {one} |")
        assert swapped.count("@ |") == page.count(f"\n| {one} |") > 0
        with pytest.raises(FigureError):
            check_page(swapped.replace("| @ |", f"| {other} |"))


def test_statistics_of_the_stored_values() -> None:
    row = "tables; mean over the tables; TEFM; auroc_ahead"
    check("4 of 10", [*row.split("; "), "behind"])
    check("0.000", [*row.split("; "), "median"])
    check("0.000", ["tables", "mean over the tables", "TEFM minus XGBoost", "auroc_ahead"])
    check("0.004", ["refits", "AUROC"])
    with pytest.raises(FigureError):
        check("0.006", [*row.split("; "), "median"])


def test_a_figure_without_a_source_is_found() -> None:
    for body in ("AUROC 0.902", "AUROC 0.9 ± 0.1", "<!-- figures\n0.916 = not stored\n-->\nLightGBM scores 0.916."):
        with pytest.raises(FigureError):
            check_page(f"# Title\n{body}\n")
    check_page("<!-- figures\n0.916 = not stored\n-->\nLightGBM scores 0.916 (measured once, by hand).\n")
    check_page("```\n0.902 ± 0.015\n```\n")


def test_a_row_that_is_not_there_is_found() -> None:
    with pytest.raises(FigureError, match="0 rows"):
        check_page(a_table(said(LIGHTGBM), said(XGBOOST)).replace("XGBoost", "CatBoost"))


def test_splits_percentages_and_published_figures() -> None:
    check("0.895", ["prediction", "SmolLM2-135M (6 blocks) on task-aware codes", "AUROC", "split 10"])
    check("6%", ["smallest", "Diabetes130", "ours", "default", "lowest"])
    check("14%", ["smallest", "Diabetes130", "ours", "default", "highest"])
    check("0.747", ["rationalization", "all", "5%", "dual fidelity (the paper's)", "accuracy", "paper"])
    check("20 times", ["benchmarks/throughput", "rows.0.ratio"])
