"""The leakage check: fields that reveal the label because they were recorded after the outcome.

A warning, not a verdict, about fields that alone predict the label almost perfectly, those that are present almost only
with one outcome (a time of death), and columns that copy the label.

Shapes: N records, D slots, V values of a slot, L classes, H halves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.scoring.metrics import auroc
from tefm.tables.grouping import labels_of
from tefm.tables.layout import Layout, Slots
from tefm.tables.schema import Schema

#: Classes with fewer records (or fewer outside the class) are not checked: ten in each half rank perfectly by chance
#: once in C(20, 10) = 184,756 times, and both halves must.
MIN_RECORDS = 20

#: Field names that suggest something recorded after the outcome, and the AUC from which they are reported.
LATER_WORDS = re.compile(
    r"(?<![a-z])(disch|death|dead|died|deceas|expired?(?![a-z])|outcome|readmi|mortal|surviv|dod(?![a-z]))"
)
HINT_AUC = 0.75
#: Any field is reported from this AUC on, and one that is present in this share of one class and absent in the others'.
SUSPICIOUS_AUC, SUSPICIOUS_PRESENCE = 0.98, 0.9

_REMEDY = "if it is known only after the outcome, move it to `ignore` in the schema; otherwise keep it"
_LABEL = "the label, as text"  # a column name that no table has

#: Weight of the overall class rate, in records, when the rate of one value is estimated.
PRIOR = 5.0


@dataclass(frozen=True)
class Leak:
    """A field that may reveal the label."""

    field: str
    reason: str
    #: AUC of the field alone, on records that its rates were not estimated from
    score: float
    remedy: str

    def __str__(self) -> str:
        return f"field {self.field!r} {self.reason}\n  → {self.remedy}"


def check_leakage(slots_ND: Slots, layout: Layout, labels: NDArray[Any] | Sequence[object]) -> list[Leak]:
    """The fields that may reveal the label, highest AUC first; records whose label is None are skipped.

    Each class is compared with all others. A set is scored by its best member or its count.

    >>> from tefm.tables.layout import Slot
    >>> labels = np.array(["died", "lived"] * 50)
    >>> slots_ND = np.stack([np.arange(100) % 7, labels == "died"], axis=1).astype(np.uint8)
    >>> layout = Layout((Slot("age", "number", 6), Slot("death_time", "number", 1)))
    >>> print(*check_leakage(slots_ND, layout, labels))
    field 'death_time' is present in 100% of the records labelled 'died' and 0% of the others
      → if it is known only after the outcome, move it to `ignore` in the schema; otherwise keep it
    """
    assert len(slots_ND) == len(labels), "one label per record"
    labelled = np.array([label is not None and label == label for label in labels], dtype=bool)  # not None, not NaN
    names, label_N = np.unique(np.asarray(labels, dtype=object)[labelled].astype(str), return_inverse=True)
    counts_L = np.bincount(label_N, minlength=len(names))
    checked = np.flatnonzero(np.minimum(counts_L, len(label_N) - counts_L) >= MIN_RECORDS)
    if not len(checked):
        return []
    ranked = checked[-1:] if len(names) == 2 else checked  # with two classes, ranking one is ranking the other
    slots_DN = np.ascontiguousarray(slots_ND[labelled].T)  # contiguous per slot
    cell_N = 2 * label_N + _halves(label_N)
    positions: dict[str, list[int]] = {}
    for position, slot in enumerate(layout.slots):
        positions.setdefault(slot.field, []).append(position)

    leaks = []
    for field, own in positions.items():
        tables = {layout.slots[p]: _table(slots_DN[p], layout.slots[p].size, cell_N, len(names)) for p in own}
        aucs = {(slot, label): _auc_of_class(tables[slot], label) for slot in tables for label in ranked}
        slot, best = max(aucs, key=aucs.__getitem__)
        score = aucs[slot, best]
        present_L = np.bincount(label_N[slots_DN[own].any(axis=0)], minlength=len(names))
        most, inside, outside = _presence(present_L, counts_L, checked)
        if inside >= SUSPICIOUS_PRESENCE and outside <= 1 - SUSPICIOUS_PRESENCE:
            score = (1 + inside - outside) / 2  # the AUC of being present
            reason = (
                f"is present in {inside:.0%} of the records labelled '{names[most]}' and {outside:.0%} of the others"
            )
        elif score >= SUSPICIOUS_AUC:
            member = f", through {slot.name!r}," if len(own) > 1 else ""
            reason = f"alone{member} separates the label '{names[best]}' from the others with AUC {score:.3f}"
        elif score >= HINT_AUC and LATER_WORDS.search(field.lower()):
            reason = f"has a name that suggests it is only known after the outcome, and alone reaches AUC {score:.3f}"
        else:
            continue
        leaks.append(Leak(field, reason, score, _REMEDY))
    return sorted(leaks, key=lambda leak: -leak.score)


def label_copies(frame: pl.DataFrame, schema: Schema) -> list[Leak]:
    """The input columns that are a copy of the label, or the label with its values renamed.

    >>> frame = pl.DataFrame({"died": [0, 1] * 30, "state": ["alive", None] * 30, "age": range(60)})
    >>> schema = Schema.from_yaml("{label: died, fields: {state: category, age: number}}")
    >>> [leak.field for leak in label_copies(frame, schema)]
    ['state']
    """
    labels = labels_of(frame, schema)
    if labels is None:
        return []
    frame = frame.with_columns(pl.Series(_LABEL, labels.tolist(), dtype=pl.String)).drop_nulls(_LABEL)
    counts = Counter(frame[_LABEL])
    classes = len(counts)
    if frame.height - max(counts.values(), default=0) < MIN_RECORDS:
        return []
    inputs = [frame[name] for name in (*schema.columns, *schema.text) if name in frame.columns]
    # lists and Python objects are never a copy of a label
    plain = [column for column in inputs if not column.dtype.is_nested() and column.dtype != pl.Object]
    names = [column.name for column in plain if column.n_unique() == classes]
    reason = f"has one value for each value of the label {schema.label!r}"
    return [Leak(name, reason, 1.0, _REMEDY) for name in names if frame[[name, _LABEL]].unique().height == classes]


def _halves(label_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 or 1 for each record, at random, with half of each class in each."""
    shuffled = np.random.default_rng(0).permutation(len(label_N))
    by_class = shuffled[np.argsort(label_N[shuffled], kind="stable")]
    half_N = np.empty(len(label_N), dtype=np.int64)
    half_N[by_class] = np.arange(len(label_N)) % 2
    return half_N


