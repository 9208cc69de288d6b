"""Diabetes 130-US hospitals 1999–2008 (UCI, CC BY 4.0): 101,766 encounters of 71,518 patients, embedded.

Task `mortality`: a patient's encounters in order; did the patient die in the last one?
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tefm.tables.grouping import by_entity
from tefm.tables.schema import Schema
from tefm.tables.sequences import Sequences, balance

#: The embedded table and its schema.
DATA = Path(__file__).parent / "data"
SOURCE = (
    "Clore, Cios, DeShazo, Strack: Diabetes 130-US hospitals for years 1999-2008, UCI Machine Learning Repository, "
    "2014 (CC BY 4.0); Strack et al., BioMed Research International 2014, 781670"
)

#: Discharge dispositions of patients who died.
DIED = ("11", "19", "20", "21")


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


def read_table(source: str | Path | None = None) -> pl.DataFrame:
    """The embedded table, or another one with the columns of UCI's, as text."""
    return pl.read_parquet(DATA / "diabetes130.parquet" if source is None else source)


def diabetes130(table: pl.DataFrame | None = None, *, balanced: bool = True, seed: int = 0) -> Dataset:
    """The embedded data with the mortality task; classes are balanced 1:1 unless `balanced=False`.

    `table` is another table with the columns of UCI's, as text.

    >>> data = diabetes130()
    >>> data.frame.height, len(data.sequences), len(data.schema.fields)
    (101766, 3278, 42)
    """
    frame = (
        (read_table() if table is None else table)
        .with_columns(
            pl.col("encounter_id").cast(pl.Int64),
            pl.when(pl.col("discharge_disposition_id").is_in(DIED))
            .then(pl.lit("died"))
            .otherwise(pl.lit("survived"))
            .alias("outcome"),
        )
        .sort("encounter_id")
    )
    schema = Schema.load(DATA / "diabetes130.yaml")
    sequences = by_entity(frame, schema)
    if balanced:
        sequences = sequences.select(balance(sequences, seed=seed))
    return Dataset("diabetes130", frame, schema, sequences, SOURCE)
