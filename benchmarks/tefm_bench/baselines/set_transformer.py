"""A Set Transformer (Lee et al. 2019) over the records of a sequence, from their slots.

A record enters as in the encoder of codes (`SlotInput`), and a small MLP turns it into a vector. In two blocks of
attention (SAB; sequences are short, so inducing points would cost more than they save) the records of a sequence attend
to each other, attention with one learned query (PMA) pools them, and a linear layer gives the logits. A set has no
order: whether a record's position, counted from the last one, is added to its vector is one of the settings.

Six settings, chosen on validation: position or none, dropout 0.1, 0.3 or 0.5 on the inputs and the pooled vector.
Width 64, 4 heads, AdamW at 1e-3 with weight decay 0.01, batches of 128; the best of at most 2,000 steps by validation
log-loss, measured every 20 steps (or a quarter of an epoch, if longer), until it has not fallen 8 times in a row.

Shapes: S sequences, N records, D slots, M input columns, h width, Q classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tefm.base.training import KeepBest
from tefm.codes.network import SlotInput
from tefm.tables.layout import Layout
from tefm.tabular.inputs import RecordSlots
from tefm.tabular.learners import Candidate, Chosen, Examples, LearningTask, choose, stopping_examples

WIDTH, HEADS = 64, 4
#: Positions counted from the last record; earlier records share the last of them.
PLACES = 16
DROPOUTS = (0.1, 0.3, 0.5)
RATE, DECAY, BATCH = 1e-3, 1e-2, 128
#: Steps between two looks at validation, at least, and how many looks without improvement end the training.
LEAST_BETWEEN, PATIENCE = 20, 8
#: Sequences per forward pass when predicting.
CHUNK = 512


@dataclass(frozen=True)
class Sets:
    """The members of sets as vectors, one after another, and where each belongs when sets are padded to one length."""

    x_Nh: Tensor
    #: set × longest + position within the set
    at_N: Tensor
    sets: int
    longest: int

    def padded(self, values_N: Tensor) -> Tensor:
        """Values of the members with one row per set, zero where it has no member: (sets, longest, …)."""
        shape = values_N.shape[1:]
        rows = values_N.new_zeros(self.sets * self.longest, *shape).index_copy(0, self.at_N, values_N)
        return rows.view(self.sets, self.longest, *shape)

    def is_member(self) -> Tensor:
        """Which positions of the padded rows hold a member."""
        return self.padded(torch.ones_like(self.at_N)).bool()


class Attention(nn.Module):
    """MAB: the members of one set attend to those of another, with a layer on top.

    Sets are short and of different lengths, so only the attention itself is padded. It is written out because fused
    attention is not deterministic on a GPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.inner, self.outer = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, queries: Sets, keys: Sets) -> Sets:
        query, key, value = (
            members.padded(project(members.x_Nh)).unflatten(2, (HEADS, -1)).transpose(1, 2)
            for members, project in ((queries, self.query), (keys, self.key), (keys, self.value))
        )
        weight = query @ key.transpose(2, 3) / query.shape[3] ** 0.5
        weight = weight.masked_fill(~keys.is_member()[:, None, None, :], float("-inf")).softmax(dim=3)
        attended_Nh = (weight @ value).transpose(1, 2).flatten(2).flatten(0, 1)[queries.at_N]
        x_Nh = self.first(queries.x_Nh + attended_Nh)
        return replace(queries, x_Nh=self.second(x_Nh + self.outer(F.relu(self.inner(x_Nh)))))


