"""Records in words: each statement names a field and its value, nothing else.

The same words teach the codes to a language model and appear in rationales, so they come from the schema by template
only. `describe` writes one record as text. `Phrases` holds the words of every slot value as plain data, so that
millions of descriptions can be composed (and each phrase tokenised once) without the table libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tefm.tables.mappers import SetMapper
    from tefm.tables.vectorise import Vectoriser


@dataclass(frozen=True)
class FieldPhrases:
    """One field: its display name, its slots, and the words for each value of each slot."""

    title: str
    #: positions of its slots in the record
    slots: tuple[int, ...]
    #: per slot the words of the values 1, 2, …
    values: tuple[tuple[str, ...], ...]
    #: a set, of which any number of members can be present; its count slot has no words
    several: bool = False


@dataclass(frozen=True)
class Phrases:
    """The words for the records of a schema.

    >>> import polars as pl
    >>> from tefm import Schema, Vectoriser
    >>> schema = Schema.from_yaml("{record: visit, fields: {stay: {kind: number, buckets: 2, unit: days}, icu: flag}}")
    >>> vectoriser = Vectoriser.fit(pl.DataFrame({"stay": [1, 2, 3, 9], "icu": [1, 0, 0, 1]}), schema)
    >>> [(field.title, field.values) for field in phrases_of(vectoriser).fields]
    [('stay', (('≤ 2 days', '≥ 3 days'),)), ('icu', (('yes',),))]
    """

    #: what one record is called
    record: str
    fields: tuple[FieldPhrases, ...]


def phrases_of(vectoriser: Vectoriser) -> Phrases:
    """The words of a fitted vectoriser."""
    fields = []
    for field, mapper, own in vectoriser.parts:
        if mapper.kind == "set":
            first = own.start + (mapper.count is not None)
            members = tuple((mapper.member_in_words(member),) for member in mapper.values)
            fields.append(FieldPhrases(field.display_name, tuple(range(first, own.stop)), members, several=True))
        else:
            words = tuple(mapper.in_words(value) for value in range(1, mapper.slots[0].size + 1))
            fields.append(FieldPhrases(field.display_name, (own.start,), (words,)))
    return Phrases(vectoriser.table_schema.record, tuple(fields))


@dataclass(frozen=True)
class Statement:
    """One field in words, with the positions of its present slots."""

    field: str
    group: str | None
    words: str
    slots: tuple[int, ...]


def statements(vectoriser: Vectoriser, slots_D: NDArray[Any]) -> list[Statement]:
    """The present slots of one record in words, field by field; absent slots are left out."""
    result = []
    for field, mapper, own in vectoriser.parts:
        part = slots_D[own]
        present = np.flatnonzero(part)
        if not len(present):
            continue
        if mapper.kind == "set":
            words = f"{field.display_name}: {_set_in_words(mapper, part)}"
        elif mapper.kind == "flag":
            words = field.display_name
        else:
            words = f"{field.display_name}: {mapper.in_words(int(part[0]))}"
        result.append(Statement(field.name, field.group, words, tuple((own.start + present).tolist())))
    return result


def _set_in_words(mapper: SetMapper, part: NDArray[Any]) -> str:
    present, bucket = mapper.present(part)
    members = [mapper.member_in_words(member) for member in present]
    count = mapper.count.in_words(bucket) if mapper.count and bucket else None
    if not members:
        return f"{count} in all"  # rare or masked members: the slots do not say which
    text = ", ".join(members)
    return f"{text} ({count} in all)" if count and count != str(len(members)) else text


def describe(vectoriser: Vectoriser, slots_D: NDArray[Any]) -> str:
    """One record as sentences.

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
    sentences = [f"{statement.words}." for statement in statements(vectoriser, slots_D)]
    return f"This {vectoriser.table_schema.record}: {' '.join(sentences) or 'nothing recorded.'}"
