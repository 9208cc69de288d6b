"""Writing tables part by part: CSV or Parquet, under a temporary name until the file is complete.

A CSV is opened in a spreadsheet sooner or later, so its texts are written as no formula (docs/security.md); Parquet
holds them as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from tefm.base.files import replacing

#: Text that a spreadsheet would run as a formula, and text that begins with the mark itself; a plain number is neither.
_FORMULA = r"^[=+\-@\t\r\n＝＋－＠']"
_NUMBER = r"^[+-]?\d+([.,]\d+)*([eE][+-]?\d+)?$"


def without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame whose texts a spreadsheet shows as they are: what would be a formula begins with an apostrophe.

    One apostrophe less at the beginning gives every text back, since those that begin with one get another.

    >>> without_formulas(pl.DataFrame({"who": ["=1+1", "-5", "'x", "Ann"]}))["who"].to_list()
    ["'=1+1", '-5', "''x", 'Ann']
    """
    columns = []
    for column in frame.iter_columns():
        if column.dtype == pl.String:
            text = pl.col("text")
            is_formula = text.str.contains(_FORMULA) & ~text.str.contains(_NUMBER)
            marked = pl.when(is_formula).then(pl.lit("'") + text).otherwise(text)
            column = column.alias("text").to_frame().select(marked).to_series().alias(column.name)
        columns.append(column)
    return pl.DataFrame(columns)


def write_frames(frames: Iterable[pl.DataFrame], target: Path) -> int:
    """Write frames of the same columns as one file; returns the number of rows. At least one frame is needed."""
    iterator = iter(frames)
    first = next(iterator)
    written = first.height
    with replacing(target) as temporary:
        if target.suffix == ".csv":
            with temporary.open("wb") as file:
                header = pl.Series(first.columns).to_frame()
                names = without_formulas(header).to_series().to_list()
                without_formulas(first).rename(dict(zip(first.columns, names, strict=True))).write_csv(file)
                for frame in iterator:
                    without_formulas(frame).write_csv(file, include_header=False)
                    written += frame.height
        else:
            rows = first.to_arrow()
            with pq.ParquetWriter(temporary, rows.schema) as writer:
                writer.write_table(rows)
                for frame in iterator:
                    writer.write_table(frame.to_arrow().cast(rows.schema))
                    written += frame.height
    return written
