"""The settings of stages 2 and 3, with the paper's settings as presets."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field as Setting

from tefm.base.settings import Presets, StageSettings

#: Which weights are trained: all of them; low-rank adapters and the rows of the new tokens; those rows alone.
Trains = Literal["full", "lora", "rows"]
#: How the embedding rows of the new tokens are initialised: from the codebook, from the words of the records that
#: have the code, or all with the mean of the existing rows.
Start = Literal["codebook", "words", "mean"]


class TrainConfig(StageSettings):
    """A run of gradient steps on a language model."""

    trains: Trains = "full"
    learning_rate: float = Setting(default=5e-4, gt=0)
    weight_decay: float = Setting(default=0.01, ge=0)
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    #: steps of linear warm-up; below 1, the share of all steps
    warmup: float = Setting(default=0.1, ge=0)
    epochs: float = Setting(default=3, gt=0)
    #: the minimum number of steps, for few examples
    least: int = Setting(default=1, ge=1)
    #: steps instead of epochs
    steps: int | None = Setting(default=None, ge=1)
    #: examples per step, over all processes
    batch: int = Setting(default=32, ge=1)
    #: parts that a batch is computed in, one after another, to save memory; the result is the same
    accumulate: int = Setting(default=1, ge=1)
    #: gradient checkpointing (recompute activations in the backward pass): less memory, a third slower
    checkpointing: bool = False
    #: maximum norm of the gradient
    clip: float = Setting(default=1.0, gt=0)
    #: the weights are averaged over about this share of all steps, and the average is what is kept; 0: the last ones
    average: float = Setting(default=0.0, ge=0, lt=1)
    #: validations per run; training stops after `patience` of them without an improvement
    checks: int = Setting(default=8, ge=1)
    patience: int = Setting(default=4, ge=1)
    #: rank of the adapters when `trains` is lora
    rank: int = Setting(default=16, ge=1)
    #: seconds between checkpoints
    save_every: float = Setting(default=60.0, ge=0)
    seed: int = 0

    def total_steps(self, examples: int) -> int:
        """The number of steps of a run."""
        return self.steps or max(self.least, round(self.epochs * -(-examples // self.batch)))

    def warmup_steps(self, total: int) -> int:
        return min(total, round(self.warmup * total if self.warmup < 1 else self.warmup))


class AlignConfig(TrainConfig):
    """Stage 2: alignment of codes and words. The defaults measured best (docs/decisions.md)."""

    learning_rate: float = Setting(default=1e-3, gt=0)
    epochs: float = Setting(default=2, gt=0)
    least: int = Setting(default=1_500, ge=1)
    batch: int = Setting(default=128, ge=1)
    #: share of the batches that predict codes from words; the others predict words from codes
    backward: float = Setting(default=0.5, ge=0, le=1)
    #: fields per description for codes → words, drawn anew each time; None for all fields
    sample: int | None = Setting(default=4, ge=1)
    #: share of the words → codes descriptions that hold all fields; the others omit some at random
    whole: float = Setting(default=0.5, ge=0, le=1)
    #: the maximum number of training records
    max_records: int = Setting(default=200_000, ge=1)

    #: "3 epochs using AdamW with a learning rate of 1e-3 and linear warmup over the first 500 optimization steps, while
    #: the transformer layers remain frozen", batches of 32.
    PRESETS: ClassVar[Presets] = {
        "paper": {
            "trains": "rows", "learning_rate": 1e-3, "schedule": "constant", "warmup": 500, "epochs": 3, "least": 1,
            "batch": 32, "sample": None, "whole": 1.0,
        }
    }  # fmt: skip


class TuneConfig(TrainConfig):
    """Stage 3: fine-tuning on the question and its answer. The defaults measured best (docs/decisions.md)."""

    learning_rate: float = Setting(default=1e-3, gt=0)
    least: int = Setting(default=150, ge=1)
    average: float = Setting(default=0.1, ge=0, lt=1)
    #: how much of what is learned about a training sequence is its label; the rest is the teacher's probability of each
    #: class, from models that never saw the sequence
    label_share: float = Setting(default=0.3, ge=0, le=1)

    #: "5 epochs using a causal language modeling objective, a learning rate of 1e-5, a cosine annealing schedule, and
    #: full-parameter optimization", batches of 32.
    PRESETS: ClassVar[Presets] = {
        "paper": {
            "trains": "full", "learning_rate": 1e-5, "schedule": "cosine", "warmup": 0, "epochs": 5, "least": 1,
            "batch": 32, "average": 0.0, "label_share": 1.0,
        }
    }  # fmt: skip
