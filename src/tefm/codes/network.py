"""Encoder and decoder around the quantiser: slots → latent → code → latent → slots.

The encoder embeds every slot value, with zero for "absent", so a masked slot and an absent one are the
same input, and a soft mask (x ⊙ z) scales the embedding by z. The decoder gives every slot a likelihood
over its values.

Shapes: N records, D slots, M input columns, d latent, K levels; V values of a slot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tefm.codes.config import TokenizerConfig
from tefm.codes.quantiser import ResidualQuantiser
from tefm.tables.layout import Layout

#: What a flag of a set that one record in 32 has weighs in the loss; other slots weigh 1.
MEMBER_WEIGHT = 2.0


class SlotInput(nn.Module):
    """Slots as the input columns of the encoder.

    Categories and flags get one column per value; numbers a thermometer (bucket ≥ 1, bucket ≥ 2, …),
    so that neighbouring buckets look alike. Absent is zero everywhere.
    """

    def __init__(self, layout: Layout, *, scaled: bool = False) -> None:
        super().__init__()
        self.scaled = scaled
        sizes = layout.sizes_D
        slot_M = np.repeat(np.arange(layout.width), sizes)
        value_M = np.concatenate([np.arange(1, size + 1) for size in sizes])
        first_M = np.argsort(~layout.number_D[slot_M], kind="stable")  # columns of numbers come first
        self.columns = layout.width if scaled else len(slot_M)
        self.ordered = int(layout.number_D[slot_M].sum())
        self.register_buffer("slot_M", torch.from_numpy(slot_M[first_M]), persistent=False)
        self.register_buffer("value_M", torch.from_numpy(value_M[first_M]).to(torch.int32), persistent=False)
        self.register_buffer("size_D", torch.from_numpy(sizes).clamp_min(1).float(), persistent=False)
        self.slot_M: Tensor
        self.value_M: Tensor
        self.size_D: Tensor

    def forward(self, x_ND: Tensor, keep_ND: Tensor | None = None) -> Tensor:
        """The columns of the records; `keep_ND` in [0, 1] fades slots out towards absent."""
        if self.scaled:
            columns = x_ND / self.size_D
            return columns if keep_ND is None else columns * keep_ND
        # Column by column: copying whole rows of the transposed records is fast.
        value_MN = x_ND.T.contiguous().index_select(0, self.slot_M)
        limit_M1 = self.value_M[:, None].to(value_MN.dtype)
        at = self.ordered
        columns_MN = torch.cat([value_MN[:at] >= limit_M1[:at], value_MN[at:] == limit_M1[at:]]).float()
        if keep_ND is not None:
            columns_MN *= keep_ND.T.to(columns_MN.dtype).contiguous().index_select(0, self.slot_M)
        return columns_MN.T


@dataclass(frozen=True)
class Group:
    """Slots of one size, decoded together.

    The slots are at `first…last` when slots are sorted by size, their outputs at `start…stop`: one logit for each
    flag, one for each value (absent included) of the other slots.
    """

    size: int
    first: int
    last: int
    start: int

    @property
    def stop(self) -> int:
        return self.start + (self.last - self.first) * (1 if self.size == 1 else self.size + 1)


class Block(nn.Module):
    """A pre-norm residual block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(F.relu(self.inner(self.norm(x))))


def mlp(inputs: int, hidden: int, outputs: int, blocks: int) -> nn.Sequential:
    """A residual MLP; without blocks, a plain one with two hidden layers."""
    body: list[nn.Module] = [Block(hidden) for _ in range(blocks)] + [nn.LayerNorm(hidden)]
    if blocks == 0:
        body = [nn.Linear(hidden, hidden), nn.ReLU()]
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), *body, nn.Linear(hidden, outputs))


