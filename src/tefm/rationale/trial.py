"""What the surrogate expects of look-alikes: thousands of them in a fraction of a second.

Shapes: C sets of kept features, B donors, T records of the explained sequence, D slots, U records to encode, d latent,
Q classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from tefm.codes.network import CodeNetwork
from tefm.rationale.features import Keep
from tefm.rationale.surrogate import CHUNK, Surrogate, slots_tensor
from tefm.records.layout import Slots

#: Slots of look-alikes that are encoded at once.
MOST_SLOTS = 1 << 25


class Tried(Protocol):
    """What a search needs of a trial; in a benchmark, the model itself may answer."""

    @property
    def x_TD(self) -> Slots: ...

    @property
    def surrogate(self) -> Surrogate: ...

    def answers(self, keep_CTD: Keep) -> Tensor: ...

    def codes(self, keep_CTD: Keep) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Trial:
    """One sequence, its donors, and the surrogate's answers to its look-alikes; records are encoded once."""

    network: CodeNetwork
    surrogate: Surrogate
    x_TD: Slots
    #: the donors' records, B × T × D
    donors_BTD: Slots
    _codes: dict[tuple[int, bytes], Tensor] = field(default_factory=dict)

    def answers(self, keep_CTD: Keep) -> Tensor:
        """The probability of each class for each look-alike, C × B × Q."""
        codes_CBTK = self.codes(keep_CTD)
        sets, donors, length, levels = codes_CBTK.shape
        with torch.inference_mode():
            latent_Nd = self.network.quantiser.embed(codes_CBTK.reshape(-1, levels))
            rows_ST = torch.arange(len(latent_Nd)).view(sets * donors, length)
            p_SQ: Tensor = self.surrogate(latent_Nd, rows_ST).softmax(dim=1)
        return p_SQ.view(sets, donors, -1)

    def codes(self, keep_CTD: Keep) -> Tensor:
        """The codes of the look-alikes' records, C × B × T × K."""
        length = len(self.x_TD)
        keys = [[(record, keep_TD[record].tobytes()) for record in range(length)] for keep_TD in keep_CTD]
        new = list(
            {key: number for number, of_set in enumerate(keys) for key in of_set if key not in self._codes}.items()
        )
        # so many records at once that their slots fit into memory, also of a table with thousands of columns
        at_once = max(1, MOST_SLOTS // self.donors_BTD[:, 0].size)
        for some in (new[start : start + at_once] for start in range(0, len(new), at_once)):
            record_U = torch.tensor([record for (record, _), _ in some])
            keep_UD = torch.from_numpy(np.stack([keep_CTD[number, record] for (record, _), number in some]))
            own_U1D = self._x[record_U][:, None]
            mixed_UBD = torch.where(keep_UD[:, None], own_U1D, self._donors[:, record_U].transpose(0, 1))
            with torch.inference_mode():
                parts = [self.network.encode(part) for part in mixed_UBD.flatten(0, 1).split(CHUNK)]
            codes_UBK = torch.cat(parts).view(len(some), len(self.donors_BTD), -1)
            self._codes.update(zip((key for key, _ in some), codes_UBK, strict=True))
        return torch.stack([torch.stack([self._codes[key] for key in of_set], dim=1) for of_set in keys])

    @cached_property
    def _x(self) -> Tensor:
        return slots_tensor(self.x_TD)

    @cached_property
    def _donors(self) -> Tensor:
        flat_ND = self.donors_BTD.reshape(-1, self.x_TD.shape[1])
        return slots_tensor(flat_ND).view(self.donors_BTD.shape)
