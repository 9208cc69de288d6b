"""`Dataset`: a table, its schema and its labelled sequences."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tefm.tables.schema import Schema
from tefm.tables.sequences import Sequences

#: Schemas, references and the embedded table.
DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Dataset:
    """A table, the meaning of its columns, and its records grouped into labelled sequences."""

    name: str
    frame: pl.DataFrame
    schema: Schema
    #: the sequences of the task, each with its label; the codes are also learned from records outside of them
    sequences: Sequences
    #: where the data comes from and under which licence
    source: str
