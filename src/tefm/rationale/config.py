"""The settings of the fourth stage, and the paper's as a preset."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field as Setting
from pydantic import model_validator

from tefm.base.settings import Presets, StageSettings


class RationaleConfig(StageSettings):
    """How slots are selected for a prediction. Defaults are the measured best (docs/decisions.md).

    >>> RationaleConfig().selection, RationaleConfig.preset("paper").selection
    ('greedy', 'soft')
    """

    # the surrogate: what it learns from the judge
    #: the judge's probabilities, or its labels alone
    targets: Literal["probabilities", "labels"] = "probabilities"
    #: `codes`: the surrogate reads the quantised latent, as the language model does; `latents`: the latent before it
    reads: Literal["codes", "latents"] = "codes"
    #: versions of each training sequence with a random part of its slots that the judge is asked about, beside the
    #: whole one
    versions: int = Setting(default=2, ge=0)
    #: times that the judge is asked about what the extractor selects, after which both learn again
    rounds: int = Setting(default=1, ge=0)
    #: questions to the judge at most; with more sequences than that allows, a sample of them is learned from
    questions: int = Setting(default=10_000, ge=1)
    surrogate_hidden: int = Setting(default=128, ge=2)
    surrogate_steps: int = Setting(default=1_500, ge=1)

    # the extractor: what a good mask is
    #: λ1: the latent stays what it was
    code_weight: float = Setting(default=0.0, ge=0)
    #: λ2: the prediction stays what it was
    prediction_weight: float = Setting(default=1.0, ge=0)
    #: λ3: mass of a soft mask; a hard one has the size it is given
    sparsity: float = Setting(default=0.0, ge=0)
    #: `soft`: the sigmoid mask itself; `topk`: the k best slots, k drawn anew for each sequence; `greedy`: the order
    #: that a greedy search on the surrogate finds
    selection: Literal["soft", "topk", "greedy"] = "greedy"
    #: steps of the greedy search, and how much (in nats) a slot may be worse than the best and still be taught as good
    depth: int = Setting(default=8, ge=1)
    tolerance: float = Setting(default=0.2, gt=0)
    #: the shares of the present slots that k is drawn between, evenly on a logarithmic scale
    least_share: float = Setting(default=0.03, gt=0, le=1)
    most_share: float = Setting(default=0.6, gt=0, le=1)
    hidden: int = Setting(default=256, ge=2)
    #: the extractor is shown the prediction that it explains: a record may speak against that of its sequence
    context: bool = True

    # the schedule
    epochs: int = Setting(default=30, ge=1)
    #: sequences per step
    batch: int = Setting(default=64, ge=1)
    learning_rate: float = Setting(default=1e-3, gt=0)
    seed: int = 0

    #: "λ1 = λ2 = 1, λ3 = 0.1", a soft mask, "100 epochs" of Adam at 1e-3, batches of 32; its surrogate reads the
    #: latent.
    PRESETS: ClassVar[Presets] = {
        "paper": {
            "reads": "latents", "rounds": 0,
            "code_weight": 1.0, "prediction_weight": 1.0, "sparsity": 0.1, "selection": "soft", "context": False,
            "epochs": 100, "batch": 32, "learning_rate": 1e-3,
        }
    }  # fmt: skip

    @model_validator(mode="after")
    def _shares_in_order(self) -> RationaleConfig:
        if self.least_share > self.most_share:
            raise ValueError("least_share is above most_share → give the smaller share as least_share")
        return self
