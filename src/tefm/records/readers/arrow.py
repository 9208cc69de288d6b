"""Arrow IPC files and streams, and the conversion of Arrow data to polars frames, which other formats share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import polars as pl
import pyarrow as pa
from polars.exceptions import PolarsError

from tefm.base.errors import InputError
from tefm.records.readers.source import Source, explaining, first_line, refuse_duplicates

ENDINGS = (".arrow", ".feather", ".ipc")

#: Arrow types that polars does not have, alone or inside a list or struct; some make it panic.
_UNSUPPORTED = re.compile(r"(^|: )((dense|sparse)_union|map|run_end_encoded|(large_)?list_view|\w+_interval)\b")


def open_ipc(path: Path) -> Source:
    """An Arrow IPC file (Feather version 2) or stream, read batch by batch."""
    with explaining(path, "Arrow IPC"), pa.OSFile(str(path)) as file:
        schema = _ipc_reader(file).schema
        empty = empty_frame(schema, path)

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        fields = [schema.get_field_index(column) for column in columns]
        with explaining(path, "Arrow IPC"), pa.OSFile(str(path)) as file:
            for batch in _ipc_batches(_ipc_reader(file, included_fields=fields)):
                yield from_arrow(batch, path)

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


def empty_frame(schema: pa.Schema, file: str | Path) -> pl.DataFrame:
    """A frame without rows; refuses duplicate names and types that cannot be read."""
    check_schema(schema, file)
    return from_arrow(schema.empty_table(), file)


def check_schema(schema: pa.Schema, file: str | Path) -> None:
    """Refuse duplicate column names and columns of a type that polars does not have."""
    refuse_duplicates(schema.names, file)
    for field in schema:
        if _UNSUPPORTED.search(str(field.type)):
            raise InputError(
                f"columns of the Arrow type {field.type} cannot be read",
                file=file,
                column=field.name,
                remedy="cast the column to text, a number or a list, or leave it out of the table",
            )


def from_arrow(data: pa.Table | pa.RecordBatch, file: str | Path) -> pl.DataFrame:
    """Arrow data as a polars frame; bytes of a fixed width are identifiers and become hexadecimal text."""
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    for position, field in enumerate(table.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            storage = pa.chunked_array([chunk.storage for chunk in table[position].chunks], field.type.storage_type)
            table = table.set_column(position, field.name, storage)
    identifiers = [field.name for field in table.schema if pa.types.is_fixed_size_binary(field.type)]
    try:
        return cast(pl.DataFrame, pl.from_arrow(table)).with_columns(pl.col(identifiers).bin.encode("hex"))
    except PolarsError as error:
        raise InputError(f"the table cannot be converted: {first_line(error)}", file=file) from error
