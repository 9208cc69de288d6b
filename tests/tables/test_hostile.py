"""Tables that would break a naive reader: nameless columns, damaged files, names that are patterns, odd types."""

from __future__ import annotations

import datetime as dt
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from commands import refused
from conftest import Explained
from rich.rule import Rule
from rich.text import Text

from tefm.base.errors import InputError
from tefm.base.progress import Terminal
from tefm.codes.tokenizer import RecordTokenizer
from tefm.show.terminal import table as rows_of
from tefm.tables.chunks import whole_sequences
from tefm.tables.grouping import by_entity, labels_of
from tefm.tables.infer import infer_schema
from tefm.tables.readers.table import open_table
from tefm.tables.schema import Schema
from tefm.tables.vectorise import Vectoriser

ROWS = 40
NAMELESS = pa.table([pa.array([i % 7 for i in range(ROWS)]), pa.array(list("xyzw") * 10)], names=["", "ward"])


# ---- times, names and values that are refused, or read as what they are --------------------------------------------


@pytest.mark.parametrize("zone", ["+05:30", "-03:30", "+13:00", "Mars/Phobos", "+01:00", "Europe/Berlin"])
@pytest.mark.parametrize("ending", ["parquet", "arrow", "feather"])
def test_times_of_any_zone_are_the_same_instants(zone: str, ending: str, tmp_path: Path) -> None:
    instants = [0, 1_700_000_000_000_000, None]
    times = pa.array(instants, pa.timestamp("us", zone))
    table = pa.table({"at": times, "several": pa.array([[0], [], None], pa.list_(pa.timestamp("us", zone)))})
    write = pq.write_table if ending == "parquet" else feather.write_feather
    write(table, tmp_path / f"t.{ending}")
    frame = open_table(tmp_path / f"t.{ending}").frame()
    assert frame["at"].dt.epoch("us").to_list() == instants
    assert frame["several"].list.first().dt.epoch("us").to_list() == [0, None, None]


def test_pythons_own_zone_is_read_too() -> None:
    india = dt.timezone(dt.timedelta(hours=5, minutes=30))
    table = pa.table({"at": pa.array([dt.datetime(2024, 1, 1, 5, 30, tzinfo=india)])})
    assert open_table(table).frame()["at"].to_list() == [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather", "jsonl"])
def test_a_name_with_nul_is_refused(ending: str, tmp_path: Path, explained: Explained) -> None:
    path, table = tmp_path / f"t.{ending}", pa.table({"a\0b": [1], "c": [2]})
    match ending:
        case "csv":
            path.write_text("a\0b,c\n1,2\n")
        case "jsonl":
            path.write_text('{"a\\u0000b": 1, "c": 2}\n')
        case _:
            (pq.write_table if ending == "parquet" else feather.write_feather)(table, path)
    explained(InputError, lambda: open_table(path), path.name, r"a\x00b", "rename")


@pytest.mark.parametrize("deep", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000])
def test_a_value_that_is_nested_too_deep_is_refused(deep: str, tmp_path: Path, explained: Explained) -> None:
    (tmp_path / "t.jsonl").write_text(f'{{"a": 1}}\n{{"a": {deep}}}\n')
    error = explained(InputError, lambda: open_table(tmp_path / "t.jsonl"), "line 2", "nested too deep")
    assert len(str(error)) < 1_000


def test_paths_that_cannot_be(explained: Explained) -> None:
    explained(InputError, lambda: open_table("~no-such-user-here/t.csv"), "~no-such-user-here", "no such user")
    explained(InputError, lambda: open_table("x" * 300 + ".csv"), "too long")
    assert "no such user" in refused("inspect", "~no-such-user-here/t.csv")


def test_a_record_with_the_same_name_twice_is_refused(tmp_path: Path, explained: Explained) -> None:
    (tmp_path / "t.jsonl").write_text('{"age": 1, " age ": 2}\n')
    explained(InputError, lambda: open_table(tmp_path / "t.jsonl"), "age", "more than once")


def test_a_terminal_obeys_no_name_or_value(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31mred"
    for console in (Terminal(file=sys.stdout), Terminal(file=sys.stdout, force_terminal=True)):
        console.print(f"patient {evil}", highlight=False)
        console.print(rows_of(f"rows {evil}", [evil], [[evil]]))
        console.print(f"error: {InputError('wrong ' + evil, value=evil)}", highlight=False)
        console.print(Text(evil))
        console.print(Rule(evil))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)  # styles of our own
    assert "red" in shown and not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)


# ---- columns without a name ---------------------------------------------------------------------------------------


def _csv_with_index(path: Path) -> None:
    pd.DataFrame({"age": [i % 7 for i in range(ROWS)], "ward": list("xyzw") * 10}).to_csv(path)


