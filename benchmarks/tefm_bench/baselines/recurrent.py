"""A GRU over the records of a sequence, from their slots: the plain sequence model that ours is compared with.

A record enters as in the Set Transformer, and training is that of the Set Transformer; the state after the last record
gives the logits. Shorter sequences of a batch are padded in front. Six settings, chosen on validation: 32, 64 or 128
units, dropout 0.1 or 0.3 on the inputs and the last state.

Shapes: S sequences, N records, D slots, h width, Q classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn

from tefm.codes.network import SlotInput
from tefm.tables.layout import Layout
from tefm.tabular.inputs import RecordSlots
from tefm.tabular.learners import Candidate, Chosen, Examples, LearningTask, choose
from tefm_bench.baselines.set_transformer import WIDTH, Sets, learn, probabilities

UNITS, DROPOUTS = (32, 64, 128), (0.1, 0.3)


class Recurrent(nn.Module):
    """Records of sequences in, logits out."""

    def __init__(self, layout: Layout, classes: int, *, units: int, dropout: float) -> None:
        super().__init__()
        self.input = SlotInput(layout)
        self.record = nn.Sequential(nn.Dropout(dropout), nn.Linear(self.input.columns, WIDTH), nn.ReLU())
        self.gru = nn.GRU(WIDTH, units, batch_first=True)
        self.out = nn.Sequential(nn.Dropout(dropout), nn.Linear(units, classes))

    def forward(self, x_ND: Tensor, sequence_N: Tensor, from_end_N: Tensor, sequences: int) -> Tensor:
        """`from_end_N` counts the records of the same sequence that come after."""
        longest = int(from_end_N.max()) + 1
        at_N = sequence_N * longest + longest - 1 - from_end_N
        records = Sets(self.record(self.input(x_ND)), at_N, sequences, longest)
        _, last = self.gru(records.padded(records.x_Nh))
        logits_SQ: Tensor = self.out(last[0])
        return logits_SQ


def fit_recurrent(train: Examples[RecordSlots], validation: Examples[RecordSlots], task: LearningTask) -> Chosen:
    """A GRU, with early stopping and settings chosen on validation."""
    device = torch.device(task.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    seen, _ = train.seen

    def candidates() -> Iterator[Candidate]:
        for units, dropout in product(UNITS, DROPOUTS):
            with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                torch.manual_seed(task.seed)
                network = Recurrent(train.inputs.layout, len(seen), units=units, dropout=dropout)
                steps = learn(network.to(device), train, validation, device, task)
            yield partial(probabilities, network, device=device), {"units": units, "dropout": dropout, "steps": steps}

    return choose(candidates(), seen, validation, task)
