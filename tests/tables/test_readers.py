"""Reading tables: every format gives the same values, large files are read in batches, bad files are explained."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tefm.base.errors import InputError, MissingExtraError, SettingsError
from tefm.tables.readers.source import BATCH_CELLS
from tefm.tables.readers.table import FORMATS, Table, open_table

duckdb = pytest.importorskip("duckdb")

FRAME = pl.DataFrame(
    {
        "id": [1, 2, 3, 4],
        "ward": ["A, west", 'the "B"', None, "line\nbreak"],
        "rate": [0.5, None, -2.25, 100.0],
        "name": ["Zoë", "李", "x;y", "tab\there"],
    }
)


def texts(frame: pl.DataFrame) -> dict[str, list[str | None]]:
    return frame.cast(pl.String).to_dict(as_series=False)


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def explained(call: Callable[[], object], *parts: str) -> InputError:
    """The call ends in an `InputError` whose message has all the parts."""
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    for part in parts:
        assert part in message, message
    return caught.value


# ---- the same table in every format -------------------------------------------------------------------------------


def as_duckdb(folder: Path) -> Table:
    FRAME.write_parquet(folder / "for_duckdb.parquet")
    with duckdb.connect(str(folder / "t.duckdb")) as connection:
        connection.execute(f"CREATE TABLE wards AS SELECT * FROM '{folder}/for_duckdb.parquet'")
    return open_table(folder / "t.duckdb", query="SELECT * FROM wards ORDER BY id -- all of them")


def as_stream(folder: Path) -> Table:
    FRAME.write_ipc_stream(folder / "stream.arrow")
    return open_table(folder / "stream.arrow")


def written(name: str, save: Callable[[Path], object]) -> Callable[[Path], Table]:
    def build(folder: Path) -> Table:
        save(folder / name)
        return open_table(folder / name)

    return build


def as_text(separator: str) -> str:
    return FRAME.write_csv(separator=separator)


def as_json() -> str:
    return FRAME.write_ndjson()


SOURCES: dict[str, Callable[[Path], Table]] = {
    "csv": written("t.csv", lambda path: write(path, as_text(","))),
    "csv with byte order mark": written("t.csv", lambda path: write(path, b"\xef\xbb\xbf" + as_text(",").encode())),
    "csv with semicolons": written("t.csv", lambda path: write(path, as_text(";"))),
    "csv with tabs": written("t.csv", lambda path: write(path, as_text("\t"))),
    "csv in capitals": written("T.CSV", lambda path: write(path, as_text(","))),
    "csv.gz": written("t.csv.gz", lambda path: write(path, as_text(","))),
    "tsv": written("t.tsv", lambda path: write(path, as_text("\t"))),
    "tsv.gz": written("t.tsv.gz", lambda path: write(path, as_text("\t"))),
    "parquet": written("t.parquet", FRAME.write_parquet),
    "parquet, dictionary": written("t.parquet", FRAME.cast({"ward": pl.Categorical}).write_parquet),
    "arrow file": written("t.arrow", FRAME.write_ipc),
    "feather": written("t.feather", lambda path: FRAME.write_ipc(path, compression="zstd")),
    "ipc, dictionary": written("t.ipc", FRAME.cast({"ward": pl.Categorical}).write_ipc),
    "arrow stream": as_stream,
    "jsonl": written("t.jsonl", lambda path: write(path, as_json())),
    "jsonl with byte order mark": written("t.jsonl", lambda path: write(path, b"\xef\xbb\xbf" + as_json().encode())),
    "ndjson.gz": written("t.ndjson.gz", lambda path: write(path, as_json())),
    "duckdb": as_duckdb,
    "polars": lambda folder: open_table(FRAME),
    "polars, lazy": lambda folder: open_table(FRAME.lazy()),
    "polars, categories": lambda folder: open_table(FRAME.cast({"ward": pl.Categorical})),
    "pandas": lambda folder: open_table(pd.DataFrame(FRAME.to_dict(as_series=False))),
    "arrow": lambda folder: open_table(FRAME.to_arrow()),
    "arrow batch": lambda folder: open_table(FRAME.to_arrow().to_batches()[0]),
    "table": lambda folder: open_table(open_table(FRAME)),
}


@pytest.mark.parametrize("build", SOURCES.values(), ids=SOURCES.keys())
def test_every_format_gives_the_same_values(build: Callable[[Path], Table], tmp_path: Path) -> None:
    table = build(tmp_path)
    assert table.columns == ("id", "ward", "rate", "name")
    assert texts(table.frame()) == texts(FRAME)
    assert texts(table.frame(["name", "id"])) == texts(FRAME.select("name", "id"))
    assert texts(table.head(3)) == texts(FRAME.head(3))
    assert table.head(0).schema == table.frame().schema
    batches = list(table.batches(["rate"], rows=3))
    assert [batch.columns for batch in batches] == [["rate"]] * len(batches)
    assert all(0 < batch.height <= 3 for batch in batches)
    assert texts(pl.concat(batches)) == texts(FRAME.select("rate"))


def test_an_open_table_is_returned_as_it_is() -> None:
    table = open_table(FRAME)
    assert open_table(table) is table
    assert table.name == "table in memory"
    assert open_table(FRAME, name="stays.csv").name == "stays.csv"
    assert open_table(open_table(FRAME, name="stays.csv"), name="other.csv").name == "stays.csv"


def test_a_path_may_be_text_and_start_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FRAME.write_csv(tmp_path / "t.csv")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_table("~/t.csv").name == str(tmp_path / "t.csv")


# ---- CSV ----------------------------------------------------------------------------------------------------------


def test_csv_cells_are_text_and_empty_ones_are_null(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", ' Flow Duration, Label \n007,\n"",NA\n1e5,x\n\nmixed,?\n')
    table = open_table(path)
    assert table.columns == ("Flow Duration", "Label")
    assert table.frame().to_dict(as_series=False) == {
        "Flow Duration": ["007", None, "1e5", "mixed"],
        "Label": [None, "NA", "x", "?"],
    }


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_csv_line_ends_blank_lines_and_broken_headers(tmp_path: Path, ending: str) -> None:
    lines = ["", "", '"two\nlines",b', "1,2", "", "3,4"]
    table = open_table(write(tmp_path / "t.csv", ending.join(lines)))
    assert table.columns == ("two\nlines", "b")
    assert table.frame().rows() == [("1", "2"), ("3", "4")]


def test_csv_with_one_column(tmp_path: Path) -> None:
    table = open_table(write(tmp_path / "t.csv", "age\n5\n6\n"))
    assert (table.columns, table.frame().rows()) == (("age",), [("5",), ("6",)])


@pytest.mark.parametrize("content", ["a,b", "a,b\n", "a,b\r\n\r\n"])
def test_csv_with_a_header_only_is_an_empty_table(tmp_path: Path, content: str) -> None:
    table = open_table(write(tmp_path / "t.csv", content))
    assert list(table.batches()) == []
    assert table.frame().schema == {"a": pl.String, "b": pl.String}
    assert table.frame(["b"]).columns == ["b"]
    assert table.head(5).height == 0


def test_csv_is_streamed_in_order(tmp_path: Path) -> None:
    rows = 300_000
    frame = pl.DataFrame({"row": range(rows), "text": ["some words, quoted\nin two lines"] * rows})
    for name in ("t.csv", "t.csv.gz"):
        table = open_table(write(tmp_path / name, frame.write_csv()))
        batches = list(table.batches(["row"], rows=10_000))
        assert len(batches) >= 30 and max(batch.height for batch in batches) <= 10_000
        assert pl.concat(batches)["row"].cast(pl.Int64).to_list() == list(range(rows))
        assert next(iter(table.batches())).height < rows / 2, "the file was read whole"


def test_gzip_of_several_members(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n") + gzip.compress(b"3,4\n"))
    assert open_table(path).frame().rows() == [("1", "2"), ("3", "4")]


def test_column_names_replace_the_header(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a,a\n1,2\n")
    assert open_table(path, column_names=["x", "y"]).frame().to_dicts() == [{"x": "1", "y": "2"}]
    explained(lambda: open_table(path, column_names=["x"]), "1 names", "2 columns", "'a', 'a'", str(path))
    explained(lambda: open_table(path, column_names=["x", "x"]), "more than once: 'x'")


def test_csv_errors_in_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", 'a,b\n1,2\n"x\ny",4\n5,6,7\n')
    error = explained(open_table(path).frame, "row 4", "3 cells", "header has 2", "'5,6,7'", str(path), "quotes")
    assert isinstance(error.__cause__, pa.ArrowInvalid)
    late = write(tmp_path / "late.csv", "a,b\n" + "1,2\n" * 700_000 + "1\n")
    explained(open_table(late).frame, "row 700002", "1 cells")
    unclosed = write(tmp_path / "unclosed.csv", 'a,b\n1,"2\n' + "1,2\n" * 2_000_000)
    explained(open_table(unclosed).frame, "longer than 2 MiB", "quote", str(unclosed))
    header = write(tmp_path / "header.csv", 'a,"b\n' + "1,2\n" * 50_000)
    explained(lambda: open_table(header), "header cannot be read", "quote")


def test_a_quote_in_the_header_is_found_whatever_another_library_lets_csv_read(tmp_path: Path) -> None:
    header = write(tmp_path / "header.csv", 'a,"b\n' + "1,2\n" * 50_000)
    limit = csv.field_size_limit(10**9)
    try:
        explained(lambda: open_table(header), "header cannot be read", "quote", str(header))
    finally:
        csv.field_size_limit(limit)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_header_wider_than_a_field_may_be(tmp_path: Path, delimiter: str) -> None:
    names = [f"{i:05d}-a-column-with-a-long-name" for i in range(5_000)]
    wide = write(tmp_path / "wide.csv", delimiter.join(names) + "\n" + delimiter.join("1" * 5_000) + "\n")
    assert wide.stat().st_size > csv.field_size_limit()
    assert open_table(wide).frame().columns == names


def test_text_in_other_encodings(tmp_path: Path) -> None:
    early = write(tmp_path / "early.csv", "id,ward\n1,Zoé\n".encode("latin1"))
    explained(lambda: open_table(early), "not UTF-8", "line 2", "Zo\\xe9", str(early), "iconv -f latin1 -t utf-8")
    late = write(tmp_path / "late.csv.gz", b"id,ward\n" + b"1,Zoe\n" * 5_000 + b"2,Zo\xe9\n")
    explained(open_table(late).frame, "not UTF-8", "line 5002", str(late), "zcat", "iconv -f latin1 -t utf-8")
    wide = write(tmp_path / "wide.csv", "id,ward\n1,x\n".encode("utf-16"))
    explained(lambda: open_table(wide), "not UTF-8", "iconv -f utf-16")
    lines = write(tmp_path / "t.jsonl", '{"a": "é"}\n'.encode("latin1"))
    explained(lambda: open_table(lines), "not UTF-8", "line 1", "iconv")


# ---- Parquet, Arrow, JSON lines, DuckDB ---------------------------------------------------------------------------


def test_parquet_folder_is_streamed_in_order(tmp_path: Path) -> None:
    rows = 4_000
    for part in range(5):
        path = tmp_path / f"year={part}" / f"part-{part}.parquet"
        path.parent.mkdir()
        frame = pl.DataFrame({"row": range(part * rows, (part + 1) * rows), "x": [part] * rows})
        (frame if part % 2 else frame.select("x", "row")).write_parquet(path, row_group_size=1_500)
    write(tmp_path / "_SUCCESS", "")
    (tmp_path / "_temporary").mkdir()
    write(tmp_path / "_temporary" / "half.parquet", "PAR1")
    write(tmp_path / ".hidden.parquet", "PAR1")
    for source in (tmp_path, str(tmp_path / "*" / "p*.parquet"), str(tmp_path / "**" / "part-?.parquet")):
        table = open_table(source)
        assert (set(table.columns), table.name) == ({"row", "x"}, str(source))
        batches = list(table.batches(["row"], rows=1_000))
        assert len(batches) >= 20 and max(batch.height for batch in batches) <= 1_000
        assert pl.concat(batches)["row"].to_list() == list(range(5 * rows))


def test_many_columns_make_shorter_batches(tmp_path: Path) -> None:
    columns = 5_000
    frame = pl.DataFrame({f"c{i}": pl.zeros(2_000, pl.Int8, eager=True) for i in range(columns)})
    batches = list(open_table(frame).batches())
    assert sum(batch.height for batch in batches) == 2_000
    assert max(batch.height for batch in batches) <= BATCH_CELLS // columns


def test_files_of_one_folder_may_differ_in_type(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1, 2], "b": [None, None], "c": ["x", "y"]}).write_parquet(tmp_path / "1.parquet")
    pl.DataFrame({"a": [0.5], "b": ["t"], "c": [7]}).write_parquet(tmp_path / "2.parquet")
    frame = open_table(tmp_path).frame()
    assert frame.rows() == [(1.0, None, "x"), (2.0, None, "y"), (0.5, "t", "7")]


def test_csv_files_by_glob(tmp_path: Path) -> None:
    for day in ("1", "2"):
        write(tmp_path / f"day{day}.csv", f"a,b\n{day},x\n")
    assert open_table(tmp_path / "day?.csv").frame()["a"].to_list() == ["1", "2"]


def test_a_name_with_glob_characters_is_a_file_first(tmp_path: Path) -> None:
    assert open_table(write(tmp_path / "t[1].csv", "a\n1\n")).frame().height == 1


def test_odd_column_names(tmp_path: Path) -> None:
    frame = pl.DataFrame({"Sepal": [1], "Sepal.Length": [2], "*": [3], "^S.*$": [4], 'say "x"': [5], " blank ": [6]})
    frame.write_parquet(tmp_path / "t.parquet")
    with duckdb.connect(str(tmp_path / "t.db")) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT * FROM '{tmp_path}/t.parquet'")
    tables = open_table(tmp_path), open_table(frame), open_table(tmp_path / "t.db", query="FROM t;")
    for table in tables:
        assert table.columns == ("Sepal", "Sepal.Length", "*", "^S.*$", 'say "x"', "blank")
        for value, column in enumerate(table.columns, start=1):
            assert table.frame([column]).to_dicts() == [{column: value}]


def test_arrow_types(tmp_path: Path) -> None:
    day = dt.date(2020, 2, 29)
    values = {
        "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["x", None], ["x", None]),
        "numbers": (pa.dictionary(pa.int8(), pa.int64()), [7, None], [7, None]),
        "large": (pa.large_string(), ["x", None], ["x", None]),
        "decimal": (pa.decimal128(9, 2), [Decimal("1.50"), None], [Decimal("1.50"), None]),
        "date": (pa.date32(), [day, None], [day, None]),
        "time": (pa.timestamp("us"), [dt.datetime(2020, 1, 1), None], [dt.datetime(2020, 1, 1), None]),
        "list": (pa.list_(pa.string()), [["a", "b"], None], [["a", "b"], None]),
        "pair": (pa.list_(pa.int8(), 2), [[1, 2], None], [[1, 2], None]),
        "list of words": (pa.list_(pa.dictionary(pa.int8(), pa.string())), [["a"], []], [["a"], []]),
        "object": (pa.struct([("k", pa.int64())]), [{"k": 1}, None], ['{"k":1}', None]),
        "objects": (pa.list_(pa.struct([("k", pa.int64())])), [[{"k": 1}, None], []], [['{"k":1}', None], []]),
        "bytes": (pa.binary(), [b"abc", None], ["abc", None]),
        "key": (pa.binary(2), [b"\x01\xff", None], ["01ff", None]),
        "null": (pa.null(), [None, None], [None, None]),
        "huge": (pa.uint64(), [2**64 - 1, None], [2**64 - 1, None]),
        "half": (pa.float16(), [0.5, None], [0.5, None]),
        "json": (pa.json_(), ['{"a":1}', None], ['{"a":1}', None]),
        "map": (pa.struct([("map", pa.int8())]), [{"map": 1}, None], ['{"map":1}', None]),
    }
    arrow = pa.table({name: pa.array(cells, kind) for name, (kind, cells, _) in values.items()})
    expected = {name: read for name, (_, _, read) in values.items()}
    pq.write_table(arrow.drop_columns(["half"]), tmp_path / "t.parquet")
    assert open_table(arrow).frame().to_dict(as_series=False) == expected
    del expected["half"]
    assert open_table(tmp_path / "t.parquet").frame().to_dict(as_series=False) == expected


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.int8()),
        pa.list_(pa.map_(pa.string(), pa.int8())),
        pa.month_day_nano_interval(),
        pa.run_end_encoded(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_arrow_types_that_are_refused(kind: pa.DataType) -> None:
    table = pa.schema([("a", pa.int8()), ("odd", kind)]).empty_table()
    explained(lambda: open_table(table), str(kind), "'odd'", "cast the column")


def test_a_file_with_a_type_that_is_refused(tmp_path: Path) -> None:
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])])
    table = pa.table({"odd": union})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    explained(lambda: open_table(tmp_path / "t.arrow"), "sparse_union", "'odd'", "t.arrow")


def test_bytes_that_are_no_text() -> None:
    explained(open_table(pl.DataFrame({"id": [1], "raw": [b"\xff\xfe"]})).frame, "'raw'", "turned into text")
    explained(lambda: open_table(pl.DataFrame({"inner": [{"raw": b"x"}]})), "'inner'", "turned into text")
    explained(lambda: open_table(pl.DataFrame({"thing": [object()]})), "'thing'", "Python objects")


def test_json_lines_of_mixed_shape(tmp_path: Path) -> None:
    lines = [
        '{"a": 1, "b": true, "c": [1, 2], "d": {"x": 1}, "e": 1}',
        "",
        '{"a": "x", "b": 0.5, "c": "one", "d": 3, "f": NaN}',
        '{"e": 123456789012345678901234567890}',
    ]
    frame = open_table(write(tmp_path / "t.jsonl", "\n".join(lines))).frame()
    assert texts(frame) == {
        "a": ["1", "x", None],
        "b": ["true", "0.5", None],
        "c": ["[1, 2]", "one", None],
        "d": ['{"x": 1}', "3", None],
        "e": ["1", None, "123456789012345678901234567890"],
        "f": [None, "NaN", None],
    }


@pytest.mark.parametrize("bad", ['{"a": 1', "[1, 2]", "3", "a,b"])
def test_a_bad_json_line_is_named(tmp_path: Path, bad: str) -> None:
    path = write(tmp_path / "t.jsonl", f'{{"a": 1}}\n\n{bad}\n')
    explained(lambda: open_table(path), "line 3", "JSON object", repr(bad), str(path), "one object per line")


def test_pandas_columns_without_an_arrow_type() -> None:
    frame = pd.DataFrame(
        {
            "mixed": [1, "x", None],
            "huge": pd.Series([1, 10**30, None], dtype=object, index=[7, 7, 8]),
            "month": pd.period_range("2020-01", periods=3, freq="M"),
            "number": [0.5, float("nan"), float("inf")],
            3: pd.Categorical(["a", None, "b"]),
        },
        index=[7, 7, 8],
    )
    assert open_table(frame).frame().to_dict(as_series=False) == {
        "mixed": ["1", "x", None],
        "huge": ["1", str(10**30), None],
        "month": ["2020-01", "2020-02", "2020-03"],
        "number": [0.5, None, float("inf")],
        "3": ["a", None, "b"],
    }


def test_duckdb_is_streamed_and_never_written(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE flows AS SELECT range AS row, 'x' AS y FROM range(50000)")
    batches = list(open_table(path, query="SELECT * FROM flows ORDER BY row").batches(["row"], rows=2_048))
    assert len(batches) >= 20
    assert pl.concat(batches)["row"].to_list() == list(range(50_000))
    contents = "the tables: 'flows'"
    explained(lambda: open_table(path), "needs a query", 'query="SELECT * FROM flows"', contents, str(path))
    explained(lambda: open_table(path, query="SELECT * FROM flow"), "the query fails", "flow", contents, str(path))
    explained(lambda: open_table(path, query="SELEC 1"), "the query fails", "syntax error", "'SELEC 1'")
    explained(lambda: open_table(path, query="DROP TABLE flows"), "not one SELECT", "DROP TABLE flows")
    late = open_table(path, query="SELECT CAST(y AS INTEGER) AS z FROM flows")
    explained(late.frame, "the query fails", "Could not convert", contents)
    broken = write(tmp_path / "broken.db", "hello " * 1000)
    explained(lambda: open_table(broken, query="SELECT 1"), "cannot be opened", str(broken))


def test_duckdb_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tefm\[duckdb\]'"):
        open_table(write(tmp_path / "t.duckdb", "x"), query="SELECT 1")


# ---- bad paths, files and requests ----------------------------------------------------------------------------------


def test_missing_paths(tmp_path: Path) -> None:
    write(tmp_path / "admissions.csv", "a\n1\n")
    path = tmp_path / "admision.csv"
    explained(lambda: open_table(path), "no such file", str(path), "did you mean 'admissions.csv'?")
    explained(lambda: open_table(tmp_path / "no" / "t.csv"), f"the folder {tmp_path / 'no'} does not exist")
    explained(lambda: open_table(tmp_path / "*.parquet"), "no file matches", "*.parquet", "admissions.csv")
    explained(lambda: open_table("s3://bucket/t.parquet"), "URLs cannot be read", "scan_parquet")
    explained(lambda: open_table("x" * 5_000), "File name too long")


def test_folders_without_parquet(tmp_path: Path) -> None:
    explained(lambda: open_table(tmp_path), "folder without Parquet files", "contains nothing", str(tmp_path))
    write(tmp_path / "flows.csv", "a\n1\n")
    (tmp_path / "more").mkdir()
    explained(lambda: open_table(tmp_path), "folder without Parquet files", "'flows.csv', 'more/'", "one file in it")


def test_unknown_endings_name_the_known_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "t.xlsx", "x")
    endings = [ending for group in FORMATS.values() for ending in group]
    explained(lambda: open_table(path), "'.xlsx'", str(path), *endings)


@pytest.mark.parametrize("ending", [ending for group in FORMATS.values() for ending in group])
def test_empty_files(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"t{ending}"
    path.write_bytes(b"")
    explained(lambda: open_table(path, query="x" if ending in FORMATS["DuckDB"] else None), "0 bytes", str(path))


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.jsonl", "t.jsonl.gz"])
def test_files_of_nothing_but_blank_lines(tmp_path: Path, name: str) -> None:
    explained(lambda: open_table(write(tmp_path / name, "\n\n")), "no", "rows", name)


def test_broken_files(tmp_path: Path) -> None:
    for name, save in (("t.parquet", FRAME.write_parquet), ("t.arrow", FRAME.write_ipc)):
        save(tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        for content in (whole[: len(whole) // 2], b"nonsense" * 40):
            explained(lambda: open_table(write(tmp_path / name, content)).frame(), "not a readable", name, "completely")
    explained(lambda: open_table(tmp_path), "not a readable Parquet file", "t.parquet")


def test_broken_gzip(tmp_path: Path) -> None:
    rows = "".join(f"{row},{row * 7919 % 100_003}\n" for row in range(50_000))
    whole = gzip.compress(f"a,b\n{rows}".encode())
    lines = gzip.compress(b'{"a": 1}\n' * 1000)
    for name, content in (("t.csv.gz", whole), ("t.jsonl.gz", lines)):
        for broken in (content[: len(content) // 2], content[:-4], b"a,b\n1,2\n"):
            path = tmp_path / name
            path.write_bytes(broken)
            explained(lambda: open_table(path).frame(), "gzip file is truncated or damaged", str(path), "gzip -t")


def test_duplicated_column_names(tmp_path: Path) -> None:
    twice = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "b"])
    pq.write_table(twice, tmp_path / "t.parquet")
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_file(file, twice.schema) as writer:
        writer.write_table(twice)
    write(tmp_path / "t.csv", "a,b, a\n1,2,3\n")
    for name in ("t.parquet", "t.arrow", "t.csv"):
        explained(lambda: open_table(tmp_path / name), "more than once: 'a'", name, "column_names", "3 different names")
    for frame in (twice, pd.DataFrame([[1, 2]], columns=["a", "a"]), pl.DataFrame({"a": [1], " a": [2]})):
        explained(lambda: open_table(frame), "more than once: 'a'", "table in memory")


def test_files_with_different_columns(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1], "b": [1]}).write_parquet(tmp_path / "1.parquet")
    pl.DataFrame({"a": [1], "c": [1]}).write_parquet(tmp_path / "2.parquet")
    explained(
        lambda: open_table(tmp_path),
        "different columns",
        f"only in {tmp_path / '1.parquet'}: 'b'",
        f"only in {tmp_path / '2.parquet'}: 'c'",
        "same columns",
    )


def test_asking_for_columns_that_are_not_there(tmp_path: Path) -> None:
    table = open_table(write(tmp_path / "t.csv", "age,ward,rate\n1,2,3\n"))
    parts = ("2 of 3 columns", "'wards', 'zzz'", "the table has 'age', 'ward', 'rate'", "'wards': did you mean 'ward'?")
    explained(lambda: table.batches(["age", "wards", "zzz"]), *parts, "t.csv")
    explained(lambda: table.frame(["age", "wards", "zzz"]), *parts)
    explained(lambda: table.frame(["zzz"]), "1 of 1", "tefm inspect")


def test_requests_that_make_no_sense(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a\n1\n")
    FRAME.write_parquet(tmp_path / "t.parquet")
    explained(lambda: open_table(path, query="SELECT 1"), "`query` is for DuckDB", "CSV")
    explained(lambda: open_table(tmp_path / "t.parquet", column_names=["a"]), "for CSV files", "Parquet")
    explained(lambda: open_table(tmp_path, column_names=["a"]), "for CSV files", "Parquet")
    explained(lambda: open_table(FRAME, query="SELECT 1"), "are for files")
    explained(lambda: open_table({"a": [1]}), "a dict is not a table", "polars")
    explained(lambda: open_table(pl.DataFrame()), "no columns")
    explained(open_table(FRAME.lazy().with_columns(x=pl.col("ward").cast(pl.Int64))).frame, "lazy frame")
    explained(lambda: open_table(FRAME.lazy().select("nothing")), "lazy frame", "nothing")
    with pytest.raises(SettingsError, match="at least one row"):
        open_table(path).batches(rows=0)
    with pytest.raises(SettingsError, match="no columns"):
        open_table(path).frame([])
