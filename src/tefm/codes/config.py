"""The settings of the tokenizer, and its presets.

One frozen config, validated when it is created. `None` means that the data decides (`resolved`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field as Setting

from tefm.base.settings import Presets, Retired, StageSettings, retired
from tefm.tables.layout import Layout

#: The most rows in memory for training; a larger table is sampled.
MAX_ROWS = 1_000_000


class Recipe(NamedTuple):
    """What codes are learned from, and how. The numbers of ours did best in our measurements (docs/decisions.md)."""

    #: one input per slot, value / size, and the squared error of that; else one input per slot value (buckets as a
    #: thermometer), and a likelihood per slot
    scaled: bool = False
    #: residual blocks of the encoder and of the decoder; 0: two plain hidden layers
    blocks: int = 1
    #: the flags of sets weigh more in the loss, the more so the rarer they are
    weighs_sets: bool = True
    #: squared error of a number's expected bucket, in addition to its likelihood, where all fields are numbers: a near
    #: miss costs less than a far one. Among categories and sets it would take bits away from them
    ordinal_weight: float = 100.0
    #: weight of the label head, with two classes and with more: the error of two is that of their log-odds, which is
    #: larger
    label_weights: tuple[float, float] = (30.0, 300.0)
    #: codebooks minimise the codebook loss; else they follow the mean of what picks an entry
    gradient: bool = False
    #: share of the steps without quantisation, before the codebooks are initialised
    warm_share: float = 0.2
    #: share of training records that have a random part of their slots masked
    mask_share: float = 0.25
    #: Lloyd iterations on the final latents, after which the decoder is fitted to the final codes
    settle: int = 5
    #: candidates per level of the beam search, in addition to the greedy one; 1 is greedy encoding
    beam: int = 4


#: The paper's is its plain objective: squared error on scaled slots, codebook and commitment losses, greedy codes.
#: k-means initialises the codebooks and dead entries are replaced in both, so that only the objectives differ.
RECIPES: dict[str, Recipe] = {
    "ours": Recipe(),
    "paper": Recipe(
        scaled=True,
        blocks=0,
        weighs_sets=False,
        ordinal_weight=0.0,
        label_weights=(0.0, 0.0),
        gradient=True,
        warm_share=0.0,
        mask_share=0.0,
        settle=0,
        beam=1,
    ),
}
#: The remedy for what is now part of a recipe.
OF_RECIPE = "leave it out, or use `recipe: paper` for the paper's objective"


class TokenizerConfig(StageSettings):
    """How records are compressed into codes.

    >>> TokenizerConfig().levels, TokenizerConfig().entries
    (3, 128)
    >>> TokenizerConfig.preset("paper").recipe
    'paper'
    """

    # the code: K levels of C entries
    levels: int = Setting(default=3, ge=1, le=16)
    entries: int = Setting(default=128, ge=2, le=65_536)

    # the networks
    latent: int = Setting(default=128, ge=2)
    hidden: int | None = Setting(default=None, ge=4)
    #: the objective, and how it is trained for
    recipe: Literal["ours", "paper"] = "ours"

    # the schedule
    steps: int = Setting(default=3_000, ge=1)
    learning_rate: float = Setting(default=1e-3, gt=0)
    seed: int = 0

    RETIRED: ClassVar[Mapping[str, Retired]] = {
        "number_weight": Retired(1.0, "leave it out: a number weighs as much as a category"),
        "commitment": Retired(0.25, "leave it out: the commitment loss weighs 0.25"),
        "decay": Retired(0.95, "leave it out: the running means of codebooks decay by 0.95"),
        "straight_through": Retired("identity", "leave it out: the gradient passes the quantiser unchanged"),
        "replace_dead": Retired(True, "leave it out: entries that are not used are always replaced"),
        "weight_decay": Retired(1e-4, "leave it out: weights decay by 0.0001"),
        "patience": Retired(6, "leave it out: training stops after six checks without improvement"),
        "max_rows": Retired(MAX_ROWS, f"leave it out: codes are learned from a sample of {MAX_ROWS:,} rows"),
        **retired(OF_RECIPE, blocks=1, inputs="values", likelihood="softmax", codebook="ema", settle=5, beam=4),
        **retired(OF_RECIPE, member_weight=2.0, rare=True, ordinal_weight=None, mask_share=0.25, warm_share=0.2),
        "label_weight": Retired(None, "leave it out, or use `task_aware: false` for codes that do not use the label"),
        "batch": Retired(None, "leave it out: a step takes a 32nd of the records, from 16 to 512"),
        "checks": Retired(20, "leave it out: there are 20 validations per run"),
    }
    PAPERS: ClassVar[Mapping[str, Any]] = {"blocks": 0, "inputs": "scaled", "likelihood": "squares", "beam": 1}
    PRESETS: ClassVar[Presets] = {"paper": {"latent": 64, "recipe": "paper"}}

    @property
    def made(self) -> Recipe:
        """What the recipe is made of."""
        return RECIPES[self.recipe]

    def resolved(self, layout: Layout) -> TokenizerConfig:
        """These settings with what depends on the data filled in."""
        return self.model_copy(update={"hidden": self.hidden or (256 if layout.sizes_D.sum() <= 2_000 else 512)})
