"""The surrogate: a small, differentiable network that imitates the language model.

It reads one latent per record, the vector that the codes stand for, and the words of its text, if any. It learns the
model's probabilities for whole sequences and for masked ones (knowledge distillation).

Shapes: S sequences, T records of the longest of them, N records of all of them, D slots, d latent, h hidden, Q classes.
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
from torch.nn import functional as F

from tefm.base.progress import progress
from tefm.base.training import KeepBest, adamw
from tefm.codes.coder import SlotCoder
from tefm.codes.network import Block, CodeNetwork
from tefm.codes.quantiser import straight_through
from tefm.rationale.bag_of_words import BUCKETS, bags_of, texts_NM_of
from tefm.rationale.config import SurrogateConfig
from tefm.rationale.masked_model import MaskedModel
from tefm.scoring.calibration import Calibration, Floats
from tefm.tables.layout import Layout, Slots
from tefm.tables.sequences import Sequences

#: Records are distinguished by their position counted from the last one, up to this many.
PLACES = 16
#: Sequences per step, the share held out, how many times it is scored, and how many times without progress.
BATCH, HELD_OUT, CHECKS, PATIENCE = 256, 0.1, 30, 8
#: Records encoded at once.
CHUNK = 4096
#: What the surrogate reads: records as slots, and what is kept of them, become one latent each.
Read = Callable[..., Tensor]


class Surrogate(nn.Module):
    """g: the latents of a sequence's records, pooled by attention, and the logits of the classes."""

    def __init__(self, latent: int, classes: int, hidden: int, *, words: bool = False) -> None:
        super().__init__()
        self.inner = nn.Linear(latent, hidden)
        self.place = nn.Embedding(PLACES, hidden)
        self.record = Block(hidden)
        self.attention = nn.Linear(hidden, 4)
        self.mix = nn.Linear(4 * hidden, hidden)
        self.sequence = Block(hidden)
        self.outer = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, classes))
        #: latents are scaled by their spread over the training records
        self.register_buffer("mean_d", torch.zeros(latent))
        self.register_buffer("scale", torch.ones(()))
        #: the model decides on the class with the largest p / cut
        self.register_buffer("cut_Q", torch.ones(classes))
        self.mean_d: Tensor
        self.scale: Tensor
        self.cut_Q: Tensor
        nn.init.normal_(self.place.weight, std=0.02)
        #: a vector for each word of a text; they begin at zero, so that a word that was never seen says nothing
        self.words = (
            nn.EmbeddingBag(BUCKETS, hidden, mode="sum", _weight=torch.zeros(BUCKETS, hidden)) if words else None
        )

    def forward(self, latent_Nd: Tensor, rows_ST: Tensor, bags: Sequences | None = None) -> Tensor:
        """The logits of each sequence; `rows_ST` are the records of each (`rows_of`), `bags` the words of records."""
        present_ST = rows_ST >= 0
        places_T = torch.arange(rows_ST.shape[1] - 1, -1, -1).clamp_max(PLACES - 1)
        place_N = torch.zeros(len(latent_Nd), dtype=torch.long)
        place_N[rows_ST[present_ST]] = places_T.expand_as(rows_ST)[present_ST]
        read_Nh, score_NA = self.read(latent_Nd, place_N, None if bags is None else self.read_words(bags))
        score_STA = score_NA[rows_ST.clamp_min(0)].masked_fill(~present_ST[:, :, None], -1e9)
        return self.conclude(score_STA.softmax(dim=1).transpose(1, 2) @ read_Nh[rows_ST.clamp_min(0)])

    def read_words(self, bags: Sequences) -> Tensor:
        """What it makes of the words of each record (`bags_of`), N × h."""
        assert self.words is not None, "it has learned words"
        number_W, weight_W = torch.from_numpy(bags.values).unbind(1)
        starts_N = torch.from_numpy(bags.starts[:-1])
        words_Nh: Tensor = self.words(number_W.long(), starts_N, per_sample_weights=weight_W.float())
        return words_Nh

    def read(self, latent_Nd: Tensor, place_N: Tensor, words_Nh: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What it makes of each record, and how much attention that gets; other records play no part in it."""
        inner_Nh = self.inner((latent_Nd - self.mean_d) / self.scale) + self.place(place_N)
        read_Nh: Tensor = self.record(inner_Nh if words_Nh is None else inner_Nh + words_Nh)
        return read_Nh, self.attention(read_Nh)

    def conclude(self, pooled_SAh: Tensor) -> Tensor:
        """The logits of each sequence, from its pooled records."""
        logits_SQ: Tensor = self.outer(self.sequence(self.mix(pooled_SAh.flatten(1))))
        return logits_SQ

    def decide(self, p_SQ: Tensor) -> Tensor:
        """Class numbers, as the model's calibration decides them."""
        return (p_SQ / self.cut_Q).argmax(dim=1)

    def decide_like(self, calibration: Calibration) -> None:
        """Use the calibration's weights, or its threshold t: p / t for the positive class, else p / (1 − t)."""
        if calibration.weights:
            self.cut_Q.copy_(1 / torch.tensor(calibration.weights))
        if calibration.threshold is not None:
            self.cut_Q.fill_(1 - calibration.threshold)
            self.cut_Q[calibration.positive] = calibration.threshold
            self.cut_Q.clamp_min_(1e-6)


def rows_of(starts: NDArray[np.integer[Any]]) -> Tensor:
    """The rows of each sequence, right-aligned and padded with −1.

    >>> rows_of(np.array([0, 1, 4])).tolist()
    [[-1, -1, 0], [1, 2, 3]]
    """
    starts_S = torch.from_numpy(np.asarray(starts, dtype=np.int64))
    longest = int((starts_S[1:] - starts_S[:-1]).max()) if len(starts_S) > 1 else 0
    rows_ST = starts_S[1:, None] - torch.arange(longest, 0, -1)
    return rows_ST.masked_fill(rows_ST < starts_S[:-1, None], -1)


def read_codes(network: CodeNetwork, x_ND: Tensor, keep_ND: Tensor | None = None) -> Tensor:
    """ê, the quantised form of E(x ⊙ z) that the language model reads too, with the gradient of the latent."""
    latent_Nd = network.encode_latent(x_ND, keep_ND)
    codes_NK = network.quantiser.encode(latent_Nd.detach(), network.config.made.beam)
    return straight_through(latent_Nd, network.quantiser.embed(codes_NK))


#: What the surrogate of each recipe reads; the paper's reads the latent before the quantiser.
READS: dict[str, Read] = {"ours": read_codes, "paper": CodeNetwork.encode_latent}


def slots_tensor(x_ND: Slots) -> Tensor:
    """Slots as a tensor of a type that torch can compare, which uint16 is not."""
    return torch.from_numpy(np.ascontiguousarray(x_ND, dtype=np.uint8 if x_ND.dtype == np.uint8 else np.int32))


def frozen_network(coder: SlotCoder) -> CodeNetwork:
    """A frozen copy of the coder's network on the CPU: it is small, and ranks the same on every machine."""
    return copy.deepcopy(coder.network).cpu().eval().requires_grad_(False)


@dataclass(frozen=True, eq=False)
class FrozenCodes:
    """What a language model of codes reads of records: their codes, and those of the fields of the entity."""

    network: CodeNetwork
    profile: CodeNetwork | None = None

    @classmethod
    def of(cls, coder: SlotCoder, *, profile: bool = True) -> FrozenCodes:
        """Of a coder; without the `profile` for a surrogate that has not learned it."""
        learned = coder.profile_ if profile else None
        return cls(frozen_network(coder), None if learned is None else frozen_network(learned))

    @property
    def layout(self) -> Layout:
        return self.network.layout

    @property
    def width(self) -> int:
        return self.network.config.latent + (0 if self.profile is None else self.profile.config.latent)

    def latents(self, x_ND: Tensor) -> Tensor:
        """The vectors that the codes of some records stand for."""
        own_Nd = self.network.quantiser.embed(self.network.encode(x_ND))
        if self.profile is None:
            return own_Nd
        static_ND = x_ND[:, torch.from_numpy(self.layout.static_D)]
        return torch.cat([own_Nd, self.profile.quantiser.embed(self.profile.encode(static_ND))], dim=1)


@torch.no_grad()
def latents(network: CodeNetwork | FrozenCodes, x_ND: Slots, read: Read = read_codes) -> Tensor:
    """What the surrogate reads of many records."""
    return torch.cat([read(network, chunk) for chunk in slots_tensor(x_ND).split(CHUNK)])


@dataclass(frozen=True)
class SurrogateData:
    """The model's predictions for some sequences, and the latents that the surrogate reads."""

    latent_Nd: Tensor
    rows_ST: Tensor
    p_SQ: Floats
    #: how many training sequences there are; they come first, whole, and then their versions in the same order
    training: int
    #: the words of the records, where the surrogate reads them
    bags: Sequences | None = None

    @classmethod
    def ask(
        cls,
        network: CodeNetwork | FrozenCodes,
        sequences: Sequences,
        model: MaskedModel,
        *,
        read: Read = read_codes,
        words: bool = False,
    ) -> SurrogateData:
        """Let the model predict the training sequences, or versions; with `words`, their texts are read too."""
        return cls(
            latents(network, sequences.x_ND, read),
            rows_of(sequences.starts),
            model(sequences),
            len(sequences),
            bags_of(texts_NM_of(sequences)) if words else None,
        )

    def __add__(self, other: SurrogateData) -> SurrogateData:
        """The answers of both, which are about the same training sequences."""
        rows_ST = torch.where(other.rows_ST < 0, -1, other.rows_ST + len(self.latent_Nd))
        return SurrogateData(
            torch.cat([self.latent_Nd, other.latent_Nd]),
            torch.cat([self.rows_ST, rows_ST]),
            np.concatenate([self.p_SQ, other.p_SQ]),
            self.training,
            None if self.bags is None or other.bags is None else self.bags.followed_by(other.bags),
        )


@dataclass(frozen=True)
class Agreement:
    """How closely the surrogate agrees with the model on held-out sequences."""

    #: share of sequences with the same label, and mean difference of the probability of each class
    whole_same: float
    whole_distance: float
    #: both figures for versions that are masked or mixed
    version_same: float
    version_distance: float
    #: held-out sequences
    sequences: int


def fit_surrogate(
    data: SurrogateData, masked_model: MaskedModel, config: SurrogateConfig, title: str = "fitting the surrogate"
) -> tuple[Surrogate, Agreement]:
    """Learn the model's answers, with early stopping on a tenth of the training sequences in all their versions."""
    held_S = held_out(np.arange(len(data.p_SQ)) % data.training, config.seed)
    assert held_S.any() and not held_S.all(), "at least two training sequences"
    p_SQ = torch.from_numpy(data.p_SQ)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        latent, classes = data.latent_Nd.shape[1], p_SQ.shape[1]
        surrogate = Surrogate(latent, classes, config.surrogate_hidden, words=data.bags is not None)
    surrogate.decide_like(masked_model.calibration)
    surrogate.mean_d.copy_(data.latent_Nd.mean(dim=0))
    surrogate.scale.copy_(data.latent_Nd.std(dim=0).square().mean().sqrt().clamp_min(1e-6))
    _train(surrogate, data, p_SQ.float(), held_S, config, title)
    surrogate.requires_grad_(False)
    return surrogate, _agreement(surrogate, data, np.flatnonzero(held_S), masked_model)


def _train(
    surrogate: Surrogate,
    data: SurrogateData,
    p_SQ: Tensor,
    held_S: NDArray[np.bool_],
    config: SurrogateConfig,
    title: str,
) -> None:
    """Fit the targets `p_SQ` of the sequences that are not held out, and keep the state that does best on the rest."""
    draw = torch.Generator().manual_seed(config.seed)
    training, held = np.flatnonzero(~held_S), np.flatnonzero(held_S)
    optimiser = adamw(surrogate.parameters(), device=torch.device("cpu"), lr=2e-3, weight_decay=0.02)
    steps = config.surrogate_steps
    schedule = one_cycle(optimiser, steps)
    best, checks = KeepBest(state=copy.deepcopy(surrogate.state_dict())), 0
    with progress(title, steps) as advance:
        for step in range(1, steps + 1):
            chosen = training[torch.randint(len(training), (BATCH,), generator=draw).numpy()]
            rows_ST = trimmed(data.rows_ST[chosen])
            loss = F.cross_entropy(_logits(surrogate, data, rows_ST), p_SQ[chosen])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()
            advance(1)
            if step % -(-steps // CHECKS) == 0 or step == steps:
                checks += 1
                with torch.no_grad():
                    logits_SQ = surrogate(data.latent_Nd, data.rows_ST[held], data.bags)
                    held_loss = float(F.cross_entropy(logits_SQ, p_SQ[held]))
                best.offer(checks, held_loss, surrogate.state_dict())
                advance(0, note=f"held-out loss {held_loss:.3f}")
                if best.exhausted(checks, patience=PATIENCE):
                    break
    surrogate.load_state_dict(best.state)


def one_cycle(optimiser: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
    """Warm up to the optimiser's learning rate in a tenth of the steps (at least two), then down to zero."""
    steps = max(steps, 4)
    rate = optimiser.param_groups[0]["lr"]
    return torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps, pct_start=max(0.1, 2 / steps))


def held_out(origin_S: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    """A tenth of the training sequences, at least one."""
    sequences = int(origin_S.max(initial=-1)) + 1
    chosen = np.random.default_rng(seed).permutation(sequences)[: max(1, round(HELD_OUT * sequences))]
    return np.isin(origin_S, chosen)


def trimmed(rows_ST: Tensor) -> Tensor:
    """Without the columns that are padding for every sequence of the batch."""
    longest = int((rows_ST >= 0).sum(dim=1).max())
    return rows_ST[:, rows_ST.shape[1] - longest :]


def _logits(surrogate: Surrogate, data: SurrogateData, rows_ST: Tensor) -> Tensor:
    """The logits of some sequences, computed from their own records only."""
    used, place = rows_ST.clamp_min(0).unique(return_inverse=True)
    bags = None if data.bags is None else data.bags.select(used.numpy())
    logits_SQ: Tensor = surrogate(data.latent_Nd[used], torch.where(rows_ST < 0, -1, place), bags)
    return logits_SQ


@torch.no_grad()
def _agreement(
    surrogate: Surrogate, data: SurrogateData, held: NDArray[np.int64], masked_model: MaskedModel
) -> Agreement:
    p_SQ = surrogate(data.latent_Nd, data.rows_ST[held], data.bags).softmax(dim=1).double().numpy()
    same_S = masked_model.decide(p_SQ) == masked_model.decide(data.p_SQ[held])
    distance_S = np.abs(p_SQ - data.p_SQ[held]).mean(axis=1)
    whole_S = held < data.training

    def mean(value_S: NDArray[Any], where_S: NDArray[np.bool_]) -> float:
        return float(value_S[where_S].mean()) if where_S.any() else float("nan")

    return Agreement(
        mean(same_S, whole_S), mean(distance_S, whole_S), mean(same_S, ~whole_S), mean(distance_S, ~whole_S), len(held)
    )
