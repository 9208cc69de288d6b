"""A Set Transformer (Lee et al. 2019) over the records of a sequence, from their slots.

A record is read as the encoder of codes reads it (`SlotInput`) and becomes a vector by a small MLP; two blocks of
attention (SAB; sequences are short, so inducing points would cost more than they save) let the records of a sequence
look at each other, attention with one learned query (PMA) pools them, and a linear layer gives the logits. A set has no
order: whether the place counted from the last record is added to its vector is one of the choices.

Settings, chosen on validation (6): place or no place, dropout 0.1, 0.3 or 0.5 on the inputs and the pooled vector.
Width 64, 4 heads, AdamW at 1e-3 with weight decay 0.01, batches of 128; the best of at most 2,000 steps by validation
log-loss, looked at every 20 steps (a quarter of an epoch where that is more), until it has not fallen 8 times.

Shapes: S sequences, N records, D slots, M input columns, h width, Q classes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tefm.baselines.choice import Chosen, Examples, Fitted, Task, choose
from tefm.baselines.inputs import Records
from tefm.codes.network import SlotInput
from tefm.records.layout import Layout

WIDTH, HEADS = 64, 4
#: Records are told apart by their place counted from the last one, up to this many.
PLACES = 16
DROPOUTS = (0.1, 0.3, 0.5)
RATE, DECAY, BATCH = 1e-3, 1e-2, 128
LEAST_BETWEEN, PATIENCE = 20, 8
#: Sequences that are asked about at once.
CHUNK = 512


@dataclass(frozen=True)
class Sets:
    """The members of sets as vectors, one after another, and where each stands when sets are lines of one length."""

    x_Nh: Tensor
    at_N: Tensor
    sets: int
    longest: int

    def lines(self, of_Nh: Tensor) -> Tensor:
        """One line per set, zero where it has no member: (sets, longest, …)."""
        lines = of_Nh.new_zeros(self.sets * self.longest, *of_Nh.shape[1:]).index_copy(0, self.at_N, of_Nh)
        return lines.view(self.sets, self.longest, *of_Nh.shape[1:])

    def there(self) -> Tensor:
        return self.lines(torch.ones_like(self.at_N)).bool()


class Attention(nn.Module):
    """MAB: what the members of one set find among those of another, and a layer on top.

    Sets are short and of different lengths, so only the attention itself works on padded lines. It is written out,
    because fused attention is not the same from run to run on a GPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.inner, self.outer = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, asking: Sets, asked: Sets) -> Sets:
        query, key, value = (
            of.lines(project(of.x_Nh)).unflatten(2, (HEADS, -1)).transpose(1, 2)
            for of, project in ((asking, self.query), (asked, self.key), (asked, self.value))
        )
        weight = query @ key.transpose(2, 3) / query.shape[3] ** 0.5
        weight = weight.masked_fill(~asked.there()[:, None, None, :], float("-inf")).softmax(dim=3)
        found_Nh = (weight @ value).transpose(1, 2).flatten(2).flatten(0, 1)[asking.at_N]
        x_Nh = self.first(asking.x_Nh + found_Nh)
        return replace(asking, x_Nh=self.second(x_Nh + self.outer(F.relu(self.inner(x_Nh)))))


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


def fit_set_transformer(train: Examples[Records], validation: Examples[Records], task: Task) -> Chosen:
    """A Set Transformer, stopped and chosen on validation."""
    device = torch.device(task.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    seen, _ = train.seen

    def candidates() -> Iterator[tuple[Fitted, dict[str, Any]]]:
        for place in (True, False):
            for dropout in DROPOUTS:
                with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                    torch.manual_seed(task.seed)
                    network = SetTransformer(train.inputs.layout, len(seen), place=place, dropout=dropout)
                    steps = _learn(network.to(device), train, validation, device, task)

                predict = partial(_probabilities, network, device=device)
                yield Fitted(predict, seen, task.classes), {"place": place, "dropout": dropout, "steps": steps}

    return choose(candidates(), validation, task)


def _learn(
    network: SetTransformer, train: Examples[Records], validation: Examples[Records], device: torch.device, task: Task
) -> int:
    """Leave the network as it was when validation liked it best, and say after how many steps that was."""
    seen, places_N = train.seen
    known = np.flatnonzero(np.isin(validation.labels_N, seen))  # of other classes it cannot learn anything
    judged, judged_places_N = validation.inputs[known], np.searchsorted(seen, validation.labels_N[known])
    target_N, judged_target_N = torch.from_numpy(places_N), torch.from_numpy(judged_places_N)
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
    rng = np.random.default_rng(task.seed)
    between = max(LEAST_BETWEEN, len(train.inputs) // (4 * BATCH))
    best, best_step, kept = float("inf"), 0, copy.deepcopy(network.state_dict())
    for step, chosen in zip(range(1, task.steps + 1), _batches(len(train.inputs), rng), strict=False):
        network.train()
        optimiser.zero_grad()
        logits_SQ = network(*_tensors(train.inputs[chosen], device))
        F.cross_entropy(logits_SQ, target_N[chosen].to(device)).backward()
        optimiser.step()
        if step % between == 0:
            loss = float(F.cross_entropy(_logits(network, judged, device), judged_target_N))
            if loss < best:
                best, best_step, kept = loss, step, copy.deepcopy(network.state_dict())
            elif step - best_step >= PATIENCE * between:
                break
    network.load_state_dict(kept)
    return best_step


def _batches(count: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Sequences in batches, epoch after epoch; what does not fill the last batch waits for the next shuffle."""
    size = min(BATCH, count)
    while True:
        order = rng.permutation(count)
        yield from (order[at : at + size] for at in range(0, count - size + 1, size))


def _tensors(records: Records, device: torch.device) -> tuple[Tensor, Tensor, Tensor, int]:
    x_ND = torch.from_numpy(records.slots_ND[records.rows]).to(device)
    sequence_N = np.repeat(np.arange(len(records)), records.lengths)
    return x_ND, torch.from_numpy(sequence_N).to(device), torch.from_numpy(records.from_end).to(device), len(records)


def _probabilities(network: SetTransformer, records: Records, *, device: torch.device) -> NDArray[Any]:
    p_SQ: NDArray[Any] = _logits(network, records, device).double().softmax(dim=1).numpy()
    return p_SQ


@torch.no_grad()
def _logits(network: SetTransformer, records: Records, device: torch.device) -> Tensor:
    """On the CPU, without dropout."""
    network.eval()
    parts = [
        network(*_tensors(records[np.arange(at, min(at + CHUNK, len(records)))], device)).cpu()
        for at in range(0, len(records), CHUNK)
    ]
    return torch.cat(parts)
