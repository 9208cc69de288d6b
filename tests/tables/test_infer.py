"""The first schema out of the data: what each column is taken for, and why."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import Explained

from tefm import Field, Schema, Vectoriser, infer_schema
from tefm.base.errors import InputError, SchemaError
from tefm.tables.infer import Guess, schema_of
from tefm.tables.readers.table import open_table

ROWS = 60


def repeated(*values: Any) -> list[Any]:
    """The values again and again, until the column is full."""
    return list(itertools.islice(itertools.cycle(values), ROWS))


def guess(column: list[Any] | pl.Series, name: str = "x") -> Guess:
    """What one column is taken for; a second one is there so that the table has a field."""
    table = pl.DataFrame({name: column, "other": repeated("u", "v", "w")})
    return next(guess for guess in schema_of(open_table(table))[1] if guess.column == name)


# ---- fields ---------------------------------------------------------------------------------------------------------

TAGS = ("abortion,history", "jobs", "abortion,history,jobs", "jobs,history", "history")
DX = ("428;250", "250", "401;250;428", "401")
FIELDS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "whole numbers": ("age", repeated(*range(30)), {"kind": "number"}),
    "fractions": ("rate", repeated(0.5, 1.25, None), {"kind": "number"}),
    "numbers as text": ("age", repeated("31", "45", " 62 "), {"kind": "number"}),
    "numbers with words for missing": ("age", repeated("31", "NA", "62", "?", "45"), {"kind": "number"}),
    "thousands set apart": ("spent", repeated("22,946.46", "-1,200", "87"), {"kind": "number"}),
    "a decimal comma": ("rate", repeated("12,5", "7,25"), {"kind": "category"}),
    "points between the thousands": ("amount", repeated("1.234.567", "2.345.678"), {"kind": "category"}),
    "numbers with a dash": ("age", repeated("31", "-", "62"), {"kind": "number", "absent": ("-",)}),
    "yes, no and a dash": ("icu", repeated("Yes", "–", "No"), {"kind": "flag", "absent": ("–",)}),
    "words with a dash": ("ward", repeated("A", "--", "B"), {"kind": "category", "absent": ("--",)}),
    "plus and minus": ("test", repeated("+", "-", None), {"kind": "category"}),
    "infinite numbers": ("rate", repeated("1.5", "Infinity", "-inf", "2"), {"kind": "number"}),
    "one number and gaps": ("x", repeated(7, None), {"kind": "number"}),
    "words": ("ward", repeated("A", "B", "B", None), {"kind": "category"}),
    "one word and gaps": ("tube", repeated("placed", None), {"kind": "category"}),
    "numbers and words": ("mixed", repeated("1", "2", "low", "high"), {"kind": "category"}),
    "codes by name": ("admission_type_id", repeated(1, 2, 3), {"kind": "category"}),
    "codes by name with a gap": ("dst port", repeated(80.0, 443.0, None), {"kind": "category"}),
    "Python truth": ("icu", repeated(True, False, None), {"kind": "flag"}),
    "zero and one": ("icu", repeated(0, 1), {"kind": "flag"}),
    "yes and no": ("icu", repeated("Yes", "No", ""), {"kind": "flag"}),
    "yes and gaps": ("icu", repeated("y", None), {"kind": "flag"}),
    "a list": ("dx", repeated(["428", "250"], [], None, ["401"]), {"kind": "set"}),
    "separated by ;": ("dx", repeated(*DX), {"kind": "set", "delimiter": ";"}),
    "separated by |": ("dx", repeated(*(words.replace(";", "|") for words in DX)), {"kind": "set", "delimiter": "|"}),
    "separated by commas": ("tags", repeated(*TAGS), {"kind": "set", "delimiter": ","}),
    "places with a comma": ("place", repeated("Bend, OR", "Salem, OR", "Reno, NV"), {"kind": "category"}),
    "a rare delimiter": ("title", repeated("a", "b", "c", "d;e"), {"kind": "category"}),
}


@pytest.mark.parametrize(("name", "column", "settings"), FIELDS.values(), ids=FIELDS.keys())
def test_a_column_becomes_a_field(name: str, column: list[Any], settings: dict[str, Any]) -> None:
    inferred = guess(column, name)
    assert inferred.field == Field(name=name, **settings)
    assert inferred.kind == settings["kind"]
    assert inferred.why


def test_a_guess_counts_values_and_gaps() -> None:
    inferred = guess(repeated("A", "B", "?", None))
    assert (inferred.distinct, inferred.missing) == (2, 0.5)
    assert (guess(repeated(1.5, 2.5, 3.5, None)).distinct, guess(repeated(1.5, None)).missing) == (3, 0.5)
    assert guess(repeated(["a", "b"], ["b"], None)).distinct == 2
    assert guess(repeated(*DX)).distinct == 3


def test_a_few_words_among_numbers_mean_absent() -> None:
    inferred = guess([*map(str, range(ROWS - 2)), "pending", "hemolysed"])
    assert inferred.field == Field(name="x", kind="number", absent=("hemolysed", "pending"))
    assert "counted as absent: 'hemolysed', 'pending'" in inferred.why


def test_a_list_of_which_no_two_cells_are_the_same_is_a_set() -> None:
    """Of 25 patients no two have the same diagnoses, and most diagnoses have one patient."""
    rng = np.random.default_rng(0)
    often, rows = [f"4{i:02}" for i in range(12)], range(25)
    lists = ["; ".join([*rng.choice(often, 2, replace=False), f"V{i}", f"E{i}"]) for i in rows]
    inferred = schema_of(open_table(pl.DataFrame({"dx": lists, "ward": ["A", "B", "C", "D", "E"] * 5})))[1][0]
    assert inferred.field == Field(name="dx", kind="set", delimiter=";")
    keys = [f"{2020 + i % 3};{i:05}" for i in rows]
    inferred = schema_of(open_table(pl.DataFrame({"key": keys, "ward": ["A", "B", "C", "D", "E"] * 5})))[1][0]
    assert (inferred.kind, inferred.field) == ("ignore", None)
    assert "identifier" in inferred.why


# ---- what is left out -----------------------------------------------------------------------------------------------

NOTE = "seen on the ward in the early morning by doctor number {}"
IGNORED: dict[str, tuple[str, Any, str]] = {
    "always null": ("x", [None] * ROWS, "always missing"),
    "always a word for missing": ("x", repeated("?", "NA", ""), "always missing"),
    "only empty lists": ("x", pl.Series(repeated([], None), dtype=pl.List(pl.String)), "always missing"),
    "constant": ("x", ["same"] * ROWS, "always 'same'"),
    "constant number": ("x", [0] * ROWS, "always '0'"),
    "a number per row": ("encounter_id", list(range(ROWS)), "identifier"),
    "a word per row": ("x", [f"key-{i}" for i in range(ROWS)], "identifier"),
    "dates": ("x", [dt.date(2024, 1, 1) + dt.timedelta(days=i % 9) for i in range(ROWS)], "--time"),
    "times": ("x", [dt.datetime(2024, 1, 1) + dt.timedelta(hours=i % 9) for i in range(ROWS)], "--time"),
    "dates as text": ("x", repeated("2024-01-31", "2024-02-01", None), "--time"),
    "dates with the day first": ("x", repeated("31.01.2024", "1.2.2024", "-"), "--time"),
    "dates in doubt": ("x", repeated("31/01/2024", "1.2.2024", "-"), "write them like 2024-01-31"),
    "decimal commas": ("x", [f"{row},{row % 7}" for row in range(ROWS)], "decimal comma, such as '0,0'"),
    "times as text": ("x", repeated("2024-01-31T08:30", "2024-02-01 09:00:00"), "--time"),
    "free text": ("x", [NOTE.format(i) for i in range(ROWS)], "`text:`"),
    "lists of lists": ("x", repeated([["a"]], [["b"], []]), "nested lists"),
}


@pytest.mark.parametrize(("name", "column", "why"), IGNORED.values(), ids=IGNORED.keys())
def test_a_column_that_cannot_help_is_left_out_with_the_reason(name: str, column: Any, why: str) -> None:
    inferred = guess(column, name)
    assert (inferred.kind, inferred.field) == ("ignore", None)
    assert why in inferred.why
    schema = infer_schema(pl.DataFrame({name: column, "other": repeated("u", "v", "w")}))
    assert schema.ignore == (name,)
    assert [field.name for field in schema.fields] == ["other"]


def test_few_rows_are_no_identifier() -> None:
    schema = infer_schema(pl.DataFrame({"ward": ["A", "B", "C"], "type_id": [1, 2, 3]}))
    assert [field.kind for field in schema.fields] == ["category", "category"]


# ---- identifiers and titles in long tables ---------------------------------------------------------------------------

LONG = 4_000


def long_guess(column: Any, name: str) -> Guess:
    table = pl.DataFrame({name: column, "other": ["u", "v"] * (LONG // 2)})
    return schema_of(open_table(table))[1][0]


def drawn(values: int, seed: int = 0) -> np.ndarray:
    """One of so many whole numbers in each row, at random."""
    return 10 + np.random.default_rng(seed).integers(0, values, LONG)


IDENTIFIERS = ("Clothing ID", "item_id", "productId", "order number", "order.no", "store-nbr", "Kunden-Nr", "KEY")
MEASUREMENTS = ("age", "bytes", "count", "number_outpatient", "paid", "grid", "Valid", "casino")


@pytest.mark.parametrize("name", IDENTIFIERS)
def test_an_identifier_with_many_rows_per_value_is_a_category(name: str) -> None:
    inferred = long_guess(drawn(390), name)
    assert inferred.field == Field(name=name, kind="category")
    assert "an identifier, by its name: its 40 most frequent values" in inferred.why and "as a number" in inferred.why


@pytest.mark.parametrize("name", ["Clothing ID", "uuid", "number"])
def test_an_identifier_with_few_rows_per_value_is_left_out(name: str) -> None:
    for values in (2_000, 10**9):
        inferred = long_guess(drawn(values), name)
        assert (inferred.kind, inferred.field) == ("ignore", None)
        assert "identifier" in inferred.why and "move it from `ignore` to `fields`" in inferred.why


@pytest.mark.parametrize("name", MEASUREMENTS)
@pytest.mark.parametrize("values", [390, 2_000, 10**9])
def test_measurements_stay_numbers(name: str, values: int) -> None:
    """Also those that are different in every row."""
    assert long_guess(drawn(values), name).field == Field(name=name, kind="number")
    assert long_guess(drawn(2_000), "Dst Port").kind == "number"


@pytest.mark.parametrize("order", ["up", "down", "shuffled", "in steps", "as text"])
def test_a_row_counter_is_left_out(order: str) -> None:
    column = np.arange(LONG) + 7
    if order == "down":
        column = column[::-1]
    elif order == "shuffled":
        column = np.random.default_rng(0).permutation(column)
    elif order == "in steps":
        column = np.cumsum(np.random.default_rng(0).integers(1, 1_000, LONG))
    inferred = long_guess(column.astype(str) if order == "as text" else column, "Unnamed: 0")
    assert (inferred.kind, inferred.field) == ("ignore", None)
    assert "counts the rows" in inferred.why and "as a number" in inferred.why


def test_a_measurement_that_grows_with_gaps_or_ties_is_no_counter() -> None:
    column = np.arange(LONG)
    assert long_guess([None, *column[1:].tolist()], "x").kind == "number"  # a row without it
    assert long_guess(column // 2, "x").kind == "number"  # two rows share each
    assert long_guess(column / 7, "x").kind == "number"  # fractions


def test_titles_with_thousands_of_values_are_left_out() -> None:
    titles = [f"very nice dress {number % 1_500}" for number in range(LONG)]
    inferred = long_guess(titles, "Title")
    assert (inferred.kind, inferred.field) == ("ignore", None)
    assert "1,500 different values in 4,000 rows: titles" in inferred.why and "`text:`" in inferred.why
    keys = long_guess([f"10.0.0.1-{number}" for number in drawn(4_000)], "Flow")
    assert keys.kind == "ignore" and "an identifier" in keys.why and "`text:`" not in keys.why
    assert long_guess([f"vendor {number % 900}" for number in range(LONG)], "vendor").kind == "category"


# ---- sets over several columns --------------------------------------------------------------------------------------


def codes(shift: int, name: str = "D") -> list[str]:
    return [f"{name}{(i + shift) % 15}" for i in range(ROWS)]


def test_numbered_columns_over_the_same_words_are_one_set() -> None:
    table = pl.DataFrame({"age": repeated(1, 2, 3, 4), "diag_1": codes(0), "diag_2": codes(4), "diag_3": codes(9)})
    schema, guesses = schema_of(open_table(table))
    assert schema.fields[1:] == (Field(name="diag", kind="set", columns=("diag_1", "diag_2", "diag_3")),)
    assert [guess.kind for guess in guesses] == ["number", "set", "set", "set"]
    assert "set 'diag'" in guesses[1].why


@pytest.mark.parametrize(
    "columns",
    [
        {"part_1": codes(0), "part_2": codes(0, "E")},  # different words
        {"part_1": repeated("a", "b"), "part_2": repeated("b", "a")},  # too few words to be a code system
        {"part_1": codes(0), "other_2": codes(4)},  # different names
        {"part_1": codes(0), "part_2": codes(4), "part": repeated("x", "y", "z")},  # the name is taken
        {"part_1": repeated(*range(20)), "part_2": repeated(*range(20))},  # quantities
    ],
)
def test_other_numbered_columns_stay_apart(columns: dict[str, list[Any]]) -> None:
    assert {field.name for field in infer_schema(pl.DataFrame(columns)).fields} == set(columns)


# ---- roles ----------------------------------------------------------------------------------------------------------


def test_roles_are_guessed_by_name() -> None:
    table = pl.DataFrame({"patient_nbr": repeated(7, 8, 9), "age": repeated(30, 40, 50, 60), "outcome": repeated(0, 1)})
    schema, guesses = schema_of(open_table(table))
    assert (schema.entity, schema.time, schema.label) == ("patient_nbr", None, "outcome")
    assert [field.name for field in schema.fields] == ["age"]
    assert [guess.kind for guess in guesses] == ["entity", "number", "label"]


def test_a_guess_that_is_not_clear_is_not_made() -> None:
    unique = pl.DataFrame({"patient": [f"p{i}" for i in range(ROWS)], "age": repeated(1, 2, 3)})
    assert infer_schema(unique).entity is None  # one row each: no sequences
    both = pl.DataFrame({"label": repeated("a", "b"), "target": repeated("c", "d"), "age": repeated(1, 2, 3)})
    assert infer_schema(both).label is None


def test_roles_are_used_as_specified() -> None:
    table = pl.DataFrame(
        {"host": repeated("a", "b"), "when": repeated(3, 1, 2), "bad": repeated(0, 1), "x": repeated(1, 2)}
    )
    schema = infer_schema(table, entity="host", time="when", label="bad")
    assert (schema.entity, schema.time, schema.label) == ("host", "when", "bad")
    assert [field.name for field in schema.fields] == ["x"]


def test_a_role_that_is_not_there_or_taken_is_named(explained: Explained) -> None:
    table = pl.DataFrame({"died": repeated(0, 1), "x": repeated(1, 2, 3)})
    explained(InputError, lambda: infer_schema(table, label="dead"), "'dead'", "label", "did you mean 'died'")
    explained(InputError, lambda: infer_schema(table, label="died", entity="died"), "two roles", "'died'")


# ---- tables ---------------------------------------------------------------------------------------------------------


def test_a_table_without_rows_or_fields_is_refused(explained: Explained) -> None:
    explained(InputError, lambda: infer_schema(pl.DataFrame({"x": []})), "no rows")
    constant = pl.DataFrame({"a": [1] * 5, "b": [None] * 5})
    explained(SchemaError, lambda: infer_schema(constant), "no column", "always '1'", "always missing")


def test_the_schema_reads_the_table_it_came_from(tmp_path: Path) -> None:
    """Every column of this page in one table: the guess can be written, edited, read back and used."""
    columns = {f"{name} {i}": column for i, (name, column, _) in enumerate([*FIELDS.values(), *IGNORED.values()])}
    table = pl.DataFrame(columns, strict=False)
    schema = infer_schema(table)
    assert {field.kind for field in schema.fields} == {"number", "category", "flag", "set"}
    assert Schema.load(schema.save(tmp_path / "schema.yaml")) == schema
    vectoriser = Vectoriser.fit(table, schema)
    slots = vectoriser.transform(table)
    assert slots.shape == (ROWS, vectoriser.layout.width)
    assert (slots > 0).any(axis=0).all()
    np.testing.assert_array_equal(vectoriser.transform(vectoriser.inverse(slots)), slots)


def test_the_first_rows_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """To say what kind a column is, where the later rows do not contradict it."""
    monkeypatch.setattr("tefm.tables.infer.SPREAD", 4)
    schema = infer_schema(pl.DataFrame({"x": ["1", "2", "3", "4", "5"], "ward": ["A", "B", "A", "B", "?"]}))
    assert schema.fields == (Field(name="x", kind="number"), Field(name="ward", kind="category"))


#: 40 rows of which the last is outside the sample: what the rows before it look like, the last, and what is right.
LATER: dict[str, tuple[list[Any], Any, dict[str, Any]]] = {
    "a count": (["0", "1"], "2", {"kind": "number"}),
    "a typed count": ([0, 1], 2, {"kind": "number"}),
    "a fraction": ([0.0, 1.0], 0.5, {"kind": "number"}),
    "neither yes nor no": (["yes", "no"], "maybe", {"kind": "category"}),
    "no number": (["0", "1"], "refused", {"kind": "number", "absent": ("refused",)}),
    "a dash": (["yes", "no"], "-", {"kind": "flag", "absent": ("-",)}),
    "another yes": (["0", "1"], " TRUE ", {"kind": "flag"}),
    "missing": (["yes", "no"], "N/A", {"kind": "flag"}),
    "a word among numbers": (["1", "2", "3"], "later a word", {"kind": "number", "absent": ("later a word",)}),
    "a number among numbers": (["1", "2", "3"], "22,946.46 ", {"kind": "number"}),
}


@pytest.mark.parametrize(("column", "last", "settings"), LATER.values(), ids=LATER.keys())
@pytest.mark.parametrize("form", ["memory", "csv", "parquet"])
def test_a_row_outside_the_sample_is_not_forgotten(
    form: str, column: list[Any], last: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A schema that was inferred reads the table that it was inferred from, whatever rows were looked at."""
    monkeypatch.setattr("tefm.tables.infer.SPREAD", 39)
    table = pl.DataFrame({"x": [*(column * 39)[:39], last], "other": (["u", "v"] * 20)})
    source: Any = table
    if form == "csv":
        source = tmp_path / "t.csv"
        table.write_csv(source)
    elif form == "parquet":
        source = tmp_path / "t.parquet"
        table.write_parquet(source)
    schema, guesses = schema_of(open_table(source))
    assert schema.fields[0] == Field(name="x", **settings)
    assert guesses[0].missing == 0
    assert Vectoriser.fit(source, schema).transform(source).shape == (40, 2)


