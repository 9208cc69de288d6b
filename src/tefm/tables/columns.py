"""The columns that a schema's fields are read from: of a frame in memory, or of a table batch by batch."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError, did_you_mean, listed
from tefm.base.progress import log
from tefm.tables.readers.arrow import MEMORY
from tefm.tables.readers.table import Table, open_table
from tefm.tables.schema import Field, Schema, Side
from tefm.tables.words import Words, concatenated, numbers_of, split_strings, text_of, word_ids, words_of

#: A batch has at most this many records.
BATCH_ROWS = 1 << 17


@dataclass
class Columns:
    """A frame, or one batch of a table, with its side tables, accessed by field."""

    frame: pl.DataFrame
    schema: Schema
    file: str
    #: the columns that each field is read from
    sources: dict[str, tuple[str, ...]]
    #: the words that mean "missing" in each field
    missing: dict[str, frozenset[str]]
    sides: dict[str, pl.DataFrame]

    @classmethod
    def of(cls, frame: pl.DataFrame, schema: Schema, file: str | None = None) -> Columns:
        """All rows of a frame that was read from a table; `file` is what error messages call it."""
        needed_columns(frame.columns, schema, file)
        present, common, name = frozenset(frame.columns), schema.missing_words, file or MEMORY
        sources = {f.name: _read_from(f, present) for f in schema.fields}
        missing = {f.name: common | {word.strip().lower() for word in f.absent} for f in schema.fields}
        sides = {f.name: _read_side(f, f.side, schema, name) for f in schema.fields if f.side and f.name not in present}
        return cls(frame, schema, name, sources, missing, sides)

    @property
    def height(self) -> int:
        return self.frame.height

    def numbers(self, f: Field) -> NDArray[np.float64]:
        return numbers_of(self._series(f)[0], f, self.missing[f.name], file=self.file)

    def word_ids(self, f: Field) -> tuple[NDArray[np.int64], list[str | None]]:
        """The word of each record, as its index in a list of words."""
        return word_ids(self._series(f)[0], self.missing[f.name])

    def words(self, f: Field) -> Words:
        """The words of each record; of a set from one column, a list, a delimited string, several or a side table."""
        columns = self._series(f)
        if f.name in self.sides:
            columns = [_joined(columns[0], self.sides[f.name], self.schema)]
        if f.delimiter is not None and f.kind == "set":
            columns = [c if isinstance(c.dtype, pl.List) else split_strings(c, f.delimiter) for c in columns]
        words = [words_of(column, self.missing[f.name]) for column in columns]
        return words[0] if len(words) == 1 else concatenated(words)

    def _series(self, f: Field) -> list[pl.Series]:
        columns = [self.frame[name] for name in self.sources[f.name]]
        if not columns:  # records by themselves, without the time of others
            columns = [pl.Series(f.name, [None] * self.height, dtype=pl.String if f.kind == "category" else pl.Float64)]
        for column in columns:
            if isinstance(column.dtype, pl.List) and (f.kind != "set" or column.dtype.inner.is_nested()):
                raise InputError(
                    f"field {f.name!r} is a {f.kind}, but the column contains {column.dtype}",
                    file=self.file,
                    column=column.name,
                    remedy="one list of values per record is a `set`; flatten lists of lists first",
                )
        return columns


def _read_from(f: Field, columns: Container[str]) -> tuple[str, ...]:
    """The columns of a table that a field is read from.

    A column with the field's own name replaces a side table (a loader has joined it) and missing columns (a decoded
    table has one column per field).
    """
    special = f.side is not None or f.derived
    own = f.name in columns and (special or any(name not in columns for name in f.source))
    return (f.name,) if own else () if f.derived else f.source


def _field_columns(columns: Sequence[str], schema: Schema) -> list[str]:
    """The columns that the fields are read from, in the table or not."""
    present = frozenset(columns)
    return list(dict.fromkeys(name for f in schema.fields for name in _read_from(f, present)))


def needed_columns(columns: Sequence[str], schema: Schema, file: str | None = None) -> tuple[str, ...]:
    """Those of a table's columns that the fields are read from; if some are missing, an error shows the difference."""
    needed = _field_columns(columns, schema)
    remedy = "rename the columns, or edit the schema (`tefm inspect TABLE` writes one)"
    _refuse_missing(columns, schema, needed, remedy, file)
    return tuple(needed)


