"""The residual quantiser: a latent becomes K small integers, level by level.

Level k picks the codebook entry nearest to the residual of the levels before it:

    r¹ = e,   i_k = argmin_j ‖rᵏ − e_jᵏ‖²,   rᵏ⁺¹ = rᵏ − e_{i_k}ᵏ,   ê = Σ_k e_{i_k}ᵏ

Shapes: N records, d latent, K levels, C entries, B beam.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Quantised:
    """The result of one greedy pass over the levels."""

    latent_Nd: Tensor
    codes_NK: Tensor
    #: the residual that each level quantised
    residuals: list[Tensor]
    #: ‖rᵏ − sg[e_{i_k}]‖² summed over levels and dimensions, mean over records
    commitment: Tensor
    #: ‖e_{i_k} − sg[rᵏ]‖², likewise
    codebook: Tensor


class ResidualQuantiser(nn.Module):
    """K codebooks of C entries.

    With `gradient` the codebooks are parameters trained by the codebook loss; otherwise they follow the running mean
    of the residuals assigned to each entry.
    """

    def __init__(self, levels: int, entries: int, latent: int, *, gradient: bool = False, decay: float = 0.95) -> None:
        super().__init__()
        self.levels, self.entries, self.latent = levels, entries, latent
        self.gradient = gradient
        self.decay = decay
        codebooks_KCd = torch.zeros(levels, entries, latent)
        self.codebooks_KCd = nn.Parameter(codebooks_KCd, requires_grad=gradient)
        self.register_buffer("count_KC", torch.ones(levels, entries))
        self.register_buffer("total_KCd", torch.zeros(levels, entries, latent))
        #: how often each entry was picked since dead ones were last replaced
        self.register_buffer("picked_KC", torch.zeros(levels, entries))
        self.count_KC: Tensor
        self.total_KCd: Tensor
        self.picked_KC: Tensor

    def forward(self, latent_Nd: Tensor) -> Quantised:
        """The greedy code, with the commitment and the codebook loss."""
        residual_Nd, sum_Nd = latent_Nd, torch.zeros_like(latent_Nd)
        commitment = codebook = latent_Nd.new_zeros(())
        codes, residuals = [], []
        for entries_Cd in self.codebooks_KCd:
            residuals.append(residual_Nd.detach())
            code_N = nearest(residual_Nd.detach(), entries_Cd.detach())[1]
            picked_Nd = entries_Cd[code_N]
            commitment = commitment + (residual_Nd - picked_Nd.detach()).square().sum(dim=1).mean()
            codebook = codebook + (picked_Nd - residual_Nd.detach()).square().sum(dim=1).mean()
            sum_Nd = sum_Nd + picked_Nd
            residual_Nd = residual_Nd - picked_Nd.detach()
            codes.append(code_N)
        return Quantised(sum_Nd, torch.stack(codes, dim=1), residuals, commitment, codebook)

    @torch.no_grad()
    def encode(self, latent_Nd: Tensor, beam: int = 1) -> Tensor:
        """The code with the smallest error found by a beam search over the levels.

        The greedy code always remains a candidate, so the error never exceeds the greedy one.
        """
        if beam == 1:
            return self(latent_Nd).codes_NK
        records, (levels, entries) = len(latent_Nd), (self.levels, self.entries)
        # ‖e − c¹ − … − cᵏ‖² = ‖e‖² + Σ_k (‖cᵏ‖² − 2 e·cᵏ) + Σ_{l<k} 2 cˡ·cᵏ: the products with e are computed once
        # for all levels, those between entries are a table, so a wider beam needs only look-ups.
        flat_Xd = self.codebooks_KCd.flatten(0, 1)
        own_NKC = torch.mm(latent_Nd, -2 * flat_Xd.T).add_(flat_Xd.square().sum(dim=1)).view(records, levels, entries)
        between_KCKC = (2 * flat_Xd @ flat_Xd.T).view(levels, entries, levels, entries)
        error_NB = latent_Nd.new_zeros(records, 1)
        codes: list[Tensor] = []
        for k in range(levels):
            total_NBC = error_NB[:, :, None] + own_NKC[:, None, k]
            for earlier, code_NB in enumerate(codes):
                total_NBC += between_KCKC[earlier, :, k].contiguous()[code_NB]
            total_NX = total_NBC.flatten(1)
            if k == levels - 1:
                chosen_NB = total_NX.min(dim=1, keepdim=True).indices
            else:  # the greedy code's child is always the last candidate, whatever its rank
                greedy_N1 = total_NBC[:, -1].min(dim=1, keepdim=True).indices + (total_NBC.shape[1] - 1) * entries
                best_NB = total_NX.topk(min(beam, total_NX.shape[1]), dim=1, largest=False).indices
                chosen_NB = torch.cat([best_NB, greedy_N1], dim=1)
            error_NB = total_NX.gather(1, chosen_NB)
            parent_NB, code_NB = chosen_NB // entries, chosen_NB % entries
            codes = [*(earlier_NB.gather(1, parent_NB) for earlier_NB in codes), code_NB]
        return torch.cat(codes, dim=1)

    def embed(self, codes_NK: Tensor) -> Tensor:
        """ê, the sum of the picked entries."""
        picked = [entries_Cd[code_N] for entries_Cd, code_N in zip(self.codebooks_KCd, codes_NK.T, strict=True)]
        return torch.stack(picked).sum(dim=0)

    # ---- how codebooks learn ----------------------------------------------------------------------------------

    @torch.no_grad()
    def initialise(self, latent_Nd: Tensor, generator: torch.Generator, iterations: int = 15) -> None:
        """k-means on the residuals of each level."""
        residual_Nd = latent_Nd
        for k in range(self.levels):
            start_N = torch.randperm(len(residual_Nd), generator=generator)[: self.entries].to(residual_Nd.device)
            start_Cd = residual_Nd[start_N]
            if len(start_Cd) < self.entries:  # fewer records than entries: the rest starts at zero
                start_Cd = F.pad(start_Cd, (0, 0, 0, self.entries - len(start_Cd)))
            entries_Cd, code_N = lloyd(residual_Nd, start_Cd, iterations)
            self._set(k, entries_Cd, torch.bincount(code_N, minlength=self.entries) / len(code_N) * self.entries)
            residual_Nd = residual_Nd - entries_Cd[code_N]

    @torch.no_grad()
    def follow(self, quantised: Quantised) -> None:
        """Count the picks and, without a gradient, move each entry towards the residuals that picked it."""
        for k, (residual_Nd, code_N) in enumerate(zip(quantised.residuals, quantised.codes_NK.T, strict=True)):
            chosen_NC = F.one_hot(code_N, self.entries).to(residual_Nd.dtype)
            picked_C = chosen_NC.sum(dim=0)
            self.picked_KC[k] += picked_C
            if not self.gradient:
                self.count_KC[k].lerp_(picked_C, 1 - self.decay)
                self.total_KCd[k].lerp_(chosen_NC.T @ residual_Nd, 1 - self.decay)
                self.codebooks_KCd[k] = self.total_KCd[k] / self.count_KC[k, :, None].clamp_min(1e-3)

    @torch.no_grad()
    def replace_dead(self, quantised: Quantised, generator: torch.Generator, share: float = 0.02) -> int:
        """Move entries that were picked less than `share` of an even share to residuals of this batch."""
        replaced = 0
        for k, residual_Nd in enumerate(quantised.residuals):
            dead_C = self.picked_KC[k] < max(1.0, share * float(self.picked_KC[k].sum()) / self.entries)
            number = int(dead_C.sum())
            if number:
                pick = torch.randint(len(residual_Nd), (number,), generator=generator).to(residual_Nd.device)
                self.codebooks_KCd[k, dead_C] = residual_Nd[pick]
                self.total_KCd[k, dead_C] = residual_Nd[pick]
                self.count_KC[k, dead_C] = 1.0
            replaced += number
        self.picked_KC.zero_()
        return replaced

    @torch.no_grad()
    def settle(self, latent_Nd: Tensor, iterations: int) -> None:
        """Final Lloyd iterations of every level on the given latents; no entry stays without a record."""
        residual_Nd = latent_Nd
        for k in range(self.levels):
            entries_Cd, code_N = lloyd(residual_Nd, self.codebooks_KCd[k].clone(), iterations)
            self._set(k, entries_Cd, self.count_KC[k])
            residual_Nd = residual_Nd - entries_Cd[code_N]

    def _set(self, k: int, entries_Cd: Tensor, count_C: Tensor) -> None:
        self.codebooks_KCd[k] = entries_Cd
        self.count_KC[k] = count_C.clamp_min(1e-3)
        self.total_KCd[k] = entries_Cd * self.count_KC[k, :, None]


def nearest(x_Nd: Tensor, entries_Cd: Tensor) -> tuple[Tensor, Tensor]:
    """The squared distance to the nearest entry minus ‖x‖² (the same for all entries), and that entry."""
    distance_NC = torch.mm(x_Nd, -2 * entries_Cd.T).add_(entries_Cd.square().sum(dim=1))
    distance_N, entry_N = distance_NC.min(dim=1)
    return distance_N, entry_N


def lloyd(x_Nd: Tensor, entries_Cd: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """k-means from given entries; an entry without records moves to the record farthest from its own entry."""
    entries = len(entries_Cd)
    for iteration in range(iterations + 1):
        distance_N, code_N = nearest(x_Nd, entries_Cd)
        count_C = torch.bincount(code_N, minlength=entries)
        if iteration < iterations:
            total_Cd = torch.zeros_like(entries_Cd).index_add_(0, code_N, x_Nd)
            entries_Cd = torch.where(count_C[:, None] > 0, total_Cd / count_C.clamp_min(1)[:, None], entries_Cd)
        empty_E = (count_C == 0).nonzero()[:, 0][: len(x_Nd)]
        if len(empty_E):
            far_E = (distance_N + x_Nd.square().sum(dim=1)).topk(len(empty_E)).indices
            entries_Cd[empty_E] = x_Nd[far_E]
    return entries_Cd, nearest(x_Nd, entries_Cd)[1]


def straight_through(latent_Nd: Tensor, quantised_Nd: Tensor) -> Tensor:
    """ê in the forward pass, with the gradient of e: the encoder learns as if nothing were quantised."""
    return latent_Nd + (quantised_Nd - latent_Nd).detach()
