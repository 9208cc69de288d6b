"""Vectorising: forward and backward undo each other, 0 means absent, and only training rows teach."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conftest import Explained
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tefm.base.errors import InputError, TefmWarning
from tefm.tables import vectorise
from tefm.tables.grouping import by_entity, by_window
from tefm.tables.layout import Slot
from tefm.tables.mappers import OTHER, NumberMapper, SetMapper
from tefm.tables.readers.table import open_table
from tefm.tables.schema import FALSE_WORDS, MISSING_WORDS, TRUE_WORDS, Field, Lookup, Schema, Side
from tefm.tables.vectorise import Vectoriser


def schema_of(field: Field) -> Schema:
    return Schema(fields=(field,))


def again(vectoriser: Vectoriser, slots: np.ndarray) -> np.ndarray:
    """Backward, then forward: a decoded table can be vectorised like the table it came from."""
    return vectoriser.transform(vectoriser.inverse(slots))


def reread(vectoriser: Vectoriser) -> Vectoriser:
    return Vectoriser.model_validate_json(vectoriser.model_dump_json())


# ---- numbers --------------------------------------------------------------------------------------------------------

#: anything a column of numbers may contain: any float, ties, many zeros, and values that are not numbers
NUMBERS = st.lists(
    st.one_of(
        st.floats(),
        st.integers(-3, 3).map(float),
        st.just(0.0),
        st.sampled_from([None, math.nan, math.inf, -math.inf]),
    ),
    min_size=1,
    max_size=60,
)


def numbers(values: list[float | None], buckets: int) -> tuple[Vectoriser, pl.DataFrame]:
    table = pl.DataFrame({"x": pl.Series(values, dtype=pl.Float64)})
    return Vectoriser.fit(table, schema_of(Field(name="x", kind="number", buckets=buckets))), table


@given(NUMBERS, st.integers(1, 12), NUMBERS)
def test_numbers_come_back_to_their_bucket(values: list[float | None], buckets: int, new: list[float | None]) -> None:
    vectoriser, table = numbers(values, buckets)
    for rows in (table, pl.DataFrame({"x": pl.Series(new, dtype=pl.Float64)})):
        slots = vectoriser.transform(rows)
        np.testing.assert_array_equal(again(vectoriser, slots), slots)
        present = [value is not None and math.isfinite(value) for value in rows["x"]]
        assert (slots[:, 0] > 0).tolist() == present
    assert reread(vectoriser) == vectoriser


@given(NUMBERS, st.integers(1, 12))
def test_buckets_are_monotone_few_and_never_empty(values: list[float | None], buckets: int) -> None:
    vectoriser, _ = numbers(values, buckets)
    finite = sorted(value for value in values if value is not None and math.isfinite(value))
    assume(finite)
    slots = vectoriser.transform(pl.DataFrame({"x": finite}))[:, 0]
    assert (np.diff(slots.astype(int)) >= 0).all()
    size = vectoriser.layout.slots[0].size
    assert set(slots.tolist()) == set(range(1, size + 1))
    assert size <= buckets
    if len(set(finite)) <= buckets:  # few values: each has its own bucket
        assert size == len(set(finite))


@given(st.integers(1, 300), st.integers(1, 20), st.randoms())
def test_distinct_values_give_equal_frequencies(rows: int, buckets: int, random: Any) -> None:
    values = [float(value) for value in range(rows)]
    random.shuffle(values)
    vectoriser, table = numbers(values, buckets)  # type: ignore[arg-type]
    counts = np.bincount(vectoriser.transform(table)[:, 0])[1:]
    assert len(counts) == min(rows, buckets)
    assert counts.max() - counts.min() <= 1


def test_many_zeros_take_one_bucket_and_leave_the_others_full() -> None:
    vectoriser, table = numbers([0.0] * 70 + [float(i) for i in range(1, 31)], 10)
    counts = np.bincount(vectoriser.transform(table)[:, 0])[1:]
    assert counts.tolist() == [70, 4, 4, 4, 3, 3, 3, 3, 3, 3]
    mapper = vectoriser.mappers[0]
    assert [mapper.in_words(value) for value in (1, 2, 10)] == ["0", "1–4", "≥ 28"]


@pytest.mark.parametrize(
    ("values", "buckets", "words_of_buckets"),
    [
        ([1, 2, 3, 4, 5, 6], 3, ["≤ 2", "3–4", "≥ 5"]),
        ([7, 7, 7], 10, ["7"]),
        ([0.12345678, 2e20], 2, ["0.1235", "2e+20"]),
        ([1, 9], 1, ["1–9"]),
    ],
)
def test_a_bucket_is_written_as_the_range_of_its_training_values(
    values: list[float], buckets: int, words_of_buckets: list[str]
) -> None:
    mapper = NumberMapper.fit("x", np.array(values, dtype=float), buckets, unit="days")
    assert [mapper.in_words(value) for value in range(1, len(words_of_buckets) + 1)] == [
        f"{words} days" for words in words_of_buckets
    ]


def test_a_bucket_decodes_to_a_value_that_was_seen() -> None:
    vectoriser, _ = numbers([1.0, 2.0, 4.0, 100.0, 1000.0, 1001.0], 2)
    assert vectoriser.inverse(np.array([[0], [1], [2]]))["x"].to_list() == [None, 2.0, 1000.0]


@pytest.mark.parametrize("words", [["1", "999", " 2 ", "inf", "-Infinity", "NaN", "", "unknown", "?"], [1, 999, 2]])
def test_absent_may_be_words_or_numbers(words: list[Any]) -> None:
    field = Field(name="x", kind="number", absent=("999", "Unknown"))
    table = pl.DataFrame({"x": words})
    slots = Vectoriser.fit(table, schema_of(field)).transform(table)[:, 0]
    assert slots.tolist() == [1, 0, 2] + [0] * (len(words) - 3)


# ---- categories -----------------------------------------------------------------------------------------------------

#: few words that repeat (some of them missing), and any text
WORDS = st.sampled_from(["a", "b", " a ", "A", "c", "?", "NA", "none", "", "  ", "1", "1.0", OTHER])
VALUES = st.lists(st.none() | WORDS | st.text(st.characters(codec="utf-8"), max_size=3), min_size=1, max_size=40)


def known(value: str | None) -> str | None:
    """The cleaned word, None where it means missing."""
    return None if value is None or value.strip().lower() in MISSING_WORDS else value.strip()


@given(VALUES, st.integers(1, 6), VALUES)
def test_categories_are_numbered_by_frequency(values: list[str | None], top: int, new: list[str | None]) -> None:
    table = pl.DataFrame({"x": pl.Series(values, dtype=pl.String)})
    vectoriser = Vectoriser.fit(table, schema_of(Field(name="x", kind="category", top=top)))
    counts = Counter(word for value in values if (word := known(value)) is not None)
    counts.pop(OTHER, None)  # it occurs in a decoded table, where it keeps its meaning
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:top]
    for rows in (values, new):
        slots = vectoriser.transform(pl.DataFrame({"x": pl.Series(rows, dtype=pl.String)}))
        expected = [
            0 if (word := known(value)) is None else 1 + frequent.index(word) if word in frequent else 1 + len(frequent)
            for value in rows
        ]
        assert slots[:, 0].tolist() == expected
        np.testing.assert_array_equal(again(vectoriser, slots), slots)
    assert reread(vectoriser) == vectoriser


def test_an_unseen_value_is_other() -> None:
    vectoriser = Vectoriser.fit(pl.DataFrame({"ward": ["A", "B", "A"]}), schema_of(Field(name="ward", kind="category")))
    slots = vectoriser.transform(pl.DataFrame({"ward": ["Z", None, "B"]}))
    assert slots[:, 0].tolist() == [3, 0, 2]
    assert vectoriser.inverse(slots)["ward"].to_list() == [OTHER, None, "B"]
    assert [vectoriser.mappers[0].in_words(value) for value in (1, 3)] == ["A", "other"]


def test_codes_with_gaps_are_the_same_words_as_without() -> None:
    """A column of whole numbers with a gap arrives as 1.0, 2.0, NaN."""
    vectoriser = Vectoriser.fit(pl.DataFrame({"x": [1, 1, 2]}), schema_of(Field(name="x", kind="category")))
    for column in ([2.0, None, 1.0], [2.0, math.nan, 1.0], ["2", None, "1"], ["2", "", " 1"]):
        assert vectoriser.transform(pl.DataFrame({"x": column}))[:, 0].tolist() == [2, 0, 1]


@pytest.mark.parametrize("missing", [(), ("x",)])
def test_nothing_is_never_a_word(missing: tuple[str, ...]) -> None:
    schema = Schema(fields=(Field(name="a", kind="category"), Field(name="b", kind="category")), missing=missing)
    table = pl.DataFrame({"a": ["", "  ", None, "na"], "b": [math.nan, None, 1.5, 1.5]})
    slots = Vectoriser.fit(table, schema).transform(table)
    assert slots.tolist() == [[0, 0], [0, 0], [0, 1], [1, 1]]


def test_more_than_255_values_need_a_wider_slot() -> None:
    table = pl.DataFrame({"x": [f"v{i:03}" for i in range(400)]})
    vectoriser = Vectoriser.fit(table, schema_of(Field(name="x", kind="category", top=300)))
    slots = vectoriser.transform(table)
    assert slots.dtype == np.uint16
    assert slots[:, 0].tolist() == [min(i, 301) for i in range(1, 401)]
    np.testing.assert_array_equal(again(vectoriser, slots), slots)


# ---- flags ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([None, "", "?", *TRUE_WORDS, *FALSE_WORDS, "YES", " No "]), min_size=1, max_size=20))
def test_flags_are_on_or_absent(values: list[str | None]) -> None:
    table = pl.DataFrame({"x": pl.Series(values, dtype=pl.String)})
    vectoriser = Vectoriser.fit(table, schema_of(Field(name="x", kind="flag")))
    slots = vectoriser.transform(table)
    on = [value is not None and value.strip().lower() in TRUE_WORDS for value in values]
    assert slots[:, 0].tolist() == [int(state) for state in on]
    np.testing.assert_array_equal(again(vectoriser, slots), slots)


def test_a_flag_is_written_back_as_it_was_written() -> None:
    table = pl.DataFrame({"x": ["Ch", "No", None]})
    vectoriser = Vectoriser.fit(table, schema_of(Field(name="x", kind="flag", on=("Steady", "Ch"))))
    assert vectoriser.inverse(vectoriser.transform(table))["x"].to_list() == ["Ch", None, None]


def test_a_word_that_is_neither_yes_nor_no_is_named(explained: Explained) -> None:
    """At training: the schema can still be corrected."""

    def fit(*words: Any) -> Vectoriser:
        return Vectoriser.fit(pl.DataFrame({"icu": words}), schema_of(Field(name="icu", kind="flag")))

    explained(InputError, lambda: fit("yes", "maybe"), "'icu'", "'maybe'", "`on:`", "`category`")
    explained(InputError, lambda: fit("0", "1", "2"), "'icu'", "'2'", "`on:`", "`number`")
    explained(InputError, lambda: fit("0", "2", "many"), "'icu'", "'2'", "`on:`", "`category`")


UNSEEN = ["yes", "5", "-2.5", "1,200", "maybe", "Infinity", "0.00", "?", "no", " 5 "]


@pytest.mark.parametrize("form", ["memory", "csv", "batches"])
def test_a_word_that_was_not_seen_refuses_no_batch(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an unseen category does not: a number other than 0 is on, any other word is absent."""
    vectoriser = Vectoriser.fit(pl.DataFrame({"icu": ["yes", "no"]}), schema_of(Field(name="icu", kind="flag")))
    table = pl.DataFrame({"icu": UNSEEN})
    source: Any = table
    if form == "csv":
        source = tmp_path / "t.csv"
        table.write_csv(source)
    elif form == "batches":
        monkeypatch.setattr("tefm.tables.readers.source.BATCH_CELLS", 4)
    with pytest.warns(TefmWarning) as caught:
        slots = vectoriser.transform(source)
    assert slots[:, 0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0, 1]
    messages = sorted(str(warning.message) for warning in caught)
    if form == "batches":
        assert [message.split(" values")[0].split("but ")[1] for message in messages] == ["1 of 2", "3 of 4", "3 of 4"]
        return
    (message,) = messages
    for part in ("'icu'", "7 of 10", "value '5'", "t.csv" if form == "csv" else "table in memory"):
        assert part in message


