"""The settings of stages 2 and 3, with the paper's settings as presets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field as Setting

from tefm.base.settings import Presets, Retired, StageSettings, retired

#: Steps of linear warm-up, as a share of all steps; and in the paper's alignment, as a number.
WARMUP, PAPER_WARMUP = 0.1, 500
#: The share of the steps that fine-tuning averages the weights over.
AVERAGE = 0.1
#: Which weights are trained: all of them; low-rank adapters and the rows of the new tokens; those rows alone.
Trains = Literal["full", "lora", "rows"]
#: How the embedding rows of the new tokens are initialised: from the codebook, from the words of the records that
#: have the code, or all with the mean of the existing rows.
Start = Literal["codebook", "words", "mean"]


class TrainConfig(StageSettings):
    """A run of gradient steps on a language model."""

    #: which weights are trained: `full`: all; `lora`: low-rank adapters and the new tokens; `rows`: only the new tokens
    trains: Trains = "full"
    #: the highest learning rate; lower it for larger backbones, or if training diverges
    learning_rate: float = Setting(default=5e-4, gt=0)
    #: course of the learning rate, and which weights are kept: `ours` warms up over a tenth of the steps, ends with a
    #: cosine, and fine-tuning keeps a moving average of the weights; `paper` is what the paper says, and alignment
    #: describes records with all of their fields
    recipe: Literal["ours", "paper"] = "ours"
    #: passes over the training examples
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
    #: validations per run; training stops early after four of them without an improvement
    checks: int = Setting(default=8, ge=1)
    #: rank of the adapters when `trains` is lora
    rank: int = Setting(default=16, ge=1)
    #: order of the examples, and initial values of adapters; the model's seed by default
    seed: int = 0

    RETIRED: ClassVar[Mapping[str, Retired]] = {
        "weight_decay": Retired(0.01, "leave it out: matrices decay by 0.01"),
        **retired("use `recipe: paper` for the paper's course of the learning rate", schedule="cosine", warmup=0.1),
        "average": Retired(0.0, "use `recipe: paper` to keep the last weights"),
        "clip": Retired(1.0, "leave it out: gradients are clipped at the norm 1"),
        "patience": Retired(4, "leave it out: training stops after four checks without an improvement"),
        "save_every": Retired(60.0, "leave it out: there is a checkpoint every minute"),
    }

    def total_steps(self, examples: int) -> int:
        """The number of steps of a run."""
        return self.steps or max(self.least, round(self.epochs * -(-examples // self.batch)))

    @property
    def average(self) -> float:
        """The weights are averaged over about this share of all steps, and the average is kept; 0: the last ones."""
        return 0.0

    def rate(self, step: int, steps: int) -> float:
        """The share of the learning rate at one of all steps: linear warm-up, then a cosine; the paper's has none."""
        warmup = 0 if self.recipe == "paper" else round(WARMUP * steps)
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


class AlignConfig(TrainConfig):
    """Stage 2: alignment of codes and words. The defaults measured best (docs/decisions.md)."""

    learning_rate: float = Setting(default=1e-3, gt=0)
    epochs: float = Setting(default=2, gt=0)
    least: int = Setting(default=1_500, ge=1)
    batch: int = Setting(default=128, ge=1)

    #: share of the batches that predict codes from words; the others predict words from codes
    backward: ClassVar[float] = 0.5

    RETIRED: ClassVar[Mapping[str, Retired]] = {
        **TrainConfig.RETIRED,
        **retired("use `recipe: paper` to describe records with all of their fields", sample=4, whole=0.5),
        "backward": Retired(0.5, "leave it out: half of the batches predict codes from words"),
        "max_records": Retired(200_000, "leave it out: a larger table is sampled"),
    }
    #: "3 epochs using AdamW with a learning rate of 1e-3 and linear warmup over the first 500 optimization steps, while
    #: the transformer layers remain frozen", batches of 32.
    PRESETS: ClassVar[Presets] = {
        "paper": {
            "trains": "rows", "learning_rate": 1e-3, "recipe": "paper", "epochs": 3, "least": 1, "batch": 32,
        }
    }  # fmt: skip

    @property
    def whole(self) -> float:
        """The share of the words → codes descriptions that hold all fields; the others omit some at random.

        Descriptions for codes → words hold four fields, or all of them where this is 1.
        """
        return 1.0 if self.recipe == "paper" else 0.5

    def rate(self, step: int, steps: int) -> float:
        """The share of the learning rate; in the paper it stays as it is after the warm-up."""
        return super().rate(step, steps) if self.recipe == "ours" else min(1.0, (step + 1) / min(steps, PAPER_WARMUP))


class TuneConfig(TrainConfig):
    """Stage 3: fine-tuning on the question and its answer. The defaults measured best (docs/decisions.md)."""

    learning_rate: float = Setting(default=1e-3, gt=0)
    least: int = Setting(default=150, ge=1)
    #: how much of what is learned about a training sequence is its label; the rest is the teacher's probability of each
    #: class, from models that never saw the sequence
    label_share: float = Setting(default=0.3, ge=0, le=1)

    RETIRED: ClassVar[Mapping[str, Retired]] = {
        **TrainConfig.RETIRED,
        "average": Retired(AVERAGE, TrainConfig.RETIRED["average"].instead),
    }
    #: "5 epochs using a causal language modeling objective, a learning rate of 1e-5, a cosine annealing schedule, and
    #: full-parameter optimization", batches of 32.
    PRESETS: ClassVar[Presets] = {
        "paper": {
            "trains": "full", "learning_rate": 1e-5, "recipe": "paper", "epochs": 5, "least": 1, "batch": 32,
            "label_share": 1.0,
        }
    }  # fmt: skip

    @property
    def average(self) -> float:
        return AVERAGE if self.recipe == "ours" else 0.0
