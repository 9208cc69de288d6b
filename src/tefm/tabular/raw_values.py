"""The fields of records as a user would give them to boosted trees: numbers unbucketed, categories as codes.

It reads tables; all else in this room works on arrays alone.

Shapes: N records, D slots.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.tables.columns import Columns
from tefm.tables.layout import Layout, Slot
from tefm.tables.schema import Field
from tefm.tables.vectorise import Vectoriser


def raw_values(
    frame: pl.DataFrame, vectoriser: Vectoriser, slots_ND: NDArray[Any], train_N: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], Layout]:
    """The values of every record, nan where absent, and what each column is.

    A category is its number among the words of the training records, and absent where these lack it. Flags and sets are
    the slots that they have anyway.
    """
    fields = Columns.of(frame, vectoriser.table_schema)
    columns: list[NDArray[Any]] = []
    slots: list[Slot] = []
    for f, mapper, own in vectoriser.parts:
        static = f.name in vectoriser.table_schema.static
        if f.kind in ("number", "category"):
            values_N = _numbers(fields, f) if f.kind == "number" else _category_codes(fields, f, train_N)
            columns.append(values_N[:, None])
            slots.append(Slot(f.name, f.kind, size=1, static=static))
        else:
            columns.append(slots_ND[:, own])
            slots += [replace(slot, size=1, static=static) for slot in mapper.slots]
    return np.hstack(columns, dtype=np.float32, casting="unsafe"), Layout(tuple(slots))


def _numbers(columns: Columns, f: Field) -> NDArray[np.float64]:
    values_N = columns.numbers(f)
    return np.where(np.isfinite(values_N), values_N, np.nan)


def _category_codes(columns: Columns, f: Field, train_N: NDArray[np.bool_]) -> NDArray[np.float64]:
    ids, vocabulary = columns.word_ids(f)
    words = pl.Series(vocabulary, dtype=pl.String).gather(ids)
    known = words.filter(pl.Series(train_N)).drop_nulls().unique().sort()
    codes: NDArray[np.float64] = words.cast(pl.Enum(known), strict=False).to_physical().cast(pl.Float64).to_numpy()
    return codes
