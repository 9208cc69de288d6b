"""Fields that say something about the label and that the codes do not reproduce: where a loss can cost accuracy.

Each slot is compared with the label on its own, which is cheap and needs no model. What a slot says is its mutual
information with the label, less what chance would give, as a share of the label's entropy.

Shapes: N records, D slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.records.layout import Layout, Slots

#: A slot says something about the label if chance alone would be this unlikely, over all slots together (Bonferroni).
CHANCE = 0.01
#: It is lost if its decoded value says less than this share of what the recorded one says.
KEPT = 0.5


@dataclass(frozen=True)
class LabelLoss:
    """A field whose decoded value says less about the label than the recorded one; of a set, its worst value."""

    field: str
    #: the value of a set; None for other fields
    member: str | None
    #: shares of the label's entropy
    recorded: float
    decoded: float

    @property
    def name(self) -> str:
        return self.field if self.member is None else f"{self.field}: {self.member}"


def label_losses(x_ND: Slots, back_ND: Slots, layout: Layout, labels_N: NDArray[Any]) -> tuple[LabelLoss, ...]:
    """The fields that lose what they say about the label, the largest loss first.

    >>> from tefm.records.layout import Slot
    >>> layout = Layout((Slot("a", "category", 2), Slot("b", "category", 2)))
    >>> x_ND = np.tile(np.array([[1, 1], [2, 2]], np.uint8), (50, 1))
    >>> decoded_ND = np.where([True, False], x_ND, 1).astype(np.uint8)  # the first field is kept, the second is not
    >>> label_losses(x_ND, decoded_ND, layout, x_ND[:, 0])
    (LabelLoss(field='b', member=None, recorded=0.993, decoded=0.0),)
    """
    labels_N = np.unique(labels_N, return_inverse=True)[1]
    worst: dict[str, LabelLoss] = {}
    for number, slot in enumerate(layout.slots):
        recorded, chance = _information(x_ND[:, number], labels_N)
        if chance * layout.width >= CHANCE:
            continue
        decoded, _ = _information(back_ND[:, number], labels_N)
        loss = LabelLoss(slot.field, slot.member, round(recorded, 3), round(decoded, 3))
        so_far = worst.get(slot.field)
        if decoded < KEPT * recorded and (so_far is None or _size(loss) > _size(so_far)):
            worst[slot.field] = loss
    return tuple(sorted(worst.values(), key=_size, reverse=True))


def _size(loss: LabelLoss) -> float:
    return loss.recorded - loss.decoded


def _information(x_N: Slots, labels_N: NDArray[np.int64]) -> tuple[float, float]:
    """What a slot says about the label, and how likely chance alone would say as much (the G-test)."""
    from scipy.stats import chi2
    from sklearn.metrics import mutual_info_score

    freedom = (len(np.unique(x_N)) - 1) * int(labels_N.max())
    if not freedom:
        return 0.0, 1.0
    shares = np.bincount(labels_N) / len(labels_N)
    entropy = -float((shares * np.log(shares)).sum())
    information = float(mutual_info_score(labels_N, x_N))
    by_chance = freedom / (2 * len(labels_N))
    return max(0.0, information - by_chance) / entropy, float(chi2.sf(2 * len(labels_N) * information, freedom))
