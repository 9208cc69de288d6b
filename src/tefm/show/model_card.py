"""The model card: the README.md of a bundle, in Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tefm.show.html import markdown_words, render

if TYPE_CHECKING:
    from tefm.language.alignment import Alignment
    from tefm.rationale.surrogate import Agreement
    from tefm.scoring.calibration import Calibration
    from tefm.tabular.label_trees import LabelTrees

METRICS = ("auroc", "auprc", "accuracy", "macro_f1", "brier", "ece")


@dataclass(frozen=True)
class CodesFacts:
    """What a record becomes: this many slots, and this many numbers instead."""

    slots: int
    levels: int
    entries: int
    #: whether the codes were trained with labels
    task_aware: bool


@dataclass(frozen=True)
class ModelCardFacts:
    """Everything that a model card says."""

    title: str
    base_model: str
    classes: tuple[str, ...]
    #: what a sequence is: "the stays of one patient"
    one_sequence: str
    #: of the language model
    blocks: int
    parameters: int
    calibration: Calibration
    codes: CodesFacts
    #: those that answer beside the language model
    trees: LabelTrees | None = None
    alignment: Alignment | None = None
    #: whether the model explains its predictions, and how often its surrogate predicts what the language model does
    explains: bool = False
    #: training sequences that are stored with the model, for explanations
    donors: int = 0
    agreement: Agreement | None = None
    #: per part of the data (`validation`, `test`): `Evaluation.to_dict()`
    scores: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: whether it was fitted as a first look only
    quick: bool = False

    @property
    def base_model_yaml(self) -> str:
        """The base model as a value of YAML: a path may need quotes."""
        plain = re.fullmatch(r"[\w.-]+(/[\w.-]+)*", self.base_model)
        return self.base_model if plain else json.dumps(self.base_model, ensure_ascii=False)

    @property
    def decision(self) -> str:
        """How probabilities become a prediction."""
        calibration = self.calibration
        temperature = f"Probabilities are calibrated with temperature {calibration.temperature:.3f}."
        if calibration.weights:
            return (
                f"{temperature} The class with the largest weighted probability is predicted (decision: "
                f"{calibration.rule}). Temperature and weights were chosen on validation data."
            )
        if calibration.threshold is None:
            return f"{temperature} The most probable class is predicted. The temperature was chosen on validation data."
        positive = f"“{markdown_words(self.classes[calibration.positive])}”"
        return (
            f"{temperature} {positive} is predicted if its probability is at least {calibration.threshold:.3f} "
            f"(decision: {calibration.rule}). Temperature and threshold were chosen on validation data."
        )


def model_html(facts: ModelCardFacts) -> str:
    """A model in a notebook: what it predicts, how it was made, and its figures."""
    return render("show/model.html", facts=facts, METRICS=METRICS)


def model_card(facts: ModelCardFacts) -> str:
    """The card as Markdown, with the header that the Hugging Face hub reads."""
    return render("show/model_card.md", facts=facts, METRICS=METRICS)
