"""Arrow IPC files and streams, and the conversion of Arrow data to polars frames, which other formats share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import polars as pl
import pyarrow as pa
from polars.exceptions import PanicException, PolarsError

from tefm.base.errors import InputError
from tefm.records.readers.source import Source, explaining, first_line, named, refuse_duplicates, unnamed

ENDINGS = (".arrow", ".feather", ".ipc")

#: Arrow types that polars does not have, alone or inside a list or struct; some make it panic.
_UNSUPPORTED = re.compile(r"(^|: )((dense|sparse)_union|map|run_end_encoded|(large_)?list_view|\w+_interval)\b")


def open_ipc(path: Path) -> Source:
    """An Arrow IPC file (Feather version 2) or stream, read batch by batch."""
    with explaining(path, "Arrow IPC"), pa.OSFile(str(path)) as file:
        schema = _ipc_reader(file).schema
        names = named(schema.names, path)
        empty = empty_frame(schema, path, names)
    places = {name: place for place, name in enumerate(names)}

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        fields = sorted(places[column] for column in columns)
        with explaining(path, "Arrow IPC"), pa.OSFile(str(path)) as file:
            for batch in _ipc_batches(_ipc_reader(file, included_fields=fields)):
                yield from_arrow(batch, path, [names[field] for field in fields])

    return Source(str(path), empty, read)


def _ipc_reader(file: pa.NativeFile, **options: Any) -> Any:
    is_file = file.read(6) == b"ARROW1"
    file.seek(0)
    open_ = pa.ipc.open_file if is_file else pa.ipc.open_stream
    return open_(file, options=pa.ipc.IpcReadOptions(**options))


def _ipc_batches(reader: Any) -> Iterable[pa.RecordBatch]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        return (reader.get_batch(i) for i in range(reader.num_record_batches))
    return cast(Iterable[pa.RecordBatch], reader)


def empty_frame(schema: pa.Schema, file: str | Path, names: Sequence[str] | None = None) -> pl.DataFrame:
    """A frame without rows; refuses duplicate names and types that cannot be read."""
    check_schema(schema, file, names)
    return from_arrow(schema.empty_table(), file, names)


def check_schema(schema: pa.Schema, file: str | Path, names: Sequence[str] | None = None) -> None:
    """Refuse duplicate column names and columns of a type that polars does not have."""
    refuse_duplicates(schema.names if names is None else names, file)
    for field in schema:
        if _UNSUPPORTED.search(str(field.type)):
            raise InputError(
                f"columns of the Arrow type {field.type} cannot be read",
                file=file,
                column=field.name,
                remedy="cast the column to text, a number or a list, or leave it out of the table",
            )


def from_arrow(data: pa.Table | pa.RecordBatch, file: str | Path, names: Sequence[str] | None = None) -> pl.DataFrame:
    """Arrow data as a polars frame, under other names where they are given.

    Bytes of a fixed width are identifiers and become hexadecimal text, decimals of 256 bits become text.
    """
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    if names is not None:
        table = table.rename_columns(list(names))
    try:
        # polars trusts offsets and lengths: those of a damaged file would end the whole process
        table.validate(full=True)
    except pa.ArrowException as error:
        raise InputError(
            f"the file is damaged: {first_line(error)}", file=file, remedy="copy it again, or write it again"
        ) from error
    for position, field in enumerate(table.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            storage = pa.chunked_array([chunk.storage for chunk in table[position].chunks], field.type.storage_type)
            table = table.set_column(position, field.name, storage)
        plain = _plain_type(table.schema.field(position).type)
        if plain != table.schema.field(position).type:
            table = table.set_column(position, field.name, table[position].cast(plain))
    try:
        frame = cast(pl.DataFrame, pl.from_arrow(table))
        for field in table.schema:
            if pa.types.is_fixed_size_binary(field.type):
                frame = frame.with_columns(unnamed(frame[field.name]).bin.encode("hex").alias(field.name))
    except (PolarsError, PanicException) as error:
        raise InputError(
            f"the table cannot be converted: {first_line(error)}",
            file=file,
            remedy="write it again with columns of text, numbers, times or lists of them",
        ) from error
    return frame


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """The type with decimals of 256 bits, which polars does not have, as text."""
    if pa.types.is_decimal256(type_):
        return pa.string()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        inner = _plain_type(type_.value_type)
        return type_ if inner == type_.value_type else pa.large_list(inner)
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in type_])
    return type_
