"""The extractor: one forward pass per record ranks its slots by how much the prediction depends on them.

It learns from the frozen encoder and the surrogate, never from labels: the selected slots should give the same
prediction as all slots. By default it imitates a greedy search on the surrogate, which adds to each record the slot
that raises the prediction most: it sees the jumps of the codes. `recipe: paper` minimises dual fidelity by gradient:

    L = λ1 ‖E(x ⊙ z) − sg E(x)‖² + λ2 KL(g(E(x)) ‖ g(E(x ⊙ z))) + λ3 ‖z‖₁

Shapes: S sequences, T records of the longest of them, N records of all of them, D slots, M input columns, d latent,
Q classes; G steps of the search, P slots of the record with most present slots, X candidates (a record and one more
slot).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LRScheduler

from tefm.base.errors import InputError
from tefm.base.files import read_tensors, refusing, write_tensors
from tefm.base.progress import progress
from tefm.base.training import adamw
from tefm.codes.coder import SlotCoder
from tefm.codes.network import CodeNetwork, mlp
from tefm.rationale.config import RationaleConfig
from tefm.rationale.masked_model import LEAST_SHARE, Keep, MaskedModel, order_of, random_keep
from tefm.rationale.surrogate import (
    CHUNK,
    READS,
    Agreement,
    Surrogate,
    SurrogateData,
    fit_surrogate,
    frozen_network,
    latents,
    one_cycle,
    read_codes,
    rows_of,
    slots_tensor,
)
from tefm.scoring.calibration import Floats
from tefm.tables.sequences import Sequences

#: Randomly masked versions of each training sequence that the model predicts, in addition to the whole sequence.
VERSIONS = 2
#: How often surrogate and extractor train: the second time, the model has predicted what the extractor selects too.
ROUNDS = {"ours": 2, "paper": 1}
#: Examples per step: records that the search is imitated for, sequences whose loss is minimised.
BATCH = {"ours": 64, "paper": 32}
LEARNING_RATE = 1e-3
#: Weight decay while imitating the search: there are few records and many features, so it overfits easily.
DECAY = 0.1
#: Candidates that one search evaluates at most: about 50 seconds on two cores.
CANDIDATES = 2_000_000
#: A slot whose value is this much lower (in nats) than the best one's counts as nearly as good.
TOLERANCE = 0.2
#: In training, masks keep between `LEAST_SHARE` and this share of the present slots, uniformly on a logarithmic scale.
MOST_SHARE = 0.6

#: The numbers of some examples to their loss, and to the figure that is shown.
LossOf = Callable[[Tensor], tuple[Tensor, Tensor]]


class Extractor(nn.Module):
    """f, before its sigmoid: MLP(columns) + W_skip columns, one score per slot."""

    def __init__(self, columns: int, slots: int, hidden: int) -> None:
        super().__init__()
        self.body = mlp(columns, hidden, slots, blocks=0)
        self.skip = nn.Linear(columns, slots, bias=False)

    def forward(self, columns_NM: Tensor) -> Tensor:
        logits_ND: Tensor = self.body(columns_NM) + self.skip(columns_NM)
        return logits_ND


@dataclass(eq=False)
class MaskExplainer:
    """The frozen encoder, the surrogate and the extractor: sequences in, a ranking of their slots out."""

    network: CodeNetwork
    surrogate: Surrogate
    extractor: Extractor
    config: RationaleConfig
    #: how closely the surrogate agrees with the model
    agreement_: Agreement | None = None

    #: λ1 and λ3 of the paper's loss, the weights of keeping the latent unchanged and of the size of the mask; that of
    #: keeping the prediction, λ2, is 1
    CODE_WEIGHT: ClassVar[float] = 1.0
    SPARSITY: ClassVar[float] = 0.1

    @classmethod
    def fit(
        cls, coder: SlotCoder, sequences: Sequences, masked_model: MaskedModel, config: RationaleConfig
    ) -> MaskExplainer:
        """Learn to select slots from the model's predictions for training sequences, whole and masked."""
        if len(sequences) < 2:
            raise InputError(
                f"{len(sequences)} sequence(s) are too few to learn from", remedy="use at least 2, ideally 1,000"
            )
        network = frozen_network(coder)
        rng = np.random.default_rng(config.seed)
        rounds, read = ROUNDS[config.recipe], READS[config.recipe]
        most = max(2, config.questions // (VERSIONS + rounds))
        if len(sequences) > most:
            sequences = sequences.select(np.sort(rng.permutation(len(sequences))[:most]))
        with progress("predicting masked training records", 1 + VERSIONS) as advance:
            data = SurrogateData.ask(network, sequences, masked_model, read=read)
            p_SQ = data.p_SQ
            advance(1)
            for _ in range(VERSIONS):
                masked = sequences.masked(random_keep(sequences, rng))
                data += SurrogateData.ask(network, masked, masked_model, read=read)
                advance(1)
        extractor = _extractor(network, p_SQ.shape[1], config)
        for number in range(1, rounds + 1):
            name = f" (round {number} of {rounds})" if rounds > 1 else ""
            surrogate, agreement = fit_surrogate(data, masked_model, config, f"fitting the surrogate{name}")
            explainer = cls(network, surrogate, extractor, config, agreement)
            explainer._learn(sequences, p_SQ, name)
            if number < rounds:
                # random masks seldom look like selected ones, on which the surrogate has to be right
                keep_ND = explainer.sample(sequences, p_SQ, torch.Generator().manual_seed(config.seed))
                data += SurrogateData.ask(network, sequences.masked(keep_ND), masked_model, read=read)
        return explainer

    @torch.no_grad()
    def rank(self, sequences: Sequences, p_SQ: Floats) -> NDArray[np.float32]:
        """A score in [0, 1] per record and slot, higher for slots to select first; 0 for absent slots.

        `p_SQ` are the predictions to explain.
        """
        x_ND = slots_tensor(sequences.x_ND)
        predicted_NQ = torch.from_numpy(p_SQ).float()[torch.from_numpy(sequences.sequence_N)]
        parts = [
            self._logits(x, predicted).sigmoid() * (x > 0)
            for x, predicted in zip(x_ND.split(CHUNK), predicted_NQ.split(CHUNK), strict=True)
        ]
        return torch.cat(parts).numpy()

    # ---- saving -----------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write one safetensors file in one step: the tensors, the settings, and the agreement with the model."""
        tensors = {name: value.contiguous() for name, value in self._networks().state_dict().items()}
        agreement = asdict(self.agreement_) if self.agreement_ else None
        write_tensors(path, tensors, config=self.config.model_dump(), agreement=agreement)

    @classmethod
    def load(cls, coder: SlotCoder, path: Path) -> MaskExplainer:
        """Read what `save` wrote; `coder` is the one that it was trained with."""
        network = frozen_network(coder)
        with refusing(path, "explainer"):
            tensors, facts = read_tensors(path)
            config = RationaleConfig.stored(facts["config"])
            classes = len(tensors["surrogate.outer.1.bias"])
            surrogate = Surrogate(network.config.latent, classes, config.surrogate_hidden)
            explainer = cls(network, surrogate, _extractor(network, classes, config), config)
            explainer._networks().load_state_dict(tensors)
            explainer.agreement_ = Agreement(**facts["agreement"]) if facts["agreement"] else None
        surrogate.requires_grad_(False)
        return explainer

    def _networks(self) -> nn.ModuleDict:
        """All that is learned, as it is named in a file."""
        return nn.ModuleDict({"surrogate": self.surrogate, "extractor": self.extractor})

    # ---- learning ---------------------------------------------------------------------------------------------

    def _learn(self, sequences: Sequences, p_SQ: Floats, round_name: str) -> None:
        """Train the extractor: by Adam in the paper, by an imitation that is held back otherwise."""
        config, batch, weights = self.config, BATCH[self.config.recipe], self.extractor.parameters()
        schedule: LRScheduler | None = None
        if config.recipe == "paper":
            loss_of, examples = self._descent(sequences, p_SQ)
            optimiser: torch.optim.Optimizer = torch.optim.Adam(weights, lr=LEARNING_RATE)
        else:
            loss_of, examples = self._imitation(sequences, p_SQ, round_name)
            optimiser = adamw(weights, device=torch.device("cpu"), lr=LEARNING_RATE, weight_decay=DECAY)
            schedule = one_cycle(optimiser, config.epochs * math.ceil(examples / batch))
        draw = torch.Generator().manual_seed(config.seed)
        steps = config.epochs * math.ceil(examples / batch)
        with progress(f"training the feature extractor{round_name}", steps) as advance:
            for _ in range(config.epochs):
                for chosen in torch.randperm(examples, generator=draw).split(batch):
                    loss, shown = loss_of(chosen)
                    optimiser.zero_grad(set_to_none=True)
                    loss.backward()
                    optimiser.step()
                    if schedule is not None:
                        schedule.step()
                    advance(1)
                advance(0, note=f"{'KL' if config.recipe == 'paper' else 'loss'} {float(shown.detach()):.3f}")

    def _descent(self, sequences: Sequences, p_SQ: Floats) -> tuple[LossOf, int]:
        """The paper's loss of soft masks, of some of the sequences."""
        x_ND = slots_tensor(sequences.x_ND)
        whole_Nd = latents(self.network, sequences.x_ND, READS["paper"])
        with torch.no_grad():
            log_p_SQ = self.surrogate(whole_Nd, rows_of(sequences.starts)).log_softmax(dim=1)
        predicted_SQ = torch.from_numpy(p_SQ).float()

        def loss_of(chosen: Tensor) -> tuple[Tensor, Tensor]:
            at = torch.from_numpy(sequences.places(chosen.numpy()))
            lengths = torch.from_numpy(sequences.lengths[chosen.numpy()])
            rows_ST = rows_of(F.pad(lengths.cumsum(0), (1, 0)).numpy())
            z_ND = self._logits(x_ND[at], predicted_SQ[chosen].repeat_interleave(lengths, dim=0)).sigmoid()
            return self.loss(x_ND[at], rows_ST, z_ND, whole_Nd[at], log_p_SQ[chosen])

        return loss_of, len(sequences)

    def loss(
        self, x_ND: Tensor, rows_ST: Tensor, z_ND: Tensor, whole_Nd: Tensor, log_p_SQ: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The loss of masks `z_ND`, and its second term; each term is a mean over the batch.

        Without a mask, `whole_Nd` are the latents and `log_p_SQ` the predictions.
        """
        latent_Nd = self.network.encode_latent(x_ND, z_ND)
        log_masked_SQ = self.surrogate(latent_Nd, rows_ST).log_softmax(dim=1)
        code = (latent_Nd - whole_Nd).square().sum(dim=1).mean()
        prediction = F.kl_div(log_masked_SQ, log_p_SQ, log_target=True, reduction="batchmean")
        mass = z_ND.sum(dim=1).mean()
        return self.CODE_WEIGHT * code + prediction + self.SPARSITY * mass, prediction

    def _imitation(self, sequences: Sequences, p_SQ: Floats, round_name: str) -> tuple[LossOf, int]:
        """How unlike the order of a greedy search some records are ranked.

        The values of the search tell which slots are nearly as good as the best.
        """
        # as many sequences, in random order, as the search has time for; at least one
        order = np.random.default_rng(self.config.seed).permutation(len(sequences))
        present_S = np.bincount(sequences.sequence_N, (sequences.x_ND > 0).sum(axis=1), len(sequences))
        chosen = order[: max(1, int((np.cumsum(present_S[order] * DEPTH) <= CANDIDATES).sum()))]
        sequences, p_SQ = sequences.select(chosen), p_SQ[chosen]
        predicted_SQ = torch.from_numpy(p_SQ).float()
        decided_S = self.surrogate.decide(predicted_SQ)
        title = f"searching for the features behind each prediction{round_name}"
        slot_NP, value_NGP = search_greedily(self.network, self.surrogate, sequences, decided_S, title)
        open_NGP = value_NGP > -torch.inf
        target_NGP = (value_NGP / TOLERANCE).masked_fill(~open_NGP, -1e9).softmax(dim=2)
        # small selections matter most, so early steps weigh most; a step with one slot left teaches nothing
        weight_NG = (open_NGP.sum(dim=2) > 1) / torch.arange(1, DEPTH + 1)
        x_ND = slots_tensor(sequences.x_ND)
        predicted_NQ = predicted_SQ[torch.from_numpy(sequences.sequence_N)]

        def loss_of(at: Tensor) -> tuple[Tensor, Tensor]:
            logits_NP = self._logits(x_ND[at], predicted_NQ[at]).gather(1, slot_NP[at].clamp_min(0))
            log_NGP = logits_NP[:, None].masked_fill(~open_NGP[at], -1e9).log_softmax(dim=2)
            loss = -((target_NGP[at] * log_NGP).sum(dim=2) * weight_NG[at]).sum() / len(at)
            return loss, loss

        return loss_of, len(x_ND)

    @torch.no_grad()
    def sample(self, sequences: Sequences, p_SQ: Floats, draw: torch.Generator) -> Keep:
        """Masks as they occur in training: of a random size, with noise in the ranking."""
        x_ND = slots_tensor(sequences.x_ND)
        lengths = torch.from_numpy(sequences.lengths)
        logits_ND = self._logits(x_ND, torch.from_numpy(p_SQ).float().repeat_interleave(lengths, dim=0))
        low, high = math.log(LEAST_SHARE), math.log(MOST_SHARE)
        share_S = (low + (high - low) * torch.rand(len(lengths), generator=draw)).exp()
        size_N = (share_S.repeat_interleave(lengths) * (x_ND > 0).sum(dim=1)).ceil().long()
        # Gumbel noise: slots are drawn without replacement, higher-ranked ones more often
        noise_ND = -torch.empty(logits_ND.shape).exponential_(generator=draw).log()
        return order_of((logits_ND + noise_ND).numpy(), sequences.x_ND) < size_N[:, None].numpy()

    def _logits(self, x_ND: Tensor, predicted_NQ: Tensor) -> Tensor:
        """The extractor's scores of records whose sequences have the predictions `predicted_NQ`."""
        columns_NM = self.network.input(x_ND)
        if self.config.recipe == "ours":
            # a network that sees only the probabilities would blur the sharp edge of a threshold
            decided_NQ = F.one_hot(self.surrogate.decide(predicted_NQ), predicted_NQ.shape[1]).float()
            columns_NM = torch.cat([columns_NM, predicted_NQ, decided_NQ], dim=1)
        logits_ND: Tensor = self.extractor(columns_NM)
        return logits_ND


def _extractor(network: CodeNetwork, classes: int, config: RationaleConfig) -> Extractor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        context = 2 * classes if config.recipe == "ours" else 0
        return Extractor(network.input.columns + context, network.layout.width, config.hidden)


# ---- a greedy search on the surrogate --------------------------------------------------------------------------------


#: Steps of the search: the slots of a record that are chosen.
DEPTH = 8
#: Records searched at once.
AT_ONCE = 256


@torch.no_grad()
def search_greedily(
    network: CodeNetwork, surrogate: Surrogate, sequences: Sequences, decided_S: Tensor, title: str
) -> tuple[Tensor, Tensor]:
    """The present slots of each record (−1 where it has fewer), and the value of each of them at every step.

    There are `DEPTH` steps; all records of a sequence take each step together. The value is −inf at steps after
    the one that chose the slot.
    """
    present_ND = slots_tensor(sequences.x_ND) > 0
    size_N = present_ND.sum(dim=1)
    order_ND = present_ND.to(torch.int8).sort(dim=1, descending=True, stable=True).indices
    slot_NP = order_ND[:, : max(size_N.tolist(), default=0) or 1]
    slot_NP = slot_NP.masked_fill(torch.arange(slot_NP.shape[1]) >= size_N[:, None], -1)
    value_NGP = torch.full((len(slot_NP), DEPTH, slot_NP.shape[1]), -torch.inf)
    by_length = np.argsort(sequences.lengths, kind="stable")
    parts = np.array_split(by_length, -(-len(sequences.x_ND) // AT_ONCE) or 1)
    with progress(title, len(sequences)) as advance:
        for part in parts:
            at = torch.from_numpy(sequences.places(part))
            decided = decided_S[torch.from_numpy(part)]
            value_NGP[at] = _search(network, surrogate, sequences.select(part), slot_NP[at], decided)
            advance(len(part))
    return slot_NP, value_NGP


def _search(
    network: CodeNetwork, surrogate: Surrogate, sequences: Sequences, slot_NP: Tensor, decided_S: Tensor
) -> Tensor:
    x_ND, rows_ST = slots_tensor(sequences.x_ND), rows_of(sequences.starts)
    sequence_N = torch.from_numpy(sequences.sequence_N)
    chosen_ND = torch.zeros_like(x_ND)
    open_NP = slot_NP >= 0
    value_NGP = torch.full((len(slot_NP), DEPTH, slot_NP.shape[1]), -torch.inf)
    for step in range(DEPTH):
        record_X, place_X = open_NP.nonzero(as_tuple=True)
        if not len(record_X):
            break
        slot_X = slot_NP[record_X, place_X]
        tried_XD = chosen_ND[record_X]
        tried_XD[torch.arange(len(slot_X)), slot_X] = x_ND[record_X, slot_X]
        read_Xd = read_codes(network, tried_XD)
        # a candidate replaces its record; the other records of the sequence stay as the step before left them
        read_Nd = read_codes(network, chosen_ND)
        rows_XT = rows_ST[sequence_N[record_X]]
        number_X = torch.arange(len(record_X))[:, None] + len(read_Nd)
        rows_XT = torch.where(rows_XT == record_X[:, None], number_X, rows_XT)
        log_p_XQ = surrogate(torch.cat([read_Nd, read_Xd]), rows_XT).log_softmax(dim=1)
        value_NGP[record_X, step, place_X] = log_p_XQ.gather(1, decided_S[sequence_N[record_X], None])[:, 0]
        # records without an open slot are done
        best_N = value_NGP[:, step].argmax(dim=1)
        active_N = open_NP.any(dim=1).nonzero()[:, 0]
        best_slot_N = slot_NP[active_N, best_N[active_N]]
        chosen_ND[active_N, best_slot_N] = x_ND[active_N, best_slot_N]
        open_NP[active_N, best_N[active_N]] = False
    return value_NGP