def test_a_flag_that_lists_what_means_yes_knows_every_other_word() -> None:
    schema = schema_of(Field(name="icu", kind="flag", on=("3",)))
    vectoriser = Vectoriser.fit(pl.DataFrame({"icu": ["3", "2", "x"]}), schema)
    assert vectoriser.transform(pl.DataFrame({"icu": ["3", "5", "maybe"]}))[:, 0].tolist() == [1, 0, 0]


# ---- sets -----------------------------------------------------------------------------------------------------------

MEMBERS = st.sampled_from(["a", "b", "c", "d", "e", " a", "?", ""])
SETS = st.lists(st.lists(MEMBERS, max_size=3), min_size=1, max_size=20)
SHAPES = ("list", "delimited", "columns", "side")


def set_table(shape: str, rows: list[list[str]], folder: Path) -> tuple[Field, pl.DataFrame]:
    """The same sets in one of the four shapes they come in."""
    settings: dict[str, Any] = {"name": "dx", "kind": "set", "top": 3, "buckets": 2}
    if shape == "list":
        return Field(**settings), pl.DataFrame({"dx": pl.Series(rows, dtype=pl.List(pl.String))})
    if shape == "delimited":
        texts = [";".join(row) for row in rows]
        return Field(**settings, delimiter=";"), pl.DataFrame({"dx": pl.Series(texts, dtype=pl.String)})
    if shape == "columns":
        columns = {
            f"d{i}": pl.Series([row[i] if i < len(row) else None for row in rows], dtype=pl.String) for i in range(3)
        }
        return Field(**settings, columns=("d0", "d1", "d2")), pl.DataFrame(columns)
    long = [(str(key), value) for key, row in enumerate(rows) for value in row]
    path = folder / "side.parquet"
    pl.DataFrame(long, schema={"id": pl.String, "code": pl.String}, orient="row").write_parquet(path)
    return Field(**settings, side=Side(table=str(path), key="id", value="code")), pl.DataFrame({"id": range(len(rows))})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sides")


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=40)
@given(rows=SETS, new=SETS)
def test_sets_come_back_in_every_shape(shape: str, rows: list[list[str]], new: list[list[str]], folder: Path) -> None:
    field, table = set_table(shape, rows, folder)
    vectoriser = Vectoriser.fit(table, schema_of(field))
    mapper = vectoriser.mappers[0]
    assert isinstance(mapper, SetMapper)
    counts = Counter(word for row in rows for word in {known(value) for value in row} - {None})
    assert mapper.values == tuple(sorted(counts, key=lambda word: (-counts[word], str(word)))[:3])
    for sets in (rows, new):
        slots = vectoriser.transform(set_table(shape, sets, folder)[1])
        members = [{known(value) for value in row} - {None} for row in sets]
        assert [[value in row for value in mapper.values] for row in members] == (slots[:, 1:] > 0).tolist()
        sizes = np.array([len(row) for row in members])
        assert ((slots[:, 0] > 0) == (sizes > 0)).all()
        assert (np.diff(slots[np.argsort(sizes), 0].astype(int)) >= 0).all()  # more members, higher bucket
        np.testing.assert_array_equal(again(vectoriser, slots), slots)
    assert reread(vectoriser) == vectoriser


