"""The training loop of the language stages: runs in one process or several, and resumes if interrupted.

The batch of a step depends only on the seed and the step. Every process builds the whole batch and takes its share, so
the number of processes and of accumulation parts changes the result by rounding only.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tefm.base.errors import SettingsError
from tefm.base.progress import progress, warn
from tefm.base.training import History, KeepBest, adamw, ahead, load_checkpoint, save_checkpoint
from tefm.language.backbone import Backbone, autocast
from tefm.language.batches import NOTHING, Batch
from tefm.language.config import TrainConfig

#: How strongly matrices decay, and the maximum norm of the gradient.
WEIGHT_DECAY, CLIP = 0.01, 1.0
#: Training stops after so many validations without an improvement.
PATIENCE = 4
#: Seconds between checkpoints.
SAVE_EVERY = 60.0
#: Steps between two additions to the average of the weights: each reads and writes all of them.
AVERAGE_EVERY = 4
#: The maximum number of tokens that are computed at once: a larger batch is computed in parts.
PART_TOKENS = 16_384
#: How often the learning rate is halved where the loss is not a finite number, before the run stops with an error.
MOST_SLOWED = 4


def train(
    backbone: Backbone,
    codes: Sequence[int],
    batch_of: Callable[[int], Batch],
    steps: int,
    config: TrainConfig,
    *,
    title: str,
    validate: Callable[[], float] | None = None,
    checkpoint: Path | None = None,
    fingerprint: str = "",
) -> History:
    """Train the backbone's model in place; it ends with the weights of the lowest validation loss.

    `codes` are the tokens whose rows are trained where not all weights are. `batch_of(step)` returns the whole batch of
    a step, `validate()` the validation loss, and `title` names the run in the progress display. `fingerprint`
    identifies the data: a checkpoint of other data is refused.
    """
    identity = hashlib.sha256(f"{config.model_dump_json()}\0{steps}\0{fingerprint}".encode()).hexdigest()
    run = _Run(backbone, codes, steps, config, checkpoint, identity)
    run.resume()
    check_every = max(1, steps // config.checks) if validate else max(1, steps // 20)
    started, saved = time.perf_counter(), time.perf_counter()
    batches = ahead(map(batch_of, range(run.step, steps)))
    with progress(title, steps, done=run.step, show=run.main) as advance:
        while run.step < steps and not run.best.exhausted(run.step, patience=PATIENCE * check_every):
            run.update(next(batches))
            advance(1)
            if run.step % check_every == 0 or run.step == steps:
                advance(0, note=run.check(run.step % check_every or check_every, validate))
            if time.perf_counter() - saved >= SAVE_EVERY and run.step < steps:
                run.save()
                saved = time.perf_counter()
    run.history.seconds += time.perf_counter() - started
    run.history.steps, run.history.stopped_at = steps, run.step
    run.finish()
    return run.history


def target_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The summed loss of the targets; logits are computed only where targets are, at the right edge.

    Where a batch knows the probability of each class, the first token of an answer is that of every class, each with
    the probability of its class.
    """
    keep = batch.labels_BL.shape[1] + 1
    logits_BLV = model(**batch.inputs, logits_to_keep=keep, use_cache=False).logits[:, :-1]
    target_BL = batch.labels_BL != NOTHING
    if batch.classes_BAQ is None or batch.first_BAQ is None:
        return nn.functional.cross_entropy(logits_BLV[target_BL].float(), batch.labels_BL[target_BL], reduction="sum")
    first_BL = target_BL & ~nn.functional.pad(target_BL, (1, -1))
    rest_BL = target_BL & ~first_BL
    rest = nn.functional.cross_entropy(logits_BLV[rest_BL].float(), batch.labels_BL[rest_BL], reduction="sum")
    row_X, answer_X = first_BL.nonzero()[:, 0], (first_BL.cumsum(dim=1) - 1)[first_BL]
    log_XQ = logits_BLV[first_BL].float().log_softmax(dim=1).gather(1, batch.first_BAQ[row_X, answer_X])
    first: Tensor = -(batch.classes_BAQ[row_X, answer_X] * log_XQ).sum()
    return first + rest