def test_the_only_row_of_its_kind_is_found_when_the_sample_misses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tefm.tables.infer.SAMPLE", 50)
    counts = [0, 1] * 500
    counts[700] = 2
    table = pl.DataFrame({"num_failed": counts, "num_root": [0, 1] * 500})
    schema, guesses = schema_of(open_table(table))
    assert [field.kind for field in schema.fields] == ["number", "flag"]
    assert "'2' is in a row outside the sample" in guesses[0].why


def test_numbers_that_turn_into_a_list_of_codes_are_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are read to the end, in which more numbers than are kept stand between them."""
    monkeypatch.setattr("tefm.tables.infer.SPREAD", 400)
    monkeypatch.setattr("tefm.tables.infer.MOST_ODD", 30)
    icd = [str(250 + i % 40) for i in range(400)] + [f"E{i % 40}" for i in range(400)]
    flag = [str(i % 2) for i in range(400)] + [str(i) for i in range(395)] + ["a", "b", "c", "d", "e"]
    table = pl.DataFrame({"icd": icd, "flag": flag})
    schema = infer_schema(table)
    assert [field.kind for field in schema.fields] == ["category", "category"]
    Vectoriser.fit(table, schema)


def test_columns_named_like_a_librarys_own_are_fine() -> None:
    table = pl.DataFrame({"count": [1, 5, 9] * 10, "len": ["a", "b", "c"] * 10, "literal": ["x;y", "y", "x"] * 10})
    assert {field.name for field in infer_schema(table).fields} == {"count", "len", "literal"}


def test_codes_with_letters_among_numbers_are_codes_and_numbered_columns_one_set() -> None:
    codes = ["250.01", "428", "401", "V45", "E878", "V58", "V10", "276", "486", "038", "599", "496"]
    columns = {f"diag_{i}": [codes[(row * i) % len(codes)] for row in range(400)] for i in (1, 5, 7)}
    (field,) = infer_schema(pl.DataFrame(columns)).fields
    assert (field.name, field.kind, field.columns) == ("diag", "set", tuple(columns))


def test_the_sample_is_spread_over_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that is empty at first and filled later is no empty column."""
    monkeypatch.setattr("tefm.tables.infer.SAMPLE", 50)
    table = pl.DataFrame({"late": [None] * 800 + [1.5, 2.5, 3.5, 4.5] * 50, "always": ["a", "b"] * 500})
    assert [field.name for field in infer_schema(table).fields] == ["late", "always"]


