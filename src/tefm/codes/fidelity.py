"""How much of the records the codes preserve: reconstruction, codebook use, collisions.

Slot accuracy alone flatters: on sparse records, guessing the most common value everywhere already scores high.
So `measure` compares every metric with that of this all-mode baseline, and scores the flags of sets by recall and
precision.

Shapes: N records, D slots, K levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.tables.layout import Layout, Slots
from tefm.tables.sequences import distinct_rows

#: Rows × slots per block: its temporary floats take about 32 MB, however large the table.
_BLOCK = 1 << 22

#: A field counts as lost when the codes recover less than this share of what guessing the mode misses …
LOST_BELOW = 0.10
#: … unless guessing the mode is right this often: a nearly constant field has nothing to lose.
NEARLY_CONSTANT = 0.97


@dataclass(frozen=True)
class FieldFidelity:
    """How well one field is reconstructed.

    `kept` is the share of what the mode misses that the codes get right, (accuracy − mode) / (1 − mode);
    negative when guessing the mode is better, None when the mode is always right. For a set it is the recall.
    """

    name: str
    kind: str
    slots: int
    accuracy: float
    mode_accuracy: float
    close_accuracy: float
    kept: float | None

    @property
    def lost(self) -> bool:
        """Whether the codes have next to no information about this field."""
        # The flags of a set are mostly off, so there the mode is nearly always right without being constant.
        varies = self.kind == "set" or self.mode_accuracy < NEARLY_CONSTANT
        return varies and self.kept is not None and self.kept < LOST_BELOW


@dataclass(frozen=True)
class Fidelity:
    """How well records are reconstructed from their codes; `mode_…` is the same metric of the all-mode baseline.

    `close_accuracy` forgives one bucket where both values of a number are present (the paper's ±1).
    `nmse` is the mean of ((x̂ − x) / size)², where a wrong category or flag counts as 1.
    `field_accuracy` leaves out the flags of sets; those are scored by `recall`, `precision` and `f1`
    (each None where it is undefined, for example without any set).
    """

    records: int
    slots: int
    slot_accuracy: float
    mode_slot_accuracy: float
    close_accuracy: float
    mode_close_accuracy: float
    nmse: float
    mode_nmse: float
    field_accuracy: float | None
    mode_field_accuracy: float | None
    recall: float | None
    precision: float | None
    f1: float | None
    fields: tuple[FieldFidelity, ...]

    @property
    def lost(self) -> tuple[str, ...]:
        """The names of the fields about which the codes have next to no information."""
        return tuple(field.name for field in self.fields if field.lost)

    def to_dict(self) -> dict[str, Any]:
        fields = [asdict(field) | {"lost": field.lost} for field in self.fields]
        return asdict(self) | {"fields": fields, "lost": list(self.lost)}


@dataclass(frozen=True)
class LevelUse:
    """How evenly one level's codebook entries are used; perplexity is the exponential of the entropy."""

    level: int
    entries: int
    used: int
    dead: int
    utilisation: float
    perplexity: float
    top_share: float


@dataclass(frozen=True)
class Collisions:
    """Records that share their code with another record.

    The colliding records are split by what shares their code: only `identical` records (no code could
    distinguish them), `different` records of the same label, or `conflicting` ones: different records,
    of which one has another label. Without labels `conflicting` is None and `different` counts both.
    """

    records: int
    distinct_records: int
    distinct_codes: int
    #: the paper's collision rate, 1 − distinct codes / records
    collision_rate: float
    #: the share of records that have their code in common with at least one other
    sharing_rate: float
    colliding: int
    identical: int
    different: int
    conflicting: int | None


def mode_of(x_ND: Slots, layout: Layout) -> Slots:
    """The most common value of each slot (the smallest of several): the all-mode baseline.

    >>> from tefm.tables.layout import Slot
    >>> mode_of(np.array([[1, 0], [2, 0], [2, 1]], np.uint8), Layout((Slot("a", "number", 2), Slot("b", "flag", 1))))
    array([2, 0], dtype=uint8)
    """
    _check(x_ND, layout)
    return np.array([np.bincount(x_N).argmax() for x_N in x_ND.T], dtype=layout.dtype)


def measure(x_ND: Slots, back_ND: Slots, layout: Layout, mode_D: Slots) -> Fidelity:
    """Compare records with their reconstruction; `mode_D` is `mode_of` the training rows."""
    _check(x_ND, layout)
    if back_ND.shape != x_ND.shape or mode_D.shape != x_ND.shape[1:]:
        raise InputError(f"records {x_ND.shape}, reconstruction {back_ND.shape} and mode {mode_D.shape} do not match")

    codes = _tally(x_ND, back_ND, layout)
    mode = _tally(x_ND, np.broadcast_to(mode_D, x_ND.shape), layout)
    ordinary_D = ~layout.member_D
    present, hits, predicted = float(codes.present.sum()), float(codes.hits.sum()), float(codes.predicted.sum())
    return Fidelity(
        records=len(x_ND),
        slots=layout.width,
        slot_accuracy=float(codes.exact.mean()),
        mode_slot_accuracy=float(mode.exact.mean()),
        close_accuracy=float(codes.close.mean()),
        mode_close_accuracy=float(mode.close.mean()),
        nmse=float(codes.error.mean()),
        mode_nmse=float(mode.error.mean()),
        field_accuracy=float(codes.exact[ordinary_D].mean()) if ordinary_D.any() else None,
        mode_field_accuracy=float(mode.exact[ordinary_D].mean()) if ordinary_D.any() else None,
        recall=_ratio(hits, present),
        precision=_ratio(hits, predicted),
        f1=_ratio(2 * hits, present + predicted),
        fields=tuple(_field_fidelities(layout, codes, mode)),
    )


def codebook_use(codes_NK: NDArray[np.integer[Any]], entries: int) -> list[LevelUse]:
    """How many of the `entries` of each level are used, and how evenly.

    >>> [use.utilisation for use in codebook_use(np.array([[0, 1], [1, 1]]), entries=2)]
    [1.0, 0.5]
    """
    if not len(codes_NK):
        raise InputError("there are no codes to measure")
    if codes_NK.min() < 0 or codes_NK.max() >= entries:
        raise InputError(f"codes range from {codes_NK.min()} to {codes_NK.max()}, but a level has {entries} entries")
    levels = []
    for level, codes_N in enumerate(codes_NK.T, start=1):
        counts_C = np.bincount(codes_N)
        shares = counts_C[counts_C > 0] / len(codes_N)
        used, perplexity = len(shares), float(np.exp(-(shares * np.log(shares)).sum()))
        levels.append(LevelUse(level, entries, used, entries - used, used / entries, perplexity, float(shares.max())))
    return levels


def collisions(x_ND: Slots, codes_NK: NDArray[np.integer[Any]], labels: NDArray[Any] | None = None) -> Collisions:
    """Count the records that share their code with another, split by whether that loses information."""
    check_codes(x_ND, codes_NK)
    records, code_N, row_N = len(x_ND), distinct_rows(codes_NK)[1], distinct_rows(x_ND)[1]
    shared_N = np.bincount(code_N)[code_N] > 1
    identical_N = shared_N & (_distinct_within(code_N, row_N) == 1)
    conflicting_N = np.zeros(records, dtype=bool)
    if labels is not None:
        label_N = np.unique(labels, return_inverse=True)[1]
        conflicting_N = shared_N & ~identical_N & (_distinct_within(code_N, label_N) > 1)

    distinct_codes = int(code_N.max()) + 1
    colliding, identical, conflicting = int(shared_N.sum()), int(identical_N.sum()), int(conflicting_N.sum())
    return Collisions(
        records=records,
        distinct_records=int(row_N.max()) + 1,
        distinct_codes=distinct_codes,
        collision_rate=1 - distinct_codes / records,
        sharing_rate=colliding / records,
        colliding=colliding,
        identical=identical,
        different=colliding - identical - conflicting,
        conflicting=conflicting if labels is not None else None,
    )


def squared_error(x_ND: Slots, y_ND: Slots, layout: Layout) -> NDArray[np.float64]:
    """The squared difference of two values of a slot, from 0 to 1.

    Numbers differ by a share of the slot's range. Categories and flags have no order: they are equal or not.
    """
    error_ND: NDArray[np.float64] = (x_ND != y_ND).astype(np.float64)
    number_D = layout.number_D
    difference = x_ND[:, number_D].astype(np.float64) - y_ND[:, number_D]
    error_ND[:, number_D] = np.square(difference / np.maximum(layout.sizes_D[number_D], 1))
    return error_ND


def _check(x_ND: Slots, layout: Layout) -> None:
    if not len(x_ND):
        raise InputError("there are no records to measure")
    if x_ND.shape[1] != layout.width:
        raise InputError(f"the records have {x_ND.shape[1]} slots, but the layout has {layout.width}")


def check_codes(x_ND: Slots, codes_NK: NDArray[np.integer[Any]]) -> None:
    """Refuse records and codes of which one does not belong to one."""
    if not len(x_ND) or len(codes_NK) != len(x_ND):
        raise InputError(f"{len(x_ND)} records and {len(codes_NK)} codes: give one code per record")


class _Tally(NamedTuple):
    """Per slot: shares of exact and ±1 matches and the mean squared error; for the flags of sets, how often they are
    present in the record, predicted by the reconstruction, and both (hits)."""

    exact: NDArray[np.float64]
    close: NDArray[np.float64]
    error: NDArray[np.float64]
    present: NDArray[np.float64]
    hits: NDArray[np.float64]
    predicted: NDArray[np.float64]


def _tally(x_ND: Slots, back_ND: Slots, layout: Layout) -> _Tally:
    totals = np.zeros((6, layout.width))
    step = max(1, _BLOCK // layout.width)
    for start in range(0, len(x_ND), step):
        x, back = x_ND[start : start + step], back_ND[start : start + step]
        exact = x == back
        # Compared both ways, because a difference of unsigned integers wraps around.
        neighbours = ((x == back + 1) | (back == x + 1)) & (x > 0) & (back > 0) & layout.number_D
        error = squared_error(x, back, layout)
        present, predicted = (x > 0) & layout.member_D, (back > 0) & layout.member_D
        block = exact, exact | neighbours, error, present, present & predicted, predicted
        totals += [values.sum(axis=0) for values in block]
    totals[:3] /= len(x_ND)
    return _Tally(*totals)


def _field_fidelities(layout: Layout, codes: _Tally, mode: _Tally) -> Iterator[FieldFidelity]:
    """The fidelity of each field; the flags of a set and its count are fields of their own."""
    for field in layout.fields:
        slots = layout.of_field(field)
        members, others = slots[layout.member_D[slots]], slots[~layout.member_D[slots]]
        for name, part in ((field, members), (f"{field} (count)" if len(members) else field, others)):
            if not len(part):
                continue
            accuracy, mode_accuracy, close = (
                float(of_D[part].mean()) for of_D in (codes.exact, mode.exact, codes.close)
            )
            if part is members:
                kind, kept = "set", _ratio(float(codes.hits[part].sum()), float(codes.present[part].sum()))
            else:
                kind, kept = layout.slots[part[0]].kind, _ratio(accuracy - mode_accuracy, 1 - mode_accuracy)
            yield FieldFidelity(name, kind, len(part), accuracy, mode_accuracy, close, kept)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _distinct_within(group_N: NDArray[np.int64], value_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each record, how many distinct values its group has."""
    values = int(value_N.max()) + 1
    pairs = np.unique(group_N * values + value_N)
    return np.bincount(pairs // values)[group_N]
