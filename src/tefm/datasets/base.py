"""What every data set gives: a table, its schema, and its sequences."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tefm.records.schema import Schema
from tefm.records.sequences import Sequences


@dataclass(frozen=True)
class Dataset:
    """A table with what its columns mean and how its records form labelled sequences."""

    name: str
    frame: pl.DataFrame
    schema: Schema
    #: the sequences of the task, each with its label; records outside of them still teach the codes
    sequences: Sequences
    #: where the data come from and under which licence
    source: str
