"""Training the tokenizer's network: warm up, quantise, settle.

1. Warm-up: encoder and decoder learn without the quantiser.
2. Quantised: k-means initialises the codebooks; dead entries are replaced as they appear.
3. Settle: Lloyd iterations leave no entry unused, and the decoder is fitted to the final codes.

Every random draw depends only on the seed and the step, so a resumed run ends with the same weights.

Shapes: N records, D slots, d latent, K levels, Q label targets.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tefm.base.errors import SettingsError
from tefm.base.progress import progress
from tefm.base.training import History, KeepBest, adamw, load_checkpoint, save_checkpoint
from tefm.codes.config import TokenizerConfig
from tefm.codes.network import CodeNetwork, slot_weights
from tefm.codes.quantiser import straight_through
from tefm.tables.layout import Layout, Slots

#: β, the weight of the commitment loss: how strongly the encoder is pulled towards its codebook entries.
COMMITMENT = 0.25
WEIGHT_DECAY = 1e-4
#: Validation checks per run, and those without improvement after which training stops.
CHECKS, PATIENCE = 20, 6
#: Dead entries are replaced every `DEAD_EVERY` steps, up to this share of all: in the rest, the codebooks settle.
DEAD_EVERY = 100
DEAD_UNTIL = 0.85
#: The most records whose latents initialise and settle the codebooks.
LATENTS = 50_000
#: Records per forward pass outside of training.
CHUNK = 8_192


class Lessons(NamedTuple):
    """The targets of the label head: of the training and the validation records, and of mixed records.

    With two classes the target is the standardised log-odds, whose spread does not depend on how rare a class is: among
    the many records of a small probability the order counts too. With more classes it is the log-probabilities: an
    error in the odds of a class counts as much as the class is probable.
    """

    training_NQ: Tensor
    validation_NQ: Tensor
    mixed_MD: Tensor
    mixed_MQ: Tensor

    @classmethod
    def of(
        cls,
        log_NQ: NDArray[np.float32],
        held_out_N: NDArray[np.bool_],
        mixed_MD: NDArray[Any],
        mixed_log_MQ: NDArray[np.float32],
    ) -> Lessons:
        targets_NQ, mixed_MQ = log_NQ, mixed_log_MQ
        if log_NQ.shape[1] == 2:
            odds_N1, mixed_M1 = (log[:, 1:] - log[:, :1] for log in (log_NQ, mixed_log_MQ))
            mean, spread = odds_N1.mean(), odds_N1.std() + 1e-9
            targets_NQ, mixed_MQ = (odds_N1 - mean) / spread, (mixed_M1 - mean) / spread
        return cls(*map(torch.from_numpy, (targets_NQ[~held_out_N], targets_NQ[held_out_N], mixed_MD, mixed_MQ)))


class Trainer:
    """One training run. `run` returns the trained network."""

    def __init__(
        self,
        layout: Layout,
        config: TokenizerConfig,
        x_ND: Slots,
        validation_ND: Slots,
        lessons: Lessons | None = None,
        *,
        device: torch.device,
        checkpoint: Path | None = None,
        fingerprint: str = "",
    ) -> None:
        self.config, self.recipe, self.checkpoint, self.device = config, config.made, checkpoint, device
        self.fingerprint = fingerprint
        self.x_ND, self.validation_ND = (torch.from_numpy(slots).to(device) for slots in (x_ND, validation_ND))
        self.lessons = None if lessons is None else Lessons(*(part.to(device) for part in lessons))
        torch.manual_seed(config.seed)
        targets = 0 if lessons is None else lessons.training_NQ.shape[1]
        self.network = CodeNetwork(layout, config, targets=targets).to(device)
        self.network.start_at_frequencies(self.x_ND[self._sample()])
        self.weight_D = slot_weights(layout, config, self.x_ND)
        trained = [p for p in self.network.parameters() if p.requires_grad]
        self.optimiser = adamw(trained, device=device, lr=config.learning_rate, weight_decay=WEIGHT_DECAY)
        self.warm_steps = int(self.recipe.warm_share * config.steps)
        #: records per step: about 32 batches per pass over small tables, at most 512 records each
        self.batch = min(len(x_ND), max(16, min(512, len(x_ND) // 32)))
        self.history = History()
        self.best = KeepBest()
        self.step = 0
        #: the order of the rows in the current pass
        self.order_N: tuple[int, Tensor] | None = None

    # ---- the run ----------------------------------------------------------------------------------------------

    def run(self) -> CodeNetwork:
        self._resume()
        check_every = max(1, self.config.steps // CHECKS)
        patience = PATIENCE * check_every
        self.network.train()
        with progress("training the tokenizer", self.config.steps, done=self.step) as advance:
            while self.step < self.config.steps and not self.best.exhausted(self.step, patience=patience):
                loss = self.update()
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
        if self.recipe.settle:
            self._settle()
        self._choose_threshold()
        return self.network

    def update(self) -> Tensor:
        """One training step; returns its loss."""
        config, network = self.config, self.network
        if self.step == self.warm_steps:
            network.quantiser.initialise(self._latents(), self._generator("k-means"))
        generator = self._generator("step", self.step)
        rows = self._rows()
        x_ND = self.x_ND[rows]
        latent_Nd = network.encode_latent(x_ND, self._mask(x_ND, generator))
        quantised = None
        decoded_Nd, codebook_loss = latent_Nd, latent_Nd.new_zeros(())
        if self.step >= self.warm_steps:
            quantised = network.quantiser(latent_Nd)
            decoded_Nd = straight_through(latent_Nd, quantised.latent_Nd)
            codebook_loss = COMMITMENT * quantised.commitment
            if self.recipe.gradient:
                codebook_loss = codebook_loss + quantised.codebook
        lessons = self.lessons
        targets_NQ = None if lessons is None else lessons.training_NQ[rows]
        loss = self._record_loss(decoded_Nd, x_ND, targets_NQ).mean() + codebook_loss
        if lessons is not None:
            loss = loss + self._mixed_loss(lessons, len(rows), generator)
        self.optimiser.param_groups[0]["lr"] = config.learning_rate * self._schedule(self.step, config.steps)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        self.optimiser.step()
        if quantised is not None:
            network.quantiser.follow(quantised)
            if (self.step + 1) % DEAD_EVERY == 0 and self.step < DEAD_UNTIL * config.steps:
                self.history.replaced += network.quantiser.replace_dead(quantised, self._generator("dead", self.step))
        self.step += 1
        return loss.detach()

    def _record_loss(self, latent_Nd: Tensor, x_ND: Tensor, targets_NQ: Tensor | None) -> Tensor:
        """Reconstruction from a latent, plus the error of the label head."""
        loss_N = self.network.loss(latent_Nd, x_ND, self.weight_D)
        return loss_N if targets_NQ is None else loss_N + self._label_loss(latent_Nd, targets_NQ)

    def _label_loss(self, latent_Nd: Tensor, targets_NQ: Tensor) -> Tensor:
        """The squared error of the log-odds of two classes; of more, how far the probabilities are from the targets."""
        assert self.network.head is not None
        of_two, of_more = self.recipe.label_weights
        out_NQ: Tensor = self.network.head(latent_Nd)
        if targets_NQ.shape[1] == 1:
            return of_two * (out_NQ - targets_NQ).square().mean(dim=1)
        divergence_NQ = F.kl_div(out_NQ.log_softmax(dim=1), targets_NQ, reduction="none", log_target=True)
        return of_more * divergence_NQ.sum(dim=1)

    def _mixed_loss(self, lessons: Lessons, count: int, generator: torch.Generator) -> Tensor:
        """The error of the label head on mixed records. Codes are not made for them: they are no real records."""
        rows = torch.randint(len(lessons.mixed_MD), (count,), generator=generator, device=self.device)
        return self._label_loss(self.network.encode_latent(lessons.mixed_MD[rows]), lessons.mixed_MQ[rows]).mean()

    def _mask(self, x_ND: Tensor, generator: torch.Generator) -> Tensor | None:
        """Which slots the encoder sees: a share of the records lose a random part of theirs."""
        if not self.recipe.mask_share:
            return None
        masked_N1 = torch.rand(len(x_ND), 1, generator=generator, device=self.device) < self.recipe.mask_share
        retention_N1 = 0.05 + 0.95 * torch.rand(len(x_ND), 1, generator=generator, device=self.device)
        keep_ND = torch.rand(x_ND.shape, generator=generator, device=self.device) < retention_N1
        return keep_ND | ~masked_N1

    @torch.no_grad()
    def _latents(self) -> Tensor:
        """Latents of (a sample of) the training records."""
        chunks = self.x_ND[self._sample()].split(CHUNK)
        return torch.cat([self.network.encode_latent(chunk) for chunk in chunks])

    # ---- randomness and schedule: functions of seed and step --------------------------------------------------

    def _generator(self, purpose: str, number: int = 0) -> torch.Generator:
        purposes = ("step", "epoch", "dead", "k-means", "sample", "settle")
        seed = (self.config.seed * len(purposes) + purposes.index(purpose)) * 1_000_003 + number
        on_device = purpose in ("step", "settle")  # the others are drawn on the CPU, whatever the device
        return torch.Generator(device=self.device if on_device else "cpu").manual_seed(seed)

    def _sample(self) -> Tensor:
        """A sample of the training rows, for what would take too long on all of them."""
        return torch.randperm(len(self.x_ND), generator=self._generator("sample"))[:LATENTS].to(self.device)

    def _rows(self) -> Tensor:
        """The training rows of this step: every pass over all rows has its own order."""
        rows, batch = len(self.x_ND), self.batch
        epoch, position = divmod(self.step, rows // batch)
        if self.order_N is None or self.order_N[0] != epoch:
            self.order_N = epoch, torch.randperm(rows, generator=self._generator("epoch", epoch)).to(self.device)
        return self.order_N[1][position * batch : (position + 1) * batch]

    @staticmethod
    def _schedule(step: int, steps: int, warm: int = 100) -> float:
        """Linear warm-up, then a cosine down to 2%."""
        return min(1.0, (step + 1) / warm) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))

    # ---- validation and stopping ------------------------------------------------------------------------------

    @torch.no_grad()
    def _validate(self) -> None:
        """Measure the loss of validation records from their greedy codes, and keep the best state."""
        self.network.eval()
        total, lessons = 0.0, self.lessons
        for start in range(0, len(self.validation_ND), CHUNK):
            rows = slice(start, start + CHUNK)
            x_ND = self.validation_ND[rows]
            latent_Nd = self.network.quantiser(self.network.encode_latent(x_ND)).latent_Nd
            loss_N = self._record_loss(latent_Nd, x_ND, None if lessons is None else lessons.validation_NQ[rows])
            total += float(loss_N.sum())
        self.network.train()
        loss = total / len(self.validation_ND)
        if not math.isfinite(loss):
            raise SettingsError(
                f"training diverged at step {self.step}: the loss is {loss}",
                value=self.config.learning_rate,
                remedy=f"lower the learning rate (--set learning_rate={self.config.learning_rate / 10:g})",
            )
        self.history.validation.append((self.step, loss))
        self.best.offer(self.step, loss, self.network.state_dict())
        self.history.best_step = self.best.step

    # ---- after the last step ----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Fit the codebooks to the final latents, then the decoder and the head to the final codes."""
        network, config = self.network, self.config
        network.quantiser.settle(self._latents(), self.recipe.settle)
        sample = self._sample()
        x_ND = self.x_ND[sample]
        targets_NQ = None if self.lessons is None else self.lessons.training_NQ[sample]
        with torch.no_grad():
            codes_NK = torch.cat([network.encode(chunk) for chunk in x_ND.split(CHUNK)])
        parts = [network.decoder, *([network.head] if network.head is not None else [])]
        weights = [p for part in parts for p in part.parameters()]
        optimiser = adamw(weights, device=self.device, lr=config.learning_rate / 2)
        generator = self._generator("settle")
        steps = max(1, config.steps // 10)
        for step in range(steps):
            rows = torch.randint(len(x_ND), (self.batch,), generator=generator, device=self.device)
            latent_Nd = network.quantiser.embed(codes_NK[rows]).detach()
            targets_BQ = None if targets_NQ is None else targets_NQ[rows]
            loss = self._record_loss(latent_Nd, x_ND[rows], targets_BQ).mean()
            optimiser.param_groups[0]["lr"] = config.learning_rate / 2 * self._schedule(step, steps, warm=10)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()

    @torch.no_grad()
    def _choose_threshold(self) -> None:
        """Choose the probability above which a member counts as present: the best F1 on validation records."""
        member_D = self.network.member_D
        if not bool(member_D.any()):
            return
        thresholds = torch.arange(0.05, 0.96, 0.05, device=self.device)
        hits, predicted, present = torch.zeros_like(thresholds), torch.zeros_like(thresholds), 0.0
        for x_ND in self.validation_ND.split(CHUNK):
            score = self.network.member_scores(self.network.quantiser.embed(self.network.encode(x_ND)))
            truth = x_ND[:, member_D] > 0
            present += float(truth.sum())
            for i, threshold in enumerate(thresholds):
                prediction = score > threshold
                hits[i] += (prediction & truth).sum()
                predicted[i] += prediction.sum()
        f1 = 2 * hits / (predicted + present).clamp_min(1)
        self.network.threshold.copy_(thresholds[f1.argmax()])

    # ---- checkpoints ------------------------------------------------------------------------------------------

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        body = {
            "step": self.step,
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "best": vars(self.best),
            "history": vars(self.history),
        }
        save_checkpoint(self.checkpoint, self.fingerprint, body)

    def _resume(self) -> None:
        if self.checkpoint is None or not self.checkpoint.exists():
            return
        body = load_checkpoint(self.checkpoint, self.fingerprint, device=self.device)
        self.step = int(body["step"])
        self.network.load_state_dict(body["network"])
        self.optimiser.load_state_dict(body["optimiser"])
        self.best = KeepBest(**body["best"])
        self.history = History(**{**body["history"], "resumed_from": self.step})
