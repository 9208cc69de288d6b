"""From arrays to words, by template from the schema: the features of an explanation, and the records of a rationale.

Shapes: T or N records of one sequence, D slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.explain.explanation import Finding
from tefm.explain.rationale_card import KeptStatement, Rationale, RationaleRecord, Retention, SlotBar
from tefm.explain.slot_features import Feature
from tefm.rationale.masked_model import Keep
from tefm.rationale.verify import Verification
from tefm.tables.layout import Slots
from tefm.tables.phrases import statements
from tefm.tables.references import Reference, References
from tefm.tables.vectorise import Vectoriser

#: Characters of a text that a card shows.
SHOWN_TEXT = 160
#: The highest-ranked slots of a record that are shown as bars.
BARS = 12


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
    first = vectoriser.layout.slots[feature.slots[0]]
    field = next(field for field in vectoriser.table_schema.fields if field.name == first.field)
    several = len(feature.slots) > 1
    value = ""
    cited: tuple[Reference, ...] = ()
    if feature.absent:
        words = f"{field.display_name}: {'no' if field.kind == 'flag' else 'none' if several else 'not recorded'}"
    else:
        slots = list(feature.slots)
        words = _about(vectoriser, x_TD[feature.record], slots)[0] + (", no others" if several else "")
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
    at = feature.record, list(feature.slots)
    if (x_TD[at] == decoded_TD[at]).all():
        return None
    lost = _about(vectoriser, decoded_TD[feature.record], list(feature.slots))
    return "; ".join(words.partition(": ")[2] or words for words in lost)


def _about(vectoriser: Vectoriser, x_D: Slots, slots: list[int]) -> list[str]:
    """Some slots of a record in words, field by field."""
    only_D = np.zeros_like(x_D)
    only_D[slots] = x_D[slots]
    return [statement.words for statement in statements(vectoriser, only_D)]


def describe_rationale(
    vectoriser: Vectoriser,
    x_ND: Slots,
    keep_ND: Keep,
    scores_ND: NDArray[np.floating[Any]],
    verification: Verification,
    *,
    sequence: str,
    classes: Sequence[str],
    codes: Sequence[str],
    decoded_ND: Slots,
) -> Rationale:
    """The rationale of one sequence in words, from the results of selection, ranking and verification.

    `codes` are those of the whole records as tokens, `decoded_ND` the slots decoded from them.
    """
    assert x_ND.shape == keep_ND.shape == scores_ND.shape == decoded_ND.shape, "one row per record, one column per slot"
    assert len(codes) == len(x_ND), "one code per record"
    schema = vectoriser.table_schema
    present_ND = x_ND > 0
    keep_ND, weight_ND = keep_ND & present_ND, weights(scores_ND, present_ND)

    def record(i: int) -> RationaleRecord:
        selected = statements(vectoriser, np.where(keep_ND[i], x_ND[i], 0))
        decoded = {of.field: of.words for of in statements(vectoriser, np.where(keep_ND[i], decoded_ND[i], 0))}
        return RationaleRecord(
            number=i + 1,
            label=None,  # a record has no name of its own yet
            codes=codes[i],
            statements=tuple(
                KeptStatement(of.field, of.group, of.words, of.slots, float(weight_ND[i, list(of.slots)].max()))
                for of in selected
            ),
            decoded=tuple(decoded.get(of.field, "") for of in selected),
            bars=_bars(vectoriser, x_ND[i], weight_ND[i], keep_ND[i]),
        )

    return Rationale(
        entity=schema.entity or "sequence",
        sequence=sequence,
        record=schema.record,
        classes=tuple(classes),
        **vars(verification),  # the answers and the verdict
        retention=Retention(int(keep_ND.sum()), int(present_ND.sum()), x_ND.size),
        records=tuple(record(i) for i in range(len(x_ND))),
        label=schema.label,
    )


def weights(scores_ND: NDArray[np.floating[Any]], present_ND: Keep) -> NDArray[np.float64]:
    """Scores as shares of the highest score of the sequence; if some are negative, the lowest score becomes 0."""
    scores_ND = scores_ND.astype(np.float64)
    ranked = scores_ND[present_ND & np.isfinite(scores_ND)]
    low, high = ranked.min(initial=0.0), ranked.max(initial=-np.inf)
    if high <= low:  # no slot ranks above another
        return present_ND.astype(np.float64)
    weight_ND: NDArray[np.float64] = np.where(present_ND, np.clip((scores_ND - low) / (high - low), 0, 1), 0.0)
    return weight_ND


def _bars(vectoriser: Vectoriser, x_D: Slots, weight_D: NDArray[np.float64], keep_D: Keep) -> tuple[SlotBar, ...]:
    """The highest-ranked slots with a value; selected slots win ties."""
    present = np.flatnonzero(x_D)
    order = present[np.lexsort((~keep_D[present], -weight_D[present]))][:BARS]
    return tuple(
        SlotBar(_about(vectoriser, x_D, [slot])[0], float(weight_D[slot]), bool(keep_D[slot]))
        for slot in order.tolist()
    )
