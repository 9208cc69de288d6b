"""Whether a rationale holds: the model predicts again, from the selected features only and from all others.

Shapes: N records of all sequences, D slots.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tefm.rationale.arrays import Keep
from tefm.rationale.masked_model import MaskedModel
from tefm.rationale.masks.masked_predictions import predict, verdicts
from tefm.rationale.verdict import Verdict
from tefm.records.sequences import Sequences


@dataclass(frozen=True)
class Verification:
    """The model's answers for one sequence: to all features, to the rationale, to the rest, and to no features.

    That the rationale alone gives the same answer proves nothing if an empty record gives it too. The check therefore
    measures the *evidence*: how much more probable the answer is with all features than with empty records.

    - `default`: empty records get the same answer, and the evidence is below 0.05. Nothing in the records supports the
      answer, so no selection of features can be shown to explain it.
    - `sufficient`: there is evidence, and the rationale alone gets the same answer and at least half of the evidence.
    - `insufficient`: anything else. This includes an answer that depends on the decision threshold: empty records get
      a different one with nearly the same probability.

    If no field contains the label, nothing passes as sufficient by chance: a calibrated model is as sure of its answer
    as of the one for empty records.
    """

    #: the class number predicted from all features, and from each of the other inputs
    label: int
    label_alone: int
    label_without: int
    label_nothing: int
    #: the probability of each class
    full: tuple[float, ...]
    alone: tuple[float, ...]
    without: tuple[float, ...]
    nothing: tuple[float, ...]
    verdict: Verdict

    @property
    def same(self) -> bool:
        """Whether the rationale alone gets the same answer."""
        return self.label_alone == self.label

    @property
    def passed(self) -> bool:
        """Whether the rationale is sufficient."""
        return self.verdict == "sufficient"

    @property
    def evidence(self) -> float:
        """How much more probable the answer is with all features than with empty records."""
        return self.full[self.label] - self.nothing[self.label]

    @property
    def sufficiency(self) -> float:
        """How much the probability falls with the rationale only; 0 is best."""
        return self.full[self.label] - self.alone[self.label]

    @property
    def comprehensiveness(self) -> float:
        """How much the probability falls without the rationale; higher is better."""
        return self.full[self.label] - self.without[self.label]

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with the derived figures."""
        return {
            **asdict(self),
            "same": self.same,
            "passed": self.passed,
            "evidence": self.evidence,
            "sufficiency": self.sufficiency,
            "comprehensiveness": self.comprehensiveness,
        }


def verify(masked_model: MaskedModel, sequences: Sequences, keep_ND: Keep) -> list[Verification]:
    """Check each sequence with one call of the model, which sees duplicates once."""
    everything_ND = np.ones_like(keep_ND)
    masks = [everything_ND, keep_ND, ~keep_ND, ~everything_ND]
    full, alone, without, nothing = predict(masked_model, sequences, masks)
    labels = (predictions.label_S.tolist() for predictions in (full, alone, without, nothing))
    probabilities = (map(tuple, predictions.p_SQ.tolist()) for predictions in (full, alone, without, nothing))
    verdict_S = verdicts(full, alone, nothing).tolist()
    return [Verification(*values) for values in zip(*labels, *probabilities, verdict_S, strict=True)]
