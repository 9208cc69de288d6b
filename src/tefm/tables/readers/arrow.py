"""Arrow IPC and Parquet files, read in pieces, so that a file may be larger than memory; and tables in memory.

The conversion of Arrow data to polars frames is shared with other formats.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import polars.selectors as selectors
import pyarrow as pa
import pyarrow.parquet as pq
from polars.exceptions import PanicException, PolarsError

from tefm.base.errors import InputError, failing_as, listed
from tefm.tables.readers.source import Table, explaining, from_frame, joined, named, unnamed

PARQUET_ENDINGS = (".parquet", ".pq")

#: Fixed offsets from UTC that polars has a time zone for.
_WHOLE_HOURS = re.compile(r"[+-](0\d|1[0-2]):00")
#: Arrow types that polars does not have, alone or inside a list or struct; some make it panic.
_UNSUPPORTED = re.compile(r"(^|: )((dense|sparse)_union|map|run_end_encoded|(large_)?list_view|\w+_interval)\b")


def open_ipc(path: Path) -> Table:
    """An Arrow IPC file (Feather version 2) or stream, read batch by batch."""
    with explaining(path, "Arrow IPC"), pa.OSFile(str(path)) as file:
        schema = _ipc_reader(file).schema
        names = readable_names(schema, path)
        empty = from_arrow(schema.empty_table(), path, names)
    places = {name: place for place, name in enumerate(names)}

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        fields = sorted(places[column] for column in columns)
        with explaining(path, "Arrow IPC"), pa.OSFile(str(path)) as file:
            for batch in _ipc_batches(_ipc_reader(file, included_fields=fields)):
                yield from_arrow(batch, path, [names[field] for field in fields])

    return Table(str(path), empty, read)


def _ipc_reader(file: pa.NativeFile, **options: Any) -> Any:
    is_file = file.read(6) == b"ARROW1"
    file.seek(0)
    open_ = pa.ipc.open_file if is_file else pa.ipc.open_stream
    return open_(file, options=pa.ipc.IpcReadOptions(**options))


def _ipc_batches(reader: Any) -> Iterable[pa.RecordBatch]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        return (reader.get_batch(i) for i in range(reader.num_record_batches))
    return cast(Iterable[pa.RecordBatch], reader)


def readable_names(schema: pa.Schema, file: str | Path) -> list[str]:
    """The clean names of the columns; refuses duplicates and columns of a type that polars does not have."""
    for field in schema:
        if _UNSUPPORTED.search(str(field.type)):
            problem = f"columns of the Arrow type {field.type} cannot be read"
            remedy = "cast the column to text, a number or a list, or leave it out of the table"
            raise InputError(problem, file=file, column=field.name, remedy=remedy)
    return named(schema.names, file)


def from_arrow(data: pa.Table | pa.RecordBatch, file: str | Path, names: Sequence[str] | None = None) -> pl.DataFrame:
    """Arrow data as a polars frame, under other names where they are given.

    Bytes of a fixed width are identifiers and become hexadecimal text, decimals of 256 bits become text.
    """
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    if names is not None:
        table = table.rename_columns(list(names))
    remedy = "copy it again, or write it again"
    with failing_as(pa.ArrowException, "the file is damaged: {reason}", file=file, remedy=remedy):
        # polars trusts offsets and lengths: those of a damaged file would end the whole process
        table.validate(full=True)
    for position, field in enumerate(table.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            storage = pa.chunked_array([chunk.storage for chunk in table[position].chunks], field.type.storage_type)
            table = table.set_column(position, field.name, storage)
        plain = _plain_type(table.schema.field(position).type)
        if plain != table.schema.field(position).type:
            table = table.set_column(position, field.name, table[position].cast(plain))
    remedy = "write it again with columns of text, numbers, times or lists of them"
    with failing_as((PolarsError, PanicException), "the table cannot be converted: {reason}", file=file, remedy=remedy):
        frame = cast(pl.DataFrame, pl.from_arrow(table))
        for field in table.schema:
            if pa.types.is_fixed_size_binary(field.type):
                frame = frame.with_columns(unnamed(frame[field.name]).bin.encode("hex").alias(field.name))
    return frame


def _is_known(zone: str) -> bool:
    """Whether polars has a time zone: one of the database, or an offset of whole hours, but not `+05:30`."""
    try:
        return bool(_WHOLE_HOURS.fullmatch(zone)) or ZoneInfo(zone) is not None
    except (KeyError, ValueError, OSError):
        return False


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """The type without what polars does not have: decimals of 256 bits are text, times of odd zones are in UTC."""
    if pa.types.is_decimal256(type_):
        return pa.string()
    if pa.types.is_timestamp(type_) and type_.tz is not None and not _is_known(type_.tz):
        return pa.timestamp(type_.unit, "UTC")  # the same instants
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        inner = _plain_type(type_.value_type)
        return type_ if inner == type_.value_type else pa.large_list(inner)
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in type_])
    return type_


def open_parquet(path: Path, start: int = 0, stop: int | None = None) -> Table:
    """A Parquet file, or its rows `start` to `stop`: only the requested columns, part of a row group at a time."""
    with explaining(path, "Parquet"):
        schema = pq.read_schema(path)
        names = readable_names(schema, path)
        empty = from_arrow(schema.empty_table(), path, names)
    originals = dict(zip(names, schema.names, strict=True))

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        # these two together keep a row group of any size out of memory; either alone does not
        buffering = {"pre_buffer": False, "buffer_size": 1 << 20}
        with explaining(path, "Parquet"), pq.ParquetFile(path, **buffering) as file:
            wanted = [originals[column] for column in columns]
            sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            end = sum(sizes) if stop is None else stop
            begins = [0, *accumulate(sizes)]
            groups = [group for group, size in enumerate(sizes) if begins[group] < end and begins[group] + size > start]
            at = begins[groups[0]] if groups else 0
            for batch in file.iter_batches(batch_size=rows, row_groups=groups, columns=wanted):
                first, last = max(start - at, 0), min(end - at, batch.num_rows)
                at += batch.num_rows
                if first < last:
                    # asking for "a" also returns the column "a.b", which looks like a part of it
                    yield from_arrow(batch.select(wanted).slice(first, last - first), path, columns)

    return Table(str(path), empty, read)


def parquet_files(folder: Path) -> list[Path]:
    """All Parquet files below a folder, by name; hidden and unfinished ones (`.x`, `_x`) are left out."""
    paths = sorted(path for path in folder.rglob("*") if path.name.lower().endswith(PARQUET_ENDINGS))
    paths = [path for path in paths if path.is_file()]
    paths = [path for path in paths if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)]
    if paths:
        return paths
    contents = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    raise InputError(
        f"the path is a folder without Parquet files; it contains {listed(contents) or 'nothing'}",
        file=folder,
        remedy="give the path of one file in it" if contents else "give the path of a file",
    )


def rows_in(file: Path) -> int:
    """How many rows a Parquet file has; only its end is read."""
    with explaining(file, "Parquet"):
        return int(pq.read_metadata(file).num_rows)


def open_rows(files: Sequence[tuple[str, int]], start: int, stop: int, like: pl.DataFrame | None = None) -> Table:
    """The rows `start` to `stop` of several Parquet files, given with their numbers of rows, as one table.

    It has the columns and types of `like`, a frame without rows, or else those of the first of these files.
    """
    tables, before = [], 0
    for file, rows in files:
        first, last = max(start - before, 0), min(stop - before, rows)
        if first < last:
            tables.append(open_parquet(Path(file), first, last))
        before += rows
    return joined(tables, tables[0].head(0) if like is None else like, tables[0].name)


# ---- tables in memory ------------------------------------------------------------------------------------------------


#: What error messages call such a table.
MEMORY = "table in memory"


def open_memory(data: Any, name: str = MEMORY) -> Table:
    """A polars frame (lazy or not), a pandas frame, or an Arrow table or batch."""
    if isinstance(data, pl.DataFrame):
        for column, dtype in data.schema.items():
            if dtype == pl.Object:
                raise InputError(
                    "a column of Python objects cannot be read", file=name, column=column, remedy="cast it to text"
                )
        return from_frame(data, name)
    if isinstance(data, pl.LazyFrame):
        return _open_lazy(data, name)
    if isinstance(data, pa.Table | pa.RecordBatch):
        return from_frame(from_arrow(data, name, readable_names(data.schema, name)), name)
    # pandas is an optional dependency: whoever passes such a frame has imported it
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return from_frame(_from_pandas(data, name), name)
    raise InputError(
        f"a {type(data).__name__} is not a table",
        remedy="give a path, a folder or glob of Parquet files, or a polars, pandas or Arrow table",
    )


def _open_lazy(lazy: pl.LazyFrame, name: str) -> Table:
    failing = partial(failing_as, (PolarsError, OSError), "the lazy frame cannot be computed: {reason}", file=name)

    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        with failing():
            yield lazy.select(selectors.by_name(*columns)).collect()  # not a pattern, whatever the name

    with failing():
        return Table(name, lazy.collect_schema().to_frame(), read)


def _from_pandas(frame: Any, name: str) -> pl.DataFrame:
    """The columns of a pandas frame, without its index."""
    names = named([str(column) for column in frame.columns], name)
    columns = [_arrow_column(frame.iloc[:, position]) for position in range(len(names))]
    return from_arrow(pa.table(columns, names=names), name)


def _arrow_column(series: Any) -> pa.Array | pa.ChunkedArray:
    """A pandas column for Arrow; values that Arrow has no type for (mixed types, periods) become text."""
    try:
        column = pa.array(series, from_pandas=True)
        if not isinstance(column.type, pa.BaseExtensionType):
            return column
    except (pa.ArrowException, OverflowError, TypeError):
        pass
    present = series.notna()
    texts = [str(value) if is_present else None for value, is_present in zip(series, present, strict=True)]
    return pa.array(texts, pa.string())


# ---- plain Python and NumPy -------------------------------------------------------------------------------------


def as_table(data: Any) -> Any:
    """A frame of one record as a dict, of a list of dicts, or of a two-dimensional array; anything else as it is."""
    if isinstance(data, Mapping) and not any(isinstance(value, (list, tuple, np.ndarray)) for value in data.values()):
        return pl.DataFrame([dict(data)])
    if isinstance(data, list) and data and all(isinstance(record, Mapping) for record in data):
        return pl.DataFrame([dict(record) for record in data], infer_schema_length=None)
    scipy_sparse = sys.modules.get("scipy.sparse")  # whoever passes such an array has imported it
    if scipy_sparse is not None and scipy_sparse.issparse(data):
        raise InputError("sparse input is not supported", remedy="give a dense array or a frame: X.toarray()")
    is_array = isinstance(data, list) or (hasattr(data, "__array__") and not hasattr(data, "columns"))
    if not is_array:
        return data
    array = np.asarray(data)
    if array.ndim != 2:
        raise InputError(
            f"a table has two dimensions, this array has {array.ndim}",
            value=array.shape,
            remedy="Reshape your data: X.reshape(1, -1) for one record, X.reshape(-1, 1) for one field",
        )
    if np.iscomplexobj(array):
        raise InputError("Complex data not supported", remedy="give real and imaginary parts as two columns")
    return pl.DataFrame({f"x{column}": array[:, column].tolist() for column in range(array.shape[1])}, strict=False)
