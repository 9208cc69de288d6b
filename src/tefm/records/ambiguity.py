"""What the records of an entity leave open: their order where times are equal, and the label where labels differ."""

from __future__ import annotations

import polars as pl

from tefm.records import roles
from tefm.records.schema import Schema


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
    if schema.entity is None:
        return []
    labels = roles.labels(frame, schema, file)
    records = pl.DataFrame(
        {
            "entity": roles.entities(frame, schema.entity, schema, file),
            "time": roles.time_ranks(frame, schema, file),  # without a time column the row number, which has no ties
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
    remarks = []
    if tied:
        remarks.append(f"{tied:,} {of_all} at the same time ({schema.time!r}): these stay in the file's order")
    if differ:
        remarks.append(f"{differ:,} {of_all} with different labels ({schema.label!r}): {used} is used")
    if undecided and background is None:
        remarks[-1] += f"; for {undecided:,} the last records are at the same time, and the file's order decides"
    return remarks
