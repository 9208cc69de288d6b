"""The words of every slot value as plain data, so that a record can be described from arrays alone.

`describe` writes one record as text; `Phrases` has the same words per field and slot value, so that millions of
descriptions can be composed (and each phrase tokenised once) without the table libraries.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tefm.records.vectorise import Vectoriser


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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, body: dict[str, Any]) -> Phrases:
        fields = (
            FieldPhrases(
                field["title"],
                tuple(field["slots"]),
                tuple(tuple(words) for words in field["values"]),
                field["several"],
            )
            for field in body["fields"]
        )
        return cls(body["record"], tuple(fields))


def phrases_of(vectoriser: Vectoriser) -> Phrases:
    """The words of a fitted vectoriser."""
    from tefm.records.mappers import SetMapper

    fields = []
    start = 0
    for field, mapper in zip(vectoriser.table_schema.fields, vectoriser.mappers, strict=True):
        width = len(mapper.slots)
        if isinstance(mapper, SetMapper):
            first = start + (mapper.count is not None)
            members = tuple((mapper.member_in_words(member),) for member in mapper.values)
            fields.append(FieldPhrases(field.display_name, tuple(range(first, start + width)), members, several=True))
        else:
            words = tuple(mapper.in_words(value) for value in range(1, mapper.slots[0].size + 1))
            fields.append(FieldPhrases(field.display_name, (start,), (words,)))
        start += width
    return Phrases(vectoriser.table_schema.record, tuple(fields))