def test_all_shapes_give_the_same_slots(tmp_path: Path) -> None:
    rows = [["a", "b"], [], ["c", "a", "a"], ["z"], ["b"], ["?", "a"]]
    slots = []
    for shape in SHAPES:
        field, table = set_table(shape, rows, tmp_path)
        vectoriser = Vectoriser.fit(table, schema_of(field))
        assert vectoriser.layout.slots[1:] == tuple(Slot("dx", "flag", 1, member=value) for value in ("a", "b", "c"))
        slots.append(vectoriser.transform(table).tolist())
    assert slots[0] == [[2, 1, 1, 0], [0, 0, 0, 0], [2, 1, 0, 1], [1, 0, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0]]
    assert slots[1:] == slots[:1] * 3


def test_members_beyond_the_frequent_ones_are_counted() -> None:
    table = pl.DataFrame({"dx": [["a", "x"], ["a", "y", "z"], ["a"]]})
    vectoriser = Vectoriser.fit(table, schema_of(Field(name="dx", kind="set", top=1)))
    decoded = vectoriser.inverse(vectoriser.transform(table))["dx"].to_list()
    assert decoded == [["a", f"{OTHER} 1"], ["a", f"{OTHER} 1", f"{OTHER} 2"], ["a"]]


def test_a_side_table_is_found_by_keys_of_any_type(tmp_path: Path) -> None:
    """Keys with gaps are floats in one file, text in the other, and still the same keys."""
    (tmp_path / "side.csv").write_text("id,code\n1,428\n 2 ,250\n2,428\n9,111\n")
    field = Field(name="dx", kind="set", side=Side(table=str(tmp_path / "side.csv"), key="id", value="code"))
    table = pl.DataFrame({"id": [2.0, None, 1.0, 7.0]})
    vectoriser = Vectoriser.fit(table, schema_of(field))
    assert vectoriser.inverse(vectoriser.transform(table))["dx"].to_list() == [["428", "250"], [], ["428"], []]


