"""The figures of a language model on labelled sequences, with what it reads for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
