"""Masks with a gradient, and what they cost: how the extractor learns when it does not imitate the greedy search.

    L = λ1 ‖E(x ⊙ z) − sg E(x)‖² + λ2 KL(g(E(x)) ‖ g(E(x ⊙ z))) + λ3 ‖z‖₁

Shapes: S sequences, T records of the longest of them, N records of all of them, D slots, d latent, Q classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from tefm.codes.network import CodeNetwork
from tefm.rationale.config import RationaleConfig
from tefm.rationale.surrogate import Surrogate, read_latent


@dataclass(frozen=True)
class Losses:
    """The three terms of the loss, each a mean over the batch."""

    code: Tensor
    prediction: Tensor
    mass: Tensor

    def total(self, config: RationaleConfig) -> Tensor:
        """The weighted sum."""
        return config.code_weight * self.code + config.prediction_weight * self.prediction + config.sparsity * self.mass


def losses(
    network: CodeNetwork,
    surrogate: Surrogate,
    x_ND: Tensor,
    rows_ST: Tensor,
    z_ND: Tensor,
    whole_Nd: Tensor,
    log_p_SQ: Tensor,
    reads: str,
) -> Losses:
    """The loss of masks `z_ND`; `whole_Nd` are the latents and `log_p_SQ` the predictions without a mask."""
    latent_Nd, read_Nd = read_latent(network, x_ND, z_ND, reads)
    log_masked_SQ = surrogate(read_Nd, rows_ST).log_softmax(dim=1)
    return Losses(
        (latent_Nd - whole_Nd).square().sum(dim=1).mean(),
        F.kl_div(log_masked_SQ, log_p_SQ, log_target=True, reduction="batchmean"),
        z_ND.sum(dim=1).mean(),
    )


def top_k_mask(logits_ND: Tensor, present_ND: Tensor, size_N: Tensor) -> Tensor:
    """The `size_N` best present slots of each record as ones and zeros, with the gradient of a sigmoid.

    The sigmoid is centred between the last slot inside and the first slot outside.
    """
    size_N = size_N.minimum(present_ND.sum(dim=1))
    logits_ND = logits_ND.masked_fill(~present_ND, -1e4)
    sorted_ND, order_ND = logits_ND.sort(dim=1, descending=True)
    places = logits_ND.shape[1]
    inside = torch.arange(places) < size_N[:, None]
    hard_ND = torch.zeros_like(logits_ND).scatter(1, order_ND, inside.float()) * present_ND
    last = sorted_ND.gather(1, (size_N[:, None] - 1).clamp_min(0))
    next_ = sorted_ND.gather(1, size_N[:, None].clamp_max(places - 1))
    edge_N1 = torch.where(next_ > -1e3, (last + next_) / 2, last).detach()
    soft_ND = torch.sigmoid(logits_ND - edge_N1) * present_ND
    return hard_ND + soft_ND - soft_ND.detach()


def drawn_mask(
    logits_ND: Tensor, present_ND: Tensor, lengths: Tensor, config: RationaleConfig, draw: torch.Generator
) -> Tensor:
    """Top k with Gumbel noise: k slots drawn without replacement, higher-ranked ones more often."""
    low, high = math.log(config.least_share), math.log(config.most_share)
    share_S = (low + (high - low) * torch.rand(len(lengths), generator=draw)).exp()
    size_N = (share_S.repeat_interleave(lengths) * present_ND.sum(dim=1)).ceil().long()
    noise_ND = -torch.empty(logits_ND.shape).exponential_(generator=draw).log()
    return top_k_mask(logits_ND + noise_ND, present_ND, size_N)