def test_a_side_table_without_its_columns_is_named(tmp_path: Path, explained: Explained) -> None:
    (tmp_path / "side.csv").write_text("id,icd\n1,428\n")
    field = Field(name="dx", kind="set", side=Side(table=str(tmp_path / "side.csv"), key="id", value="code"))
    explained(InputError, lambda: Vectoriser.fit(pl.DataFrame({"id": [1]}), schema_of(field)), "side.csv", "'code'")


@pytest.mark.parametrize(
    ("kind", "column"), [("category", [["a"]]), ("number", [[1.0]]), ("flag", [[True]]), ("set", [[["a"]]])]
)
def test_lists_belong_to_sets(kind: Any, column: list[Any], explained: Explained) -> None:
    table = pl.DataFrame({"x": column})
    explained(InputError, lambda: Vectoriser.fit(table, schema_of(Field(name="x", kind=kind))), "'x'", "List", "set")


# ---- names ----------------------------------------------------------------------------------------------------------


def test_names_come_from_the_schema_or_a_lookup(tmp_path: Path) -> None:
    (tmp_path / "icd.csv").write_text("code,title\n428, Heart failure \n250,Diabetes\n777,Unused\n")
    lookup = Lookup(table=str(tmp_path / "icd.csv"), key="code", name="title")
    field = Field(name="dx", kind="category", lookup=lookup, names={"250": "Diabetes mellitus"})
    vectoriser = Vectoriser.fit(pl.DataFrame({"dx": [428, 428, 250, 111]}), schema_of(field))
    mapper = vectoriser.mappers[0]
    # what the schema says goes before the lookup; names of values that do not occur are not kept
    assert mapper.model_dump()["names"] == {"428": "Heart failure", "250": "Diabetes mellitus"}
    assert [mapper.in_words(value) for value in (1, 2, 3, 4)] == ["Heart failure", "111", "Diabetes mellitus", "other"]


