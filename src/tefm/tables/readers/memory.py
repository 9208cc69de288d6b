"""Tables in memory: polars, pandas and Arrow."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as selectors
import pyarrow as pa
from polars.exceptions import PolarsError

from tefm.base.errors import InputError, first_line
from tefm.tables.readers.arrow import from_arrow, readable_names
from tefm.tables.readers.source import Table, from_frame, named

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
    def read(columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        with _explaining_lazy(name):
            yield lazy.select(selectors.by_name(*columns)).collect()  # not a pattern, whatever the name

    with _explaining_lazy(name):
        return Table(name, lazy.collect_schema().to_frame(), read)


@contextmanager
def _explaining_lazy(name: str) -> Iterator[None]:
    try:
        yield
    except (PolarsError, OSError) as error:
        raise InputError(f"the lazy frame cannot be computed: {first_line(error)}", file=name) from error


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
