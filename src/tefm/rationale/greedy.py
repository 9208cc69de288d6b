"""A greedy search on the surrogate: what the extractor learns to do in one pass.

Each record starts without slots and gets, one at a time, the slot that makes the prediction of its sequence most
probable. The search sees how the codes jump from one value to another; a gradient does not.

Shapes: S sequences, T records of the longest of them, N records of all of them, D slots, P slots of the record with
most present slots, X candidates (a record and one more slot), d latent, Q classes; G steps.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tefm.base.progress import progress
from tefm.codes.network import CodeNetwork
from tefm.rationale.surrogate import Surrogate, read_codes, rows_of, slots_tensor
from tefm.tables.sequences import Sequences

#: Steps of the search: the slots of a record that are chosen.
DEPTH = 8
#: Records searched at once.
AT_ONCE = 256


@torch.no_grad()
def search_greedily(
    network: CodeNetwork,
    surrogate: Surrogate,
    sequences: Sequences,
    decided_S: Tensor,
    title: str,
) -> tuple[Tensor, Tensor]:
    """The present slots of each record (−1 where it has fewer), and the value of each of them at every step.

    There are `DEPTH` steps; all records of a sequence take each step together. The value is −inf at steps after
    the one that chose the slot.
    """
    present_ND = slots_tensor(sequences.x_ND) > 0
    size_N = present_ND.sum(dim=1)
    order_ND = present_ND.to(torch.int8).sort(dim=1, descending=True, stable=True).indices
    slot_NP = order_ND[:, : max(size_N.tolist(), default=0) or 1]
    slot_NP = slot_NP.masked_fill(torch.arange(slot_NP.shape[1]) >= size_N[:, None], -1)
    value_NGP = torch.full((len(slot_NP), DEPTH, slot_NP.shape[1]), -torch.inf)
    by_length = np.argsort(sequences.lengths, kind="stable")
    parts = np.array_split(by_length, -(-len(sequences.x_ND) // AT_ONCE) or 1)
    with progress(title, len(sequences)) as advance:
        for part in parts:
            at = torch.from_numpy(sequences.places(part))
            decided = decided_S[torch.from_numpy(part)]
            value_NGP[at] = _search(network, surrogate, sequences.select(part), slot_NP[at], decided)
            advance(len(part))
    return slot_NP, value_NGP


def _search(
    network: CodeNetwork, surrogate: Surrogate, sequences: Sequences, slot_NP: Tensor, decided_S: Tensor
) -> Tensor:
    x_ND, rows_ST = slots_tensor(sequences.x_ND), rows_of(sequences.starts)
    sequence_N = torch.from_numpy(sequences.sequence_N)
    chosen_ND = torch.zeros_like(x_ND)
    open_NP = slot_NP >= 0
    value_NGP = torch.full((len(slot_NP), DEPTH, slot_NP.shape[1]), -torch.inf)
    for step in range(DEPTH):
        record_X, place_X = open_NP.nonzero(as_tuple=True)
        if not len(record_X):
            break
        slot_X = slot_NP[record_X, place_X]
        tried_XD = chosen_ND[record_X]
        tried_XD[torch.arange(len(slot_X)), slot_X] = x_ND[record_X, slot_X]
        read_Xd = read_codes(network, tried_XD)
        # a candidate replaces its record; the other records of the sequence stay as the step before left them
        read_Nd = read_codes(network, chosen_ND)
        rows_XT = rows_ST[sequence_N[record_X]]
        number_X = torch.arange(len(record_X))[:, None] + len(read_Nd)
        rows_XT = torch.where(rows_XT == record_X[:, None], number_X, rows_XT)
        log_p_XQ = surrogate(torch.cat([read_Nd, read_Xd]), rows_XT).log_softmax(dim=1)
        value_NGP[record_X, step, place_X] = log_p_XQ.gather(1, decided_S[sequence_N[record_X], None])[:, 0]
        # records without an open slot are done
        best_N = value_NGP[:, step].argmax(dim=1)
        active_N = open_NP.any(dim=1).nonzero()[:, 0]
        best_slot_N = slot_NP[active_N, best_N[active_N]]
        chosen_ND[active_N, best_slot_N] = x_ND[active_N, best_slot_N]
        open_NP[active_N, best_N[active_N]] = False
    return value_NGP