def test_numbers_with_thousands_and_dashes_are_read_as_they_were_taken() -> None:
    table = pl.DataFrame({"spent": repeated("2,000.5", "-", "-1,500", "700"), "icu": repeated("Yes", "-", "No", "No")})
    vectoriser = Vectoriser.fit(table, infer_schema(table))
    assert vectoriser.transform(table)[:4].tolist() == [[3, 1], [0, 0], [1, 0], [2, 0]]


@pytest.mark.parametrize("name", ["case_id", "case:concept:name", "Case ID"])
def test_the_case_of_an_event_log_is_the_entity(name: str) -> None:
    log = pl.DataFrame({name: [f"c{row // 4}" for row in range(40)], "activity": ["call", "visit"] * 20})
    assert infer_schema(log).entity == name


def test_an_event_log_as_it_was_exported_needs_no_options() -> None:
    """The names of XES: the case, its time, and who did it (a number that counts nothing)."""
    names = ("case:concept:name", "time:timestamp", "org:resource")
    rows = [(f"c{row // 4}", f"2024-01-{1 + row % 4:02}T08:00:00+01:00", 10_000 + row % 7) for row in range(40)]
    schema = infer_schema(pl.DataFrame(rows, schema=names, orient="row"))
    assert (schema.entity, schema.time, schema.field("org:resource").kind) == (*names[:2], "category")
    assert infer_schema(pl.DataFrame(rows, schema=("id", *names[1:]), orient="row")).time is None


def test_an_identifier_that_groups_records_is_shown_the_way() -> None:
    table = pl.DataFrame({"order_no": [row // 4 for row in range(4_000)], "price": [row % 7 for row in range(4_000)]})
    _, guesses = schema_of(open_table(table))
    assert "--entity order_no" in next(guess.why for guess in guesses if guess.column == "order_no")