# ---- a whole table --------------------------------------------------------------------------------------------------

TABLE = pl.DataFrame(
    {
        "age": [31, 45, None, 78, 45, 62, 90, 18],
        "weight": [70.5, None, 80.25, 70.5, 91.0, 66.0, 70.5, 55.0],
        "ward": ["A", "B", "A", None, "C", "A", "B", "A"],
        "type": [1, 2, 1, 1, None, 3, 2, 1],
        "icu": [True, False, None, True, False, True, False, False],
        "dx": ["428;250", "250", None, "401;428;250", "V45", "250", "428", "401"],
    }
)
FIELDS = Schema.from_yaml(
    """
    fields:
      age: {kind: number, buckets: 3, unit: years}
      weight: {kind: number, buckets: 2}
      ward: {kind: category, top: 2}
      type: category
      icu: flag
      dx: {kind: set, delimiter: ;, top: 2, buckets: 2}
    """
)
# age, weight, ward, type, icu, number of dx, dx=250, dx=428
GOLDEN = [
    [1, 1, 1, 1, 1, 2, 1, 1],
    [1, 0, 2, 2, 0, 1, 1, 0],
    [0, 2, 1, 1, 0, 0, 0, 0],
    [2, 1, 0, 1, 1, 2, 1, 1],
    [1, 2, 3, 0, 0, 1, 0, 0],
    [2, 1, 1, 3, 1, 1, 1, 0],
    [3, 1, 2, 2, 0, 1, 0, 1],
    [1, 1, 1, 1, 0, 1, 0, 0],
]