def completed(
    table: Table, schema: Schema, *, roles: Sequence[str] = (), texts: Sequence[str] = (), absent: bool = False
) -> Table:
    """The table, if it has the columns of the fields, of the roles and of the texts; the error lists all missing ones.

    With `absent`, missing columns of fields and texts are added with nothing but absent values. A role, such as the
    entity, is needed in any case, and so is at least one column of a field.
    """
    fields = _field_columns(table.columns, schema)
    fields += [f.source[0] for f in schema.fields if f.part and f.name not in table.columns]
    needed = list(dict.fromkeys([*roles, *fields, *texts]))
    missing = [name for name in needed if name not in table.columns]
    if not missing:
        return table
    if not absent or set(missing) & set(roles) or set(missing) >= set(fields):
        remedy = "rename the columns; fields may be missing with `--absent` (in Python `absent=True`)"
        if roles:
            remedy += f", but not {listed(roles)}"
        _refuse_missing(table.columns, schema, needed, remedy, table.name)
    log.warning(
        f"{len(missing)} of {len(needed)} columns are not in {table.name} and count as absent: {listed(missing)}"
    )
    return table.with_absent(missing)


def _refuse_missing(
    columns: Sequence[str], schema: Schema, needed: Sequence[str], remedy: str, file: str | None
) -> None:
    """Refuse a table that lacks needed columns: the error shows how it differs from the schema."""
    missing = [name for name in needed if name not in columns]
    if not missing:
        return
    in_schema = {*needed, schema.entity, schema.time, schema.label, *schema.text, *schema.ignore}
    extra = [name for name in columns if name not in in_schema]
    lines = [f"  − {name}  (in the schema, not in the table)" for name in missing]
    lines += [f"  + {name}  (in the table, not in the schema)" for name in extra[:20]]
    problem = f"{len(missing)} of {len(needed)} columns are missing\n" + "\n".join(lines)
    raise InputError(problem, file=file, column=missing[0], remedy=remedy)


def columns_of(table: Table, schema: Schema, extra: Sequence[str] = (), rows: int = BATCH_ROWS) -> Iterator[Columns]:
    """The table in batches; `extra` columns are read in addition to those of the fields."""
    needed = needed_columns(table.columns, schema, table.name)
    empty = Columns.of(table.head(0), schema, table.name)
    for frame in table.batches([*needed, *extra], rows):
        yield replace(empty, frame=frame)


def with_sides(table: Table, schema: Schema, sides: Mapping[str, str]) -> Table:
    """The table with a list of values in place of the side tables of these fields, read from where the user says."""
    for name, location in sides.items():
        table = _with_side(table, schema, name, location)
    return table


def _with_side(table: Table, schema: Schema, name: str, location: str) -> Table:
    side = schema.field(name).side
    if side is None:
        raise InputError("this field is not read from a side table", column=name, remedy=f"leave --side {name} out")
    key, lists = side.key, _side_lists(side, schema, location)
    if key not in table.columns:
        remedy = did_you_mean(key, table.columns)
        raise InputError("the key of the side table is missing", file=table.name, column=key, remedy=remedy)

    def joined(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(_joined(frame[key], lists, schema).alias(name))

    return table.with_columns([name], [key], joined)


def _joined(keys: pl.Series, lists: pl.DataFrame, schema: Schema) -> pl.Series:
    """The list of each record, found by its key."""
    frame = pl.DataFrame({"key": text_of(keys, schema.missing_words)})
    return frame.join(lists, on="key", how="left", maintain_order="left")["values"]


def _read_side(field: Field, side: Side, schema: Schema, file: str) -> pl.DataFrame:
    if not side.opened:
        raise InputError(
            f"this field is read from a side table; a saved model opens none by itself (it names {side.table!r})",
            file=file,
            column=field.name,
            remedy=f"give it with --side {field.name}=TABLE, or a column {field.name!r} with a list per record",
        )
    return _side_lists(side, schema, side.table)


def _side_lists(side: Side, schema: Schema, location: str) -> pl.DataFrame:
    """A long side table as one list of values per key."""
    long = open_table(location).frame([side.key, side.value])
    texts = {"key": text_of(long[side.key], schema.missing_words), "values": text_of(long[side.value], ())}
    return pl.DataFrame(texts).drop_nulls().group_by("key", maintain_order=True).agg("values")


def value_names(field: Field) -> dict[str, str]:
    """The readable names of a field's values, from the schema and its lookup table."""
    if field.lookup is None:
        return field.names
    table = open_table(field.lookup.table).frame([field.lookup.key, field.lookup.name]).cast(pl.String).drop_nulls()
    return {key.strip(): name.strip() for key, name in table.rows()} | field.names
