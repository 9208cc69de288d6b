"""Codes of tables larger than memory: Parquet in, Parquet out, batch by batch.

A folder of Parquet files becomes a folder of Parquet files of the same names, everything else one file.
Every file is written under a temporary name and renamed when it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import polars as pl

from tefm.base.errors import InputError
from tefm.base.files import check_writable
from tefm.base.progress import Advance, progress
from tefm.codes.coder import Codes, SlotCoder
from tefm.codes.tokenizer import RecordTokenizer, kept_roles
from tefm.tables.chunks import write_parquet
from tefm.tables.columns import with_sides
from tefm.tables.readers.databases import is_postgresql
from tefm.tables.readers.meds import is_meds
from tefm.tables.readers.source import local_path
from tefm.tables.readers.table import Table, open_table, parquet_files, table_files


def code_columns(coder: SlotCoder) -> list[str]:
    """The names of the code columns: code_a, code_b, …, and those of the entity: profile_a, …"""
    own = [f"code_{letter}" for letter in ascii_lowercase[: coder.config.levels]]
    return own + [f"profile_{letter}" for letter in ascii_lowercase[: coder.profile_levels]]


def encode_to_parquet(
    tokenizer: RecordTokenizer,
    source: str | Path,
    out: str | Path,
    *,
    query: str | None = None,
    absent: bool = False,
    sides: Mapping[str, str] | None = None,
) -> int:
    """Write the codes of a table, with its entity, time and label columns; returns the number of records.

    With `absent`, fields whose columns are missing are absent. `sides` are side tables, by field.
    """
    sides = sides or {}
    out = Path(out)
    check_writable(out)
    if is_postgresql(source) or not Path(source).is_dir() or is_meds(Path(source)):
        opened = open_table(source, query=query, meds=tokenizer.schema.meds)
        return _encode_file(tokenizer, opened, out, absent, sides)
    open_table(source)  # checks that the files belong together
    return sum(
        _encode_file(tokenizer, open_table(path), target, absent, sides)
        for path, target in check_targets(source, out).items()
    )


def check_targets(source: str | Path, out: Path) -> dict[Path, Path]:
    """The file that the codes of each file go to: of a folder, one of the same name; of anything else, `out`."""
    source = local_path(source)
    if not source.is_dir():
        return {path.absolute(): out for path in table_files(source)}
    if out.is_file():
        raise InputError("the codes of a folder need a folder, not a file", file=out, remedy="give a new folder")
    if out.resolve() == source.resolve():
        raise InputError("the codes cannot replace the table", file=out, remedy="give another folder")
    return {path.absolute(): out / path.relative_to(source) for path in parquet_files(source)}


def read_codes(source: str | Path, coder: SlotCoder) -> Codes:
    """The codes in a file or folder that `encode_to_parquet` wrote."""
    table = open_table(source)
    return table.frame(code_columns(coder)).to_numpy().astype(np.int64).astype(np.uint16)


def _encode_file(tokenizer: RecordTokenizer, table: Table, out: Path, absent: bool, sides: Mapping[str, str]) -> int:
    if out.is_dir():
        remedy = f"try {out / 'codes.parquet'}"
        raise InputError("the codes of a file need a file, not a folder", file=out, remedy=remedy)
    table = tokenizer.vectoriser.readable(with_sides(table, tokenizer.schema, sides), absent=absent)
    with progress(f"encoding {table.name}", None) as advance:
        return write_codes(encoded(tokenizer, table), no_codes(tokenizer, table), out, advance)


def encoded(tokenizer: RecordTokenizer, table: Table) -> Iterator[pl.DataFrame]:
    """The rows that are written for a table, batch by batch."""
    names = code_columns(tokenizer.coder)
    for codes_NK, frame in tokenizer.batches(table, kept_roles(tokenizer.schema, table)):
        codes = pl.DataFrame({name: codes_NK[:, k] for k, name in enumerate(names)})
        yield pl.concat([frame, codes], how="horizontal")


def no_codes(tokenizer: RecordTokenizer, table: Table) -> pl.DataFrame:
    """What is written for a table without rows."""
    names = code_columns(tokenizer.coder)
    roles = dict.fromkeys(kept_roles(tokenizer.schema, table), pl.String)
    return pl.DataFrame(schema=roles | dict.fromkeys(names, pl.UInt16))


def write_codes(frames: Iterable[pl.DataFrame], empty: pl.DataFrame, out: Path, advance: Advance) -> int:
    """Write frames of codes as one file; returns the number of records."""

    def counted() -> Iterator[pl.DataFrame]:
        for frame in frames:
            yield frame
            advance(frame.height)

    codes = counted()
    return write_parquet(chain([next(codes, empty)], codes), out)
