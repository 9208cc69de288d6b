"""Two small models that are easy to explain and learn the language model's probabilities.

A plain network for layer-wise relevance propagation, which cannot handle norms, skips or attention; and attention over
present slots.

Shapes: S sequences, N records, D slots, Q classes, M input columns, P pairs of a record and a slot, H width.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tefm.base.training import KeepBest
from tefm.codes.network import SlotInput, mlp
from tefm.tables.layout import Layout
from tefm.tables.sequences import Sequences

WIDTH = 64
EPOCHS, BATCH, LEARNING_RATE, WEIGHT_DECAY = 30, 64, 2e-3, 1e-2
#: The share of the training sequences that chooses the best epoch.
HELD_OUT = 0.1
#: Records are distinguished by their distance from the last one, up to this far.
FARTHEST = 8


class PlainNetwork(nn.Module):
    """Linear layers and ReLUs on the columns of one record."""

    def __init__(self, layout: Layout, classes: int) -> None:
        super().__init__()
        self.columns = SlotInput(layout)
        self.layers = mlp(self.columns.columns, WIDTH, classes, blocks=0)
        self.slots = layout.width

    def logits(self, x_ND: NDArray[Any]) -> Tensor:
        logits_NQ: Tensor = self.layers(self.columns(torch.from_numpy(x_ND)))
        return logits_NQ

    def per_slot(self, columns_NM: Tensor) -> Tensor:
        """The sum over the columns of each slot."""
        return columns_NM.new_zeros(len(columns_NM), self.slots).index_add(1, self.columns.slot_M, columns_NM)

    @torch.no_grad()
    def centre(self) -> None:
        """Make the logits of the classes sum to zero: a gain of all classes favours none of them."""
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        last.weight.sub_(last.weight.mean(dim=0))
        last.bias.sub_(last.bias.mean())


@dataclass(frozen=True)
class Present:
    """The present slots of all sequences, concatenated."""

    row_P: NDArray[np.int64]
    slot_P: NDArray[np.int64]
    entry_P: Tensor
    sequence_P: Tensor
    distance_P: Tensor
    sequences: int


class AttentionPool(nn.Module):
    """A vector per slot value, and one query that weights those present in a sequence."""

    def __init__(self, layout: Layout, classes: int) -> None:
        super().__init__()
        self.first_D = np.concatenate([[0], np.cumsum(layout.sizes_D)[:-1]])
        self.value = nn.Embedding(int(layout.sizes_D.sum()), WIDTH)
        self.distance = nn.Embedding(FARTHEST + 1, WIDTH)
        for embedding in (self.value, self.distance):
            # with large initial values, uninformative slots would keep their initial attention
            nn.init.normal_(embedding.weight, std=0.1)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.query_H = nn.Parameter(torch.randn(WIDTH) / WIDTH**0.5)
        self.out = nn.Linear(WIDTH, classes)

    def present(self, sequences: Sequences) -> Present:
        row_P, slot_P = np.nonzero(sequences.x_ND)
        sequence_P = sequences.sequence_N[row_P]
        distance_P = np.minimum(sequences.starts[sequence_P + 1] - 1 - row_P, FARTHEST)
        entry_P = self.first_D[slot_P] + sequences.x_ND[row_P, slot_P].astype(np.int64) - 1
        entry, sequence, distance = (torch.from_numpy(each) for each in (entry_P, sequence_P, distance_P))
        return Present(row_P, slot_P, entry, sequence, distance, len(sequences))

    def attention(self, present: Present) -> Tensor:
        """The weights of the slots, which sum to 1 in each sequence."""
        return self._read(present)[0]

    def logits(self, sequences: Sequences) -> Tensor:
        present = self.present(sequences)
        weight_P, value_PH = self._read(present)
        zeros_SH = value_PH.new_zeros(present.sequences, WIDTH)
        logits_SQ: Tensor = self.out(zeros_SH.index_add(0, present.sequence_P, weight_P[:, None] * value_PH))
        return logits_SQ

    def _read(self, present: Present) -> tuple[Tensor, Tensor]:
        value_PH = self.value(present.entry_P) + self.distance(present.distance_P)
        score_P = torch.tanh(self.key(value_PH)) @ self.query_H
        power_P = (score_P - score_P.detach().max()).exp() if len(score_P) else score_P
        total_S = power_P.new_zeros(present.sequences).index_add(0, present.sequence_P, power_P)
        return power_P / total_S[present.sequence_P], value_PH


def fit_plain(training: Sequences, probabilities_SQ: NDArray[Any], layout: Layout, *, seed: int = 0) -> PlainNetwork:
    """A plain network that predicts the language model's probabilities from the last record of a sequence."""
    last_SD = training.last
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = PlainNetwork(layout, probabilities_SQ.shape[1])
        _distil(network, lambda chosen: network.logits(last_SD[chosen]), probabilities_SQ, seed)
    network.centre()
    return network


def fit_attention(
    training: Sequences, probabilities_SQ: NDArray[Any], layout: Layout, *, seed: int = 0
) -> AttentionPool:
    """Attention over the present slots of a sequence that predicts the language model's probabilities."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pool = AttentionPool(layout, probabilities_SQ.shape[1])
        _distil(pool, lambda chosen: pool.logits(training.select(chosen)), probabilities_SQ, seed)
    return pool


def _distil(
    model: nn.Module, logits: Callable[[NDArray[np.int64]], Tensor], probabilities_SQ: NDArray[Any], seed: int
) -> None:
    """Learn the probabilities, and keep the epoch that does best on a tenth of the sequences."""
    rng = np.random.default_rng(seed)
    order_S, target_SQ = rng.permutation(len(probabilities_SQ)), torch.from_numpy(probabilities_SQ).float()
    held_out, training = np.split(order_S, [int(len(order_S) * HELD_OUT)])
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)

    def loss(chosen: NDArray[np.int64]) -> Tensor:
        return nn.functional.cross_entropy(logits(chosen), target_SQ[chosen])

    best = KeepBest(state=copy.deepcopy(model.state_dict()))
    for epoch in range(1, EPOCHS + 1):
        rng.shuffle(training)
        for start in range(0, len(training), BATCH):
            optimiser.zero_grad()
            loss(training[start : start + BATCH]).backward()
            optimiser.step()
        with torch.no_grad():
            best.offer(epoch, float(loss(held_out if len(held_out) else training)), model.state_dict())
    model.load_state_dict(best.state)
    model.requires_grad_(False)
