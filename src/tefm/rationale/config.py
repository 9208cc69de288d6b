"""The settings of the fourth stage: of explanations by look-alikes, and of the paper's masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field as Setting

from tefm.base.settings import Presets, Retired, StageSettings


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
    #: λ1: weight of keeping the latent unchanged; that of keeping the prediction, λ2, is 1
    code_weight: float = Setting(default=0.0, ge=0)
    #: λ3: weight of the size of a soft mask; a hard mask has a fixed size
    sparsity: float = Setting(default=0.0, ge=0)
    #: `soft`: the sigmoid mask itself; `topk`: the k best slots, k drawn for each sequence; `greedy`: the order found
    #: by a greedy search on the surrogate
    selection: Literal["soft", "topk", "greedy"] = "greedy"
    #: steps of the greedy search
    depth: int = Setting(default=8, ge=1)
    hidden: int = Setting(default=256, ge=2)
    #: the extractor sees the prediction to explain: one record may argue against the prediction of its sequence
    context: bool = True

    # the schedule
    epochs: int = Setting(default=30, ge=1)
    #: sequences per step
    batch: int = Setting(default=64, ge=1)
    learning_rate: float = Setting(default=1e-3, gt=0)

    RETIRED: ClassVar[Mapping[str, Retired]] = {
        "prediction_weight": Retired(1.0, "leave it out: `code_weight` and `sparsity` are relative to it"),
        "tolerance": Retired(0.2, "leave it out: the search counts slots within 0.2 nats of the best as good"),
        "least_share": Retired(0.03, "leave it out: masks in training keep 3% of the present slots or more"),
        "most_share": Retired(0.6, "leave it out: masks in training keep up to 60% of the present slots"),
    }
    #: "λ1 = λ2 = 1, λ3 = 0.1", a soft mask, "100 epochs" of Adam at 1e-3, batches of 32; its surrogate reads the
    #: latent.
    PRESETS: ClassVar[Presets] = {
        "paper": {
            "reads": "latents", "rounds": 0,
            "code_weight": 1.0, "sparsity": 0.1, "selection": "soft", "context": False,
            "epochs": 100, "batch": 32, "learning_rate": 1e-3,
        }
    }  # fmt: skip
