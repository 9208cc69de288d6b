"""Encoder and decoder around the quantiser: slots → latent → code → latent → slots.

The encoder reads every slot value through an embedding that is zero for "absent", so a masked slot and an
absent one are the same input, and a soft mask (x ⊙ z) is the embedding scaled by z. The decoder gives
every slot a likelihood over its values.

Shapes: N records, D slots, M input columns, d latent, K levels; V values of a slot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tefm.codes.config import TokenizerConfig
from tefm.codes.quantiser import ResidualQuantiser
from tefm.records.layout import Layout


class SlotInput(nn.Module):
    """Slots as the columns that the encoder reads.

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
        # Column by column: copying whole rows of the transposed records is what memory is good at.
        value_MN = x_ND.T.contiguous().index_select(0, self.slot_M)
        limit_M1 = self.value_M[:, None].to(value_MN.dtype)
        at = self.ordered
        columns_MN = torch.cat([value_MN[:at] >= limit_M1[:at], value_MN[at:] == limit_M1[at:]]).float()
        if keep_ND is not None:
            columns_MN *= keep_ND.T.to(columns_MN.dtype).contiguous().index_select(0, self.slot_M)
        return columns_MN.T


@dataclass(frozen=True)
class Group:
    """Slots of one size, decoded together: `start` is the first of their output columns."""

    slots: Tensor
    size: int
    start: int

    @property
    def stop(self) -> int:
        return self.start + len(self.slots) * (1 if self.size == 1 else self.size + 1)


class Block(nn.Module):
    """A residual block with the norm in front."""

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
        self.layout, self.config = layout, config
        self.input = SlotInput(layout, scaled=config.inputs == "scaled")
        self.encoder = mlp(self.input.columns, config.hidden, config.latent, config.blocks)
        self.quantiser = ResidualQuantiser(
            config.levels, config.entries, config.latent, learned=config.codebook, decay=config.decay
        )
        self.squares = config.likelihood == "squares"
        self.groups: list[Group] = []
        outputs = layout.width if self.squares else self._group_slots()
        self.decoder = mlp(config.latent, config.hidden, outputs, config.blocks)
        self.head = nn.Linear(config.latent, targets) if targets else None
        #: a flag is decoded as present above this probability; set on validation records
        self.register_buffer("threshold", torch.tensor(0.5))
        self.threshold: Tensor

    def _group_slots(self) -> int:
        """Sort the slots into groups of one size and return the number of output columns."""
        start = 0
        for size in sorted(set(self.layout.sizes_D.tolist())):
            group = Group(torch.from_numpy(np.flatnonzero(self.layout.sizes_D == size)), size, start)
            self.groups.append(group)
            start = group.stop
        return start

    # ---- forward ----------------------------------------------------------------------------------------------

    def encode_latent(self, x_ND: Tensor, keep_ND: Tensor | None = None) -> Tensor:
        """e = E(x ⊙ z)."""
        latent: Tensor = self.encoder(self.input(x_ND, keep_ND))
        return latent

    def encode(self, x_ND: Tensor, beam: int | None = None) -> Tensor:
        """The codes of records."""
        return self.quantiser.encode(self.encode_latent(x_ND), beam or self.config.beam)

    @torch.no_grad()
    def decode(self, latent_Nd: Tensor) -> Tensor:
        """The most likely slots of a quantised latent."""
        out_NM = self.decoder(latent_Nd)
        if self.squares:
            size_D = self.input.size_D
            slots_ND = torch.round(out_NM * size_D).clamp_min(0).minimum(size_D)
            member_D = torch.from_numpy(self.layout.member_D).to(out_NM.device)
            return torch.where(member_D, out_NM > self.threshold, slots_ND).long()
        slots_ND = torch.zeros(len(latent_Nd), self.layout.width, dtype=torch.long, device=latent_Nd.device)
        for group, logits in self.split(out_NM):
            if group.size == 1:
                slots_ND[:, group.slots] = (logits.sigmoid() > self.threshold).long()
            else:
                slots_ND[:, group.slots] = logits.argmax(dim=2)
        return slots_ND

    def split(self, out_NM: Tensor) -> list[tuple[Group, Tensor]]:
        """The decoder's output by group: one logit per flag, one per value (absent included) of other slots."""
        parts = []
        for group in self.groups:
            part = out_NM[:, group.start : group.stop]
            parts.append((group, part if group.size == 1 else part.unflatten(1, (len(group.slots), group.size + 1))))
        return parts

    def member_scores(self, latent_Nd: Tensor) -> Tensor:
        """What the threshold cuts: a score in [0, 1] for every flag of a set."""
        member_D = torch.from_numpy(self.layout.member_D).to(latent_Nd.device)
        out_NM = self.decoder(latent_Nd)
        if self.squares:
            return out_NM[:, member_D]
        group, logits = self.split(out_NM)[0]
        return logits[:, member_D[group.slots]].sigmoid()


class ReconstructionLoss(nn.Module):
    """‖D(ê) − x‖², or the negative log-likelihood of the slots: a sum over slots, one figure per record."""

    def __init__(self, layout: Layout, config: TokenizerConfig, x_ND: Tensor) -> None:
        super().__init__()
        self.config = config
        weight_D = torch.ones(layout.width, device=x_ND.device)
        member_D = torch.from_numpy(layout.member_D).to(x_ND.device)
        if member_D.any():
            weight_D[member_D] = config.member_weight
            if config.rare:
                # log₃₂ of the inverse frequency: 1 for a flag that one record in 32 has, 2 for one in 1,024
                share = (x_ND[:, member_D] > 0).float().mean(dim=0).clamp_min(1e-5)
                weight_D[member_D] *= -torch.log2(share) / 5
        self.register_buffer("weight_D", weight_D)
        self.register_buffer("ordered_D", torch.from_numpy(layout.number_D).to(x_ND.device))
        self.weight_D: Tensor
        self.ordered_D: Tensor

    def forward(self, network: CodeNetwork, latent_Nd: Tensor, x_ND: Tensor) -> Tensor:
        out_NM = network.decoder(latent_Nd)
        if network.squares:
            return ((out_NM - x_ND / network.input.size_D).square() * self.weight_D).sum(dim=1)
        loss_N = out_NM.new_zeros(len(out_NM))
        for group, logits in network.split(out_NM):
            target, weight = x_ND[:, group.slots], self.weight_D[group.slots]
            if group.size == 1:
                each = F.binary_cross_entropy_with_logits(logits, target.float(), reduction="none")
            else:
                each = F.cross_entropy(logits.transpose(1, 2), target.long(), reduction="none")
                ordered = self.ordered_D[group.slots]
                if self.config.ordinal_weight and bool(ordered.any()):
                    steps = torch.arange(group.size + 1, device=logits.device) / group.size
                    expected = (logits.softmax(dim=2) * steps).sum(dim=2)
                    far = (expected - target / group.size).square() * ordered
                    each = each + self.config.ordinal_weight * far
            loss_N = loss_N + (each * weight).sum(dim=1)
        return loss_N
