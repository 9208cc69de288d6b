"""Codes of tables larger than memory: Parquet in, Parquet out, batch by batch.

A folder of Parquet files becomes a folder of Parquet files of the same names, everything else one file.
Every file is written under a temporary name and renamed when it is complete.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tefm.base.errors import InputError
from tefm.base.files import replacing
from tefm.base.progress import progress
from tefm.codes.coder import Codes
from tefm.codes.tokenizer import RecordTokenizer
from tefm.records.readers.postgresql import is_postgresql
from tefm.records.readers.table import Table, open_table, parquet_files


def code_columns(levels: int) -> list[str]:
    """The names of the code columns: code_a, code_b, …"""
    return [f"code_{'abcdefghijklmnop'[level]}" for level in range(levels)]


def encode_to_parquet(
    tokenizer: RecordTokenizer, source: str | Path, out: str | Path, *, query: str | None = None, absent: bool = False
) -> int:
    """Write the codes of a table, with its entity, time and label columns; returns the number of records.

    With `absent`, fields whose columns are missing are absent.
    """
    out = Path(out)
    if is_postgresql(source) or not Path(source).is_dir():
        return _encode_file(tokenizer, open_table(source, query=query), out, absent)
    source = Path(source)
    if out.is_file():
        raise InputError("the codes of a folder need a folder, not a file", file=out, remedy="give a new folder")
    if out.resolve() == source.resolve():
        raise InputError("the codes cannot replace the table", file=out, remedy="give another folder")
    open_table(source)  # checks that the files belong together
    return sum(
        _encode_file(tokenizer, open_table(path), out / path.relative_to(source), absent)
        for path in parquet_files(source)
    )


def read_codes(source: str | Path, levels: int) -> Codes:
    """The codes in a file or folder that `encode_to_parquet` wrote."""
    table = open_table(source)
    return table.frame(code_columns(levels)).to_numpy().astype(np.int64).astype(np.uint16)


def _encode_file(tokenizer: RecordTokenizer, table: Table, out: Path, absent: bool) -> int:
    if out.is_dir():
        remedy = f"try {out / 'codes.parquet'}"
        raise InputError("the codes of a file need a file, not a folder", file=out, remedy=remedy)
    table = tokenizer.vectoriser.readable(table, absent=absent)
    schema, names = tokenizer.schema, code_columns(tokenizer.config.levels)
    roles = [name for name in (schema.entity, schema.time, schema.label) if name is not None and name in table.columns]
    written = 0
    writer: pq.ParquetWriter | None = None
    with replacing(out) as temporary, progress(f"encoding {table.name}", None) as advance:
        try:
            for codes_NK, frame in tokenizer.batches(table, roles):
                codes = pl.DataFrame({name: codes_NK[:, k] for k, name in enumerate(names)})
                frame = pl.concat([frame, codes], how="horizontal")
                rows: pa.Table = frame.to_arrow()
                writer = writer or pq.ParquetWriter(temporary, rows.schema)
                writer.write_table(rows.cast(writer.schema))
                written += frame.height
                advance(frame.height)
            if writer is None:
                empty = pl.DataFrame(schema=dict.fromkeys(roles, pl.String) | dict.fromkeys(names, pl.UInt16))
                writer = pq.ParquetWriter(temporary, empty.to_arrow().schema)
        finally:
            if writer is not None:
                writer.close()
    return written
