"""Diabetes 130-US hospitals 1999–2008 (UCI, CC BY 4.0): 101,766 encounters of 71,518 patients, embedded.

Task `mortality`: a patient's encounters in order; did the patient die in the last one?
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import polars as pl

from tefm.tables.grouping import by_entity
from tefm.tables.schema import Schema
from tefm.tables.sequences import Sequences
from tefm.tables.splitting import balance

#: Schemas, references and the embedded table.
DATA = Path(__file__).parent / "data"
SOURCE = (
    "Clore, Cios, DeShazo, Strack: Diabetes 130-US hospitals for years 1999-2008, UCI Machine Learning Repository, "
    "2014 (CC BY 4.0); Strack et al., BioMed Research International 2014, 781670"
)

#: All patients, those to develop on, or those set aside for a last test.
Patients = Literal["all", "open", "set aside"]
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


def diabetes130(
    source: str | Path | None = None, *, patients: Patients = "all", balanced: bool = True, seed: int = 0
) -> Dataset:
    """The embedded data with the mortality task; classes are balanced 1:1 unless `balanced=False`.

    `source` is another table with the columns of UCI's, as text. A fifth of the patients is set aside for a last test
    (`is_set_aside`): `open` leaves them out, `set aside` has only them.

    >>> data = diabetes130()
    >>> data.frame.height, len(data.sequences), len(data.schema.fields)
    (101766, 3278, 42)
    """
    frame = pl.read_parquet(DATA / "diabetes130.parquet" if source is None else source)
    if patients != "all":
        frame = frame.filter(is_set_aside(frame["patient_nbr"]) == (patients == "set aside"))
    frame = frame.with_columns(
        pl.col("encounter_id").cast(pl.Int64),
        pl.when(pl.col("discharge_disposition_id").is_in(DIED))
        .then(pl.lit("died"))
        .otherwise(pl.lit("survived"))
        .alias("outcome"),
    ).sort("encounter_id")
    schema = Schema.load(DATA / "diabetes130.yaml")
    sequences = by_entity(frame, schema)
    if balanced:
        sequences = sequences.select(balance(sequences, seed=seed))
    return Dataset("diabetes130", frame, schema, sequences, SOURCE)


def is_set_aside(patients: pl.Series) -> pl.Series:
    """Which patients belong to the fifth that is set aside: a hash of the number decides, so it never changes.

    >>> is_set_aside(pl.Series(["8222157", "55629189", "86047875", "82442376", "42519267"])).to_list()
    [False, False, True, False, False]
    """
    numbers = patients.unique()
    hashed = [int.from_bytes(blake2b(number.encode(), digest_size=8).digest()) for number in numbers]
    return patients.is_in(numbers.filter(pl.Series(hashed, dtype=pl.UInt64) % 5 == 0).implode())