def test_a_small_table_as_it_should_be() -> None:
    vectoriser = Vectoriser.fit(TABLE, FIELDS)
    slots = vectoriser.transform(TABLE)
    assert slots.tolist() == GOLDEN
    assert slots.dtype == np.uint8
    assert [slot.name for slot in vectoriser.layout.slots[-3:]] == ["dx", "dx=250", "dx=428"]
    assert vectoriser.layout.sizes_D.tolist() == [3, 2, 3, 4, 1, 2, 1, 1]
    assert vectoriser.inverse(slots[[0, 4]]).to_dicts() == [
        {"age": 31.0, "weight": 70.5, "ward": "A", "type": "1", "icu": "True", "dx": ["250", "428"]},
        {"age": 31.0, "weight": 80.25, "ward": OTHER, "type": None, "icu": None, "dx": [f"{OTHER} 1"]},
    ]
    np.testing.assert_array_equal(again(vectoriser, slots), slots)


def test_the_same_table_gives_the_same_slots_in_every_format(tmp_path: Path) -> None:
    TABLE.write_csv(tmp_path / "t.csv")
    TABLE.write_parquet(tmp_path / "t.parquet")
    TABLE.write_ndjson(tmp_path / "t.jsonl")
    frame = pd.DataFrame(TABLE.to_dict(as_series=False))  # ages and types become floats, flags Python objects
    sources = [TABLE, tmp_path / "t.csv", tmp_path / "t.parquet", tmp_path / "t.jsonl", frame, TABLE.to_arrow()]
    for learned_from in sources:
        vectoriser = Vectoriser.fit(learned_from, FIELDS)
        for source in sources:
            assert vectoriser.transform(source).tolist() == GOLDEN


