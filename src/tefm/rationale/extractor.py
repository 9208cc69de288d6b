"""The extractor: one forward pass per record ranks its slots by what the prediction rests on.

It learns against the frozen encoder and the surrogate, never against labels: of the slots it keeps, the same latent and
the same prediction shall come out.

    L = λ1 ‖E(x ⊙ z) − sg E(x)‖² + λ2 KL(g(E(x)) ‖ g(E(x ⊙ z))) + λ3 ‖z‖₁

Shapes: S sequences, T records of the longest of them, N records of all of them, D slots, M input columns, d latent,
Q classes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tefm.base.errors import ArtefactError, InputError
from tefm.base.progress import progress
from tefm.codes.coder import SlotCoder
from tefm.codes.network import CodeNetwork, mlp
from tefm.rationale.config import RationaleConfig
from tefm.rationale.greedy import search
from tefm.rationale.masked_model import Keep, MaskedModel
from tefm.rationale.masking import random_keep
from tefm.rationale.surrogate import (
    CHUNK,
    Agreement,
    Answers,
    Surrogate,
    fit_surrogate,
    latents,
    one_cycle,
    read_latent,
    rows_of,
    slots_tensor,
)
from tefm.records.sequences import Sequences
from tefm.scoring.calibration import Floats

#: Weight decay of the extractor that imitates: there are few records, and many ways to tell them apart.
DECAY = 0.1
#: Candidates that the search looks at for one extractor: some 50 seconds on two cores.
CANDIDATES = 2_000_000


class Extractor(nn.Module):
    """f, before its sigmoid: MLP(columns) + W_skip columns, one figure per slot."""

    def __init__(self, columns: int, slots: int, hidden: int) -> None:
        super().__init__()
        self.body = mlp(columns, hidden, slots, blocks=0)
        self.skip = nn.Linear(columns, slots, bias=False)

    def forward(self, columns_NM: Tensor) -> Tensor:
        logits_ND: Tensor = self.body(columns_NM) + self.skip(columns_NM)
        return logits_ND


@dataclass(frozen=True)
class Losses:
    """The three terms, each a mean over the batch."""

    code: Tensor
    prediction: Tensor
    mass: Tensor

    def total(self, config: RationaleConfig) -> Tensor:
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
    """What masks `z_ND` cost; `whole_Nd` are the latents and `log_p_SQ` the predictions without a mask."""
    latent_Nd, read_Nd = read_latent(network, x_ND, z_ND, reads)
    log_masked_SQ = surrogate(read_Nd, rows_ST).log_softmax(dim=1)
    return Losses(
        (latent_Nd - whole_Nd).square().sum(dim=1).mean(),
        F.kl_div(log_masked_SQ, log_p_SQ, log_target=True, reduction="batchmean"),
        z_ND.sum(dim=1).mean(),
    )


def top_k_mask(logits_ND: Tensor, present_ND: Tensor, size_N: Tensor) -> Tensor:
    """The `size_N` best present slots of each record as ones and zeros, with the gradient of a sigmoid.

    The sigmoid is centred between the last slot that is in and the first that is out.
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


