"""What a report shows of a model, as plain data; `tefm.report` measures it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.codes.doctor import Finding
from tefm.codes.fidelity import Collisions, Fidelity, LevelUse
from tefm.codes.hierarchy import PrefixDistance
from tefm.language.token_counts import TokenCount
from tefm.rationale.card import Rationale, to_json
from tefm.rationale.faithfulness import Faithfulness
from tefm.scoring.metrics import Interval

#: Ranges of probability for calibration.
BINS = 10


@dataclass(frozen=True)
class Method:
    """The scores of one model on the sequences of the report, as `Scores.to_dict` gives them."""

    name: str
    scores: Mapping[str, Any]
    #: per sequence; 0 for a model that reads the table directly
    tokens: float


@dataclass(frozen=True)
class ClassScores:
    """How well one of several classes is predicted; None where a score is not defined."""

    name: str
    #: sequences of this class
    sequences: int
    recall: float | None
    precision: float | None
    f1: float | None


@dataclass(frozen=True)
class Map:
    """Records in two dimensions, with the first number of the code of each."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    code: tuple[int, ...]
    #: share of the variance of the quantised latents that the two dimensions show
    variance: float


@dataclass(frozen=True)
class Codes:
    """How the codes are used, and what they preserve of the records."""

    records: int
    task_aware: bool
    use: tuple[LevelUse, ...]
    #: per level, how many records have each entry; the most used first
    counts: tuple[tuple[int, ...], ...]
    fidelity: Fidelity
    collisions: Collisions
    hierarchy: tuple[PrefixDistance, ...]
    map: Map
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Bin:
    """Sequences with about the same predicted probability: its mean, and how often the class was observed."""

    predicted: float
    observed: Interval
    sequences: int


@dataclass(frozen=True)
class Case:
    """One explained sequence, with the class that was recorded."""

    rationale: Rationale
    label: str


@dataclass(frozen=True)
class Rationales:
    """How many features are enough for the predictions, under masking."""

    #: sequences that the curves are measured on
    sequences: int
    curves: tuple[Faithfulness, ...]
    #: predictions that were explained; how many pass the check, and how many the model makes with no features too
    explained: int
    passed: int
    default: int
    #: median number of features of those that pass
    median_selected: float | None
    cases: tuple[Case, ...]
    #: wrong predictions among all sequences of the report
    wrong: int


@dataclass(frozen=True)
class Cost:
    """The speed of predictions and explanations, measured while the report was made."""

    sequences_per_second: float
    seconds_to_explain: float | None
    machine: str


@dataclass(frozen=True)
class Figures:
    """Everything a report shows."""

    title: str
    #: the column that holds the classes
    label: str
    #: name and value, for the head of the page
    facts: Mapping[str, str]
    #: the class that AUROC and calibration refer to; None for several classes
    positive: str | None
    methods: tuple[Method, ...]
    tokens: tuple[TokenCount, ...]
    calibration: tuple[Bin, ...]
    cost: Cost
    #: sequences whose tokens were counted
    tokens_counted: int
    #: classes with fewer sequences than this are marked
    few: int
    #: the classes, the most frequent first; empty for two classes, which the scores cover
    by_class: tuple[ClassScores, ...] = ()
    codes: Codes | None = None
    rationales: Rationales | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        body = asdict(replace(self, codes=None, rationales=None))
        body["calibration"] = [{**asdict(b), "observed": b.observed.to_dict()} for b in self.calibration]
        if (codes := self.codes) is not None:
            body["codes"] = asdict(codes) | {
                "fidelity": codes.fidelity.to_dict(),
                "hierarchy": [prefix.to_dict() for prefix in codes.hierarchy],
            }
        if (rationales := self.rationales) is not None:
            body["rationales"] = asdict(replace(rationales, curves=(), cases=())) | {
                "curves": [curve.to_dict() for curve in rationales.curves],
                "cases": [{"label": case.label, "rationale": to_json(case.rationale)} for case in rationales.cases],
            }
        return body


def scores_by_class(
    labels_S: NDArray[Any], predicted_S: NDArray[Any], classes: Sequence[str]
) -> tuple[ClassScores, ...]:
    """Each class against the rest, the most frequent first.

    >>> for scores in scores_by_class(np.array([0, 0, 1]), np.array([0, 1, 1]), ("a", "b", "c")):
    ...     print(scores.name, scores.sequences, scores.recall, scores.precision, scores.f1)
    a 2 0.5 1.0 0.6666666666666666
    b 1 1.0 0.5 0.6666666666666666
    c 0 None None None
    """

    def scores(number: int, name: str) -> ClassScores:
        is_class_S, is_predicted_S = labels_S == number, predicted_S == number
        actual, predicted = int(is_class_S.sum()), int(is_predicted_S.sum())
        correct = int((is_class_S & is_predicted_S).sum())
        return ClassScores(
            name,
            actual,
            correct / actual if actual else None,
            correct / predicted if predicted else None,
            2 * correct / (actual + predicted) if actual + predicted else None,
        )

    return tuple(sorted((scores(*named) for named in enumerate(classes)), key=lambda scores: -scores.sequences))


def reliability(p_S: NDArray[Any], observed_S: NDArray[Any], bins: int = BINS) -> tuple[Bin, ...]:
    """How often a class was observed among sequences with about the same predicted probability; no empty ranges.

    >>> for bin in reliability(np.array([0.1, 0.9, 0.9]), np.array([0, 1, 0])):
    ...     print(bin.predicted, bin.observed.value, bin.sequences)
    0.1 0.0 1
    0.9 0.5 2
    """
    bin_S = np.clip(np.ceil(np.asarray(p_S) * bins).astype(np.int64) - 1, 0, bins - 1)
    result = []
    for number in np.unique(bin_S):
        inside_S = bin_S == number
        sequences = int(inside_S.sum())
        observed = wilson(float(np.mean(observed_S[inside_S])), sequences)
        result.append(Bin(float(np.mean(p_S[inside_S])), observed, sequences))
    return tuple(result)


def wilson(share: float, n: int, z: float = 1.96) -> Interval:
    """A share of n with its 95% Wilson interval, which stays within 0 and 1 and is never empty.

    >>> print(wilson(0.5, 100))
    0.500 [0.404, 0.596]
    """
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))
