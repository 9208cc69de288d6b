"""Diabetes130 with and without the fifth of its patients that is set aside for a last test."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import polars as pl

from tefm.datasets.diabetes130 import Dataset, diabetes130, read_table

#: All patients, those to develop on, or those set aside.
Patients = Literal["all", "open", "set aside"]


def diabetes130_of(patients: Patients, source: str | Path | None = None, **how: Any) -> Dataset:
    """The embedded data of these patients; the other settings are those of `diabetes130`."""
    frame = read_table(source)
    if patients != "all":
        frame = frame.filter(is_set_aside(frame["patient_nbr"]) == (patients == "set aside"))
    return diabetes130(frame, **how)


def is_set_aside(patients: pl.Series) -> pl.Series:
    """Which patients belong to the fifth that is set aside: a hash of the number decides, so it never changes.

    >>> is_set_aside(pl.Series(["8222157", "55629189", "86047875", "82442376", "42519267"])).to_list()
    [False, False, True, False, False]
    """
    numbers = patients.unique()
    hashed = [int.from_bytes(blake2b(number.encode(), digest_size=8).digest()) for number in numbers]
    return patients.is_in(numbers.filter(pl.Series(hashed, dtype=pl.UInt64) % 5 == 0).implode())