class Explainer:
    """The frozen encoder, the surrogate and the extractor: sequences in, a ranking of their slots out."""

    def __init__(
        self, network: CodeNetwork, surrogate: Surrogate, extractor: Extractor, config: RationaleConfig
    ) -> None:
        self.network, self.surrogate, self.extractor, self.config = network, surrogate, extractor, config
        #: how far the surrogate answers as the judge does; known after `fit`
        self.agreement_: Agreement | None = None

    @classmethod
    def fit(
        cls, coder: SlotCoder, sequences: Sequences, judge: MaskedModel, config: RationaleConfig | None = None
    ) -> Explainer:
        """Ask the judge about training sequences, whole and masked, and learn to select for it."""
        config = config or RationaleConfig()
        if len(sequences) < 2:
            raise InputError(
                f"{len(sequences)} sequence(s) are too few to learn from", remedy="give at least 2, better 1,000"
            )
        network = _frozen(coder)
        rng = np.random.default_rng(config.seed)
        most = max(2, config.questions // (1 + config.versions + config.rounds))
        if len(sequences) > most:
            sequences = sequences.select(np.sort(rng.permutation(len(sequences))[:most]))
        with progress("judge", 1 + config.versions) as advance:
            answers = Answers.ask(network, sequences, judge, config)
            p_SQ = answers.p_SQ
            advance(1)
            for _ in range(config.versions):
                answers += Answers.ask(network, sequences, judge, config, random_keep(sequences, rng))
                advance(1)
        surrogate, agreement = fit_surrogate(answers, judge, config)
        explainer = cls(network, surrogate, _extractor(network, answers.p_SQ.shape[1], config), config)
        explainer.learn(sequences, p_SQ)
        for _ in range(config.rounds):
            # Random masks seldom look like selected ones, and it is on those that the surrogate has to be right.
            keep_ND = explainer.sample(sequences, p_SQ, torch.Generator().manual_seed(config.seed))
            answers += Answers.ask(network, sequences, judge, config, keep_ND)
            explainer.surrogate, agreement = fit_surrogate(answers, judge, config)
            explainer.learn(sequences, p_SQ)
        explainer.agreement_ = agreement
        return explainer

    @torch.no_grad()
    def rank(self, sequences: Sequences, p_SQ: Floats | None = None) -> NDArray[np.float32]:
        """Per record and slot a figure in [0, 1], higher for what is kept earlier; 0 for absent slots.

        `p_SQ` are the predictions to explain, where they are known already; else the surrogate's stand for them.
        """
        x_ND = slots_tensor(sequences.x_ND)
        said_SQ = self._whole(sequences)[1].exp() if p_SQ is None else torch.from_numpy(p_SQ).float()
        said_NQ = said_SQ[torch.from_numpy(sequences.sequence_N)]
        parts = [
            self._logits(x, said).sigmoid() * (x > 0)
            for x, said in zip(x_ND.split(CHUNK), said_NQ.split(CHUNK), strict=True)
        ]
        scores_ND: NDArray[np.float32] = torch.cat(parts).numpy()
        return scores_ND

    def search(self, sequences: Sequences, p_SQ: Floats) -> NDArray[np.float32]:
        """The ranking that the extractor imitates: a greedy search on the surrogate for the predictions `p_SQ`.

        Some hundred passes through the encoder for each record instead of one, and still no language model.
        """
        decided_S = self.surrogate.decide(torch.from_numpy(p_SQ).float())
        found = search(self.network, self.surrogate, sequences, decided_S, self.config)
        return found.ranking(sequences.x_ND.shape[1])

    def log_p(self, x_ND: Tensor, keep_ND: Tensor | None, starts: NDArray[np.integer[Any]]) -> Tensor:
        """What the surrogate says of sequences, with a gradient for how much of each slot is kept."""
        read_Nd = read_latent(self.network, x_ND, keep_ND, self.config.reads)[1]
        log_p_SQ: Tensor = self.surrogate(read_Nd, rows_of(starts)).log_softmax(dim=1)
        return log_p_SQ

    # ---- saving -----------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """All that was learned."""
        parts = {"surrogate": self.surrogate, "extractor": self.extractor}
        return {
            f"{name}.{key}": value.detach().contiguous()
            for name, part in parts.items()
            for key, value in part.state_dict().items()
        }

    @classmethod
    def from_tensors(cls, coder: SlotCoder, tensors: Mapping[str, Tensor], config: RationaleConfig) -> Explainer:
        """The opposite of `tensors`."""
        network = _frozen(coder)
        try:
            classes = len(tensors["surrogate.outer.1.bias"])
            surrogate = Surrogate(network.config.latent, classes, config.surrogate_hidden)
            extractor = _extractor(network, classes, config)
            for name, part in (("surrogate", surrogate), ("extractor", extractor)):
                own = {key.removeprefix(f"{name}."): t for key, t in tensors.items() if key.startswith(f"{name}.")}
                part.load_state_dict(own)
        except (KeyError, RuntimeError) as error:
            raise ArtefactError(
                "these are not the tensors of an extractor with these settings for this tokenizer",
                remedy="load it with the tokenizer and the settings it was learned with",
            ) from error
        return cls(network, surrogate.requires_grad_(False), extractor, config)

    # ---- learning ---------------------------------------------------------------------------------------------

    def learn(self, sequences: Sequences, p_SQ: Floats) -> None:
        """Teach the extractor, from where it is, with the surrogate as it is."""
        if self.config.selection == "greedy":
            self._imitate(sequences, p_SQ)
            return
        config = self.config
        x_ND = slots_tensor(sequences.x_ND)
        whole_Nd, log_p_SQ = self._whole(sequences)
        said_SQ = torch.from_numpy(p_SQ).float()
        draw = torch.Generator().manual_seed(config.seed)
        optimiser = torch.optim.Adam(self.extractor.parameters(), lr=config.learning_rate)
        each = math.ceil(len(sequences) / config.batch)
        with progress("extractor", config.epochs * each) as advance:
            for epoch in range(config.epochs):
                if config.selection == "topk":  # a ranking that does not waver at the end
                    optimiser.param_groups[0]["lr"] = config.learning_rate * (1 - epoch / config.epochs)
                for chosen in torch.randperm(len(sequences), generator=draw).split(config.batch):
                    at = torch.from_numpy(sequences.places(chosen.numpy()))
                    lengths = torch.from_numpy(sequences.lengths[chosen.numpy()])
                    starts = F.pad(lengths.cumsum(0), (1, 0))
                    logits_ND = self._logits(x_ND[at], said_SQ[chosen].repeat_interleave(lengths, dim=0))
                    z_ND = self._mask(logits_ND, x_ND[at] > 0, lengths, draw)
                    found = losses(
                        self.network, self.surrogate, x_ND[at], rows_of(starts.numpy()), z_ND,
                        whole_Nd[at], log_p_SQ[chosen], config.reads,
                    )  # fmt: skip
                    optimiser.zero_grad(set_to_none=True)
                    found.total(config).backward()
                    optimiser.step()
                    advance(1)
                advance(0, note=f"KL {float(found.prediction.detach()):.3f}")

    def _imitate(self, sequences: Sequences, p_SQ: Floats) -> None:
        """Learn the order of a greedy search, whose values say which slots were as good."""
        config = self.config
        chosen = _affordable(sequences, config)
        sequences, p_SQ = sequences.select(chosen), p_SQ[chosen]
        said_SQ = torch.from_numpy(p_SQ).float()
        decided_S = self.surrogate.decide(said_SQ)
        found = search(self.network, self.surrogate, sequences, decided_S, config)
        open_NGP = found.value_NGP > -torch.inf
        target_NGP = (found.value_NGP / config.tolerance).masked_fill(~open_NGP, -1e9).softmax(dim=2)
        # sizes are even on a logarithmic scale, so the first step counts most; a step with one slot left says nothing
        weight_NG = (open_NGP.sum(dim=2) > 1) / torch.arange(1, config.depth + 1)
        x_ND = slots_tensor(sequences.x_ND)
        said_NQ = said_SQ[torch.from_numpy(sequences.sequence_N)]
        optimiser = torch.optim.AdamW(self.extractor.parameters(), lr=config.learning_rate, weight_decay=DECAY)
        batches = math.ceil(len(x_ND) / config.batch)
        schedule = one_cycle(optimiser, config.epochs * batches)
        draw = torch.Generator().manual_seed(config.seed)
        with progress("extractor", config.epochs * batches) as advance:
            for _ in range(config.epochs):
                for at in torch.randperm(len(x_ND), generator=draw).split(config.batch):
                    logits_NP = self._logits(x_ND[at], said_NQ[at]).gather(1, found.slot_NP[at].clamp_min(0))
                    log_NGP = logits_NP[:, None].masked_fill(~open_NGP[at], -1e9).log_softmax(dim=2)
                    loss = -((target_NGP[at] * log_NGP).sum(dim=2) * weight_NG[at]).sum() / len(at)
                    optimiser.zero_grad(set_to_none=True)
                    loss.backward()
                    optimiser.step()
                    schedule.step()
                    advance(1)
                advance(0, note=f"loss {float(loss.detach()):.3f}")

    @torch.no_grad()
    def sample(self, sequences: Sequences, p_SQ: Floats, draw: torch.Generator) -> Keep:
        """Masks as they come up in learning: of a random size, with noise in the ranking."""
        x_ND = slots_tensor(sequences.x_ND)
        lengths = torch.from_numpy(sequences.lengths)
        logits_ND = self._logits(x_ND, torch.from_numpy(p_SQ).float().repeat_interleave(lengths, dim=0))
        keep_ND: Keep = (_drawn_mask(logits_ND, x_ND > 0, lengths, self.config, draw) > 0.5).numpy()
        return keep_ND

    def _mask(self, logits_ND: Tensor, present_ND: Tensor, lengths: Tensor, draw: torch.Generator) -> Tensor:
        if self.config.selection == "soft":
            return logits_ND.sigmoid()
        return _drawn_mask(logits_ND, present_ND, lengths, self.config, draw)

    def _logits(self, x_ND: Tensor, said_NQ: Tensor) -> Tensor:
        """What the extractor says of records whose sequences were predicted as `said_NQ`."""
        columns_NM = self.network.input(x_ND)
        if self.config.context:
            # a threshold is a sharp edge, which a network that sees only the probabilities blurs
            decided_NQ = F.one_hot(self.surrogate.decide(said_NQ), said_NQ.shape[1]).float()
            columns_NM = torch.cat([columns_NM, said_NQ, decided_NQ], dim=1)
        logits_ND: Tensor = self.extractor(columns_NM)
        return logits_ND

    @torch.no_grad()
    def _whole(self, sequences: Sequences) -> tuple[Tensor, Tensor]:
        """Without a mask: the latents of the records, and the surrogate's log p of the sequences."""
        latent_Nd, read_Nd = latents(self.network, sequences.x_ND, self.config.reads)
        rows_ST = rows_of(sequences.starts)
        return latent_Nd, self.surrogate(read_Nd, rows_ST).log_softmax(dim=1)


def _drawn_mask(
    logits_ND: Tensor, present_ND: Tensor, lengths: Tensor, config: RationaleConfig, draw: torch.Generator
) -> Tensor:
    """Top k with Gumbel noise: k slots drawn without replacement, the better ones more often."""
    low, high = math.log(config.least_share), math.log(config.most_share)
    share_S = (low + (high - low) * torch.rand(len(lengths), generator=draw)).exp()
    size_N = (share_S.repeat_interleave(lengths) * present_ND.sum(dim=1)).ceil().long()
    noise_ND = -torch.empty(logits_ND.shape).exponential_(generator=draw).log()
    return top_k_mask(logits_ND + noise_ND, present_ND, size_N)


def _affordable(sequences: Sequences, config: RationaleConfig) -> NDArray[np.int64]:
    """As many sequences, in a random order, as the search has time for; at least one."""
    present_S = np.bincount(sequences.sequence_N, (sequences.x_ND > 0).sum(axis=1), len(sequences))
    order = np.random.default_rng(config.seed).permutation(len(sequences))
    within = np.cumsum(present_S[order] * config.depth) <= CANDIDATES
    return order[: max(1, int(within.sum()))]


def _frozen(coder: SlotCoder) -> CodeNetwork:
    """A copy of the coder's network that nothing changes, on the CPU: it is small, and ranks the same everywhere."""
    return copy.deepcopy(coder.network).cpu().eval().requires_grad_(False)


def _extractor(network: CodeNetwork, classes: int, config: RationaleConfig) -> Extractor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        context = 2 * classes if config.context else 0
        return Extractor(network.input.columns + context, network.layout.width, config.hidden)
