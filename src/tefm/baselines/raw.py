"""The fields of records as a user would give them to boosted trees: numbers unbucketed, categories as codes.

Shapes: N records, F columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.records.columns import Columns, columns_of
from tefm.records.layout import Layout, Slot
from tefm.records.readers.table import open_table
from tefm.records.schema import Field
from tefm.records.vectorise import Vectoriser


def raw_values(
    source: Any, vectoriser: Vectoriser, slots_ND: NDArray[Any], train_N: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], Layout]:
    """The values of every record, nan where absent, and what each column is.

    A category is its number among the words of the training records, and absent where these lack it. Flags and sets are
    the slots that they have anyway.
    """
    batches = list(columns_of(open_table(source), vectoriser.table_schema))
    columns: list[NDArray[Any]] = []
    slots: list[Slot] = []
    start = 0
    for f, mapper in zip(vectoriser.table_schema.fields, vectoriser.mappers, strict=True):
        end = start + len(mapper.slots)
        if f.kind in ("number", "category"):
            values_N = _numbers(batches, f) if f.kind == "number" else _category_codes(batches, f, train_N)
            columns.append(values_N[:, None])
            slots.append(Slot(f.name, f.kind, size=1))
        else:
            columns.append(slots_ND[:, start:end])
            slots += [Slot(slot.field, slot.kind, 1, slot.member) for slot in mapper.slots]
        start = end
    return np.hstack(columns, dtype=np.float32, casting="unsafe"), Layout(tuple(slots))


def _numbers(batches: list[Columns], f: Field) -> NDArray[np.float64]:
    values_N = np.concatenate([columns.numbers(f) for columns in batches])
    return np.where(np.isfinite(values_N), values_N, np.nan)


def _category_codes(batches: list[Columns], f: Field, train_N: NDArray[np.bool_]) -> NDArray[np.float64]:
    words = pl.concat(
        pl.Series(vocabulary, dtype=pl.String).gather(ids)
        for ids, vocabulary in (columns.word_ids(f) for columns in batches)
    )
    known = words.filter(pl.Series(train_N)).drop_nulls().unique().sort()
    codes: NDArray[np.float64] = words.cast(pl.Enum(known), strict=False).to_physical().cast(pl.Float64).to_numpy()
    return codes
