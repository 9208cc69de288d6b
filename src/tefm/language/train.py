"""The training loop of the language stages: one process or several, killed at any moment and resumed.

What a step sees depends on the seed and the step alone, and every process knows the whole batch and takes its share,
so the number of processes and of parts changes the result by rounding only.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tefm.base.errors import ArtefactError, SettingsError
from tefm.base.files import replacing
from tefm.base.progress import progress
from tefm.language.backbone import Backbone, autocast
from tefm.language.batches import NOTHING, Batch
from tefm.language.config import TrainConfig
from tefm.language.vocabulary import TokenIds


@dataclass
class History:
    """What happened during training."""

    steps: int = 0
    stopped_at: int = 0
    best_step: int = 0
    resumed_from: int = 0
    loss: list[tuple[int, float]] = field(default_factory=list)
    validation: list[tuple[int, float]] = field(default_factory=list)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def train(
    backbone: Backbone,
    ids: TokenIds | None,
    batch_of: Callable[[int], Batch],
    steps: int,
    config: TrainConfig,
    *,
    what: str,
    validate: Callable[[], float] | None = None,
    checkpoint: Path | None = None,
    fingerprint: str = "",
) -> History:
    """Train the backbone's model in place; it ends with the weights that validated best.

    `batch_of(step)` is the whole batch of a step. `validate` gives a loss, the lower the better.
    """
    run = _Run(backbone, ids, steps, config, checkpoint, _fingerprint(config, steps, fingerprint))
    history = run.resume()
    check_every = max(1, steps // config.checks) if validate else max(1, steps // 20)
    started, saved = time.perf_counter(), time.perf_counter()
    with ThreadPoolExecutor(max_workers=1) as ahead, progress(what, steps, done=run.step, show=run.main) as advance:
        coming = ahead.submit(batch_of, run.step)
        while run.step < steps and not run.out_of_patience(check_every):
            batch = coming.result()
            if run.step + 1 < steps:
                coming = ahead.submit(batch_of, run.step + 1)
            run.update(batch)
            advance(1)
            if run.step % check_every == 0 or run.step == steps:
                advance(0, note=run.check(run.step % check_every or check_every, validate))
            if time.perf_counter() - saved >= config.save_every and run.step < steps:
                run.save()
                saved = time.perf_counter()
    history.seconds += time.perf_counter() - started
    history.steps, history.stopped_at = steps, run.step
    run.finish()
    return history


def target_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The summed loss of the targets; logits are made where targets are, at the right edge."""
    keep = batch.labels_BL.shape[1] + 1
    logits_BLV = model(**batch.inputs, logits_to_keep=keep, use_cache=False).logits[:, :-1]
    wanted_BL = batch.labels_BL != NOTHING
    return nn.functional.cross_entropy(logits_BLV[wanted_BL].float(), batch.labels_BL[wanted_BL], reduction="sum")


