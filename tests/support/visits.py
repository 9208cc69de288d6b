"""A table of visits for the tests of sequences: who came when, and whether they were ill."""

from __future__ import annotations

import polars as pl
from hypothesis import strategies as st

from tefm.tables.grouping import by_entity
from tefm.tables.schema import Field, Schema

X = (Field(name="x", kind="number"),)
PATIENTS = Schema(fields=X, entity="who", time="when", label="ill")
FLOWS = Schema(fields=X, time="when", label="ill")


def table(who, when=None, ill=None):
    n = len(who)
    columns = {"x": list(range(n)), "who": who, "when": when if when is not None else list(range(n))}
    columns["ill"] = ill if ill is not None else ["no"] * n
    return pl.DataFrame(columns, strict=False)


def labelled(labels):
    """One sequence per label."""
    return by_entity(table(list(range(len(labels))), ill=labels), PATIENTS)


#: Rows of who, when and ill.
records = st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3), st.sampled_from(["no", "yes", None])), max_size=40)