class SetTransformer(nn.Module):
    """Records of sequences in, logits out."""

    def __init__(self, layout: Layout, classes: int, *, place: bool, dropout: float) -> None:
        super().__init__()
        self.input = SlotInput(layout)
        self.record = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(self.input.columns, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)
        )
        self.place_Ph = nn.Parameter(0.02 * torch.randn(PLACES, WIDTH)) if place else None
        self.blocks = nn.ModuleList([Attention(), Attention()])
        self.seed_h = nn.Parameter(torch.randn(WIDTH) / WIDTH**0.5)
        self.pool = Attention()
        self.out = nn.Sequential(nn.Dropout(dropout), nn.Linear(WIDTH, classes))

    def forward(self, x_ND: Tensor, sequence_N: Tensor, from_end_N: Tensor, sequences: int) -> Tensor:
        """`from_end_N` counts the records of the same sequence that come after."""
        x_Nh = self.record(self.input(x_ND))
        if self.place_Ph is not None:
            x_Nh = x_Nh + self.place_Ph[from_end_N.clamp_max(PLACES - 1)]
        longest = int(from_end_N.max()) + 1
        records = Sets(x_Nh, sequence_N * longest + from_end_N, sequences, longest)
        for block in self.blocks:
            records = block(records, records)
        seeds = Sets(self.seed_h.expand(sequences, -1), torch.arange(sequences, device=x_ND.device), sequences, 1)
        logits_SQ: Tensor = self.out(self.pool(seeds, records).x_Nh)
        return logits_SQ


def fit_set_transformer(train: Examples[RecordSlots], validation: Examples[RecordSlots], task: LearningTask) -> Chosen:
    """A Set Transformer, with early stopping and settings chosen on validation."""
    device = torch.device(task.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    seen, _ = train.seen

    def candidates() -> Iterator[Candidate]:
        for place in (True, False):
            for dropout in DROPOUTS:
                with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                    torch.manual_seed(task.seed)
                    network = SetTransformer(train.inputs.layout, len(seen), place=place, dropout=dropout)
                    steps = learn(network.to(device), train, validation, device, task)

                predict = partial(probabilities, network, device=device)
                yield predict, {"place": place, "dropout": dropout, "steps": steps}

    return choose(candidates(), seen, validation, task)


def learn(
    network: nn.Module,
    train: Examples[RecordSlots],
    validation: Examples[RecordSlots],
    device: torch.device,
    task: LearningTask,
) -> int:
    """Train the network up to its best validation loss; returns how many steps that took."""
    seen, positions_N = train.seen
    stopping, stopping_positions_N = stopping_examples(validation, seen)
    target_N, stopping_target_N = torch.from_numpy(positions_N), torch.from_numpy(stopping_positions_N)
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
    rng = np.random.default_rng(task.seed)
    check_every = max(LEAST_BETWEEN, len(train.inputs) // (4 * BATCH))
    best = KeepBest(state={name: value.clone() for name, value in network.state_dict().items()})
    for step, batch in zip(range(1, task.steps + 1), _batches(len(train.inputs), rng), strict=False):
        network.train()
        optimiser.zero_grad()
        logits_SQ = network(*_tensors(train.inputs[batch], device))
        F.cross_entropy(logits_SQ, target_N[batch].to(device)).backward()
        optimiser.step()
        if step % check_every == 0:
            loss = float(F.cross_entropy(_logits(network, stopping, device), stopping_target_N))
            best.offer(step, loss, network.state_dict())
            if best.exhausted(step, patience=PATIENCE * check_every):
                break
    network.load_state_dict(best.state)
    return best.step


def _batches(count: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Sequences in batches, epoch after epoch; an epoch leaves out what does not fill its last batch."""
    size = min(BATCH, count)
    while True:
        order = rng.permutation(count)
        yield from (order[start : start + size] for start in range(0, count - size + 1, size))


def _tensors(records: RecordSlots, device: torch.device) -> tuple[Tensor, Tensor, Tensor, int]:
    arrays = (records.x_ND, records.sequences.sequence_N, records.from_end)
    x_ND, sequence_N, from_end_N = (torch.from_numpy(array).to(device) for array in arrays)
    return x_ND, sequence_N, from_end_N, len(records)


def probabilities(network: nn.Module, records: RecordSlots, *, device: torch.device) -> NDArray[Any]:
    p_SQ: NDArray[Any] = _logits(network, records, device).double().softmax(dim=1).numpy()
    return p_SQ


@torch.no_grad()
def _logits(network: nn.Module, records: RecordSlots, device: torch.device) -> Tensor:
    """On the CPU, without dropout."""
    network.eval()
    chunks = np.split(np.arange(len(records)), range(CHUNK, len(records), CHUNK))
    return torch.cat([network(*_tensors(records[chunk], device)).cpu() for chunk in chunks])
