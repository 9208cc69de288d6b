"""Twenty kinds of bad input, on the path a user takes: each ends in a clear result or an error that says what to do."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conftest import Explained

from tefm import Field, RecordTokenizer, Schema, infer_schema
from tefm.base.errors import InputError, SchemaError, TefmError
from tefm.tables.grouping import by_entity

pytestmark = pytest.mark.filterwarnings("error")  # not a word from numpy either

ROWS = 40
TABLE = pl.DataFrame(
    {
        "age": [20 + i % 13 for i in range(ROWS)],
        "ward": [("A", "B", "C")[i % 3] for i in range(ROWS)],
        "died": [("no", "yes")[i % 4 == 1] for i in range(ROWS)],
    }
)
SCHEMA = Schema(fields=(Field(name="age", kind="number", buckets=4), Field(name="ward", kind="category")))
LABELLED = SCHEMA.model_copy(update={"label": "died"})


def fit(source: Any, schema: Schema | None = None, steps: int = 20, **how: Any) -> RecordTokenizer:
    tiny = RecordTokenizer(levels=2, entries=4, latent=8, hidden=16, steps=steps, device="cpu")
    return tiny.fit(source, schema, **how)


def roundtrip(source: Any, schema: Schema | None = None, steps: int = 20) -> tuple[RecordTokenizer, pl.DataFrame]:
    """Fit, encode and decode: the tokenizer, and the records that come back."""
    tokenizer = fit(source, schema, steps)
    codes = tokenizer.encode(source)
    assert codes.shape[1] == 2
    assert codes.max(initial=0) < 4
    return tokenizer, tokenizer.decode(codes)


@pytest.fixture(scope="module")
def fitted() -> RecordTokenizer:
    return fit(TABLE, SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    TABLE.write_csv(tmp_path / "table.csv")
    return tmp_path / "table.csv"


def test_the_table_itself_is_fine(path: Path) -> None:
    tokenizer, decoded = roundtrip(path)
    assert decoded.columns == ["age", "ward", "died"]
    assert decoded.height == ROWS
    assert [field.kind for field in tokenizer.schema.fields] == ["number", "category", "flag"]


# ---- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["empty.csv", "empty.parquet", "empty.jsonl"])
def test_an_empty_file(name: str, tmp_path: Path, explained: Explained) -> None:
    (tmp_path / name).touch()
    for call in (infer_schema, fit, lambda path: fit(path, SCHEMA)):
        explained(InputError, lambda: call(tmp_path / name), tmp_path / name, "empty")


def test_a_file_with_a_header_alone(tmp_path: Path, fitted: RecordTokenizer, explained: Explained) -> None:
    path = tmp_path / "header.csv"
    path.write_text("age,ward,died\n")
    explained(InputError, lambda: infer_schema(path), path, "no rows")
    explained(InputError, lambda: fit(path, SCHEMA), path, "no rows")
    assert fitted.encode(path).shape == (0, 2)


def test_a_broken_parquet_file(tmp_path: Path, explained: Explained) -> None:
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"these are not the bytes you are looking for")
    explained(InputError, lambda: fit(path), path, "Parquet", "written completely")
    TABLE.write_parquet(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    explained(InputError, lambda: fit(path, SCHEMA), path, "Parquet")
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    path.write_bytes(b"PAR1" + b"\xff" * (len(whole) - footer - 4) + whole[-footer:])  # damaged pages, whole footer
    explained(InputError, lambda: fit(path, SCHEMA), path, "Parquet")


def test_a_truncated_gz_file(tmp_path: Path, explained: Explained) -> None:
    path = tmp_path / "cut.csv.gz"
    whole = gzip.compress(TABLE.write_csv().encode())
    path.write_bytes(whole[:-30])
    explained(InputError, lambda: fit(path, SCHEMA), path, "truncated", "gzip -t")


def test_a_file_that_is_not_utf8(tmp_path: Path, explained: Explained) -> None:
    path = tmp_path / "latin1.csv"
    path.write_bytes("age,ward\n30,A\n40,Kinderstöckli\n".encode("latin-1"))
    explained(InputError, lambda: fit(path), path, "UTF-8", "line 3", "iconv")


def test_a_path_that_is_a_folder(tmp_path: Path, explained: Explained) -> None:
    explained(InputError, lambda: fit(tmp_path), tmp_path, "folder")
    (tmp_path / "notes.txt").write_text("x")
    explained(InputError, lambda: infer_schema(tmp_path), tmp_path, "folder", "notes.txt")


def test_a_path_that_is_not_there(path: Path, explained: Explained) -> None:
    explained(InputError, lambda: fit(path.with_name("tabel.csv")), "tabel.csv", "did you mean 'table.csv'")


@pytest.mark.parametrize("text", ["age,ward,age\n1,A,2\n", "age, age\n1,2\n"])
def test_a_duplicated_column_name(text: str, tmp_path: Path, explained: Explained) -> None:
    path = tmp_path / "twice.csv"
    path.write_text(text)
    explained(InputError, lambda: fit(path), path, "'age'", "more than once", "column_names")
    frame = pd.DataFrame([[1, 2]], columns=["age", "age"])
    explained(InputError, lambda: fit(frame), "'age'", "more than once")


# ---- rows and columns -----------------------------------------------------------------------------------------------


def test_one_row(path: Path, explained: Explained) -> None:
    path.write_text("age,ward\n30,A\n")
    explained(SchemaError, lambda: fit(path), path, "no column", "always '30'")
    explained(InputError, lambda: fit(path, SCHEMA), "1 training record", "at least 2")


def test_one_row_to_encode(fitted: RecordTokenizer) -> None:
    assert fitted.encode(TABLE.head(1)).shape == (1, 2)


def test_two_rows() -> None:
    assert roundtrip(TABLE.head(2), SCHEMA)[1].height == 2


@pytest.mark.parametrize("dtype", [pl.Null, pl.String, pl.Float64])
def test_an_all_null_column(dtype: Any) -> None:
    table = TABLE.with_columns(age=pl.lit(None, dtype=dtype))
    tokenizer, _ = roundtrip(table, SCHEMA)
    assert (tokenizer.vectoriser.transform(table)[:, 0] == 0).all()
    assert infer_schema(table).ignore == ("age",)


def test_a_constant_column() -> None:
    table = TABLE.with_columns(age=pl.lit(30), ward=pl.lit("A"), died=None)
    schema = Schema(fields=(*SCHEMA.fields, Field(name="died", kind="category")))
    assert roundtrip(table, schema, steps=150)[1].unique().to_dicts() == [{"age": 30.0, "ward": "A", "died": None}]
    assert infer_schema(TABLE.with_columns(age=30, ward=pl.lit("A"))).ignore == ("age", "ward")


def test_a_table_of_nothing_but_constants(explained: Explained) -> None:
    explained(SchemaError, lambda: fit(pl.DataFrame({"a": [1] * 9, "b": [None] * 9})), "no column", "always '1'")


@pytest.mark.all
def test_5000_columns(tmp_path: Path) -> None:
    columns = {f"c{i}": np.arange(20) % (2 + i % 5) for i in range(5_000)}
    pl.DataFrame(columns).write_csv(tmp_path / "wide.csv")
    tokenizer, decoded = roundtrip(tmp_path / "wide.csv")
    assert len(tokenizer.schema.fields) == 5_000
    assert decoded.shape == (20, 5_000)


# ---- values ---------------------------------------------------------------------------------------------------------


def test_a_wrong_type_after_fit(fitted: RecordTokenizer, path: Path, explained: Explained) -> None:
    words = TABLE.with_columns(age=pl.Series(["old", "young"] * (ROWS // 2)))
    words.write_csv(path)
    explained(InputError, lambda: fitted.encode(path), path, "'age'", "'old'", "`absent:`", "`category`")
    dates = TABLE.with_columns(age=pl.date(2024, 1, 1))
    explained(InputError, lambda: fitted.encode(dates), "'age'", "date", "`time:`")
    lists = TABLE.with_columns(ward=pl.concat_list("ward", "died"))
    explained(InputError, lambda: fitted.encode(lists), "'ward'", "List(String)", "`set`")


def test_numbers_that_became_text_are_still_numbers(fitted: RecordTokenizer) -> None:
    np.testing.assert_array_equal(fitted.encode(TABLE.cast(pl.String)), fitted.encode(TABLE))


def test_an_unseen_category(fitted: RecordTokenizer) -> None:
    new = TABLE.with_columns(ward=pl.lit("never seen"))
    assert (fitted.vectoriser.transform(new)[:, 1] == 4).all()  # A, B and C are 1 to 3
    assert fitted.decode(fitted.encode(new)).height == ROWS


@pytest.mark.parametrize("kind", ["pandas", "jsonl", "csv"])
def test_mixed_types(kind: str, tmp_path: Path) -> None:
    mixed = [30, "A", None, 1.5, "A", 30] * 5
    frame = pd.DataFrame({"mixed": mixed, "age": range(30)})
    source: Any = frame
    if kind == "jsonl":
        source = tmp_path / "mixed.jsonl"
        frame.to_json(source, orient="records", lines=True)
    elif kind == "csv":
        source = tmp_path / "mixed.csv"
        frame.to_csv(source, index=False)
    tokenizer, decoded = roundtrip(source)
    assert tokenizer.schema.field("mixed").kind == "category"
    assert tokenizer.vectoriser.transform(source)[:6, 0].tolist() == [1, 2, 0, 3, 2, 1]
    assert decoded["mixed"].dtype == pl.String


HUGE = [10**30 + i for i in range(20)], [-(2**63), 2**63, 2**64, *range(17)], [10**300 * (i + 1) for i in range(20)]


@pytest.mark.parametrize("values", HUGE, ids=["30 digits", "64 bits", "300 digits"])
@pytest.mark.parametrize("kind", ["csv", "pandas"])
def test_huge_integers(values: list[int], kind: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object), "ward": ["A", "B"] * 10})
    frame.to_csv(tmp_path / "huge.csv", index=False)
    source = frame if kind == "pandas" else tmp_path / "huge.csv"
    tokenizer, decoded = roundtrip(source)
    assert tokenizer.schema.field("x").kind == "number"
    assert decoded["x"].drop_nulls().is_finite().all()
    buckets = tokenizer.vectoriser.transform(source)[:, 0][np.argsort(values)]
    assert (buckets > 0).all()
    assert (np.diff(buckets.astype(int)) >= 0).all()


def test_huge_integers_in_polars() -> None:
    table = pl.DataFrame({"x": [10**30, 5, -(10**30)] * 10, "code": [10**30, 10**31] * 15})
    tokenizer, _ = roundtrip(table)
    assert tokenizer.vectoriser.transform(table)[:3, 0].tolist() == [3, 2, 1]


def test_numbers_too_large_for_a_float(tmp_path: Path) -> None:
    """They read as infinite, and infinite is absent."""
    (tmp_path / "t.csv").write_text("x,y\n" + f"1{'0' * 400},1\n5,2\n7,3\n" * 5)
    tokenizer, _ = roundtrip(tmp_path / "t.csv")
    assert tokenizer.vectoriser.transform(tmp_path / "t.csv")[:3, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["typed", "text"])
def test_infinite_numbers(kind: str, fitted: RecordTokenizer, tmp_path: Path) -> None:
    table = TABLE.with_columns(age=pl.Series([np.inf, -np.inf, np.nan, *range(ROWS - 3)]))
    source: Any = table
    if kind == "text":
        source = tmp_path / "inf.csv"
        table.with_columns(pl.col("age").cast(pl.String).replace("inf", "Infinity")).write_csv(source)
    tokenizer, decoded = roundtrip(source, SCHEMA)
    assert tokenizer.vectoriser.transform(source)[:4, 0].tolist() == [0, 0, 0, 1]
    assert decoded["age"].drop_nulls().is_finite().all()
    assert (fitted.vectoriser.transform(source)[:3, 0] == 0).all()


# ---- a table that differs from the one learned ----------------------------------------------------------------------


def test_a_missing_column_at_transform(fitted: RecordTokenizer, path: Path, explained: Explained) -> None:
    TABLE.rename({"age": "Age"}).write_csv(path)
    explained(InputError, lambda: fitted.encode(path), path, "'age'", "− age ", "+ Age ", "rename")


def test_an_extra_column_at_transform(fitted: RecordTokenizer) -> None:
    extra = TABLE.select(pl.lit("x").alias("new"), pl.all().reverse().reverse(), pl.lit(1).alias("other"))
    np.testing.assert_array_equal(fitted.encode(extra), fitted.encode(TABLE))


def test_columns_in_another_order(fitted: RecordTokenizer) -> None:
    np.testing.assert_array_equal(fitted.encode(TABLE.select("died", "ward", "age")), fitted.encode(TABLE))


# ---- roles ----------------------------------------------------------------------------------------------------------


def test_no_label(explained: Explained) -> None:
    explained(InputError, lambda: fit(TABLE.drop("died"), LABELLED), "'died'", "task_aware=False")
    explained(InputError, lambda: fit(TABLE, SCHEMA, task_aware=True), "label", "task_aware=False")
    assert fit(TABLE.drop("died"), LABELLED, task_aware=False).encode(TABLE).shape == (ROWS, 2)


def test_a_label_with_one_class(explained: Explained) -> None:
    table = TABLE.with_columns(died=pl.lit("no"))
    explained(InputError, lambda: fit(table, LABELLED), "one class", "'no'", "task_aware=False")
    explained(InputError, lambda: fit(table.with_columns(died=None), LABELLED), "label is empty", "task_aware=False")
    assert fit(table, LABELLED, task_aware=False).encode(table).shape == (ROWS, 2)


def test_a_label_with_gaps() -> None:
    table = TABLE.with_columns(died=pl.when(pl.int_range(ROWS) % 5 > 0).then("died"))
    assert fit(table, LABELLED).coder.classes_ == ("no", "yes")


@pytest.mark.parametrize(("rows", "positive"), [(2, [0]), (8, [0]), (8, [3, 5]), (ROWS, [0]), (ROWS, [3, 5])])
def test_a_label_with_a_rare_class(rows: int, positive: list[int]) -> None:
    died = ["yes" if row in positive else "no" for row in range(rows)]
    table = TABLE.head(rows).with_columns(died=pl.Series(died))
    try:
        assert fit(table, LABELLED).encode(table).shape == (rows, 2)
    except TefmError as error:
        assert error.remedy


def test_an_entity_that_is_null(explained: Explained) -> None:
    schema = SCHEMA.model_copy(update={"entity": "patient"})
    table = TABLE.with_columns(patient=pl.Series([None if i == 6 else f"p{i // 4}" for i in range(ROWS)]))
    explained(InputError, lambda: by_entity(table, schema, file="t.csv"), "t.csv", "'patient'", "1 of 40", "row 7")
    explained(InputError, lambda: fit(table, schema), "'patient'", "1 of 40", "drop these rows")


def test_unsorted_time() -> None:
    schema = SCHEMA.model_copy(update={"entity": "patient", "time": "day"})
    table = TABLE.with_columns(patient=pl.Series(["p", "q"] * (ROWS // 2)), day=pl.Series(range(ROWS, 0, -1)))
    sequences = by_entity(table, schema)
    assert [len(sequences[i]) for i in range(2)] == [ROWS // 2] * 2
    for i in range(2):
        assert table["day"].gather(sequences[i]).is_sorted()
    # the order of the rows is kept where there is nothing to order
    codes = fit(table, schema).encode(table)
    assert codes.shape == (ROWS, 2)


def test_time_that_is_no_time(explained: Explained) -> None:
    schema = SCHEMA.model_copy(update={"time": "day"})
    table = TABLE.with_columns(day=pl.Series(["2024-01-31"] * (ROWS - 1) + ["next week"]))
    explained(InputError, lambda: by_entity(table, schema), "'day'", "'next week'", "2024-01-31")


def test_labels_stay_with_their_rows_in_a_wide_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide table is read in shorter batches than its label alone would be."""
    whole = fit(TABLE, LABELLED).encode(TABLE)
    monkeypatch.setattr("tefm.tables.readers.source.BATCH_CELLS", 30)
    np.testing.assert_array_equal(fit(TABLE, LABELLED).encode(TABLE), whole)