def test_only_training_rows_teach() -> None:
    train, other = TABLE.head(5), TABLE.tail(3).with_columns(age=pl.lit(500), ward=pl.lit("Z"), dx=pl.lit("new"))
    vectoriser = Vectoriser.fit(train, FIELDS)
    learned, slots = vectoriser.model_dump_json(), vectoriser.transform(train)
    assert vectoriser.transform(other)[:, :3].tolist() == [[3, 1, 3]] * 3
    assert vectoriser.model_dump_json() == learned
    np.testing.assert_array_equal(vectoriser.transform(train), slots)


def test_the_learned_map_goes_through_json() -> None:
    vectoriser = Vectoriser.fit(TABLE, FIELDS)
    back = reread(vectoriser)
    assert back == vectoriser
    assert back.layout == vectoriser.layout
    np.testing.assert_array_equal(back.transform(TABLE), vectoriser.transform(TABLE))


def test_no_rows_give_no_slots(explained: Explained) -> None:
    vectoriser = Vectoriser.fit(TABLE, FIELDS)
    assert vectoriser.transform(TABLE.clear()).shape == (0, 8)
    assert vectoriser.inverse(np.zeros((0, 8), dtype=np.uint8)).shape == (0, 6)
    explained(InputError, lambda: Vectoriser.fit(TABLE.clear(), FIELDS), "no rows")


def test_slots_of_another_width_are_refused() -> None:
    vectoriser = Vectoriser.fit(TABLE, FIELDS)
    for shape in ((3, 7), (8,)):
        with pytest.raises(InputError, match=r"\(N, 8\)"):
            vectoriser.inverse(np.zeros(shape, dtype=np.uint8))


def test_a_table_that_does_not_fit_shows_the_difference(tmp_path: Path, explained: Explained) -> None:
    vectoriser = Vectoriser.fit(TABLE, FIELDS)
    TABLE.rename({"age": "Age", "ward": "unit"}).write_csv(tmp_path / "new.csv")
    error = explained(
        InputError,
        lambda: vectoriser.transform(tmp_path / "new.csv"),
        tmp_path / "new.csv",
        "2 of 6 columns are missing",
        "− age ",
        "− ward ",
        "+ Age ",
        "+ unit ",
        "rename the columns",
    )
    assert "weight" not in str(error)
    roles = {"entity": "patient", "time": "admitted", "label": "died", "text": ("note",), "ignore": ("row_id",)}
    values = {"patient": 1, "admitted": 2, "died": 0, "note": "x", "row_id": 3}
    schema = FIELDS.model_copy(update=roles)
    renamed = TABLE.rename({"age": "Age"}).with_columns(**{name: pl.lit(value) for name, value in values.items()})
    error = explained(InputError, lambda: Vectoriser.fit(renamed, schema), "− age ", "+ Age ")
    assert str(error).count("+ ") == 1
    explained(InputError, lambda: vectoriser.readable(tmp_path / "new.csv"), "− age ")
    TABLE.with_columns(extra=1).write_csv(tmp_path / "wider.csv")
    assert vectoriser.transform(vectoriser.readable(tmp_path / "wider.csv")).tolist() == GOLDEN


def test_rows_of_a_file_are_named_after_it(explained: Explained) -> None:
    """A frame that was cut out of a table on disk, on its way to being learned from."""
    frame = TABLE.with_columns(age=pl.lit("old"), patient=pl.Series([1, 2] * 4))
    sequences = by_entity(frame, FIELDS.model_copy(update={"entity": "patient"}), file="stays.csv")
    assert by_window(frame, FIELDS, 2, file="flows.csv").file == "flows.csv"
    chosen = sequences.select([1])
    records = open_table(frame[chosen.rows], name=chosen.file)
    explained(InputError, lambda: Vectoriser.fit(records, FIELDS), "file stays.csv", "'old'")
    explained(InputError, lambda: Vectoriser.fit(TABLE, FIELDS).transform(records), "file stays.csv", "'old'")


# ---- long tables ----------------------------------------------------------------------------------------------------


