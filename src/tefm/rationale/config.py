"""The settings of the fourth stage: of explanations by look-alikes, and of the paper's masks."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field as Setting
from pydantic import model_validator

from tefm.base.settings import Presets, StageSettings


class SurrogateConfig(StageSettings):
    """What the surrogate learns from the model."""

    #: learn the model's probabilities, or its labels only
    targets: Literal["probabilities", "labels"] = "probabilities"
    #: `codes`: the surrogate reads the quantised latent, as the language model does; `latents`: the unquantised latent
    reads: Literal["codes", "latents"] = "codes"
    #: upper limit on the model's predictions; if there are too many sequences, a sample of them is used
    questions: int = Setting(default=10_000, ge=1)
    surrogate_hidden: int = Setting(default=128, ge=2)
    surrogate_steps: int = Setting(default=1_500, ge=1)
    seed: int = 0


class LookAlikeConfig(SurrogateConfig):
    """How answers are explained by look-alikes (perturbed samples)."""

    #: versions of each training sequence, mixed with another one, that the surrogate learns in addition to the whole
    mixtures: int = Setting(default=3, ge=1)
    #: at most this many training sequences are stored with the model (background sample): look-alikes take their other
    #: features from them
    donors: int = Setting(default=2_000, ge=20)


class RationaleConfig(SurrogateConfig):
    """How slots are selected for a prediction by masks. The defaults measured best (docs/decisions.md).

    >>> RationaleConfig().selection, RationaleConfig.preset("paper").selection
    ('greedy', 'soft')
    """

    #: randomly masked versions of each training sequence that the model predicts, in addition to the whole sequence
    versions: int = Setting(default=2, ge=0)
    #: extra rounds in which the model predicts what the extractor selects, and surrogate and extractor train again
    rounds: int = Setting(default=1, ge=0)

    # the extractor: what a good mask is
    #: λ1: weight of keeping the latent unchanged
    code_weight: float = Setting(default=0.0, ge=0)
    #: λ2: weight of keeping the prediction unchanged
    prediction_weight: float = Setting(default=1.0, ge=0)
    #: λ3: weight of the size of a soft mask; a hard mask has a fixed size
    sparsity: float = Setting(default=0.0, ge=0)
    #: `soft`: the sigmoid mask itself; `topk`: the k best slots, k drawn for each sequence; `greedy`: the order found
    #: by a greedy search on the surrogate
    selection: Literal["soft", "topk", "greedy"] = "greedy"
    #: steps of the greedy search, and how far (in nats) a slot may be from the best and still count as good
    depth: int = Setting(default=8, ge=1)
    tolerance: float = Setting(default=0.2, gt=0)
    #: k is drawn between these shares of the present slots, uniformly on a logarithmic scale
    least_share: float = Setting(default=0.03, gt=0, le=1)
    most_share: float = Setting(default=0.6, gt=0, le=1)
    hidden: int = Setting(default=256, ge=2)
    #: the extractor sees the prediction to explain: one record may argue against the prediction of its sequence
    context: bool = True

    # the schedule
    epochs: int = Setting(default=30, ge=1)
    #: sequences per step
    batch: int = Setting(default=64, ge=1)
    learning_rate: float = Setting(default=1e-3, gt=0)

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
            raise ValueError("least_share is above most_share → swap the two values")
        return self
