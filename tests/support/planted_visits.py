"""Visits whose label is decided by known fields: what the tests of planted truth are made on."""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl

from tefm.tables.schema import Schema

Cause = Literal["one field", "a pair", "a rare pair", "exclusive or", "a copy", "nothing"]

_FIELDS = """
  age: number
  sex: category
  dose: number
  site: category
  drugs: {kind: set, delimiter: ;}
"""
_HEAD = """
record: visit
entity: patient
label: died
fields:
  stage: category"""
VISITS = Schema.from_yaml(f"{_HEAD}\n  ward: category{_FIELDS}")
#: The same with `grade`, which may be a copy of `stage`.
GRADED = Schema.from_yaml(f"{_HEAD}\n  grade: category\n  ward: category{_FIELDS}")


def visits(cause: Cause, count: int, seed: int, *, graded: bool = False) -> pl.DataFrame:
    """One visit per patient; fields are uniform and independent, except that `grade` may be a copy of `stage`."""
    rng = np.random.default_rng(seed)
    stage, ward = rng.choice(["I", "II", "III", "IV"], count), rng.choice(["heart", "lung", "skin"], count)
    late, heart = np.isin(stage, ["III", "IV"]), ward == "heart"
    died = {
        "one field": late,
        "a pair": late & heart,
        "a rare pair": (stage == "IV") & heart,  # one of the two alone leaves a death unlikely
        "exclusive or": late ^ heart,
        "a copy": late,
        "nothing": rng.random(count) < 0.5,
    }[cause]
    copy = np.char.add("grade ", stage)
    grade = {"grade": copy if cause == "a copy" else rng.permutation(copy)} if graded else {}
    return pl.DataFrame(
        {
            "patient": [f"p{number}" for number in range(count)],
            "stage": stage,
            **grade,
            "ward": ward,
            "age": rng.integers(20, 90, count),
            "sex": rng.choice(["f", "m"], count),
            "dose": rng.random(count).round(3),
            "site": rng.choice(list("ABCDE"), count),
            "drugs": [
                ";".join(rng.choice(list("abcdef"), size, replace=False)) or None for size in rng.integers(0, 4, count)
            ],
            "died": np.where(died, "yes", "no"),
        }
    )
