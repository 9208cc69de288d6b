"""The settings of the fourth stage: of explanations by look-alikes, and of the paper's masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field as Setting

from tefm.base.settings import Presets, Retired, StageSettings, retired

#: The remedy for what is now part of a recipe.
OF_RECIPE = "leave it out, or use `recipe: paper` for the paper's extractor"


class SurrogateConfig(StageSettings):
    """What the surrogate learns from the model."""

    #: upper limit on the model's predictions; if there are too many sequences, a sample of them is used
    questions: int = Setting(default=10_000, ge=1)
    surrogate_hidden: int = Setting(default=128, ge=2)
    surrogate_steps: int = Setting(default=1_500, ge=1)
    seed: int = 0

    RETIRED: ClassVar[Mapping[str, Retired]] = {
        "targets": Retired("probabilities", "leave it out: the surrogate learns the model's probabilities"),
        "reads": Retired("codes", "leave it out: the surrogate reads codes, as the language model does"),
    }


class LookAlikeConfig(SurrogateConfig):
    """How answers are explained by look-alikes (perturbed samples)."""

    #: at most this many training sequences give look-alikes their other features (background sample); 25 times as many
    #: are stored with the model, so that rules have real cases
    donors: int = Setting(default=2_000, ge=20)
    #: fields that are no reasons: no condition of a rule and no effect is about them
    without: tuple[str, ...] = ()
    #: fields that cards mark, and of which they say what the answer would be with other values
    sensitive: tuple[str, ...] = ()

    RETIRED: ClassVar[Mapping[str, Retired]] = {
        **SurrogateConfig.RETIRED,
        "mixtures": Retired(3, "leave it out: the surrogate learns three mixed versions of each training sequence"),
    }


class RationaleConfig(SurrogateConfig):
    """How slots are selected for a prediction by masks. The defaults measured best (docs/decisions.md)."""

    #: `ours`: the extractor sees the prediction to explain, and imitates a greedy search on a surrogate that reads
    #: codes; `paper`: it sees the record alone, and learns a soft mask by dual fidelity, on a surrogate of latents
    recipe: Literal["ours", "paper"] = "ours"
    hidden: int = Setting(default=256, ge=2)
    epochs: int = Setting(default=30, ge=1)

    RETIRED: ClassVar[Mapping[str, Retired]] = {
        **SurrogateConfig.RETIRED,
        "prediction_weight": Retired(1.0, "leave it out: the other weights of `recipe: paper` are relative to it"),
        "tolerance": Retired(0.2, "leave it out: the search counts slots within 0.2 nats of the best as good"),
        "least_share": Retired(0.03, "leave it out: masks in training keep 3% of the present slots or more"),
        "most_share": Retired(0.6, "leave it out: masks in training keep up to 60% of the present slots"),
        "versions": Retired(2, "leave it out: the model predicts two masked versions of each training sequence"),
        **retired(OF_RECIPE, rounds=1, code_weight=0.0, sparsity=0.0, selection="greedy", context=True, batch=64),
        "depth": Retired(8, "leave it out: the search takes eight steps"),
        "learning_rate": Retired(1e-3, "leave it out: the learning rate is 0.001"),
    }
    PAPERS: ClassVar[Mapping[str, Any]] = {"context": False}
    PRESETS: ClassVar[Presets] = {"paper": {"recipe": "paper", "epochs": 100}}