def _csv_with_trailing_delimiter(path: Path) -> None:
    path.write_text("age,ward,\n" + "".join(f"{i % 7},{'xyzw'[i % 4]},\n" for i in range(ROWS)))


def _jsonl(path: Path) -> None:
    path.write_text("".join(f'{{"": {i % 7}, "ward": "{"xyzw"[i % 4]}"}}\n' for i in range(ROWS)))


@pytest.mark.parametrize(
    ("name", "write", "called"),
    [
        ("index.csv", _csv_with_index, "column_1"),
        ("trailing.csv", _csv_with_trailing_delimiter, "column_3"),
        ("t.parquet", lambda path: pq.write_table(NAMELESS, path), "column_1"),
        ("t.arrow", lambda path: feather.write_feather(NAMELESS, path), "column_1"),
        ("t.jsonl", _jsonl, "column_1"),
    ],
)
def test_a_column_without_a_name_gets_one(
    name: str, write: Callable[[Path], None], called: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / name)
    with caplog.at_level(logging.WARNING, logger="tefm"):
        table = open_table(tmp_path / name)
    assert called in table.columns
    assert f"'{called}'" in caplog.text
    assert name in caplog.text
    schema = infer_schema(table)
    assert len(Vectoriser.fit(table, schema).transform(table)) == ROWS
    assert table.frame([called]).height == ROWS


def test_generated_names_do_not_collide() -> None:
    frame = pl.DataFrame({"": [1, 2], "column_1": [3, 4], " ": [5, 6]})
    assert open_table(frame).frame().to_dict(as_series=False) == {
        "column_1_": [1, 2],
        "column_1": [3, 4],
        "column_3": [5, 6],
    }
    assert open_table(frame.lazy()).frame(["column_3"])["column_3"].to_list() == [5, 6]


def test_the_index_of_pandas_is_no_field(tmp_path: Path) -> None:
    pd.DataFrame({"age": [i % 7 for i in range(300)], "ward": list("xyz") * 100}).to_csv(tmp_path / "t.csv")
    assert infer_schema(tmp_path / "t.csv").ignore == ("column_1",)


# ---- damaged files ------------------------------------------------------------------------------------------------

