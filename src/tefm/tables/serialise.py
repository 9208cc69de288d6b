"""The records of a sequence as text: the input of a language model that gets no codes.

Values are those of the table, with readable names where the schema has them. Only fields are written, never the label,
the entity, the time or ignored columns. As in the slots, missing values and flags that are off are left out.

Each distinct value is written once per column, and the records are joined from the written values.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.tables.columns import Columns, value_names
from tefm.tables.mappers import flags_of
from tefm.tables.readers.source import unnamed
from tefm.tables.schema import Field, Schema
from tefm.tables.sequences import Sequences
from tefm.tables.words import OPEN_ENDED, is_open_ended

Format = Literal["prose", "compact", "csv", "json", "toon"]
FORMATS: tuple[Format, ...] = get_args(Format)

#: A value as text; the members of a set.
_Value = str | list[str]
#: One value written in a format, None where it is absent.
_Cell = str | None
#: Writes a field's title and value in a format.
_Write = Callable[[str, Field, _Value], str]


def serialise(frame: pl.DataFrame, schema: Schema, sequences: Sequences, format: Format = "prose") -> list[str]:  # noqa: A002
    """One text per sequence, in the order of `sequences`.

    `prose` writes a statement per field, with units and codes; `compact` writes short `title=value` pairs; `csv` and
    `toon` (Token-Oriented Object Notation) name the fields once and then write a line per record; `json` is a list of
    objects. A set is one cell in `csv` and `toon`, which have no lists within a row.

    >>> from tefm import Field, Schema
    >>> from tefm.tables.grouping import by_entity
    >>> frame = pl.DataFrame({"who": ["a", "a"], "stay": [5, None], "dx": ["428;250", "428"], "icu": ["no", "yes"]})
    >>> schema = Schema(record="admission", entity="who", fields=(
    ...     Field(name="stay", kind="number", title="Length of stay", unit="days"),
    ...     Field(name="icu", kind="flag", title="ICU stay"),
    ...     Field(name="dx", kind="set", delimiter=";", title="Diagnoses", names={"428": "heart failure"}),
    ... ))
    >>> sequences = by_entity(frame, schema)
    >>> print(*serialise(frame, schema, sequences))
    Admission 1: Length of stay: 5 days. Diagnoses: heart failure (428), 250.
    Admission 2: ICU stay. Diagnoses: heart failure (428).
    >>> print(*serialise(frame, schema, sequences, "compact"))
    Length of stay=5; Diagnoses=heart failure, 250
    ICU stay=yes; Diagnoses=heart failure
    >>> print(*serialise(frame, schema, sequences, "csv"))
    Length of stay,ICU stay,Diagnoses
    5,,heart failure;250
    ,yes,heart failure
    >>> print(*serialise(frame, schema, sequences, "json"))
    [{"Length of stay":5,"Diagnoses":["heart failure","250"]},{"ICU stay":true,"Diagnoses":["heart failure"]}]
    >>> print(*serialise(frame, schema, sequences, "toon"))
    records[2]{"Length of stay","ICU stay",Diagnoses}:
      5,null,heart failure;250
      null,true,heart failure
    """
    if format not in FORMATS:
        raise SettingsError("not a valid text format", value=format, remedy=f"choose one of {FORMATS}")
    if len(sequences.rows) and int(sequences.rows.max()) >= frame.height:
        raise InputError(
            f"the sequences refer to row {int(sequences.rows.max()):,}, but the table has {frame.height:,} rows",
            remedy="give the table that the sequences were built from",
        )
    # the columns of the user's table: derived fields would make the text longer than it need be
    schema = schema.model_copy(update={"fields": tuple(field for field in schema.fields if not field.derived)})
    titles = _titles(schema)
    write = {"prose": _prose, "compact": _compact, "csv": _csv, "json": _json, "toon": _toon}[format]
    columns = Columns.of(frame[sequences.rows], schema, sequences.file)
    cells = [
        _cells(columns, field, title, write, codes=format == "prose")
        for field, title in zip(schema.fields, titles, strict=True)
    ]
    records = list(zip(*cells, strict=True))
    starts = sequences.starts.tolist()
    return [_joined(records[start:end], titles, schema.record, format) for start, end in pairwise(starts)]


def _joined(records: Sequence[tuple[_Cell, ...]], titles: Sequence[str], noun: str, format_: Format) -> str:
    """The written cells of a sequence's records as one text."""
    if format_ == "csv":
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows([titles, *records])
        return file.getvalue()[:-1]
    if format_ == "toon":
        head = f"records[{len(records)}]{{{','.join(map(_toon_key, titles))}}}:"
        return "\n".join([head, *("  " + ",".join(cell or "null" for cell in record) for record in records)])
    present = [[cell for cell in record if cell is not None] for record in records]
    if format_ == "json":
        return "[" + ",".join("{" + ",".join(cells) + "}" for cells in present) + "]"
    if format_ == "compact":
        return "\n".join("; ".join(cells) for cells in present)
    noun = noun[:1].upper() + noun[1:]
    return "\n".join(
        f"{noun} {number}: {' '.join(cells) or 'nothing recorded.'}" for number, cells in enumerate(present, start=1)
    )


