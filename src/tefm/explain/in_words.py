"""From arrays to words, by template from the schema: the features of explanations and of rationales.

Shapes: T or N records of one sequence, D slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tefm.explain.cards import Finding
from tefm.explain.conditions import Condition
from tefm.explain.rationale_card import Rationale, Retention
from tefm.rationale.masked_model import Keep
from tefm.rationale.verify import Verification
from tefm.tables.layout import Slots
from tefm.tables.phrases import statements
from tefm.tables.references import References
from tefm.tables.vectorise import Vectoriser

#: Characters of a text that a card shows.
SHOWN_TEXT = 160
#: Values that a condition excludes are named in place of those that it allows, up to this many.
NAMED = 4
#: Of more values than this, some are named and the others counted.
LISTED = 6


def finding_of(
    vectoriser: Vectoriser,
    condition: Condition,
    x_TD: Slots,
    *,
    references: References | None = None,
    decoded_TD: Slots | None = None,
) -> Finding:
    """A condition in the words of the schema, with what references say about its value.

    `decoded_TD` is what the codes give back.
    """
    length, (first, *_) = len(x_TD), condition.slots
    slot = vectoriser.layout.slots[first]
    never = condition.values == (0,) and condition.span is None and not condition.anywhere and slot.kind == "flag"
    words, value = _in_words(vectoriser, condition if not never else replace(condition, values=(1,)))
    cited = references.about(slot.field, value) if references is not None and value and not never else ()
    return Finding(
        length - condition.back,
        slot.field,
        value,
        words,
        condition.values == (0,),
        tuple(cited),
        slot.member is not None,
        None if decoded_TD is None else _decoded(vectoriser, condition, decoded_TD),
        "" if slot.static else "never" if never else _when(vectoriser, condition),
    )


def _when(vectoriser: Vectoriser, condition: Condition) -> str | None:
    """Which records a condition is about, where that is not a single one."""
    record, which = vectoriser.table_schema.record, "any" if condition.anywhere else "all"
    if condition.after is not None:
        slot, value = condition.after
        title, _, words = _in_words(vectoriser, Condition((slot,), (value,)))[0].partition(": ")
        return f"after the last {words or title}"
    if condition.span == 1:
        return None
    if condition.trend:
        return f"over the last {condition.span} {record}s"
    if condition.span is None:
        return "at some time" if condition.anywhere else f"in all {record}s"
    return f"in {which} of the last {condition.span} {record}s"


def _in_words(vectoriser: Vectoriser, condition: Condition) -> tuple[str, str]:
    """What a condition asks of a record; and its value as the table has it, where it is a single one."""
    first, values = condition.slots[0], condition.values
    slot = vectoriser.layout.slots[first]
    field, mapper = next((field, mapper) for field, mapper, _ in vectoriser.parts if field.name == slot.field)
    title, absent = field.display_name, values == (0,)
    if condition.trend:
        return f"{title}: {'rose' if condition.trend > 0 else 'fell'}", ""
    if mapper.kind == "set":
        if len(condition.slots) > 1:
            return f"{title}: none", ""
        if slot.member is not None:
            member = mapper.member_in_words(slot.member)
            return f"{title}: {'no ' if absent else ''}{member}", "" if absent else slot.member
        assert mapper.count is not None, "its first slot is the count"
        return f"{title}: {'none' if absent else mapper.count.in_words(values[0], values[-1]) + ' in all'}", ""
    if mapper.kind == "flag":
        return (f"{title}: no" if absent else title), ""
    if absent:
        return f"{title}: not recorded", ""
    if mapper.kind == "number":
        words = mapper.in_words(values[0], values[-1])
        return f"{title}: {words}", words
    others = sorted({*range(slot.size + 1)} - {*values})
    named = [mapper.in_words(value) if value else "not recorded" for value in values]
    if len(others) < min(len(values), NAMED):
        if 0 in others:  # the last value stands for all that are rare or new
            known = "any known value" if slot.size in others else "any value"
            but = [mapper.in_words(value) for value in others if 0 < value < slot.size]
            return f"{title}: {known}{f' but {_either(but)}' if but else ''}", ""
        return f"{title}: not {_either([mapper.in_words(value) for value in others])}", ""
    listed = named if len(named) <= LISTED else [*named[: LISTED - 1], f"{len(named) - LISTED + 1} others"]
    return f"{title}: {_either(listed)}", named[0] if len(named) == 1 else ""


def _either(words: Sequence[str]) -> str:
    """Alternatives in words.

    >>> _either(["a"]), _either(["a", "b", "c"])
    ('a', 'a, b or c')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def text_finding(column: str, condition: Condition, length: int) -> Finding:
    """The text of a record as a condition: its column, and how it begins."""
    title = column.replace("_", " ")
    shown = " ".join((condition.text or "").split())
    absent = not shown
    shown = shown if len(shown) <= SHOWN_TEXT else f"{shown[:SHOWN_TEXT].rsplit(' ', 1)[0]} …"
    words = f"{title}: not recorded" if absent else f"{title}: “{shown}”"
    return Finding(length - condition.back, column, "", words, absent)


def _decoded(vectoriser: Vectoriser, condition: Condition, decoded_TD: Slots) -> str | None:
    """What the codes give back where a record is to meet a condition; None if that meets it too."""
    if condition.span != 1 or condition.after is not None:
        return None
    record_D, slots = decoded_TD[len(decoded_TD) - 1 - condition.back], list(condition.slots)
    if np.isin(record_D[slots], condition.values).all():
        return None
    only_D = np.zeros_like(record_D)
    only_D[slots] = record_D[slots]
    return "; ".join(of.words.partition(": ")[2] or of.words for of in statements(vectoriser, only_D))


def describe_rationale(
    vectoriser: Vectoriser,
    x_ND: Slots,
    keep_ND: Keep,
    verification: Verification,
    *,
    entity: str,
    sequence: str,
    classes: Sequence[str],
    decoded_ND: Slots | None,
) -> Rationale:
    """The rationale of one sequence in words; `decoded_ND` is what the codes of the whole records give back."""
    present_ND = x_ND > 0
    kept = np.argwhere(keep_ND & present_ND).tolist()
    features = (Condition((slot,), (int(x_ND[row, slot]),), len(x_ND) - 1 - row) for row, slot in kept)
    return Rationale(
        entity=entity,
        sequence=sequence,
        record=vectoriser.table_schema.record,
        records=len(x_ND),
        classes=tuple(classes),
        label=vectoriser.table_schema.label,
        **vars(verification),  # the answers and the verdict
        retention=Retention(len(kept), int(present_ND.sum()), x_ND.size),
        findings=tuple(finding_of(vectoriser, feature, x_ND, decoded_TD=decoded_ND) for feature in features),
    )
