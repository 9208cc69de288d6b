"""A record in words: every statement names its field and its value, nothing else.

The same words teach the codes to a language model and render a rationale, so they come from the schema
by template and from nowhere else.
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
    """One field in words, with the positions of the slots it rests on."""

    field: str
    group: str | None
    words: str
    slots: tuple[int, ...]


def statements(vectoriser: Vectoriser, slots_D: NDArray[Any], fields: Collection[str] | None = None) -> list[Statement]:
    """What the present slots of one record say, field by field; absent slots say nothing."""
    said = []
    start = 0
    for field, mapper in zip(vectoriser.table_schema.fields, vectoriser.mappers, strict=True):
        part = slots_D[start : start + len(mapper.slots)]
        present = np.flatnonzero(part)
        if len(present) and (fields is None or field.name in fields):
            if isinstance(mapper, SetMapper):
                words = f"{field.shown}: {_set_in_words(mapper, part)}"
            elif mapper.kind == "flag":
                words = field.shown
            else:
                words = f"{field.shown}: {mapper.say(int(part[0]))}"
            said.append(Statement(field.name, field.group, words, tuple((start + present).tolist())))
        start += len(mapper.slots)
    return said


def _set_in_words(mapper: SetMapper, part: NDArray[Any]) -> str:
    present, bucket = mapper.present(part)
    members = [mapper.say_member(member) for member in present]
    count = mapper.count.say(bucket) if mapper.count and bucket else None
    if not members:
        return f"{count} in all"  # rare ones, or masked: the record does not say which
    listed = ", ".join(members)
    return f"{listed} ({count} in all)" if count and count != str(len(members)) else listed


def describe(
    vectoriser: Vectoriser,
    slots_D: NDArray[Any],
    *,
    sample: int | None = None,
    rng: np.random.Generator | None = None,
) -> str:
    """One record as sentences, all of its fields or a random sample of them.

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
    said = statements(vectoriser, slots_D, fields)
    noun = vectoriser.table_schema.record
    if not said:
        return f"This {noun}: nothing recorded."
    return f"This {noun}: " + " ".join(f"{statement.words}." for statement in said)
