"""Tables that nobody would write by hand: odd names, odd values, every type, in five formats, the same for a seed."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FORMATS = ("csv", "tsv", "parquet", "arrow", "jsonl")
#: The column that says which row is which.
ROW = "row"

NAMES = (
    "", " ", "a", "b", "age", "*", "^a$", "^.*$", "a.b", "{b}", "{count:>9}", "=1+1", "a,b", 'say "x"', "line\nbreak",
    "Zoë", "李", "label", "id", "entity", "time", "key", "values", "word", "count", "x" * 300, "p(yes)", "records",
    "code_a", "column_1", "null", "-", "a;b", "\ttab", "🙂", "literal", "died", "patient_id", "row_id", "nul\x00here",
    " age ", "\x1b[31mred", "\u202ename", "y" * 20_000,
)  # fmt: skip
WORDS = (
    "", " ", "a", "b", "yes", "no", "true", "NaN", "null", "None", "?", "-", "--", "1", "1.0", "01", "1e400", "-1e-400",
    "1,234.5", "12,5", "> 89", "90+", "<0.01", "inf", "-inf", "=HYPERLINK(1)", "@x", "+1", "line\nbreak", "\r\n", 'q"q',
    "a;b;c", "a,b", "tab\there", "Zoë", "李", "🙂", "\u202eabc", "x" * 500, "2024-01-31", "2024-01-31T23:59:59Z",
    "0x1F", "\u00a0", "{b}", "<|im_end|>", "\x00", "é", "1_000", "٣", "\x1b[2J", "\x9b31m", "[" * 2_000,
)  # fmt: skip


@dataclass(frozen=True)
class Fuzzed:
    """A table on disk; `rows` is None where bytes were damaged, and nobody knows what it should contain."""

    path: Path
    rows: int | None
    #: whether it has the column `row`, which counts its rows
    counted: bool
    #: one of its columns, for a role
    role: str
    #: the cells of its columns of text, where they must come back as they are
    texts: dict[str, list[str | None]]


def fuzzed(seed: int, folder: Path) -> Fuzzed:
    """The table of a seed."""
    rng = np.random.default_rng(seed)
    format_ = FORMATS[seed % len(FORMATS)]
    rows = int(rng.choice([0, 1, 2, 3, 7, 20, 60], p=[0.03, 0.05, 0.07, 0.1, 0.2, 0.35, 0.2]))
    names = [str(name) for name in rng.choice(NAMES, size=rng.integers(1, 5), replace=rng.random() < 0.05)]
    columns = {name: _column(rng, rows) for name in names}
    counted = rng.random() < 0.8 or not columns
    arrays = [*columns.values()]
    if counted:
        names, arrays = [*names, ROW], [*arrays, pa.array(range(rows), pa.int64())]
        columns[ROW] = arrays[-1]
    duplicates = len({name.strip() for name in names if name.strip()}) < sum(bool(name.strip()) for name in names)
    table = pa.table(arrays if len(arrays) == len(names) else [columns[name] for name in names], names=names)
    path = folder / f"{seed}.{format_}"
    path.write_bytes(_WRITERS[format_](table, rng))
    known = rows if not duplicates and table.num_rows == rows else None
    if rng.random() < 0.15:
        path.write_bytes(_damaged(path.read_bytes(), rng))
        known = None
    texts = {
        name: column.to_pylist()
        for name, column in columns.items()
        if pa.types.is_string(column.type) and name == name.strip() != ""
    }
    return Fuzzed(path, known, counted, str(rng.choice(names)).strip(), texts)


def _column(rng: np.random.Generator, rows: int) -> pa.Array:
    make = _KINDS[int(rng.integers(len(_KINDS)))]
    values: list[Any] = make(rng, rows)
    missing = rng.choice([0.0, 0.2, 1.0], p=[0.5, 0.4, 0.1])
    values = [None if rng.random() < missing else value for value in values]
    type_ = _TYPES.get(make)
    return pa.array(values, type_) if type_ is not None else pa.array(values)


def _pick(*choices: Any) -> Callable[[np.random.Generator, int], list[Any]]:
    return lambda rng, rows: [choices[int(rng.integers(len(choices)))] for _ in range(rows)]


_integers = _pick(0, 1, -1, 2, 3, 999, 2**62, -(2**62))
_unsigned = _pick(0, 1, 2**64 - 1)
_floats = _pick(0.0, -0.0, 0.1, 1.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"), 31.5)
_normal = lambda rng, rows: rng.normal(size=rows).round(3).tolist()  # noqa: E731
_words = lambda rng, rows: _pick(*rng.choice(WORDS, size=rng.integers(1, 9)).tolist())(rng, rows)  # noqa: E731
_few = _pick("a", "b", "c")
_flags = _pick(True, False)
_dates = _pick(dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31))
_times = _pick(dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 1, 1), dt.datetime(9999, 12, 31))
_zoned = _pick(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(1999, 1, 1, tzinfo=dt.UTC))
_offset = _pick(dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30))))
_odd_zone = _pick(0, 1_700_000_000)
_nanoseconds = _pick(0, 1, 1_000, 2**62)
_instants = _pick(0, 1, 1_000, 2**62)
_durations = _pick(dt.timedelta(0), dt.timedelta(days=-1), dt.timedelta(microseconds=1))
_clock = _pick(dt.time(0), dt.time(23, 59, 59, 999999))
_bytes = _pick(b"", b"abc", b"\xff\xfe", b"\x00")
_fixed = _pick(b"abcd", b"\xff\xfe\x00\x01")
_decimals = _pick(Decimal("1.50"), Decimal("-0.01"), Decimal("123456789.99"))
_wide = _pick(Decimal("1.50"), Decimal(10) ** 45)
_lists = _pick(["a", "b"], [], ["a", None], ["", "?"])
_numbers = _pick([1, 2], [], [3], [None])
_nested = _pick([["a"], []], [[]], [["b", None]])
_spans = _pick([dt.timedelta(1)], [], [dt.timedelta(2), None])
_structs = _pick({"x": 1, "y": "a"}, {"x": None, "y": ""})
_groups = _pick([{"x": 1}], [])
_nothing = _pick(None)

_TYPES: dict[Any, pa.DataType] = {
    _integers: pa.int64(),
    _unsigned: pa.uint64(),
    _floats: pa.float64(),
    _normal: pa.float32(),
    _words: pa.string(),
    _few: pa.string(),
    _dates: pa.date32(),
    _times: pa.timestamp("us"),
    _zoned: pa.timestamp("ms", "UTC"),
    _offset: pa.timestamp("us", "+05:30"),
    _odd_zone: pa.timestamp("s", "-09:30"),
    _nanoseconds: pa.duration("ns"),
    _instants: pa.timestamp("ns"),
    _durations: pa.duration("us"),
    _clock: pa.time64("us"),
    _bytes: pa.binary(),
    _fixed: pa.binary(4),
    _decimals: pa.decimal128(20, 2),
    _wide: pa.decimal256(60, 2),
    _lists: pa.list_(pa.string()),
    _numbers: pa.list_(pa.int64()),
    _nested: pa.list_(pa.list_(pa.string())),
    _spans: pa.list_(pa.duration("us")),
    _structs: pa.struct({"x": pa.int64(), "y": pa.string()}),
    _groups: pa.list_(pa.struct({"x": pa.int64()})),
    _nothing: pa.null(),
    _flags: pa.bool_(),
}
#: Ordinary columns come more often, so that most tables get as far as slots.
_KINDS = [*_TYPES, _words, _words, _few, _few, _normal, _integers, _flags]


# ---- the formats --------------------------------------------------------------------------------------------------


def _delimited(table: pa.Table, rng: np.random.Generator, delimiter: str) -> bytes:
    text = io.StringIO()
    quoting = csv.QUOTE_ALL if rng.random() < 0.3 else csv.QUOTE_MINIMAL
    end = "\r\n" if rng.random() < 0.3 else "\n"
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=end)
    writer.writerow(table.column_names)
    for row in zip(*(column.to_pylist() for column in _for_text(table)), strict=True):
        writer.writerow(["" if value is None else value if isinstance(value, str) else _plain(value) for value in row])
    bom = b"\xef\xbb\xbf" if rng.random() < 0.1 else b""
    return bom + text.getvalue().encode()


def _csv(table: pa.Table, rng: np.random.Generator) -> bytes:
    return _delimited(table, rng, str(rng.choice([",", ";"])))


def _tsv(table: pa.Table, rng: np.random.Generator) -> bytes:
    return _delimited(table, rng, "\t")


def _parquet(table: pa.Table, rng: np.random.Generator) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=int(rng.integers(1, 50)), use_dictionary=bool(rng.random() < 0.5))
    return file.getvalue()


def _arrow(table: pa.Table, rng: np.random.Generator) -> bytes:
    file = io.BytesIO()
    make = pa.ipc.new_file if rng.random() < 0.5 else pa.ipc.new_stream
    with make(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=int(rng.integers(1, 50)))
    return file.getvalue()


def _jsonl(table: pa.Table, rng: np.random.Generator) -> bytes:
    rows = zip(*(column.to_pylist() for column in _for_text(table)), strict=True)
    lines = []
    for row in rows:
        body = {}
        for name, value, type_ in zip(table.column_names, row, table.schema.types, strict=True):
            if not pa.types.is_float32(type_) or rng.random() > 0.1:  # some rows lack some numbers
                body[name] = value if isinstance(value, str | int | float | list | None) else _plain(value)
        lines.append(json.dumps(body, ensure_ascii=bool(rng.random() < 0.5), default=str))
    return ("\n".join(lines) + "\n").encode()


def _for_text(table: pa.Table) -> list[Any]:
    """The columns with values that Python has."""
    return [
        column.cast(pa.int64()) if str(column.type) in ("duration[ns]", "timestamp[ns]") else column
        for column in table.columns
    ]


def _plain(value: Any) -> str:
    return json.dumps(value, default=str) if isinstance(value, list | dict) else str(value)


_WRITERS = {"csv": _csv, "tsv": _tsv, "parquet": _parquet, "arrow": _arrow, "jsonl": _jsonl}


def _damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """The bytes with a few of them changed, or without their end."""
    if not content or rng.random() < 0.3:
        return content[: int(rng.integers(len(content) + 1))]
    damaged = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        damaged[int(rng.integers(len(damaged)))] ^= int(rng.integers(1, 256))
    return bytes(damaged)
