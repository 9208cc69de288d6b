"""What a table holds: groups of records by the values of a field, missing values, ties in time, differing labels.

And which fields are of the entity, because they have the same value in all of its records: `inspect` looks for them in
a table's first rows, and writes them under `static:`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import listed
from tefm.tables.columns import Columns, value_names
from tefm.tables.grouping import entities_of, labels_of, time_ranks
from tefm.tables.readers.source import unnamed
from tefm.tables.schema import Field, Schema
from tefm.tables.sequences import Sequences, Texts

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


def groups_of(frame: pl.DataFrame, schema: Schema, file: str | None = None) -> list[Groups]:
    """Categories and flags by value, where there are few; numbers by quartile; records without a value by themselves.

    Sets are left out, and so is a field that has the same value in all records.

    >>> frame = pl.DataFrame({"age": [1, 2, 3, 4, 5, 6, 7, None], "sex": [*"fmfmfmfm"]})
    >>> schema = Schema.from_yaml("{fields: {age: {kind: number, unit: years}, sex: category}}")
    >>> for groups in groups_of(frame, schema):
    ...     print(groups.field, groups.names, groups.group_N.tolist())
    age ('up to 2 years', '2 to 4 years', '4 to 5 years', 'over 5 years', 'missing') [0, 0, 1, 1, 2, 3, 3, 4]
    sex ('f', 'm') [0, 1, 0, 1, 0, 1, 0, 1]
    """
    columns = Columns.of(frame, schema, file)
    result = []
    for field in schema.fields:
        if field.kind == "number":
            groups = _by_quartile(field, columns.numbers(field))
        elif field.kind != "set":
            ids_N, words = columns.word_ids(field)
            groups = _by_value(field, np.array(words, dtype=object)[ids_N])
        else:
            continue
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


def missing_shares(frame: pl.DataFrame, schema: Schema, file: str | None = None) -> dict[str, float]:
    """The share of the records that have no value, for each field that lacks some; the largest first.

    >>> frame = pl.DataFrame({"age": [1, None], "drugs": ["a;b", "a"]})
    >>> missing_shares(frame, Schema.from_yaml("{fields: {age: number, drugs: {kind: set, delimiter: ;}}}"))
    {'age': 0.5}
    """
    columns = Columns.of(frame, schema, file)
    missing = {}
    for field in schema.fields:
        if field.kind == "number":
            present = int(np.isfinite(columns.numbers(field)).sum())
        else:
            present = len(np.unique(columns.words(field).rows))
        missing[field.name] = columns.height - present
    ordered = sorted(missing.items(), key=lambda item: -item[1])
    return {schema.field(name).display_name: count / columns.height for name, count in ordered if count}


def tied_records(frame: pl.DataFrame, schema: Schema, sequences: Sequences) -> int | None:
    """How many records have the same time as the one before them in their sequence; None without times to compare."""
    if schema.time is None or (sequences.lengths <= 1).all():
        return None
    ranks_N = time_ranks(frame, schema, sequences.file)[sequences.rows]
    same_N = (np.diff(ranks_N) == 0) & (np.diff(sequences.sequence_N) == 0)
    return int(same_N.sum())


def ambiguities(
    frame: pl.DataFrame, schema: Schema, *, background: str | None = None, file: str | None = None
) -> list[str]:
    """How many entities have records at the same time or with different labels, and what `by_entity` makes of them.

    >>> frame = pl.DataFrame({"who": ["a", "a", "b", "b"], "day": [1, 2, 3, 3], "ill": [0, 1, 0, 0], "x": [5, 6, 7, 8]})
    >>> schema = Schema.from_yaml("{entity: who, time: day, label: ill, fields: {x: number}}")
    >>> print(*ambiguities(frame, schema), sep="\\n")
    1 of 2 entities ('who') have records at the same time ('day'): these stay in the file's order
    1 of 2 entities ('who') have records with different labels ('ill'): the label of the last record is used
    """
    labels = labels_of(frame, schema, file)
    remarks = [] if labels is None or schema.number is not None else _spellings(labels, schema)
    if schema.entity is None:
        return remarks
    records = pl.DataFrame(
        {
            "entity": entities_of(frame, schema.entity, schema, file),
            "time": time_ranks(frame, schema, file),  # without a time column the row number, which has no ties
            "label": pl.Series([None] * frame.height if labels is None else labels.tolist(), dtype=pl.String),
        }
    )
    label = pl.col("label").drop_nulls()
    last = pl.col("label").filter(pl.col("time") == pl.col("time").max()).drop_nulls()
    by_entity = records.group_by("entity").agg(
        tied=pl.col("time").n_unique() < pl.len(), differ=label.n_unique() > 1, undecided=last.n_unique() > 1
    )
    tied, differ, undecided = (int(by_entity[name].sum()) for name in ("tied", "differ", "undecided"))
    of_all = f"of {by_entity.height:,} entities ({schema.entity!r}) have records"
    used = "the label of the last record" if background is None else f"the first label other than {background!r}"
    if tied:
        remarks.append(f"{tied:,} {of_all} at the same time ({schema.time!r}): these stay in the file's order")
    if differ and schema.number is None:
        remarks.append(f"{differ:,} {of_all} with different labels ({schema.label!r}): {used} is used")
    if undecided and background is None and schema.number is None:
        remarks[-1] += f"; for {undecided:,} the last records are at the same time, and the file's order decides"
    return remarks


def _spellings(labels: Texts, schema: Schema) -> list[str]:
    """A remark about classes whose names differ in nothing but case and blanks."""
    names = sorted({*labels} - {None})
    folded = {name: " ".join(name.casefold().split()) for name in names}
    counts = Counter(folded.values())
    alike = [name for name in names if counts[folded[name]] > 1]
    remark = f"labels ({schema.label!r}) that differ only in case or blanks are different classes: {listed(alike)}"
    return [f"{remark}; if they mean the same, write them alike"] if alike else []


# ---- fields of the entity --------------------------------------------------------------------------------------------


#: A field of the entity is constant in at least this share of the entities with several records, and in this share of
#: those that have another value than the most frequent one: a rare event, too, is absent from most of them.
CONSTANT, CONSTANT_UNUSUAL = 0.99, 0.9
#: Entities with several records, at least: what fewer have in common says little.
ENTITIES = 20


@dataclass(frozen=True)
class Static:
    """A field of the entity, and the entities that contradict it."""

    field: str
    entities: int
    exceptions: tuple[str, ...]

    def reason(self, entity: str) -> str:
        """What was seen, in words."""
        if not self.exceptions:
            return f"the same in all records of each {entity}"
        differ = f"{len(self.exceptions):,} of {self.entities:,}, such as {listed(self.exceptions[:3])}"
        return f"the same in all records of each {entity} but {differ}"


def static_fields(frame: pl.DataFrame, schema: Schema, file: str | None = None) -> list[Static]:
    """The fields of the entity, in the order of the schema; none where the records would have no other.

    >>> frame = pl.DataFrame({"who": list(range(20)) * 2, "born": list(range(1900, 1920)) * 2, "x": range(40)})
    >>> schema = Schema.from_yaml("{entity: who, fields: {born: number, x: number}}")
    >>> [found.field for found in static_fields(frame, schema)]
    ['born']
    """
    if schema.entity is None:
        return []
    found = list(_found(frame, schema, entities_of(frame, schema.entity, schema, file)))
    return found if len(found) < len(schema.fields) else []


def _found(frame: pl.DataFrame, schema: Schema, entities: pl.Series) -> Iterator[Static]:
    fields = [f for f in schema.fields if f.side is None and not f.derived and set(f.source) <= set(frame.columns)]
    columns = list(dict.fromkeys(column for field in fields for column in field.source))
    number = {column: str(i) for i, column in enumerate(columns)}
    values = [_plain(unnamed(frame[column])).alias(number[column]) for column in columns]
    usual = {series.name: series.mode().sort()[0] for series in values if len(series)}
    constant = [pl.col(name).n_unique().eq(1).alias(name) for name in usual]
    unusual = [pl.col(name).ne_missing(pl.lit(value)).any().alias(f"{name} unusual") for name, value in usual.items()]
    by_entity = (
        pl.DataFrame([unnamed(entities).alias("entity"), *values])
        .group_by("entity", maintain_order=True)
        .agg(pl.len().alias("records"), *constant, *unusual)
        .filter(pl.col("records") > 1)
    )
    if by_entity.height < ENTITIES:
        return
    for field in fields:
        names = [number[column] for column in field.source]
        is_constant = by_entity.select(pl.all_horizontal(names)).to_series().to_numpy()
        is_unusual = by_entity.select(pl.any_horizontal(f"{name} unusual" for name in names)).to_series().to_numpy()
        usually = is_constant.mean() >= CONSTANT
        if usually and is_unusual.any() and is_constant[is_unusual].mean() >= CONSTANT_UNUSUAL:
            exceptions = by_entity["entity"].filter(pl.Series(~is_constant))
            yield Static(field.name, by_entity.height, tuple(exceptions.to_list()))


def _plain(series: pl.Series) -> pl.Series:
    """A column whose values can be compared: lists, of whatever they are, by their hashes."""
    return series.hash() if series.dtype.is_nested() else series
