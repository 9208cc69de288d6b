"""The words of every slot value, as plain data: what a record says can be put together from arrays alone.

`describe` says a record as text; a `Phrases` holds the same words per field and slot value, so that millions of
descriptions are composed (and tokenised once) without the table's libraries.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tefm.records.vectorise import Vectoriser


@dataclass(frozen=True)
class FieldPhrases:
    """One field: its name for people, its slots, and what each value of each slot is called."""

    title: str
    #: positions of its slots in the record
    slots: tuple[int, ...]
    #: per slot the words of the values 1, 2, …
    values: tuple[tuple[str, ...], ...]
    #: a list of members, of which any number can be present; the count slot of a set is not said
    several: bool = False


@dataclass(frozen=True)
class Phrases:
    """What the records of a schema can say.

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

    found = []
    start = 0
    for field, mapper in zip(vectoriser.table_schema.fields, vectoriser.mappers, strict=True):
        width = len(mapper.slots)
        if isinstance(mapper, SetMapper):
            first = start + (mapper.count is not None)
            members = tuple((mapper.say_member(member),) for member in mapper.values)
            found.append(FieldPhrases(field.shown, tuple(range(first, start + width)), members, several=True))
        else:
            words = tuple(mapper.say(value) for value in range(1, mapper.slots[0].size + 1))
            found.append(FieldPhrases(field.shown, (start,), (words,)))
        start += width
    return Phrases(vectoriser.table_schema.record, tuple(found))