#: Reads a file with every so many bytes flipped, each flip in turn; an exception that is not ours ends it.
FLIPS = """
import sys
from pathlib import Path
from tefm.base.errors import TefmError
from tefm.tables.infer import infer_schema
from tefm.tables.readers.table import open_table
from tefm.tables.vectorise import Vectoriser
path, step = Path(sys.argv[1]), int(sys.argv[2])
whole, refused = path.read_bytes(), 0
for place in range(0, len(whole), step):
    for bits in (0x01, 0x80, 0xFF):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ bits]) + whole[place + 1:])
        try:
            table = open_table(path)
            Vectoriser.fit(table, infer_schema(table)).transform(table)
        except TefmError as error:
            assert str(path) in str(error), error
            refused += 1
print(refused)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "format_", ["parquet", *(pytest.param(name, marks=pytest.mark.all) for name in ("arrow", "feather", "ipc"))]
)
def test_a_flipped_byte_never_ends_the_process(format_: str, tmp_path: Path) -> None:
    table = pa.table(
        {
            "age": [1, 2, 3, 4] * 5,
            "ward": list("xyzw") * 5,
            "drugs": [["p", "q"], ["q"], [], None] * 5,
            "unit": pa.array(["u", "v", "u", None] * 5).dictionary_encode(),
        }
    )
    path = tmp_path / f"t.{format_}"
    if format_ == "parquet":
        pq.write_table(table, path)
    elif format_ == "ipc":
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    else:
        feather.write_feather(table, path, compression="uncompressed" if format_ == "arrow" else "lz4")
    # in a process of its own: what this is about is a segmentation fault
    done = subprocess.run([sys.executable, "-c", FLIPS, path, "19"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2_000:])
    assert int(done.stdout) > 20


def test_arrow_data_whose_offsets_lie(tmp_path: Path, explained: Explained) -> None:
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 2_000_000_000, 2)))
    array = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"xy")])
    explained(InputError, lambda: open_table(pa.table({"ward": array})), "damaged", "table in memory")


# ---- types --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["parquet", "arrow"])
def test_decimals_of_256_bits_are_numbers(format_: str, tmp_path: Path) -> None:
    wide = pa.array([1, 2, 3, 4] * 10).cast(pa.decimal256(50, 2))
    lists = pa.array([[1], [2, 3], [], None] * 10).cast(pa.list_(pa.decimal256(50, 2)))
    table, path = pa.table({"cost": wide, "costs": lists, "ward": list("xyzw") * 10}), tmp_path / f"t.{format_}"
    pq.write_table(table, path) if format_ == "parquet" else feather.write_feather(table, path)
    assert open_table(path).frame()["cost"].to_list()[:2] == ["1.00", "2.00"]
    assert open_table(path).frame()["costs"].to_list()[1] == ["2.00", "3.00"]
    assert [field.kind for field in infer_schema(path).fields] == ["number", "set", "category"]


def test_integers_of_128_bits_can_be_an_entity_and_are_brought_together(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f'{{"who": {2**64 + i % 3}, "age": {i}}}\n' for i in range(30)))
    schema = Schema.from_yaml("{entity: who, fields: {age: number}}")
    parts = list(whole_sequences(open_table(path), schema, rows=8))
    assert [name for part in parts for name in by_entity(part, schema).ids] == [str(2**64 + i) for i in range(3)]
    assert pl.concat(parts).to_arrow().num_rows == 30
    assert [field.kind for field in infer_schema(path, entity="who").fields + infer_schema(path).fields][-1:] == [
        "number"
    ]


@pytest.mark.parametrize("label", [[["a"], ["b"]], [[["a"]], [["b"]]]])
def test_lists_as_labels_are_refused(label: list[Any], explained: Explained) -> None:
    frame = pl.DataFrame({"age": range(20), "died": label * 10})
    explained(InputError, lambda: infer_schema(frame, label="died"), "'died'", "List", "one value per row")
    schema = Schema.from_yaml("{label: died, fields: {age: number}}")
    tokenizer = RecordTokenizer(levels=2, entries=2, latent=4, hidden=8, steps=2)
    explained(InputError, lambda: tokenizer.fit(frame, schema), "'died'", "List", "one value per row")


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_durations_can_be_a_set_or_a_category(unit: Any) -> None:
    spans = pl.Series([1, 1_001, 86_400_000_000_000] * 10).cast(pl.Duration(unit))
    frame = pl.DataFrame(
        {"stay": spans, "stays": pl.Series([[span] for span in spans], dtype=pl.List(pl.Duration(unit)))}
    )
    schema = Schema.from_yaml("{fields: {stay: category, stays: set}}")
    if unit == "us":  # longer than Python's durations
        frame = frame.with_columns(stay=pl.lit(10**18).cast(pl.Duration("ms")))
        with pytest.raises(InputError, match="out of range"):
            Vectoriser.fit(frame, schema)
        return
    assert len(Vectoriser.fit(frame, schema).transform(frame)) == 30


# ---- names that polars takes for patterns -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["*", "^a$", "^.*$"])
def test_a_role_may_be_called_like_a_pattern(name: str, tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "a": list(range(6)) * 5,
            "ward": list("xyz") * 10,
            name: [f"p{i // 3}" for i in range(30)],
            "ab": ["n", "y"] * 15,
        }
    )
    frame.write_parquet(tmp_path / "1.parquet")
    frame.write_parquet(tmp_path / "2.parquet")
    for source in (frame, frame.lazy(), tmp_path / "1.parquet"):
        schema = infer_schema(source, entity=name, label="ab")
        assert by_entity(open_table(source).frame(), schema).ids.tolist() == [f"p{i}" for i in range(10)]
        batches = list(Vectoriser.fit(source, schema).batches_with(source, [name, "a"]))
        assert [batch.columns for _, batch in batches] == [[name, "a"]]
        assert sum(part.height for part in whole_sequences(open_table(source), schema, rows=4)) == 30
    assert open_table(tmp_path).frame([name])[name].to_list() == frame[name].to_list() * 2
    assert labels_of(frame, infer_schema(frame, label=name)).tolist() == frame[name].to_list()
    numbered = frame.with_columns(pl.Series(name, range(30)))
    assert infer_schema(numbered, time=name).time == name
    assert [field.name for field in infer_schema(frame.with_columns(pl.Series(name, list("uvw") * 10))).fields][
        2
    ] == name


# ---- one column ---------------------------------------------------------------------------------------------------


def test_empty_cells_of_a_single_column_stay(tmp_path: Path) -> None:
    values = ["x", None, "y", None, "x", None]
    pl.DataFrame({"ward": values}).write_csv(tmp_path / "t.csv")
    assert open_table(tmp_path / "t.csv").frame()["ward"].to_list() == values
    (tmp_path / "empty.csv").write_text("ward\n\n\n")
    assert open_table(tmp_path / "empty.csv").frame()["ward"].to_list() == [None, None]
    (tmp_path / "two.csv").write_text("ward,age\n\nx,1\n\n")
    assert open_table(tmp_path / "two.csv").frame().height == 1  # with two columns, a blank line is no row
