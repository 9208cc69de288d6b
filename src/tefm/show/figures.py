"""The figures of a report: everything the page shows of a model, as plain data; `measure.py` fills it."""

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
from tefm.language.token_counts import Account
from tefm.rationale.card import Rationale, to_json
from tefm.rationale.verify import Faithfulness
from tefm.scoring.metrics import Interval

#: Ranges of probability that calibration is looked at in.
BINS = 10


@dataclass(frozen=True)
class Method:
    """A model on the sequences of the report; `scores` are those of `Scores.to_dict`."""

    name: str
    scores: Mapping[str, Any]
    #: per sequence; 0 for a model that reads slots
    tokens: float


@dataclass(frozen=True)
class OfClass:
    """How well one of several classes is told from the rest; None where nothing can be said."""

    name: str
    #: that have this class
    sequences: int
    recall: float | None
    precision: float | None
    f1: float | None


@dataclass(frozen=True)
class Map:
    """Records in two dimensions, each with the first number of its code."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    code: tuple[int, ...]
    #: how much of the variance of the quantised latents the two dimensions show
    variance: float


@dataclass(frozen=True)
class Codes:
    """What the codes keep of the records."""

    records: int
    task_aware: bool
    use: tuple[LevelUse, ...]
    #: per level how many records have each entry, the most used first
    counts: tuple[tuple[int, ...], ...]
    fidelity: Fidelity
    collisions: Collisions
    hierarchy: tuple[PrefixDistance, ...]
    map: Map
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Bin:
    """Sequences with about the same probability: what was said, and how often it was so."""

    said: float
    share: Interval
    sequences: int


@dataclass(frozen=True)
class Case:
    """One explained sequence, with the class it really has."""

    rationale: Rationale
    label: str


@dataclass(frozen=True)
class Rationales:
    """How far the features that are kept carry the answers."""

    #: sequences that the curves are measured on
    asked: int
    curves: tuple[Faithfulness, ...]
    #: sequences explained by the smallest rationale that passes: how many pass, and where nothing argues for the answer
    explained: int
    passed: int
    default: int
    #: features kept by those that pass
    kept: float | None
    cases: tuple[Case, ...]
    #: wrong answers among all sequences of the report
    wrong: int


@dataclass(frozen=True)
class Cost:
    """What a prediction takes, measured while the report was made."""

    sequences_per_second: float
    seconds_to_explain: float | None
    machine: str


@dataclass(frozen=True)
class Figures:
    """Everything a report shows."""

    title: str
    #: the column that holds the classes
    label: str
    #: name and words, for the head of the page
    facts: Mapping[str, str]
    #: the class that calibration and AUROC are about; None: several, the predicted one
    positive: str | None
    methods: tuple[Method, ...]
    tokens: tuple[Account, ...]
    calibration: tuple[Bin, ...]
    cost: Cost
    #: the classes, the most frequent first; empty for two, of which the scores say it all
    by_class: tuple[OfClass, ...] = ()
    codes: Codes | None = None
    rationales: Rationales | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        body = asdict(replace(self, codes=None, rationales=None))
        body["calibration"] = [{**asdict(b), "share": b.share.to_dict()} for b in self.calibration]
        if (codes := self.codes) is not None:
            body["codes"] = asdict(codes) | {
                "fidelity": codes.fidelity.to_dict(),
                "hierarchy": [prefix.to_dict() for prefix in codes.hierarchy],
            }
        if (found := self.rationales) is not None:
            body["rationales"] = asdict(replace(found, curves=(), cases=())) | {
                "curves": [one.to_dict() for one in found.curves],
                "cases": [{"label": case.label, "rationale": to_json(case.rationale)} for case in found.cases],
            }
        return body


def class_by_class(labels_S: NDArray[Any], predicted_S: NDArray[Any], classes: Sequence[str]) -> tuple[OfClass, ...]:
    """Each class against the rest, the most frequent first.

    >>> for one in class_by_class(np.array([0, 0, 1]), np.array([0, 1, 1]), ("a", "b", "c")):
    ...     print(one.name, one.sequences, one.recall, one.precision, one.f1)
    a 2 0.5 1.0 0.6666666666666666
    b 1 1.0 0.5 0.6666666666666666
    c 0 None None None
    """

    def of(number: int, name: str) -> OfClass:
        is_so, said = labels_S == number, predicted_S == number
        true, claimed, both = int(is_so.sum()), int(said.sum()), int((is_so & said).sum())
        return OfClass(
            name,
            true,
            both / true if true else None,
            both / claimed if claimed else None,
            2 * both / (true + claimed) if true + claimed else None,
        )

    found = [of(number, name) for number, name in enumerate(classes)]
    return tuple(sorted(found, key=lambda one: -one.sequences))


def reliability(said_S: NDArray[Any], hit_S: NDArray[Any], bins: int = BINS) -> tuple[Bin, ...]:
    """How often it was so, among sequences of which about the same was said; empty ranges are left out.

    >>> found = reliability(np.array([0.1, 0.9, 0.9]), np.array([0, 1, 0]))
    >>> [(one.said, one.share.value, one.sequences) for one in found]
    [(0.1, 0.0, 1), (0.9, 0.5, 2)]
    """
    at_S = np.clip(np.ceil(np.asarray(said_S) * bins).astype(np.int64) - 1, 0, bins - 1)
    found = []
    for at in np.unique(at_S):
        here = at_S == at
        share = wilson(float(np.mean(hit_S[here])), int(here.sum()))
        found.append(Bin(float(np.mean(said_S[here])), share, int(here.sum())))
    return tuple(found)


def wilson(share: float, n: int, z: float = 1.96) -> Interval:
    """A share of n with its 95% interval, which stays between 0 and 1 and has a width even at its ends.

    >>> print(wilson(0.5, 100))
    0.500 [0.404, 0.596]
    """
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))
