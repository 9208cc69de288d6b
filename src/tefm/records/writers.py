"""Writing tables part by part: CSV or Parquet, under a temporary name until the file is complete."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from tefm.base.files import replacing


def write_frames(frames: Iterable[pl.DataFrame], target: Path) -> int:
    """Write frames of the same columns as one file; returns the number of rows. At least one frame is needed."""
    iterator = iter(frames)
    first = next(iterator)
    written = first.height
    with replacing(target) as temporary:
        if target.suffix == ".csv":
            with temporary.open("wb") as file:
                first.write_csv(file)
                for frame in iterator:
                    frame.write_csv(file, include_header=False)
                    written += frame.height
        else:
            rows = first.to_arrow()
            with pq.ParquetWriter(temporary, rows.schema) as writer:
                writer.write_table(rows)
                for frame in iterator:
                    writer.write_table(frame.to_arrow().cast(rows.schema))
                    written += frame.height
    return written