class _Run:
    """The state of one training run."""

    def __init__(
        self,
        backbone: Backbone,
        ids: TokenIds | None,
        steps: int,
        config: TrainConfig,
        checkpoint: Path | None,
        fingerprint: str,
    ) -> None:
        from accelerate import Accelerator

        device = backbone.device
        self.accelerator = Accelerator(cpu=device.type == "cpu")
        self.backbone, self.config, self.steps = backbone, config, steps
        self.checkpoint, self.fingerprint = checkpoint, fingerprint
        self.device, self.main = self.accelerator.device, self.accelerator.is_main_process
        if config.checkpointing:
            backbone.model.gradient_checkpointing_enable()
        model = learning(backbone, ids, config)
        model.train()
        self.names = [name for name, weight in model.named_parameters() if weight.requires_grad]
        optimiser = torch.optim.AdamW(_groups(model, config), lr=config.learning_rate)
        self.learning = model
        self.model, self.optimiser = self.accelerator.prepare(model, optimiser)
        self.warmup = config.warmup_steps(steps)
        self.step = 0
        #: the sum of the losses since the last check, of this process's share of the batches
        self.running = torch.zeros((), device=self.device)
        self.best = math.inf
        self.best_weights: dict[str, Tensor] = {}
        self.history = History()

    # ---- a step -----------------------------------------------------------------------------------------------

    def update(self, batch: Batch) -> None:
        """One step on a whole batch."""
        rate = self._rate(self.step)
        for group in self.optimiser.param_groups:
            group["lr"] = self.config.learning_rate * rate
        world, rank = self.accelerator.num_processes, self.accelerator.process_index
        per_target = world / max(1, batch.targets)
        parts = self.config.accumulate
        for number in range(parts):
            share = batch.part(slice(rank * parts + number, None, world * parts)).to(self.device)
            last = number == parts - 1
            with nullcontext() if last else self.accelerator.no_sync(self.model):
                loss = self._loss(share) * per_target
                self.accelerator.backward(loss)
            self.running += loss.detach()
        self.accelerator.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.step += 1

    def _loss(self, batch: Batch) -> Tensor:
        """The summed loss over the targets of a batch."""
        with autocast(self.device):
            return target_loss(self.model, batch)

    def _rate(self, step: int) -> float:
        if step < self.warmup:
            return (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        match self.config.schedule:
            case "cosine":
                return 0.5 * (1 + math.cos(math.pi * done))
            case "linear":
                return 1 - done
        return 1.0

    # ---- validation -------------------------------------------------------------------------------------------

    def check(self, since: int, validate: Callable[[], float] | None) -> str:
        """Write down how it goes, `since` steps after the last time; returns it in words."""
        loss = float(self.running) / since
        self.running.zero_()
        if not math.isfinite(loss):
            raise SettingsError(f"the loss is no number any more at step {self.step}", remedy="lower the learning_rate")
        self.history.loss.append((self.step, loss))
        if validate is None:
            return f"loss {loss:.3f}"
        self.keep_best(validate)
        return f"loss {loss:.3f}, validation {self.history.validation[-1][1]:.4f}"

    def keep_best(self, validate: Callable[[], float]) -> None:
        from accelerate.utils import broadcast_object_list

        self.learning.eval()
        with torch.no_grad():
            # all processes go by the first one's figure: they must stop at the same step
            loss = broadcast_object_list([validate()])[0]
        self.learning.train()
        self.history.validation.append((self.step, loss))
        if loss < self.best:
            self.best, self.history.best_step = loss, self.step
            self.best_weights = {name: weight.to("cpu", copy=True) for name, weight in self._weights().items()}

    def out_of_patience(self, check_every: int) -> bool:
        return bool(self.best_weights) and self.step - self.history.best_step >= self.config.patience * check_every

    def finish(self) -> None:
        """Leave the best weights in the backbone, adapters merged into it."""
        if self.best_weights:
            self._load(self.best_weights)
        self.accelerator.wait_for_everyone()
        if self.config.trains != "full":
            self.backbone.model = self.learning.merge_and_unload()
        if self.config.checkpointing:
            self.backbone.model.gradient_checkpointing_disable()
        self.backbone.model.requires_grad_(True).eval()
        self.accelerator.free_memory()
        if self.main and self.checkpoint is not None:
            self.checkpoint.unlink(missing_ok=True)

    # ---- going on after a kill --------------------------------------------------------------------------------

    def _weights(self) -> dict[str, Tensor]:
        """The weights that learn."""
        known = dict(self.learning.named_parameters())
        return {name: known[name].detach() for name in self.names}

    def _load(self, weights: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, weight in self._weights().items():
                weight.copy_(weights[name])

    def save(self) -> None:
        if self.checkpoint is None or not self.main:
            return
        with replacing(self.checkpoint) as temporary:
            torch.save(
                {
                    "fingerprint": self.fingerprint,
                    "step": self.step,
                    "running": self.running,
                    "weights": self._weights(),
                    "optimiser": self.optimiser.state_dict(),
                    "best": self.best,
                    "best_weights": self.best_weights,
                    "history": asdict(self.history),
                },
                temporary,
            )

    def resume(self) -> History:
        if self.checkpoint is None or not self.checkpoint.is_file():
            return self.history
        try:
            state = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
            found = state["fingerprint"]
        except Exception as error:
            raise ArtefactError(
                f"this checkpoint cannot be read: {error}", file=self.checkpoint, remedy="delete it to start afresh"
            ) from error
        if found != self.fingerprint:
            raise SettingsError(
                "this checkpoint belongs to other data or settings",
                file=self.checkpoint,
                remedy="delete it to start afresh, or give the settings it was made with",
            )
        self._load(state["weights"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.step, self.best, self.best_weights = state["step"], state["best"], state["best_weights"]
        self.running.copy_(state["running"])
        self.history = History(**state["history"])
        self.history.resumed_from = self.step
        return self.history


# ---- what learns ------------------------------------------------------------------------------------------------


def learning(backbone: Backbone, ids: TokenIds | None, config: TrainConfig) -> Any:
    """The model with the weights that are to learn: all, adapters and the new rows, or the new rows alone."""
    model = backbone.model
    if config.trains == "full":
        return model.requires_grad_(True)
    rows = ids.all if ids is not None else []
    if config.trains == "rows" and not rows:
        raise SettingsError("there are no new rows to train", remedy="train on codes, or set trains: full or lora")
    from peft import LoraConfig, TrainableTokensConfig, get_peft_model

    names = None  # the embedding, and with it the head that shares its rows
    if not backbone.tied:
        # a head of its own has rows of the new tokens too: as long as they do not learn, no code can be written
        tables = (model.get_input_embeddings(), model.get_output_embeddings())
        names = [name for name, part in model.named_modules() if any(part is table for table in tables)]
    torch.manual_seed(config.seed)
    if config.trains == "rows":
        return get_peft_model(model, TrainableTokensConfig(token_indices=rows, target_modules=names))
    adapters = LoraConfig(
        r=config.rank,
        lora_alpha=2 * config.rank,
        target_modules="all-linear",
        trainable_token_indices=(dict.fromkeys(names, rows) if names else rows) if rows else None,
    )
    return get_peft_model(model, adapters)


def _groups(model: nn.Module, config: TrainConfig) -> list[dict[str, Any]]:
    """Weight matrices decay; norms, biases, embeddings and token rows do not: a decayed row is a forgotten word."""
    embeddings = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    decayed: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            row = id(weight) in embeddings or "trainable_tokens" in name
            (rest if row or weight.ndim < 2 else decayed).append(weight)
    groups = [(decayed, config.weight_decay), (rest, 0.0)]
    return [{"params": weights, "weight_decay": decay} for weights, decay in groups if weights]


def _fingerprint(config: TrainConfig, steps: int, data: str) -> str:
    return hashlib.sha256(f"{config.model_dump_json()}\0{steps}\0{data}".encode()).hexdigest()
