"""Monitor a model: a table in, in batches; out comes what changed in each, and how good the answers should be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.base.progress import progress
from tefm.language.remember import RememberedLogits
from tefm.pipeline import Fitted
from tefm.prepare import Preparation
from tefm.records.sequences import Sequences
from tefm.records.vectorise import Vectoriser
from tefm.scoring.metrics import Scores, score
from tefm.watch.answers import ClassShares, Expected, expected, reweighted
from tefm.watch.beside import lightgbm_beside
from tefm.watch.causes import Diagnosis, Diagnostician
from tefm.watch.compare import DRAWS, LEVEL, Comparison, compare
from tefm.watch.observe import Observed, coder_of, observe
from tefm.watch.periods import Periods, by_period
from tefm.watch.reference import Answers, Measured, Reference
from tefm.watch.seen import Seen

#: Resamples for the intervals of figures with labels.
RESAMPLES = 500


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
class Answered:
    """What is known about the answers to a batch, or to the reference."""

    sequences: int
    expected: Expected
    shares: ClassShares
    predicted: tuple[float, ...]
    confidence: float
    #: with labels
    scores: Scores | None = None
    lightgbm: Scores | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "sequences": self.sequences,
            "expected": self.expected.to_dict(),
            "class_shares": self.shares.to_dict(),
            "predicted_shares": list(self.predicted),
            "mean_confidence": self.confidence,
            "scores": None if self.scores is None else self.scores.to_dict(),
            "lightgbm": None if self.lightgbm is None else self.lightgbm.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class BatchReport:
    """One batch compared with the reference."""

    name: str
    records: int
    answered: Answered
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
            "records": self.records,
            "alarm": self.alarm,
            "causes": [cause.to_dict() for cause in self.diagnosis.causes],
            "consequences": list(self.diagnosis.consequences),
            "reconstruction_error": self.errors[0],
            "quantisation_error": self.errors[1],
            "answers": self.answered.to_dict(),
            "fields": [vars(watched) for watched in self.fields],
            "tests": [vars(difference) for difference in self.comparison.differences],
        }


@dataclass(frozen=True, eq=False)
class Monitoring:
    """All batches of a table."""

    title: str
    classes: tuple[str, ...]
    positive: int
    #: the reference: what it is called, its records, its answers, its errors
    reference: str
    records: int
    answered: Answered
    errors: tuple[float, float]
    batches: tuple[BatchReport, ...]
    level: float
    by: str | None = None
    warnings: tuple[str, ...] = field(default=())

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
            "reference": {
                "name": self.reference,
                "records": self.records,
                "reconstruction_error": self.errors[0],
                "quantisation_error": self.errors[1],
                "answers": self.answered.to_dict(),
            },
            "warnings": list(self.warnings),
            "batches": [batch.to_dict() for batch in self.batches],
        }


@dataclass(frozen=True, eq=False)
class Watcher:
    """A model, and what it is compared with."""

    fitted: Fitted
    preparation: Preparation
    reference: Reference
    level: float = LEVEL
    draws: int = DRAWS
    seed: int = 0

    def knowing(self, seen: Seen) -> Watcher:
        """The same, where other words are not new."""
        return replace(self, reference=replace(self.reference, scale=replace(self.reference.scale, seen=seen)))

    @property
    def vectoriser(self) -> Vectoriser:
        coder_of(self.fitted)
        assert self.preparation.vectoriser is not None, "codes come from slots"
        return self.preparation.vectoriser

    def diagnosed(self, observed: Observed, known: Measured) -> tuple[Measured, Comparison, Diagnosis]:
        """Whether a batch has drifted, and why."""
        measured = Measured.of(observed, self.fitted, self.vectoriser, self.reference.scale)
        comparison = compare(measured.tallies, known.tallies, level=self.level, draws=self.draws, seed=self.seed)
        diagnosis = Diagnostician(measured, known, comparison, self.vectoriser, self.fitted).diagnose()
        return measured, comparison, diagnosis

    def report(self, name: str, observed: Observed, known: Measured, beside: _Beside | None = None) -> BatchReport:
        """All about one batch."""
        measured, comparison, diagnosis = self.diagnosed(observed, known)
        shares = Diagnostician(measured, known, comparison, self.vectoriser, self.fitted).shares()
        moved = any(cause.kind == "labels" for cause in diagnosis.causes)
        return BatchReport(
            name,
            measured.records,
            self.answered(measured.answers, shares[1], prior=shares[1 if moved else 0], beside=beside),
            comparison,
            diagnosis,
            tuple(self._fields(measured, known, comparison)),
            measured.errors,
        )

    def answered(
        self, answers: Answers, shares: ClassShares, *, prior: ClassShares, beside: _Beside | None = None
    ) -> Answered:
        """The answers in figures; `prior` are the class shares that probabilities should be about."""
        fitted = self.fitted
        predicted_S = fitted.decide(answers.p_SQ)
        p_SQ = reweighted(answers.p_SQ, np.array(prior.shares) / np.maximum(fitted.shares, 1e-6))
        labelled = np.flatnonzero(answers.label_S >= 0)

        def scored(p_SQ: NDArray[np.float64], predicted_S: NDArray[np.int64]) -> Scores:
            return score(
                p_SQ[labelled],
                answers.label_S[labelled],
                fitted.classes,
                predicted_N=predicted_S[labelled],
                positive=fitted.positive,
                resamples=RESAMPLES,
            )

        return Answered(
            len(answers),
            expected(p_SQ, predicted_S, positive=fitted.positive, seed=self.seed),
            shares,
            tuple((np.bincount(predicted_S, minlength=len(fitted.classes)) / len(answers)).tolist()),
            float(answers.p_SQ.max(axis=1).mean()),
            scored(answers.p_SQ, predicted_S) if len(labelled) else None,
            scored(*beside) if len(labelled) and beside is not None else None,
        )

    def _fields(self, batch: Measured, known: Measured, comparison: Comparison) -> Iterator[FieldWatch]:
        p_of = {difference.name: difference for difference in comparison.differences}
        shares = {
            (tally.name, which): tally.shares_J for which, of in (("was", known), ("now", batch)) for tally in of.tallies
        }
        for f in self.vectoriser.table_schema.fields:
            own = [difference for name, difference in p_of.items() if name[0] == f.name]

            def second(kind: Any, name: str = f.name) -> tuple[float, float] | None:
                if ((name, kind), "was") not in shares:
                    return None
                return float(shares[(name, kind), "was"][1]), float(shares[(name, kind), "now"][1])

            values = next(one for one in own if one.kind == "values")
            yield FieldWatch(
                f.name, f.display_name, second("missing"), second("new"), values.distance, min(o.adjusted for o in own)
            )


#: Probabilities and predictions of another model.
_Beside = tuple[NDArray[np.float64], NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class _View:
    """A table as it is monitored."""

    frame: pl.DataFrame
    sequences: Sequences
    periods: Periods | None
    file: str

    @classmethod
    def of(cls, preparation: Preparation, table: Any, by: str | None, absent: bool) -> _View:
        opened = preparation.readable(table, absent=absent)
        frame = opened.frame()
        if not frame.height:
            raise InputError("the table has no rows", file=opened.name, remedy="give a table with records")
        labelled = preparation.schema.label in opened.columns
        sequences = preparation.sequences(frame, labelled=labelled, whole=False, file=opened.name)
        periods = None if by is None else by_period(preparation, frame, sequences, by)
        return cls(frame, sequences, periods, opened.name)

    @property
    def answered(self) -> Sequences:
        return self.sequences if self.periods is None else self.periods.sequences

    def observe(self, fitted: Fitted, preparation: Preparation, logits: RememberedLogits) -> Observed:
        periods = self.periods
        if periods is None:
            return observe(fitted, preparation, self.frame, self.sequences, logits=logits)
        return observe(
            fitted, preparation, self.frame, self.sequences, periods.sequences, periods.unit_S, logits=logits
        )

    def parts(self) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.int64]]]:
        """The name, the records and the sequences of each batch."""
        if self.periods is None:
            yield Path(self.file).name, np.arange(len(self.sequences.rows)), np.arange(len(self.sequences))
            return
        for number, name in enumerate(self.periods.names):
            records = np.flatnonzero(self.periods.period_N == number)
            if len(records):
                yield name, records, np.flatnonzero(self.periods.period_S == number)


def monitor(
    fitted: Fitted,
    preparation: Preparation,
    stored: Reference | None,
    table: Any,
    *,
    reference: Any = None,
    by: str | None = None,
    absent: bool = False,
    level: float = LEVEL,
    seed: int = 0,
) -> Monitoring:
    """Compare a table, batch by batch, with the stored reference or with a reference table."""
    coder_of(fitted)
    if not 0 < level < 1:
        raise SettingsError("a level is a share of false alarms", value=level, remedy="0.05 is usual")
    if stored is None and reference is None:
        raise InputError(
            "this model has no reference to compare with: it was saved by an older version, or had no validation records",
            remedy="give a table of usual records with --reference (in Python `reference=`), or fit the model again",
        )
    view = _View.of(preparation, table, by, absent)
    logits, beside = RememberedLogits(fitted.classifier), None
    with progress("reading the tables", 2) as advance:
        if reference is not None:
            old = _View.of(preparation, reference, by, absent)
            seen = None if stored is None else stored.scale.seen
            assert preparation.vectoriser is not None, "codes come from slots"
            stored = Reference.of(
                old.observe(fitted, preparation, logits), fitted, preparation.vectoriser, seen, name=old.file
            )
            if view.answered.labelled.any():
                beside = lightgbm_beside(fitted, preparation, (old.frame, old.answered), (view.frame, view.answered))
        assert stored is not None, "checked above"
        advance(1)
        observed = view.observe(fitted, preparation, logits)
        advance(1)
    watcher = Watcher(fitted, preparation, stored, level=level, seed=seed)
    known = stored.measured(fitted, growing=by is not None)
    seen = stored.scale.seen
    if seen is None:  # words of the reference table are not new in the batch
        assert reference is not None, "a stored reference knows the words of training"
        watcher = watcher.knowing(Seen.of(old.frame, watcher.vectoriser))
    batches = []
    with progress("comparing batches", None) as advance:
        for name, records, sequences in view.parts():
            other = None if beside is None else (beside[0][sequences], beside[1][sequences])
            batches.append(watcher.report(name, observed.part(records, sequences), known, other))
            advance(1)
    shares = Diagnostician(known, known, batches[0].comparison, watcher.vectoriser, fitted).shares()[0]
    return Monitoring(
        preparation.title,
        fitted.classes,
        fitted.positive,
        stored.name,
        known.records,
        watcher.answered(known.answers, shares, prior=shares),
        known.errors,
        tuple(batches),
        level,
        by,
    )
