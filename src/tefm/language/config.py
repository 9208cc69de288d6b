"""The settings of the second and third stage, and the paper's as presets."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field as Setting

from tefm.base.settings import Presets, StageSettings

#: What learns: all weights; low-rank adapters and the new rows; the new rows alone.
Trains = Literal["full", "lora", "rows"]
#: How the rows of the new tokens start.
Start = Literal["codebook", "words", "mean"]


class TrainConfig(StageSettings):
    """A run of gradient steps on a language model."""

    trains: Trains = "full"
    learning_rate: float = Setting(default=5e-4, gt=0)
    weight_decay: float = Setting(default=0.01, ge=0)
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    #: steps of linear warm-up; a share of all steps below 1
    warmup: float = Setting(default=0.1, ge=0)
    epochs: float = Setting(default=3, gt=0)
    #: steps at least, however few examples there are
    least: int = Setting(default=1, ge=1)
    #: steps instead of epochs
    steps: int | None = Setting(default=None, ge=1)
    #: examples per step, over all processes
    batch: int = Setting(default=32, ge=1)
    #: parts a batch is computed in, one after another, to save memory; the result is the same
    accumulate: int = Setting(default=1, ge=1)
    #: compute activations again instead of keeping them: less memory, a third slower
    checkpointing: bool = False
    clip: float = Setting(default=1.0, gt=0)
    #: validation is measured this often; training stops after `patience` of them without a better one
    checks: int = Setting(default=8, ge=1)
    patience: int = Setting(default=4, ge=1)
    #: rank of the adapters when `trains` is lora
    rank: int = Setting(default=16, ge=1)
    #: seconds between checkpoints
    save_every: float = Setting(default=60.0, ge=0)
    seed: int = 0

    def total_steps(self, examples: int) -> int:
        """How many steps a run takes."""
        return self.steps or max(self.least, round(self.epochs * -(-examples // self.batch)))

    def warmup_steps(self, total: int) -> int:
        return min(total, round(self.warmup * total if self.warmup < 1 else self.warmup))


class AlignConfig(TrainConfig):
    """Stage 2: codes and words. Defaults are the measured best (docs/decisions.md)."""

    learning_rate: float = Setting(default=1e-3, gt=0)
    epochs: float = Setting(default=2, gt=0)
    least: int = Setting(default=1_500, ge=1)
    batch: int = Setting(default=128, ge=1)
    #: share of the batches that go from words to codes; the others go from codes to words
    backward: float = Setting(default=0.5, ge=0, le=1)
    #: fields per description, drawn anew each time, for codes → words; None says all of them
    sample: int | None = Setting(default=4, ge=1)
    #: share of words → codes descriptions that say all fields; the others leave a random part out
    whole: float = Setting(default=0.5, ge=0, le=1)
    #: records that are learned from, at most
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
    """Stage 3: the question and its answer. Defaults are the measured best (docs/decisions.md)."""

    learning_rate: float = Setting(default=1e-3, gt=0)
    least: int = Setting(default=150, ge=1)

    #: "5 epochs using a causal language modeling objective, a learning rate of 1e-5, a cosine annealing schedule, and
    #: full-parameter optimization", batches of 32.
    PRESETS: ClassVar[Presets] = {
        "paper": {
            "trains": "full", "learning_rate": 1e-5, "schedule": "cosine", "warmup": 0, "epochs": 5, "least": 1,
            "batch": 32,
        }
    }  # fmt: skip
