"""What a table holds: groups of records by the values of a field, missing values, ties in time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.records import roles
from tefm.records.columns import columns_of, value_names
from tefm.records.readers.table import Table
from tefm.records.schema import Field, Schema
from tefm.records.sequences import Sequences

#: A field with more values than this does not divide records into groups.
FEW_VALUES = 8
#: What the group of records without a value is called.
MISSING = "missing"


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups that a field divides records into: their names, and the number of each record's group."""

    field: str
    names: tuple[str, ...]
    group_N: NDArray[np.int64]


def groups_of(table: Table, schema: Schema) -> list[Groups]:
    """Categories and flags by value, where there are few; numbers by quartile; records without a value by themselves.

    Sets are left out, and so is a field that has the same value in all records.

    >>> from tefm.records.readers.table import open_table
    >>> table = open_table(pl.DataFrame({"age": [1, 2, 3, 4, 5, 6, 7, None], "sex": [*"fmfmfmfm"]}))
    >>> schema = Schema.from_yaml("{fields: {age: {kind: number, unit: years}, sex: category}}")
    >>> for groups in groups_of(table, schema):
    ...     print(groups.field, groups.names, groups.group_N.tolist())
    age ('up to 2 years', '2 to 4 years', '4 to 5 years', 'over 5 years', 'missing') [0, 0, 1, 1, 2, 3, 3, 4]
    sex ('f', 'm') [0, 1, 0, 1, 0, 1, 0, 1]
    """
    fields = [field for field in schema.fields if field.kind != "set"]
    batches: dict[str, list[NDArray[Any]]] = {field.name: [] for field in fields}
    for columns in columns_of(table, schema):
        for field in fields:
            if field.kind == "number":
                batches[field.name].append(columns.numbers(field))
            else:
                ids_N, words = columns.word_ids(field)
                batches[field.name].append(np.array(words, dtype=object)[ids_N])
    result = []
    for field in fields:
        if batches[field.name]:
            values_N = np.concatenate(batches[field.name])
            groups = _by_quartile(field, values_N) if field.kind == "number" else _by_value(field, values_N)
            if groups is not None and len(groups.names) > 1:
                result.append(groups)
    return result


def _by_quartile(field: Field, values_N: NDArray[np.float64]) -> Groups | None:
    present_N = np.isfinite(values_N)
    if not present_N.any():
        return None
    # values that occur, so that no group is empty
    edges = np.unique(np.quantile(values_N[present_N], (0.25, 0.5, 0.75), method="lower"))
    edges = edges[edges < values_N[present_N].max()]  # nothing is over the largest value
    words = [f"{edge:.4g}" for edge in edges.tolist()]
    unit = f" {field.unit}" if field.unit else ""
    between = [f"{low} to {high}{unit}" for low, high in pairwise(words)]
    names = [f"up to {words[0]}{unit}", *between, f"over {words[-1]}{unit}"] if words else ["recorded"]
    return _groups(field, names, np.searchsorted(edges, values_N), present_N)


def _by_value(field: Field, values_N: NDArray[Any]) -> Groups | None:
    present_N = np.array([value is not None for value in values_N], dtype=bool)
    values, numbers = np.unique(values_N[present_N].astype(str), return_inverse=True)
    if not 0 < len(values) <= FEW_VALUES:
        return None
    group_N = np.zeros(len(values_N), dtype=np.int64)
    group_N[present_N] = numbers
    titles = value_names(field)
    return _groups(field, [titles.get(value, value) for value in values.tolist()], group_N, present_N)


def _groups(field: Field, names: list[str], group_N: NDArray[Any], present_N: NDArray[np.bool_]) -> Groups:
    names = names if present_N.all() else [*names, MISSING]
    return Groups(field.display_name, tuple(names), np.where(present_N, group_N, len(names) - 1).astype(np.int64))


def missing_shares(table: Table, schema: Schema) -> dict[str, float]:
    """The share of the records that have no value, for each field that lacks some; the largest first.

    >>> from tefm.records.readers.table import open_table
    >>> table = open_table(pl.DataFrame({"age": [1, None], "drugs": ["a;b", "a"]}))
    >>> missing_shares(table, Schema.from_yaml("{fields: {age: number, drugs: {kind: set, delimiter: ;}}}"))
    {'age': 0.5}
    """
    missing, records = dict.fromkeys((field.name for field in schema.fields), 0), 0
    for columns in columns_of(table, schema):
        records += columns.height
        for field in schema.fields:
            if field.kind == "number":
                present = int(np.isfinite(columns.numbers(field)).sum())
            elif field.kind == "set":
                present = len(np.unique(columns.words(field).rows))
            else:
                ids_N, words = columns.word_ids(field)
                present = int(np.array([word is not None for word in words])[ids_N].sum())
            missing[field.name] += columns.height - present
    names = {field.name: field.display_name for field in schema.fields}
    ordered = sorted(missing.items(), key=lambda item: -item[1])
    return {names[name]: count / records for name, count in ordered if count}


def tied_records(frame: pl.DataFrame, schema: Schema, sequences: Sequences) -> int | None:
    """How many records have the same time as the one before them in their sequence; None without times to compare."""
    if schema.time is None or (sequences.lengths <= 1).all():
        return None
    ranks_N = roles.time_ranks(frame, schema, sequences.file)[sequences.rows]
    same_N = (np.diff(ranks_N) == 0) & (np.diff(sequences.sequence_N) == 0)
    return int(same_N.sum())