class _Run:
    """The state of one training run."""

    def __init__(
        self,
        backbone: Backbone,
        codes: Sequence[int],
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
        model = trainable_model(backbone, codes, config)
        model.train()
        optimiser = adamw(_groups(model), device=device, lr=config.learning_rate)
        self.trainable = model
        self.model, self.optimiser = self.accelerator.prepare(model, optimiser)
        #: the weights that are trained; they are changed in place
        self.weights = {name: weight.detach() for name, weight in model.named_parameters() if weight.requires_grad}
        self.step = 0
        #: the sum of the losses since the last check, of this process's share of the batches
        self.running = torch.zeros((), device=self.device)
        #: the moving average of the weights, where there is one
        self.average = {name: weight.clone() for name, weight in self.weights.items()} if config.average else {}
        self.best = KeepBest()
        #: the weights to go back to until there are best ones
        self.start = {name: weight.to("cpu", copy=True) for name, weight in self.weights.items()}
        self.history = History()

    # ---- a step -----------------------------------------------------------------------------------------------

    def update(self, batch: Batch) -> None:
        """One step on a whole batch."""
        rate = self.config.rate(self.step, self.steps) * 0.5**self.history.slowed
        for group in self.optimiser.param_groups:
            group["lr"] = self.config.learning_rate * rate
        world, rank = self.accelerator.num_processes, self.accelerator.process_index
        per_target = world / max(1, batch.targets)
        parts = max(self.config.accumulate, math.ceil(batch.ids_BT.numel() / (world * PART_TOKENS)))
        for number in range(parts):
            share = batch.part(slice(rank * parts + number, None, world * parts)).to(self.device)
            last = number == parts - 1
            with nullcontext() if last else self.accelerator.no_sync(self.model):
                with autocast(self.device):
                    loss = target_loss(self.model, share)
                loss = loss * per_target
                self.accelerator.backward(loss)
            self.running += loss.detach()
        self.accelerator.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.step += 1
        if self.average and (self.step < AVERAGE_EVERY or self.step % AVERAGE_EVERY == 0):
            # the mean of all steps so far, and once there are enough of them a moving average
            part = min(1.0, AVERAGE_EVERY / min(self.step, self.config.average * self.steps))
            for name, weight in self.weights.items():
                self.average[name].lerp_(weight, part)

    # ---- validation -------------------------------------------------------------------------------------------

    def check(self, since: int, validate: Callable[[], float] | None) -> str:
        """Record the losses, `since` steps after the last check; returns them as text for the progress display."""
        # that of all processes: they must go back together
        loss = float(self.accelerator.reduce(self.running, "mean")) / since
        self.running.zero_()
        if not math.isfinite(loss):
            return self._go_back()
        self.history.loss.append((self.step, loss))
        if validate is None:
            return f"loss {loss:.3f}"
        validated = self._validated(validate)
        if not math.isfinite(validated):
            return self._go_back()
        self.history.validation.append((self.step, validated))
        return f"loss {loss:.3f}, validation {validated:.4f}"

    def _validated(self, validate: Callable[[], float]) -> float:
        """The validation loss; the weights are kept if it is the lowest so far."""
        from accelerate.utils import broadcast_object_list

        self.trainable.eval()
        own = {name: weight.clone() for name, weight in self.weights.items()} if self.average else {}
        with torch.no_grad():
            self._load(self.average)
            # all processes use the loss of the first one: they must stop at the same step
            loss: float = broadcast_object_list([validate()])[0]
            self.best.offer(self.step, loss, self.weights)
            self._load(own)
        self.trainable.train()
        self.history.best_step = self.best.step
        return loss

    def _go_back(self) -> str:
        """Resume from the last good weights with half the learning rate."""
        if self.history.slowed == MOST_SLOWED:
            raise SettingsError(f"the loss is not a finite number at step {self.step}", remedy="lower learning_rate")
        self.history.slowed += 1
        self._load(self.best.state or self.start)
        for name, average in self.average.items():
            average.copy_(self.weights[name])
        self.optimiser.state.clear()
        warn(
            f"the loss is not a finite number at step {self.step}: resuming from the weights of step {self.best.step} "
            f"and 1/{2**self.history.slowed} of the learning rate"
        )
        return "loss not finite"

    def finish(self) -> None:
        """Load the best weights into the backbone, merge its adapters, and delete the checkpoint."""
        self._load(self.best.state or self.average)
        self.accelerator.wait_for_everyone()
        if self.config.trains != "full":
            self.backbone.model = self.trainable.merge_and_unload()
        if self.config.checkpointing:
            self.backbone.model.gradient_checkpointing_disable()
        self.backbone.model.requires_grad_(True).eval()
        self.accelerator.free_memory()
        if self.main and self.checkpoint is not None:
            self.checkpoint.unlink(missing_ok=True)

    # ---- checkpoints ------------------------------------------------------------------------------------------

    def _load(self, weights: dict[str, Tensor]) -> None:
        for name, weight in weights.items():
            self.weights[name].copy_(weight)

    def save(self) -> None:
        """Write all that a resumed run needs; only the first process writes."""
        if self.checkpoint is None or not self.main:
            return
        body = {
            "step": self.step,
            "running": self.running,
            "weights": self.weights,
            "average": self.average,
            "optimiser": self.optimiser.state_dict(),
            "best": vars(self.best),
            "history": asdict(self.history),
        }
        save_checkpoint(self.checkpoint, self.fingerprint, body)

    def resume(self) -> None:
        """Continue from the checkpoint of an interrupted run, if there is one."""
        if self.checkpoint is None or not self.checkpoint.is_file():
            return
        body = load_checkpoint(self.checkpoint, self.fingerprint)
        self._load(body["weights"])
        for name, weight in body["average"].items():
            self.average[name].copy_(weight)
        self.optimiser.load_state_dict(body["optimiser"])
        self.step, self.best = body["step"], KeepBest(**body["best"])
        self.running.copy_(body["running"])
        self.history = History(**{**body["history"], "resumed_from": self.step})


# ---- which weights are trained ----------------------------------------------------------------------------------


def trainable_model(backbone: Backbone, codes: Sequence[int], config: TrainConfig) -> Any:
    """The model with the right weights trainable: all, adapters and the rows of `codes`, or these rows alone."""
    model = backbone.model
    if config.trains == "full":
        return model.requires_grad_(True)
    rows = list(codes)
    if config.trains == "rows" and not rows:
        raise SettingsError(
            "`trains: rows` trains the code tokens, and this model has none",
            remedy="set `trains: full` or `trains: lora`",
        )
    from peft import LoraConfig, TrainableTokensConfig, get_peft_model

    names = None  # the embedding, and with it the head that shares its rows
    if not backbone.tied:
        # a separate head has rows for the new tokens too; unless they are trained, the model cannot write codes
        tables = (model.get_input_embeddings(), model.get_output_embeddings())
        names = [name for name, module in model.named_modules() if any(module is table for table in tables)]
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


def _groups(model: nn.Module) -> list[dict[str, Any]]:
    """Parameter groups: matrices decay; norms, biases and embeddings do not, since decay would erase rare words."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    decayed: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            is_embedding = id(weight) in embeddings or "trainable_tokens" in name
            (undecayed if is_embedding or weight.ndim < 2 else decayed).append(weight)
    groups = [(decayed, WEIGHT_DECAY), (undecayed, 0.0)]
    return [{"params": weights, "weight_decay": decay} for weights, decay in groups if weights]


# ---- several processes ----------------------------------------------------------------------------------------------


def is_first() -> bool:
    """Whether this process is the one that saves and logs."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def first_process_makes(folder: Path | None, *, cpu: bool = False) -> Iterator[None]:
    """Inside, the first process makes what is shared, in this folder; the others wait until it has."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several and folder is None:
        raise SettingsError(
            "several processes need a checkpoint folder to share what the first one learns",
            remedy="give all of them the same one: fit(table, checkpoint=FOLDER)",
        )
    yield
    if several:
        from accelerate import PartialState

        # the others wait for as long as the first one works
        PartialState(cpu=cpu, timeout=timedelta(days=7)).wait_for_everyone()