def _table(values_N: Slots, size: int, cell_N: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """How many records have each value, class and half: one pass over the records, then only counts are used."""
    counts = np.bincount(values_N.astype(np.int64) * (2 * classes) + cell_N, minlength=(size + 1) * 2 * classes)
    return counts.reshape(size + 1, classes, 2)


def _auc_of_class(table_VLH: NDArray[np.int64], label: int) -> float:
    """How well a slot's values rank one class above the others: rates from one half, scored on the other."""
    inside_VH = table_VLH[:, label]
    all_VH = table_VLH.sum(axis=1)
    overall_H = inside_VH.sum(axis=0) / all_VH.sum(axis=0)
    rate_VH = (inside_VH + PRIOR * overall_H) / (all_VH + PRIOR)
    is_inside = np.repeat([True, False], len(table_VLH))
    counts_H = np.concatenate([inside_VH, all_VH - inside_VH]).T
    return sum(auroc(np.tile(rate_VH[:, half], 2), is_inside, counts_H[1 - half]) for half in (0, 1)) / 2


def _presence(
    present_L: NDArray[np.int64], counts_L: NDArray[np.int64], checked: NDArray[np.int64]
) -> tuple[int, float, float]:
    """The class in which a field is present most compared with the others, and its share in and outside the class."""
    inside_L = present_L / counts_L
    outside_L = (present_L.sum() - present_L) / (counts_L.sum() - counts_L)
    label = checked[np.argmax((inside_L - outside_L)[checked])]
    return int(label), float(inside_L[label]), float(outside_L[label])
