"""A record in words: each statement names a field and its value, nothing else.

The same words teach the codes to a language model and appear in rationales, so they come from the schema by template
only.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.records.mappers import SetMapper
from tefm.records.vectorise import Vectoriser


@dataclass(frozen=True)
class Statement:
    """One field in words, with the positions of its present slots."""

    field: str
    group: str | None
    words: str
    slots: tuple[int, ...]


def statements(vectoriser: Vectoriser, slots_D: NDArray[Any], fields: Collection[str] | None = None) -> list[Statement]:
    """The present slots of one record in words, field by field; absent slots are left out."""
    result = []
    start = 0
    for field, mapper in zip(vectoriser.table_schema.fields, vectoriser.mappers, strict=True):
        part = slots_D[start : start + len(mapper.slots)]
        present = np.flatnonzero(part)
        if len(present) and (fields is None or field.name in fields):
            if isinstance(mapper, SetMapper):
                words = f"{field.display_name}: {_set_in_words(mapper, part)}"
            elif mapper.kind == "flag":
                words = field.display_name
            else:
                words = f"{field.display_name}: {mapper.in_words(int(part[0]))}"
            result.append(Statement(field.name, field.group, words, tuple((start + present).tolist())))
        start += len(mapper.slots)
    return result


def _set_in_words(mapper: SetMapper, part: NDArray[Any]) -> str:
    present, bucket = mapper.present(part)
    members = [mapper.member_in_words(member) for member in present]
    count = mapper.count.in_words(bucket) if mapper.count and bucket else None
    if not members:
        return f"{count} in all"  # rare or masked members: the slots do not say which
    text = ", ".join(members)
    return f"{text} ({count} in all)" if count and count != str(len(members)) else text


def describe(
    vectoriser: Vectoriser,
    slots_D: NDArray[Any],
    *,
    sample: int | None = None,
    rng: np.random.Generator | None = None,
) -> str:
    """One record as sentences: all of its fields, or a random sample of them.

    >>> import polars as pl
    >>> from tefm import Field, Schema, Vectoriser
    >>> table = pl.DataFrame({"stay": [1, 2, 3, 9], "dx": ["428", "428;250", None, "250"], "icu": [1, 0, 0, 1]})
    >>> schema = Schema(record="admission", fields=(
    ...     Field(name="stay", kind="number", title="Length of stay", unit="days", buckets=2),
    ...     Field(name="icu", kind="flag", title="ICU stay"),
    ...     Field(name="dx", kind="set", delimiter=";", group="Diagnoses", title="Diagnoses",
    ...           names={"428": "heart failure", "250": "diabetes"}),
    ... ))
    >>> vectoriser = Vectoriser.fit(table, schema)
    >>> describe(vectoriser, vectoriser.transform(table)[0])
    'This admission: Length of stay: ≤ 2 days. ICU stay. Diagnoses: heart failure (428).'
    """
    fields: Collection[str] | None = None
    if sample is not None:
        present = [statement.field for statement in statements(vectoriser, slots_D)]
        rng = rng or np.random.default_rng()
        fields = set(rng.choice(present, size=min(sample, len(present)), replace=False)) if present else set()
    sentences = [f"{statement.words}." for statement in statements(vectoriser, slots_D, fields)]
    return f"This {vectoriser.table_schema.record}: {' '.join(sentences) or 'nothing recorded.'}"
