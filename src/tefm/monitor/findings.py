"""What monitoring finds: a report per batch, and all of them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tefm.monitor.causes import Diagnosis
from tefm.monitor.differences import Comparison
from tefm.monitor.expected import ClassShares, Expected
from tefm.scoring.metrics import Scores
from tefm.show.figures import plain


@dataclass(frozen=True)
class FieldWatch:
    """One field of a batch and of the reference."""

    field: str
    title: str
    missing: tuple[float, float] | None
    new: tuple[float, float] | None
    #: share of the values that would have to move
    distance: float
    #: of its tallies, the smallest adjusted p-value
    p: float


@dataclass(frozen=True, eq=False)
class AnswerFigures:
    """What is known about the answers to a batch, or to the reference."""

    sequences: int
    expected: Expected
    class_shares: ClassShares
    predicted_shares: tuple[float, ...]
    mean_confidence: float
    #: with labels
    scores: Scores | None = None
    lightgbm: Scores | None = None


@dataclass(frozen=True, eq=False)
class BatchReport:
    """One batch compared with the reference."""

    name: str
    records: int
    answered: AnswerFigures
    comparison: Comparison
    diagnosis: Diagnosis
    fields: tuple[FieldWatch, ...]
    #: mean error of reconstruction and of quantisation
    errors: tuple[float, float]

    @property
    def alarm(self) -> bool:
        return bool(self.diagnosis.causes)

    @property
    def sentence(self) -> str:
        return "; ".join(cause.sentence for cause in self.diagnosis.causes) or "no drift"

    def to_dict(self) -> dict[str, Any]:
        return {
            "batch": self.name,
            "alarm": self.alarm,
            "records": self.records,
            **_figures(self),
            **plain(self.diagnosis),
            "fields": [vars(watched) for watched in self.fields],
            "tests": [vars(difference) for difference in self.comparison.differences],
        }


@dataclass(frozen=True, eq=False)
class Monitoring:
    """All batches of a table."""

    title: str
    classes: tuple[str, ...]
    #: the reference: what it is called, its sequences, its answers, its errors
    reference: str
    sequences: int
    answered: AnswerFigures
    errors: tuple[float, float]
    batches: tuple[BatchReport, ...]
    level: float
    by: str | None = None

    @property
    def alarm(self) -> bool:
        """Whether any batch has drifted."""
        return any(batch.alarm for batch in self.batches)

    def to_dict(self) -> dict[str, Any]:
        return {
            "alarm": self.alarm,
            "level": self.level,
            "by": self.by,
            "classes": list(self.classes),
            "reference": {"name": self.reference, "records": self.sequences, **_figures(self)},
            "batches": [batch.to_dict() for batch in self.batches],
        }


def _figures(of: BatchReport | Monitoring) -> dict[str, Any]:
    """The figures of a batch, or of the reference."""
    return {
        "reconstruction_error": of.errors[0],
        "quantisation_error": of.errors[1],
        "answers": plain(of.answered),
    }
