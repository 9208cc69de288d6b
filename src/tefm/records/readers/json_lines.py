"""JSON lines: one object per line, read whole, because the columns are known only at the end."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from tefm.base.errors import InputError
from tefm.records.readers.source import Source, explaining, from_frame, open_bytes

ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")


def open_jsonl(path: Path) -> Source:
    """A file of JSON lines; missing keys are null."""
    with explaining(path, "JSON lines"):
        with open_bytes(path) as file:
            content = file.read().removeprefix(codecs.BOM_UTF8)
        if not content.strip():
            raise InputError("the file has no rows", file=path, remedy="write one JSON object per line")
        try:
            frame = pl.read_ndjson(content, infer_schema_length=None)
        except PolarsError:  # a bad line, or values of different types in one column
            frame = _read_line_by_line(content.decode("utf-8"), path)
    return from_frame(frame, str(path))


def _read_line_by_line(text: str, path: Path) -> pl.DataFrame:
    """Slower: names the line that is not an object, and turns columns of mixed types into text."""
    records: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise _bad_line(number, line, path) from error
        if not isinstance(record, dict):
            raise _bad_line(number, line, path)
        records.append(record)
    names = dict.fromkeys(name for record in records for name in record)
    return pl.DataFrame([_series(name, [record.get(name) for record in records]) for name in names])


def _series(name: str, values: list[Any]) -> pl.Series:
    try:
        return pl.Series(name, values)
    except (TypeError, OverflowError, PolarsError):
        texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
        return pl.Series(name, texts, dtype=pl.String)


def _bad_line(number: int, line: str, path: Path) -> InputError:
    return InputError(
        f"line {number} is not a valid JSON object",
        file=path,
        value=line.strip()[:80],
        remedy='write one object per line, as in {"age": 63, "drugs": ["insulin"]}',
    )
