"""References: read from a user's table or refused with a remedy, and found by exact value or by beginning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from conftest import Explained
from hypothesis import given
from hypothesis import strategies as st

from tefm.base.errors import InputError
from tefm.tables.references import Reference, References
from tefm.tables.schema import MISSING_WORDS

GOOD = {"field": "diagnoses", "value": "428*", "statement": "Heart failure.", "source": "A paper, 2009", "weight": "7"}

cells = st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" "), min_size=1, max_size=12).filter(
    lambda text: text == text.strip() and text.lower() not in MISSING_WORDS
)
references = st.builds(
    Reference,
    field=st.sampled_from(["diagnoses", "drugs, given", 'the "ward"']),
    value=st.one_of(cells, cells.map("{}*".format), st.just("*")),
    statement=cells,
    source=cells,
    weight=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)


def ref(value: str, field: str = "diagnoses") -> Reference:
    return Reference(field, value, f"about {value}", "a paper")


def found(table: References, value: str, field: str = "diagnoses") -> list[str]:
    return [reference.value for reference in table.about(field, value)]


def written(folder: Path, *rows: dict[str, object], name: str = "references.csv") -> Path:
    path = folder / name
    frame = pl.DataFrame(rows)
    frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
    return path


# ---- looking up -----------------------------------------------------------------------------------------------------


def test_a_value_is_found_as_it_is_spelled() -> None:
    table = References([ref("042"), ref("250.4"), ref("428", field="procedures")])
    assert found(table, "042") == ["042"]
    for value in ("0420", "42", "04", "250.40", "250.0", "428", ""):
        assert found(table, value) == []
    assert found(table, "428", field="procedures") == ["428"]


def test_a_star_stands_for_any_ending_and_the_longest_match_comes_first() -> None:
    table = References([ref("4*"), ref("428*"), ref("428"), ref("428.0*"), ref("428.0")])
    assert found(table, "428.0") == ["428.0", "428.0*", "428*", "4*"]
    assert found(table, "428.01") == ["428.0*", "428*", "4*"]
    assert found(table, "428") == ["428", "428*", "4*"]
    assert found(table, "42") == ["4*"]
    assert found(table, "5") == []


def test_a_star_alone_is_about_every_value_of_the_field() -> None:
    table = References([ref("*"), ref("428")])
    assert found(table, "428") == ["428", "*"]
    assert found(table, "") == ["*"]
    assert found(table, "428", field="drugs") == []


def test_only_the_last_star_stands_for_an_ending() -> None:
    table = References([ref("HLA-A*02"), ref("B*5*")])
    assert found(table, "HLA-A*02") == ["HLA-A*02"]
    assert found(table, "HLA-A:02") == []
    assert found(table, "B*57") == ["B*5*"]
    assert found(table, "B157") == []


def test_several_references_about_a_value_keep_their_order_and_the_same_one_counts_once() -> None:
    first, second = Reference("drugs", "heparin", "One.", "a"), Reference("drugs", "heparin", "Two.", "b")
    table = References([second, first, second])
    assert table.about("drugs", "heparin") == (second, first)
    assert len(table) == 2
    assert list(table) == [second, first]


@given(st.lists(references, max_size=20), st.text("4280.*", max_size=6))
def test_looking_up_gives_what_a_scan_gives(rows: list[Reference], value: str) -> None:
    rows += [ref(text) for text in ("4*", "42*", "428", "428*", "4*8")]

    def matches(pattern: str) -> bool:
        return value.startswith(pattern[:-1]) if pattern.endswith("*") else value == pattern

    table = References(rows)
    scanned = [row for row in table if row.field == "diagnoses" and matches(row.value)]
    scanned.sort(key=lambda row: (row.value.endswith("*"), -len(row.value)))
    assert list(table.about("diagnoses", value)) == scanned


# ---- reading --------------------------------------------------------------------------------------------------------


@given(rows=st.lists(references, min_size=1, max_size=8, unique=True), ending=st.sampled_from(["csv", "parquet"]))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, rows: list[Reference], ending: str) -> None:
    path = written(tmp_path_factory.mktemp("table"), *map(vars, rows), name=f"references.{ending}")
    assert list(References.read(path)) == rows


def test_the_weight_may_be_missing(tmp_path: Path) -> None:
    rows = [GOOD, GOOD | {"value": "1", "weight": None}, GOOD | {"value": "2", "weight": "n/a"}]
    assert [row.weight for row in References.read(written(tmp_path, *rows))] == [7, None, None]
    without = {name: text for name, text in GOOD.items() if name != "weight"}
    (reference,) = References.read(written(tmp_path, without))
    assert reference == Reference("diagnoses", "428*", "Heart failure.", "A paper, 2009")


def test_values_are_spelled_as_in_the_model(tmp_path: Path) -> None:
    """Blanks around them do not count, and a whole number has no decimal point."""
    rows = [GOOD | {"value": 428.0, "statement": " Heart failure. "}, GOOD | {"value": 250.83}, GOOD | {"value": 40.0}]
    table = References.read(written(tmp_path, *rows, name="references.parquet"))
    assert [row.value for row in table] == ["428", "250.83", "40"]
    assert next(iter(table)).statement == "Heart failure."


def test_a_value_may_be_a_word_that_often_means_missing(tmp_path: Path) -> None:
    assert found(References.read(written(tmp_path, GOOD | {"value": "None"})), "None") == ["None"]


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ([{"field": "a", "value": "b", "statement": "c"}], ["needs the columns", "'source'", "add or rename"]),
        ([GOOD | {"cause": "x"}], ["unknown column", "column 'cause'", "leave 'cause' out"]),
        ([GOOD | {"weights": "7"}], ["column 'weights'", "did you mean 'weight'?"]),
        ([GOOD, GOOD | {"statement": None}], ["row 2 has no statement", "column 'statement'", "complete the row"]),
        ([GOOD | {"statement": "   "}], ["row 1 has no statement", "column 'statement'"]),
        ([GOOD | {"source": "n/a"}], ["row 1 has no source", "column 'source'", "value 'n/a'"]),
        ([GOOD | {"field": None}], ["row 1 has no field", "column 'field'"]),
        ([GOOD | {"value": None}], ["row 1 has no value", "column 'value'"]),
        ([GOOD, GOOD | {"weight": "high"}], ["row 2 is not a number", "column 'weight'", "value 'high'", "-0.5"]),
        ([GOOD | {"weight": "0,5"}], ["not a number", "value '0,5'", "decimal point"]),
        ([GOOD | {"weight": "inf"}], ["not a number", "value 'inf'"]),
    ],
)
def test_a_bad_table_is_refused(
    tmp_path: Path, explained: Explained, rows: list[dict[str, object]], parts: list[str]
) -> None:
    path = written(tmp_path, *rows)
    explained(InputError, lambda: References.read(path), path, *parts)


def test_a_list_is_not_a_value(tmp_path: Path, explained: Explained) -> None:
    path = written(tmp_path, GOOD | {"value": ["428", "429"]}, name="references.parquet")
    explained(InputError, lambda: References.read(path), path, "List(String)", "column 'value'", "one value per row")


def test_an_empty_or_missing_table_is_refused(tmp_path: Path, explained: Explained) -> None:
    path = tmp_path / "references.csv"
    explained(InputError, lambda: References.read(path), path, "no such file")
    path.write_text("field,value,statement,source\n")
    explained(InputError, lambda: References.read(path), path, "no rows")


def test_references_are_looked_up_without_the_table_libraries() -> None:
    code = """
import sys
from tefm.tables.references import Reference, References
assert References([Reference("dx", "428*", "Heart failure.", "a paper")]).about("dx", "4280")
heavy = {"torch", "polars", "pyarrow", "sklearn", "numpy", "pydantic"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
