"""A greedy search on the surrogate: what the extractor learns to do in one pass.

Each record starts without slots and gets, one at a time, the slot that makes the prediction of its sequence most
probable. The search sees how the codes jump from one value to another; a gradient does not.

Shapes: S sequences, T records of the longest of them, N records of all of them, D slots, P slots of the record with
most present slots, X candidates (a record and one more slot), d latent, Q classes; G steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tefm.base.progress import progress
from tefm.codes.network import CodeNetwork
from tefm.rationale.config import RationaleConfig
from tefm.rationale.surrogate import Surrogate, latents, read_latent, rows_of, slots_tensor
from tefm.tables.sequences import Sequences

#: Records searched at once.
AT_ONCE = 256


@dataclass(frozen=True)
class GreedySearch:
    """The value of every available slot at each step (−inf for slots that were not available)."""

    #: the present slots of each record, −1 where it has fewer
    slot_NP: Tensor
    value_NGP: Tensor

    def ranking(self, slots: int) -> NDArray[np.float32]:
        """In [0, 1]: first the slots in the order they were chosen, then the others by their last value.

        >>> none = -torch.inf
        >>> value_NGP = torch.tensor([[[-3.0, -1.0, -2.0, -4.0], [-1.0, none, -3.0, -2.0]]])
        >>> GreedySearch(torch.tensor([[0, 1, 3, 4]]), value_NGP).ranking(5).tolist()
        [[0.75, 1.0, 0.0, 0.25, 0.5]]
        """
        records, steps, places = self.value_NGP.shape
        # the step that chose each slot; the others rank after all steps
        turn_NP = torch.full((records, places), float(places))
        rest_NP = self.slot_NP >= 0
        for step in range(steps):
            value_NP = self.value_NGP[:, step]
            row_N = (value_NP > -torch.inf).any(dim=1).nonzero()[:, 0]
            chosen_N = value_NP[row_N].argmax(dim=1)
            turn_NP[row_N, chosen_N] = float(step)
            rest_NP[row_N, chosen_N] = False
        last_NP = self.value_NGP[:, -1].masked_fill(~rest_NP, -torch.inf)
        behind_NP = steps + last_NP.argsort(dim=1, descending=True).argsort(dim=1)
        turn_NP = torch.where(rest_NP, behind_NP, turn_NP)
        scores_ND = torch.zeros(records, slots)
        row, place = (self.slot_NP >= 0).nonzero(as_tuple=True)
        scores_ND[row, self.slot_NP[row, place]] = 1 - turn_NP[row, place] / max(1, places)
        ranking_ND: NDArray[np.float32] = scores_ND.numpy()
        return ranking_ND


@torch.no_grad()
def search_greedily(
    network: CodeNetwork,
    surrogate: Surrogate,
    sequences: Sequences,
    decided_S: Tensor,
    config: RationaleConfig,
    title: str = "searching for the features behind each prediction",
) -> GreedySearch:
    """`config.depth` steps on every record; all records of a sequence take each step together."""
    present_ND = slots_tensor(sequences.x_ND) > 0
    size_N = present_ND.sum(dim=1)
    order_ND = present_ND.to(torch.int8).sort(dim=1, descending=True, stable=True).indices
    slot_NP = order_ND[:, : max(size_N.tolist(), default=0) or 1]
    slot_NP = slot_NP.masked_fill(torch.arange(slot_NP.shape[1]) >= size_N[:, None], -1)
    value_NGP = torch.full((len(slot_NP), config.depth, slot_NP.shape[1]), -torch.inf)
    by_length = np.argsort(sequences.lengths, kind="stable")
    parts = np.array_split(by_length, -(-len(sequences.x_ND) // AT_ONCE) or 1)
    with progress(title, len(sequences)) as advance:
        for part in parts:
            at = torch.from_numpy(sequences.places(part))
            decided = decided_S[torch.from_numpy(part)]
            value_NGP[at] = _search(network, surrogate, sequences.select(part), slot_NP[at], decided, config)
            advance(len(part))
    return GreedySearch(slot_NP, value_NGP)


def _search(
    network: CodeNetwork,
    surrogate: Surrogate,
    sequences: Sequences,
    slot_NP: Tensor,
    decided_S: Tensor,
    config: RationaleConfig,
) -> Tensor:
    x_ND, rows_ST = slots_tensor(sequences.x_ND), rows_of(sequences.starts)
    whole_Nd = latents(network, sequences.x_ND, "latents")[0]
    sequence_N = torch.from_numpy(sequences.sequence_N)
    chosen_ND = torch.zeros_like(x_ND)
    open_NP = slot_NP >= 0
    value_NGP = torch.full((len(slot_NP), config.depth, slot_NP.shape[1]), -torch.inf)
    for step in range(config.depth):
        record_X, place_X = open_NP.nonzero(as_tuple=True)
        if not len(record_X):
            break
        slot_X = slot_NP[record_X, place_X]
        tried_XD = chosen_ND[record_X]
        tried_XD[torch.arange(len(slot_X)), slot_X] = x_ND[record_X, slot_X]
        latent_Xd, read_Xd = read_latent(network, tried_XD, None, config.reads)
        # a candidate replaces its record; the other records of the sequence stay as the step before left them
        read_Nd = read_latent(network, chosen_ND, None, config.reads)[1]
        rows_XT = rows_ST[sequence_N[record_X]]
        number_X = torch.arange(len(record_X))[:, None] + len(read_Nd)
        rows_XT = torch.where(rows_XT == record_X[:, None], number_X, rows_XT)
        log_p_XQ = surrogate(torch.cat([read_Nd, read_Xd]), rows_XT).log_softmax(dim=1)
        value_X = config.prediction_weight * log_p_XQ.gather(1, decided_S[sequence_N[record_X], None])[:, 0]
        if config.code_weight:
            value_X -= config.code_weight * (latent_Xd - whole_Nd[record_X]).square().sum(dim=1)
        value_NGP[record_X, step, place_X] = value_X
        # records without an open slot are done
        best_N = value_NGP[:, step].argmax(dim=1)
        active_N = open_NP.any(dim=1).nonzero()[:, 0]
        best_slot_N = slot_NP[active_N, best_N[active_N]]
        chosen_ND[active_N, best_slot_N] = x_ND[active_N, best_slot_N]
        open_NP[active_N, best_N[active_N]] = False
    return value_NGP