class CodeNetwork(nn.Module):
    """The RQ-VAE: encoder, quantiser, decoder, and the optional label head."""

    def __init__(self, layout: Layout, config: TokenizerConfig, *, targets: int = 0) -> None:
        super().__init__()
        assert config.hidden is not None, "resolve the config first"
        self.layout, self.config, recipe = layout, config, config.made
        self.input = SlotInput(layout, scaled=recipe.scaled)
        self.encoder = mlp(self.input.columns, config.hidden, config.latent, recipe.blocks)
        self.quantiser = ResidualQuantiser(config.levels, config.entries, config.latent, gradient=recipe.gradient)
        self.squares = recipe.scaled
        self.ordinal_weight = recipe.ordinal_weight if layout.number_D.all() else 0.0
        order_D = np.argsort(layout.sizes_D, kind="stable")
        self.groups = _groups(layout, order_D)
        outputs = layout.width if self.squares else self.groups[-1].stop
        self.decoder = mlp(config.latent, config.hidden, outputs, recipe.blocks)
        self.head = nn.Linear(config.latent, targets) if targets else None
        #: a flag is decoded as present above this probability; set on validation records
        self.register_buffer("threshold", torch.tensor(0.5))
        self.register_buffer("order_D", torch.from_numpy(order_D), persistent=False)
        self.register_buffer("member_D", torch.from_numpy(layout.member_D & ~layout.static_D), persistent=False)
        self.threshold: Tensor
        self.order_D: Tensor
        self.member_D: Tensor

    @torch.no_grad()
    def start_at_frequencies(self, x_ND: Tensor) -> None:
        """Initialise the decoder with how often each value occurs, so that it only learns what differs from that."""
        if self.squares:
            return
        last = self.decoder[-1]
        assert isinstance(last, nn.Linear)
        sorted_ND = x_ND.index_select(1, self.order_D)
        for group, bias in self.split(last.bias[None]):
            values = torch.arange(group.size + 1, device=x_ND.device)
            share = (sorted_ND[:, group.first : group.last, None] == values).float().mean(dim=0).clamp(1e-4, 1 - 1e-4)
            bias[0] = share[:, 1].logit() if group.size == 1 else share.log()

    # ---- forward ----------------------------------------------------------------------------------------------

    def encode_latent(self, x_ND: Tensor, keep_ND: Tensor | None = None) -> Tensor:
        """e = E(x ⊙ z)."""
        return self.encoder(self.input(x_ND, keep_ND))

    def encode(self, x_ND: Tensor, beam: int | None = None) -> Tensor:
        """The codes of records."""
        return self.quantiser.encode(self.encode_latent(x_ND), beam or self.config.made.beam)

    @torch.no_grad()
    def decode(self, latent_Nd: Tensor) -> Tensor:
        """The slots of a quantised latent: the most likely value, and flags above the threshold.

        Where all fields are numbers, the median bucket instead.
        """
        out_NM = self.decoder(latent_Nd)
        if self.squares:
            size_D = self.input.size_D
            slots_ND = torch.round(out_NM * size_D).clamp_min(0).minimum(size_D)
            return torch.where(self.member_D, out_NM > self.threshold, slots_ND).long()
        parts = []
        for group, logits in self.split(out_NM):
            if group.size == 1:
                part = (logits.sigmoid() > self.threshold).long()
            else:
                part = logits.argmax(dim=2)
                if self.ordinal_weight:
                    part = (logits.softmax(dim=2).cumsum(dim=2) < 0.5).sum(dim=2)
            parts.append(part)
        slots_ND = torch.empty(len(latent_Nd), self.layout.width, dtype=torch.long, device=latent_Nd.device)
        slots_ND[:, self.order_D] = torch.cat(parts, dim=1)
        return slots_ND

    def loss(self, latent_Nd: Tensor, x_ND: Tensor, weight_D: Tensor) -> Tensor:
        """‖D(ê) − x‖², or the negative log-likelihood of the slots: a weighted sum over slots, one value per record."""
        out_NM = self.decoder(latent_Nd)
        if self.squares:
            return ((out_NM - x_ND / self.input.size_D).square() * weight_D).sum(dim=1)
        sorted_ND, weight_D = x_ND.index_select(1, self.order_D), weight_D[self.order_D]
        loss_N = out_NM.new_zeros(len(out_NM))
        for group, logits in self.split(out_NM):
            slots = slice(group.first, group.last)
            target = sorted_ND[:, slots]
            if group.size == 1:
                loss = F.binary_cross_entropy_with_logits(logits, target.float(), reduction="none")
            else:
                loss = F.cross_entropy(logits.transpose(1, 2), target.long(), reduction="none")
                if self.ordinal_weight:
                    steps = torch.arange(group.size + 1, device=logits.device) / group.size
                    expected = (logits.softmax(dim=2) * steps).sum(dim=2)
                    loss = loss + self.ordinal_weight * (expected - target / group.size).square()
            loss_N = loss_N + (loss * weight_D[slots]).sum(dim=1)
        return loss_N

    def split(self, out_NM: Tensor) -> list[tuple[Group, Tensor]]:
        """The decoder's output by group: (N, slots) for flags, (N, slots, values) for the others."""
        of_each = out_NM.split([group.stop - group.start for group in self.groups], dim=1)  # slices cost more backwards
        return [
            (group, part if group.size == 1 else part.unflatten(1, (-1, group.size + 1)))
            for group, part in zip(self.groups, of_each, strict=True)
        ]

    def member_scores(self, latent_Nd: Tensor) -> Tensor:
        """The scores that the threshold applies to: one per flag of a set, about from 0 to 1."""
        out_NM = self.decoder(latent_Nd)
        if self.squares:
            return out_NM[:, self.member_D]
        flags, logits = self.split(out_NM)[0]  # the smallest size comes first: members are of size 1
        return logits[:, self.member_D[self.order_D[: flags.last]]].sigmoid()


def _groups(layout: Layout, order_D: NDArray[np.int64]) -> list[Group]:
    """The slots grouped by size."""
    sizes_D, groups, start = layout.sizes_D[order_D], [], 0
    for size in np.unique(sizes_D).tolist():
        first, last = np.searchsorted(sizes_D, [size, size + 1]).tolist()
        groups.append(Group(size, first, last, start))
        start = groups[-1].stop
    return groups


def slot_weights(layout: Layout, config: TokenizerConfig, x_ND: Tensor) -> Tensor:
    """What each slot weighs in the loss: flags of sets more, the more so the rarer they are among the records.

    Fields of the entity weigh nothing: they have codes of their own.
    """
    member_D = torch.from_numpy(layout.member_D).to(x_ND.device)
    weight_D = torch.ones(layout.width, device=x_ND.device)
    if config.made.weighs_sets and bool(member_D.any()):
        # log₃₂ of the inverse frequency: 1 for a flag that one record in 32 has, 2 for one in 1,024
        share = (x_ND[:, member_D] > 0).float().mean(dim=0).clamp_min(1e-5)
        weight_D[member_D] = MEMBER_WEIGHT * -torch.log2(share) / 5
    weight_D[torch.from_numpy(layout.static_D).to(x_ND.device)] = 0.0
    return weight_D
