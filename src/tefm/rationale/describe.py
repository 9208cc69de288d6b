"""From arrays to words: the features of an explanation, and the records of a rationale.

Shapes: N records of one sequence, D slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tefm.rationale.explanation import Finding
from tefm.rationale.parts import Bar, KeptStatement, RationaleRecord

if TYPE_CHECKING:  # a stored rationale is shown without the libraries that read tables
    from tefm.rationale.arrays import Keep
    from tefm.rationale.features import Feature
    from tefm.records.layout import Slots
    from tefm.records.references import Reference, References
    from tefm.records.vectorise import Vectoriser

#: Characters of a text that a card shows.
SHOWN_TEXT = 160


def finding_of(
    vectoriser: Vectoriser,
    x_TD: Slots,
    feature: Feature,
    *,
    references: References | None = None,
    decoded_TD: Slots | None = None,
) -> Finding:
    """A feature in the words of the schema, with what references say about its value or its values.

    `decoded_TD` is what the codes give back.
    """
    from tefm.records.describe import statements

    first = vectoriser.layout.slots[feature.slots[0]]
    field = next(field for field in vectoriser.table_schema.fields if field.name == first.field)
    several = len(feature.slots) > 1
    value = ""
    cited: tuple[Reference, ...] = ()
    if feature.absent:
        words = f"{field.display_name}: {'no' if field.kind == 'flag' else 'none' if several else 'not recorded'}"
    else:
        slots = list(feature.slots)
        only_D = np.zeros_like(x_TD[feature.record])
        only_D[slots] = x_TD[feature.record, slots]
        words = statements(vectoriser, only_D)[0].words + (", no others" if several else "")
        if not several:
            value = first.member or words.partition(": ")[2]
        if references is not None:
            slots_of = [vectoriser.layout.slots[slot] for slot in slots if x_TD[feature.record, slot]]
            values = [value] if not several else [slot.member for slot in slots_of if slot.member is not None]
            cited = tuple(of for each in values for of in references.about(first.field, each))
    return Finding(
        feature.record + 1,
        first.field,
        value,
        words,
        feature.absent,
        cited,
        feature.size,
        first.member is not None,
        None if decoded_TD is None else _decoded(vectoriser, x_TD, feature, decoded_TD),
    )


def text_finding(column: str, text: str, feature: Feature) -> Finding:
    """The text of a record as a feature: its column, and how it begins."""
    title = column.replace("_", " ")
    shown = " ".join(text.split())
    shown = shown if len(shown) <= SHOWN_TEXT else f"{shown[:SHOWN_TEXT].rsplit(' ', 1)[0]} …"
    words = f"{title}: not recorded" if feature.absent else f"{title}: “{shown}”"
    return Finding(feature.record + 1, column, "", words, feature.absent)


def _decoded(vectoriser: Vectoriser, x_TD: Slots, feature: Feature, decoded_TD: Slots) -> str | None:
    """What the codes give back of a feature, in words; None if that is the feature itself."""
    from tefm.records.describe import statements

    at = feature.record, list(feature.slots)
    if (x_TD[at] == decoded_TD[at]).all():
        return None
    only_D = np.zeros_like(x_TD[feature.record])
    only_D[list(feature.slots)] = decoded_TD[at]
    return "; ".join(
        statement.words.partition(": ")[2] or statement.words for statement in statements(vectoriser, only_D)
    )


def describe_records(
    vectoriser: Vectoriser,
    x_ND: Slots,
    keep_ND: Keep,
    scores_ND: NDArray[np.floating[Any]],
    *,
    codes: Sequence[str],
    decoded_ND: Slots,
    labels: Sequence[str | None] | None,
    bars: int,
) -> tuple[RationaleRecord, ...]:
    """The records in words; the arguments are those of `describe_rationale`."""
    from tefm.records.describe import statements

    weight_ND = weights(scores_ND, x_ND > 0)

    def record(i: int) -> RationaleRecord:
        selected = statements(vectoriser, np.where(keep_ND[i], x_ND[i], 0))
        decoded = {
            statement.field: statement.words
            for statement in statements(vectoriser, np.where(keep_ND[i], decoded_ND[i], 0))
        }
        return RationaleRecord(
            number=i + 1,
            label=labels[i] if labels is not None else None,
            codes=codes[i],
            statements=tuple(
                KeptStatement(s.field, s.group, s.words, s.slots, float(weight_ND[i, list(s.slots)].max()))
                for s in selected
            ),
            decoded=tuple(decoded.get(statement.field, "") for statement in selected),
            bars=_bars(vectoriser, x_ND[i], weight_ND[i], keep_ND[i], bars),
        )

    return tuple(record(i) for i in range(len(x_ND)))


def weights(scores_ND: NDArray[np.floating[Any]], present_ND: Keep) -> NDArray[np.float64]:
    """Scores as shares of the highest score of the sequence; if some are negative, the lowest score becomes 0."""
    scores_ND = scores_ND.astype(np.float64)
    ranked = scores_ND[present_ND & np.isfinite(scores_ND)]
    low, high = ranked.min(initial=0.0), ranked.max(initial=-np.inf)
    if high <= low:  # no slot ranks above another
        return present_ND.astype(np.float64)
    weight_ND: NDArray[np.float64] = np.where(present_ND, np.clip((scores_ND - low) / (high - low), 0, 1), 0.0)
    return weight_ND


def _bars(
    vectoriser: Vectoriser,
    x_D: Slots,
    weight_D: NDArray[np.float64],
    keep_D: Keep,
    most: int,
) -> tuple[Bar, ...]:
    """The highest-ranked slots with a value; selected slots win ties."""
    from tefm.records.describe import statements

    present = np.flatnonzero(x_D)
    order = present[np.lexsort((~keep_D[present], -weight_D[present]))][:most]

    def words(slot: int) -> str:
        only_D = np.zeros_like(x_D)
        only_D[slot] = x_D[slot]
        return statements(vectoriser, only_D)[0].words

    return tuple(Bar(words(slot), float(weight_D[slot]), bool(keep_D[slot])) for slot in order.tolist())
