"""The settings of the tokenizer, and its presets.

One frozen config, validated when it is created. `None` means that the data decides (`resolved`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field as Setting

from tefm.base.settings import Presets, Retired, StageSettings
from tefm.tables.layout import Layout

#: The most rows in memory for training; a larger table is sampled.
MAX_ROWS = 1_000_000


class TokenizerConfig(StageSettings):
    """How records are compressed into codes. The defaults did best in our measurements (docs/decisions.md).

    >>> TokenizerConfig().levels, TokenizerConfig().entries
    (3, 128)
    >>> TokenizerConfig.preset("paper").likelihood
    'squares'
    """

    # the code: K levels of C entries
    levels: int = Setting(default=3, ge=1, le=16)
    entries: int = Setting(default=128, ge=2, le=65_536)

    # the networks
    latent: int = Setting(default=128, ge=2)
    hidden: int | None = Setting(default=None, ge=4)
    blocks: int = Setting(default=1, ge=0)
    #: `values`: one input per slot value (buckets as a thermometer); `scaled`: one input per slot, value / size
    inputs: Literal["values", "scaled"] = "values"
    #: `softmax`: a likelihood per slot; `squares`: squared error of scaled values
    likelihood: Literal["softmax", "squares"] = "softmax"

    # weights of the loss
    #: weight of the flags of sets, each times its log inverse frequency (base 32) when `rare` is on
    member_weight: float = Setting(default=2.0, ge=0)
    rare: bool = True
    #: squared error of a number's expected bucket, in addition to its likelihood: a near miss costs less than a far one
    ordinal_weight: float | None = Setting(default=None, ge=0)
    #: weight of the label head when labels are given (task-aware codes)
    label_weight: float | None = Setting(default=None, ge=0)

    #: how codebooks learn: `ema` follows the mean of what picks an entry, `gradient` minimises the codebook loss
    codebook: Literal["ema", "gradient"] = "ema"
    #: Lloyd iterations on the final latents, after which the decoder is fitted to the final codes
    settle: int = Setting(default=5, ge=0)

    #: share of training records that have a random part of their slots masked; 0 is off
    mask_share: float = Setting(default=0.25, ge=0, le=1)

    # the schedule
    steps: int = Setting(default=3_000, ge=1)
    #: share of the steps without quantisation, before the codebooks are initialised
    warm_share: float = Setting(default=0.2, ge=0, lt=1)
    batch: int | None = Setting(default=None, ge=1)
    learning_rate: float = Setting(default=1e-3, gt=0)
    #: number of validation checks; training stops after six of them without improvement
    checks: int = Setting(default=20, ge=1)

    #: candidates per level of the beam search, in addition to the greedy one; 1 is greedy encoding
    beam: int = Setting(default=4, ge=1)
    seed: int = 0

    RETIRED: ClassVar[Mapping[str, Retired]] = {
        "number_weight": Retired(1.0, "leave it out, or use `member_weight` to change the balance"),
        "commitment": Retired(0.25, "leave it out: the commitment loss weighs 0.25"),
        "decay": Retired(0.95, "leave it out: the running means of `codebook: ema` decay by 0.95"),
        "straight_through": Retired("identity", "leave it out: the gradient passes the quantiser unchanged"),
        "replace_dead": Retired(True, "leave it out: entries that are not used are always replaced"),
        "weight_decay": Retired(1e-4, "leave it out: weights decay by 0.0001"),
        "patience": Retired(6, "leave it out: training stops after six checks without improvement"),
        "max_rows": Retired(MAX_ROWS, f"leave it out: codes are learned from a sample of {MAX_ROWS:,} rows"),
    }

    #: The paper's plain objective: squared error on scaled slots, codebook and commitment losses, greedy codes.
    #: k-means initialises the codebooks and dead entries are replaced here too, so that only the objectives differ.
    PRESETS: ClassVar[Presets] = {
        "paper": {
            "latent": 64,
            "blocks": 0,
            "inputs": "scaled",
            "likelihood": "squares",
            "member_weight": 1.0,
            "rare": False,
            "ordinal_weight": 0.0,
            "label_weight": 0.0,
            "codebook": "gradient",
            "settle": 0,
            "mask_share": 0.0,
            "warm_share": 0.0,
            "beam": 1,
        }
    }

    def resolved(self, *, rows: int, layout: Layout, classes: int = 0) -> TokenizerConfig:
        """These settings with everything that depends on the data filled in."""
        only_numbers = bool(layout.number_D.all())
        return self.model_copy(
            update={
                # the error of two classes is that of their log-odds, which is larger
                "label_weight": self.label_weight if self.label_weight is not None else 30.0 if classes <= 2 else 300.0,
                "hidden": self.hidden or (256 if layout.sizes_D.sum() <= 2_000 else 512),
                # among categories and sets it takes bits away from them; among numbers alone it uses the bits better
                "ordinal_weight": self.ordinal_weight if self.ordinal_weight is not None else 100.0 * only_numbers,
                # about 32 batches per pass over small tables, at most 512 records each
                "batch": self.batch or max(16, min(512, rows // 32)),
            }
        )
