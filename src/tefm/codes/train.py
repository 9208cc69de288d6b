"""Training the tokenizer's network: warm up, quantise, settle.

1. Warm-up: encoder and decoder learn without the quantiser.
2. Quantised: k-means gives the codebooks their start; dead entries are replaced as they appear.
3. Settle: Lloyd iterations leave no entry unused, and the decoder is fitted to the final codes.

Every random draw depends on the seed and the step alone, so a run that was killed and resumed
from its checkpoint ends with the same weights as one that was not.

Shapes: N records, D slots, d latent, K levels, Q label targets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tefm.base.errors import ArtefactError, SettingsError
from tefm.base.files import replacing
from tefm.base.progress import progress
from tefm.codes.config import TokenizerConfig
from tefm.codes.network import CodeNetwork, ReconstructionLoss
from tefm.codes.quantiser import straight_through
from tefm.records.layout import Layout

#: Dead entries are looked for this often, until the last share of the steps, which lets the rest come to rest.
DEAD_EVERY = 100
DEAD_UNTIL = 0.85
#: Records whose latents initialise and settle the codebooks.
LATENTS = 50_000
CHUNK = 8_192


@dataclass(frozen=True)
class TrainingData:
    """Slots to learn from and to validate on, with what the label head is to tell."""

    x_ND: Tensor
    validation_ND: Tensor
    targets_NQ: Tensor | None = None
    validation_targets_NQ: Tensor | None = None

    def to(self, device: torch.device) -> TrainingData:
        return TrainingData(
            *(None if part is None else part.to(device) for part in vars(self).values())  # type: ignore[arg-type]
        )


@dataclass
class History:
    """What happened during training."""

    validation: list[tuple[int, float]] = field(default_factory=list)
    replaced: int = 0
    stopped_at: int = 0
    best_step: int = 0
    resumed_from: int = 0


@dataclass
class _Best:
    loss: float = math.inf
    state: dict[str, Tensor] = field(default_factory=dict)


class Trainer:
    """One training run. `run` returns the trained network."""

    def __init__(
        self,
        layout: Layout,
        config: TokenizerConfig,
        data: TrainingData,
        *,
        device: torch.device,
        checkpoint: Path | None = None,
        fingerprint: str = "",
    ) -> None:
        self.config, self.checkpoint, self.device = config, checkpoint, device
        self.fingerprint = fingerprint
        self.data = data.to(device)
        torch.manual_seed(config.seed)
        targets = 0 if data.targets_NQ is None else data.targets_NQ.shape[1]
        self.network = CodeNetwork(layout, config, targets=targets).to(device)
        self.network.start_at_frequencies(self.data.x_ND[self._sample()])
        self.loss = ReconstructionLoss(layout, config, self.data.x_ND)
        trained = [p for p in self.network.parameters() if p.requires_grad]
        self.optimiser = torch.optim.AdamW(trained, lr=config.learning_rate, weight_decay=config.weight_decay)
        self.warm_steps = int(config.warm_share * config.steps)
        self.history = History()
        self.best = _Best()
        self.step = 0
        #: the order of the rows in the current pass
        self.order_N: tuple[int, Tensor] | None = None

    # ---- the run ----------------------------------------------------------------------------------------------

    def run(self) -> CodeNetwork:
        self._resume()
        check_every = max(1, self.config.steps // self.config.checks)
        self.network.train()
        with progress("training the tokenizer", self.config.steps, done=self.step) as advance:
            while self.step < self.config.steps and not self._out_of_patience(check_every):
                loss = self._update()
                self.step += 1
                advance(1)
                checked = self.step % check_every == 0 or self.step == self.config.steps
                if checked and self.step > self.warm_steps:
                    self._validate()
                if checked:
                    self._save()
                    advance(0, note=f"loss {float(loss):.3f}")
        self.history.stopped_at = self.step
        if self.best.state:
            self.network.load_state_dict(self.best.state)
        self.network.eval()
        if self.config.settle:
            self._settle()
        self._choose_threshold()
        return self.network

    def _update(self) -> Tensor:
        config, network = self.config, self.network
        if self.step == self.warm_steps:
            self._initialise_codebooks()
        draw = self._generator("step", self.step)
        rows = self._rows()
        x_ND = self.data.x_ND[rows]
        latent_Nd = network.encode_latent(x_ND, self._mask(x_ND, draw))
        quantised = None
        given_Nd, extra = latent_Nd, latent_Nd.new_zeros(())
        if self.step >= self.warm_steps:
            quantised = network.quantiser(latent_Nd)
            given_Nd = straight_through(latent_Nd, quantised.latent_Nd, config.straight_through)
            extra = config.commitment * quantised.commitment
            if config.codebook == "gradient":
                extra = extra + quantised.codebook
        targets = None if self.data.targets_NQ is None else self.data.targets_NQ[rows]
        loss = self._record_loss(given_Nd, x_ND, targets).mean() + extra
        self.optimiser.param_groups[0]["lr"] = config.learning_rate * self._schedule(self.step, config.steps)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        self.optimiser.step()
        if quantised is not None:
            network.quantiser.follow(quantised)
            if config.replace_dead and (self.step + 1) % DEAD_EVERY == 0 and self.step < DEAD_UNTIL * config.steps:
                self.history.replaced += network.quantiser.replace_dead(quantised, self._generator("dead", self.step))
        return loss.detach()

    def _record_loss(self, given_Nd: Tensor, x_ND: Tensor, targets_NQ: Tensor | None) -> Tensor:
        """Reconstruction, plus the label head's squared error on the teacher's log-odds."""
        loss_N: Tensor = self.loss(self.network, given_Nd, x_ND)
        if self.network.head is not None and targets_NQ is not None:
            miss_NQ = self.network.head(given_Nd) - targets_NQ
            loss_N = loss_N + self.config.label_weight * miss_NQ.square().mean(dim=1)
        return loss_N

    def _mask(self, x_ND: Tensor, draw: torch.Generator) -> Tensor | None:
        """Which slots each record is shown with: a share of the records lose a random part of theirs."""
        if not self.config.mask_share:
            return None
        masked_N1 = torch.rand(len(x_ND), 1, generator=draw, device=self.device) < self.config.mask_share
        retention_N1 = 0.05 + 0.95 * torch.rand(len(x_ND), 1, generator=draw, device=self.device)
        kept_ND = torch.rand(x_ND.shape, generator=draw, device=self.device) < retention_N1
        return kept_ND | ~masked_N1

    def _initialise_codebooks(self) -> None:
        self.network.quantiser.initialise(self._latents(), self._generator("k-means"))

    @torch.no_grad()
    def _latents(self) -> Tensor:
        """Latents of (a sample of) the training records."""
        chunks = self.data.x_ND[self._sample()].split(CHUNK)
        return torch.cat([self.network.encode_latent(chunk) for chunk in chunks])

    # ---- randomness and schedule: functions of seed and step --------------------------------------------------

    def _generator(self, purpose: str, number: int = 0) -> torch.Generator:
        purposes = ("step", "epoch", "dead", "k-means", "sample", "settle")
        seed = (self.config.seed * len(purposes) + purposes.index(purpose)) * 1_000_003 + number
        on_device = purpose in ("step", "settle")  # the others are drawn on the CPU, whatever trains
        return torch.Generator(device=self.device if on_device else "cpu").manual_seed(seed)

    def _sample(self) -> Tensor:
        """Rows that stand for all training rows where all would take too long."""
        return torch.randperm(len(self.data.x_ND), generator=self._generator("sample"))[:LATENTS].to(self.device)

    def _rows(self) -> Tensor:
        """The training rows of this step: passes over all rows, each in its own order."""
        assert self.config.batch is not None
        rows, batch = len(self.data.x_ND), min(self.config.batch, len(self.data.x_ND))
        epoch, place = divmod(self.step, rows // batch)
        if self.order_N is None or self.order_N[0] != epoch:
            self.order_N = epoch, torch.randperm(rows, generator=self._generator("epoch", epoch)).to(self.device)
        return self.order_N[1][place * batch : (place + 1) * batch]

    @staticmethod
    def _schedule(step: int, steps: int, warm: int = 100) -> float:
        """Linear warm-up, then a cosine down to 2%."""
        return min(1.0, (step + 1) / warm) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))

    # ---- validation and stopping ------------------------------------------------------------------------------

    @torch.no_grad()
    def _validate(self) -> None:
        """The loss of validation records through their greedy codes; the best state is kept."""
        self.network.eval()
        total = 0.0
        targets = self.data.validation_targets_NQ
        for rows in _chunks(len(self.data.validation_ND)):
            x_ND = self.data.validation_ND[rows]
            given_Nd = self.network.quantiser(self.network.encode_latent(x_ND)).latent_Nd
            total += float(self._record_loss(given_Nd, x_ND, None if targets is None else targets[rows]).sum())
        self.network.train()
        loss = total / len(self.data.validation_ND)
        if not math.isfinite(loss):
            raise SettingsError(
                f"training diverged at step {self.step}: the loss is {loss}",
                value=self.config.learning_rate,
                remedy=f"lower the learning rate (--set learning_rate={self.config.learning_rate / 10:g})",
            )
        self.history.validation.append((self.step, loss))
        if loss < self.best.loss:
            state = {name: value.detach().clone() for name, value in self.network.state_dict().items()}
            self.best = _Best(loss, state)
            self.history.best_step = self.step

    def _out_of_patience(self, check_every: int) -> bool:
        since = self.step - self.history.best_step
        return bool(self.history.best_step) and since >= self.config.patience * check_every

    # ---- the end ----------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Codebooks come to rest on the final latents; the decoder and the head learn the final codes."""
        network, config = self.network, self.config
        network.quantiser.settle(self._latents(), config.settle)
        sample = self._sample()
        x_ND = self.data.x_ND[sample]
        targets_NQ = None if self.data.targets_NQ is None else self.data.targets_NQ[sample]
        with torch.no_grad():
            codes_NK = torch.cat([network.encode(chunk) for chunk in x_ND.split(CHUNK)])
        parts = [network.decoder, *([network.head] if network.head is not None else [])]
        optimiser = torch.optim.AdamW([p for part in parts for p in part.parameters()], lr=config.learning_rate / 2)
        draw = self._generator("settle")
        steps = max(1, config.steps // 10)
        for step in range(steps):
            rows = torch.randint(len(x_ND), (min(config.batch or 1, len(x_ND)),), generator=draw, device=self.device)
            targets = None if targets_NQ is None else targets_NQ[rows]
            given_Nd = network.quantiser.embed(codes_NK[rows]).detach()
            loss = self._record_loss(given_Nd, x_ND[rows], targets).mean()
            optimiser.param_groups[0]["lr"] = config.learning_rate / 2 * self._schedule(step, steps, warm=10)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()

    @torch.no_grad()
    def _choose_threshold(self) -> None:
        """The probability above which a member counts as present: best F1 on validation records."""
        member_D = self.network.member_D
        if not bool(member_D.any()):
            return
        grid = torch.arange(0.05, 0.96, 0.05, device=self.device)
        hits, said, present = torch.zeros_like(grid), torch.zeros_like(grid), 0.0
        for rows in _chunks(len(self.data.validation_ND)):
            x_ND = self.data.validation_ND[rows]
            score = self.network.member_scores(self.network.quantiser.embed(self.network.encode(x_ND)))
            truth = x_ND[:, member_D] > 0
            present += float(truth.sum())
            for i, cut in enumerate(grid):
                claim = score > cut
                hits[i] += (claim & truth).sum()
                said[i] += claim.sum()
        self.network.threshold.copy_(grid[(2 * hits / (said + present).clamp_min(1)).argmax()])

    # ---- checkpoints ------------------------------------------------------------------------------------------

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        body: dict[str, Any] = {
            "fingerprint": self.fingerprint,
            "step": self.step,
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "best_loss": self.best.loss,
            "best_state": self.best.state,
            "validation": self.history.validation,
            "replaced": self.history.replaced,
            "best_step": self.history.best_step,
        }
        with replacing(self.checkpoint) as temporary:
            torch.save(body, temporary)

    def _resume(self) -> None:
        if self.checkpoint is None or not self.checkpoint.exists():
            return
        try:
            body = torch.load(self.checkpoint, map_location=self.device, weights_only=True)
        except Exception as error:  # torch raises whatever the unpickler met
            raise ArtefactError(
                "this checkpoint cannot be read", file=self.checkpoint, remedy="delete it to start again"
            ) from error
        if body["fingerprint"] != self.fingerprint:
            raise ArtefactError(
                "this checkpoint is of other data or other settings",
                file=self.checkpoint,
                remedy="delete it to start again, or give the table and settings it was begun with",
            )
        self.step = int(body["step"])
        self.network.load_state_dict(body["network"])
        self.optimiser.load_state_dict(body["optimiser"])
        self.best = _Best(float(body["best_loss"]), body["best_state"])
        self.history = History(
            validation=[(int(step), float(loss)) for step, loss in body["validation"]],
            replaced=int(body["replaced"]),
            best_step=int(body["best_step"]),
            resumed_from=self.step,
        )


def _chunks(rows: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, rows, CHUNK))
