"""What came of a model: its figures on labelled sequences, and beside them what users do today."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tefm.language.align import Alignment
from tefm.language.token_counts import Account
from tefm.scoring.metrics import Scores


@dataclass(frozen=True)
class Evaluation:
    """How well a model does on labelled sequences, and how many tokens it reads for it."""

    scores: Scores
    #: tokens per sequence that the language model reads
    tokens_mean: float
    tokens_median: float
    #: sequences without a label, which are not scored
    unlabelled: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {**self.scores.to_dict(), **{name: value for name, value in vars(self).items() if name != "scores"}}


@dataclass(frozen=True)
class Outcome:
    """What came of a task."""

    #: `codes` or `text`: what the language model reads
    inputs: str
    classes: tuple[str, ...]
    #: sequences that were trained on, validated on and tested on
    sequences: Mapping[str, int]
    test: Evaluation
    #: figures of tabular models on the same sequences; empty when LightGBM is not installed
    baselines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tokens: tuple[Account, ...] = ()
    #: what a reader of the figures has to know
    remarks: tuple[str, ...] = ()
    #: how well codes and words were aligned, where they were
    alignment: Alignment | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "classes": list(self.classes),
            "sequences": dict(self.sequences),
            "test": self.test.to_dict(),
            "baselines": {name: figures["test_calibrated"] for name, figures in self.baselines.items()},
            "tokens": [vars(count) for count in self.tokens],
            "remarks": list(self.remarks),
        }
