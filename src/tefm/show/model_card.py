"""The model card: the README.md of a bundle, in Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tefm.scoring.metrics import METRICS
from tefm.show.html import render

if TYPE_CHECKING:
    from tefm.language.alignment import Alignment
    from tefm.rationale.surrogate import Agreement


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
    temperature: float
    #: of the codes: slots of a record, the numbers that it becomes, and the values of each
    slots: int
    levels: int
    entries: int
    #: whether the codes were trained with labels
    task_aware: bool
    #: probability from which the positive class is predicted; None: the most probable class is predicted
    threshold: float | None = None
    #: the class that the threshold is about
    positive: str = ""
    #: what the decision is for, and with more than two classes whether weights decide
    rule: str = "accuracy"
    weighted: bool = False
    #: trees that answer beside the language model, and its share in the answers
    trees: int = 0
    model_share: float = 1.0
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


def model_html(facts: ModelCardFacts) -> str:
    """A model in a notebook: what it predicts, how it was made, and its figures."""
    return render("show/model.html", facts=facts, METRICS=METRICS)


def model_card(facts: ModelCardFacts) -> str:
    """The card as Markdown, with the header that the Hugging Face hub reads."""
    base_model = json.dumps(facts.base_model, ensure_ascii=False)  # in quotes, any path is valid YAML
    return render("show/model_card.md", facts=facts, METRICS=METRICS, base_model=base_model)