def test_batches_make_no_difference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    TABLE.write_parquet(tmp_path / "t.parquet")
    whole = Vectoriser.fit(TABLE, FIELDS)
    monkeypatch.setattr("tefm.tables.readers.source.BATCH_CELLS", 3 * TABLE.width)
    assert [batch.height for batch in open_table(TABLE).batches()] == [3, 3, 2]
    for source in (TABLE, tmp_path / "t.parquet"):
        assert Vectoriser.fit(source, FIELDS) == whole
        assert whole.transform(source).tolist() == GOLDEN
        assert [len(part) for part in whole.batches(source)] == [3, 3, 2]


def test_other_columns_come_with_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    table = TABLE.with_row_index("row")
    vectoriser = Vectoriser.fit(table, FIELDS)
    monkeypatch.setattr("tefm.tables.readers.source.BATCH_CELLS", 3 * table.width)
    parts = list(vectoriser.batches_with(table, ["row", "ward"]))
    assert [(len(slots), frame.columns) for slots, frame in parts] == [(n, ["row", "ward"]) for n in (3, 3, 2)]
    for slots, frame in parts:
        assert slots.tolist() == [GOLDEN[row] for row in frame["row"]]
        assert frame["ward"].to_list() == TABLE["ward"].gather(frame["row"]).to_list()


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> pl.DataFrame:
    """A sorted table with ten times the rows that are kept: its first rows say nothing about the last ones."""
    monkeypatch.setattr(vectorise, "SAMPLE_ROWS", 2_000)
    return pl.DataFrame({"x": np.sort(np.random.default_rng(1).lognormal(3, 2, 20_000))})


def test_a_sample_of_a_long_table_finds_the_quantiles(long: pl.DataFrame) -> None:
    vectoriser = Vectoriser.fit(long, schema_of(Field(name="x", kind="number", buckets=10)))
    shares = np.bincount(vectoriser.transform(long)[:, 0], minlength=11)[1:] / long.height
    assert len(shares) == 10
    # of 2,000 sampled rows, a tenth is known to ±0.7 percentage points (one standard deviation)
    assert np.abs(shares - 0.1).max() < 0.03


def test_a_sample_is_the_same_for_the_same_seed_whatever_the_batches(
    long: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = schema_of(Field(name="x", kind="number"))
    first = Vectoriser.fit(long, schema, seed=3)
    assert Vectoriser.fit(long, schema, seed=3) == first
    assert Vectoriser.fit(long, schema, seed=4) != first
    monkeypatch.setattr("tefm.tables.readers.source.BATCH_CELLS", 777)
    assert Vectoriser.fit(long, schema, seed=3) == first


def test_rare_words_are_dropped_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorise, "WORDS_KEPT", 10)
    monkeypatch.setattr("tefm.tables.readers.source.BATCH_CELLS", 100)
    words = [f"rare {i}" if i % 2 else f"often {i % 6}" for i in range(1_000)]
    vectoriser = Vectoriser.fit(pl.DataFrame({"x": words}), schema_of(Field(name="x", kind="category", top=3)))
    assert [vectoriser.mappers[0].in_words(value) for value in (1, 2, 3)] == ["often 0", "often 2", "often 4"]


def test_a_set_without_its_count_has_flags_alone() -> None:
    table = pl.DataFrame({"dx": [["a", "b"], ["a"], None, ["c"]]})
    schema = Schema(fields=(Field(name="dx", kind="set", top=2, count=False),))
    vectoriser = Vectoriser.fit(table, schema)
    slots = vectoriser.transform(table)
    assert slots.tolist() == [[1, 1], [1, 0], [0, 0], [0, 0]]
    assert vectoriser.inverse(slots)["dx"].to_list() == [["a", "b"], ["a"], [], []]
    assert (vectoriser.transform(vectoriser.inverse(slots)) == slots).all()