# ---- one value in each format ---------------------------------------------------------------------------------------


def _prose(title: str, field: Field, value: _Value) -> str:
    if field.kind == "flag":
        return f"{title}."
    unit = f" {field.unit}" if field.kind == "number" and field.unit else ""
    return f"{title}: {_on_one_line(value)}{unit}."


def _compact(title: str, field: Field, value: _Value) -> str:
    return f"{title}={_on_one_line(value)}"


def _csv(title: str, field: Field, value: _Value) -> str:
    return value if isinstance(value, str) else ";".join(value)


def _json(title: str, field: Field, value: _Value) -> str:
    if field.kind == "number" and not re.match(OPEN_ENDED, str(value)):
        text = str(value)
    else:
        text = json.dumps(True if field.kind == "flag" else value, ensure_ascii=False, separators=(",", ":"))
    return f"{json.dumps(title, ensure_ascii=False)}:{text}"


def _toon(title: str, field: Field, value: _Value) -> str:
    if field.kind == "flag":
        return "true"
    text = _csv(title, field, value)
    return text if field.kind == "number" or not _TOON_UNSAFE.search(text) else _toon_quoted(text)


#: What must be quoted in a row (TOON specification 4, section 7.2): an empty text, blanks at the ends, text that looks
#: like another type, a comment or a list, and special characters.
_TOON_UNSAFE = re.compile(
    r'^$|^[ \t]|[ \t]$|^(?:true|false|null)$|^[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$|^[-#]|[:,"\\\[\]{}\x00-\x1f]',
    re.ASCII,
)
_TOON_ESCAPES = str.maketrans(
    {chr(code): f"\\u{code:04x}" for code in range(32)}
    | {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
)


def _toon_quoted(text: str) -> str:
    return f'"{text.translate(_TOON_ESCAPES)}"'


def _toon_key(title: str) -> str:
    return title if re.fullmatch(r"[A-Za-z_][\w.]*", title, re.ASCII) else _toon_quoted(title)


def _on_one_line(value: _Value) -> str:
    return " ".join((value if isinstance(value, str) else ", ".join(value)).split())


# ---- the values of a column -----------------------------------------------------------------------------------------


def _cells(columns: Columns, field: Field, title: str, write: _Write, *, codes: bool) -> list[_Cell]:
    """A field of every record, written; with `codes`, a named member of a set keeps its code."""
    names = value_names(field)
    if field.kind == "set":
        return [write(title, field, value) if value else None for value in _sets(columns, field, names, codes)]
    ids: NDArray[Any]
    values: list[str | None]
    if field.kind == "number":
        column = columns.frame[columns.sources[field.name][0]]
        distinct, first, ids = np.unique(columns.numbers(field), return_index=True, return_inverse=True)
        values = [_digits(value, column.dtype == pl.Float32) for value in distinct.tolist()]
        if column.dtype == pl.String:  # open-ended numbers as they are written, such as > 89
            written = unnamed(column).gather(first).str.strip_chars()
            for i in is_open_ended(written).arg_true():
                values[i] = values[i] and written[i]
    else:
        ids, words = columns.word_ids(field)
        if field.kind == "flag":
            ids, values = flags_of(ids, words, field, columns.file), [None, "yes"]
        else:
            values = [None if word is None else names.get(word, word) for word in words]
    cells = [None if value is None else write(title, field, value) for value in values]
    return [cells[i] for i in ids.tolist()]


def _sets(columns: Columns, field: Field, names: dict[str, str], codes: bool) -> list[list[str]]:
    """The members of each record, each once, in the table's order."""
    words = columns.words(field)
    texts = [
        word if word not in names else f"{names[word]} ({word})" if codes else names[word] for word in words.vocabulary
    ]
    members: list[dict[str, None]] = [{} for _ in range(columns.height)]
    order = np.argsort(words.rows, kind="stable")  # several columns come one after the other
    for row, i in zip(words.rows[order].tolist(), words.ids[order].tolist(), strict=True):
        members[row][texts[i]] = None
    return [list(texts_of_record) for texts_of_record in members]


def _digits(value: float, narrow: bool) -> str | None:
    """The shortest digits that identify a number, without an exponent; about half as many for a 32-bit float."""
    if not math.isfinite(value):
        return None
    if value.is_integer():
        return str(int(value))
    number = np.float32(value) if narrow else value
    text = str(number)
    return np.format_float_positional(number, trim="-") if "e" in text else text


def _titles(schema: Schema) -> list[str]:
    """The fields' display names; their own names where two fields have the same display name."""
    count = Counter(field.display_name for field in schema.fields)
    return [field.display_name if count[field.display_name] == 1 else field.name for field in schema.fields]
