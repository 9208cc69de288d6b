"""Monitor a model: what changed in each batch of a table, and with labels, how good the answers are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tefm.base.errors import InputError, SettingsError
from tefm.base.progress import progress
from tefm.monitor.causes import Diagnosis, Diagnostician
from tefm.monitor.differences import LEVEL, Comparison, Means, compare
from tefm.monitor.observe import ClassShares, Observed, SequenceAnswers, batches_of, observe, shares_of
from tefm.monitor.reference import Measured, MonitorReference
from tefm.monitor.tally import OF_FIELDS, Kind, Seen, unit_effect
from tefm.pipeline.fitted import Fitted
from tefm.pipeline.prepare import Preparation
from tefm.scoring.metrics import Scores, score
from tefm.scoring.weighted import ranked_classes
from tefm.show.figures import plain

#: Resamples for the intervals of figures with labels.
RESAMPLES = 500


def monitor(
    fitted: Fitted,
    preparation: Preparation,
    stored: MonitorReference | None,
    table: Any,
    *,
    reference: Any = None,
    by: str | None = None,
    absent: bool = False,
    level: float = LEVEL,
    seed: int = 0,
) -> Monitoring:
    """Compare a table, batch by batch, with the stored reference or with a reference table."""
    if not 0 < level < 1:
        raise SettingsError("the level is not between 0 and 1", value=level, remedy="for example 0.05")
    if stored is None and reference is None:
        raise InputError(
            "this model has no reference to compare with: an older version saved it, or it had no validation records",
            remedy="give a table of normal records with --reference (in Python `reference=`), or fit the model again",
        )
    vectoriser = preparation.vectoriser
    batches = batches_of(preparation.to_predict(table, absent=absent, labelled=True), by)
    arrivals = batches.arrivals
    answerer = fitted.answerer.remembering()
    with progress("reading the tables", 2) as advance:
        if reference is not None:
            old = batches_of(preparation.to_predict(reference, absent=absent, labelled=True), by).arrivals
            observed = observe(fitted, preparation, old, answerer)
            seen = None if stored is None else stored.scale.seen
            stored = MonitorReference.of(observed, fitted, vectoriser, seen, name=old.file)
            if seen is None:  # words of the reference table are not new in the batch
                stored = replace(stored, scale=replace(stored.scale, seen=Seen.of(old.records.frame, vectoriser)))
        assert stored is not None, "checked above"
        advance(1)
        records, answers = observe(fitted, preparation, arrivals, answerer)
        advance(1)
    watcher = Watcher(fitted, preparation, stored, level=level, seed=seed)
    # the sequences of a period are as they were at its end
    known = stored.whole if by is None or stored.growing is None else stored.growing
    reports = []
    with progress("comparing batches", None) as advance:
        for name, chosen in batches:
            part = records.part(chosen), answers.part(chosen)
            reports.append(watcher.report(name, int(arrivals.own.lengths[chosen].sum()), part, known))
            advance(1)
    (shares,) = shares_of((known.answers,), fitted.shares)
    return Monitoring(
        preparation.title,
        fitted.classes,
        stored.name,
        known.records,
        watcher.answered(known.answers, shares),
        known.errors,
        tuple(reports),
        level,
        by,
    )


@dataclass(frozen=True, eq=False)
class Watcher:
    """A model with its reference: compares one batch, names the causes, and puts the answers into figures."""

    fitted: Fitted
    preparation: Preparation
    reference: MonitorReference
    level: float = LEVEL
    seed: int = 0

    def diagnosed(self, observed: Observed, known: Measured) -> tuple[Measured, Comparison, Diagnosis]:
        """Whether a batch has drifted, and why."""
        fitted, vectoriser = self.fitted, self.preparation.vectoriser
        batch = Measured.of(observed, fitted, vectoriser, self.reference.scale)
        now, was = batch.answers, known.answers
        means = [
            Means(fitted.classes[q], now.p_SQ[:, q], was.p_SQ[:, q], unit_effect(was.unit_S))
            for q in ranked_classes(len(fitted.classes), fitted.positive)
        ]
        comparison = compare(batch.tallies, known.tallies, means, level=self.level, seed=self.seed)
        return batch, comparison, Diagnostician(batch, known, comparison, vectoriser, fitted).diagnose()

    def report(self, name: str, size: int, observed: Observed, known: Measured) -> BatchReport:
        """All about one batch of `size` records, of which those that were observed are counted."""
        batch, comparison, diagnosis = self.diagnosed(observed, known)
        shares = shares_of((known.answers, batch.answers), self.fitted.shares)[1]
        return BatchReport(
            name,
            size,
            self.answered(batch.answers, shares),
            comparison,
            diagnosis,
            tuple(self._fields(batch, known, comparison)),
            batch.errors,
        )

    def answered(self, answers: SequenceAnswers, shares: ClassShares) -> AnswerFigures:
        """The answers in figures."""
        fitted = self.fitted
        predicted_S = fitted.decide(answers.p_SQ)
        labelled = np.flatnonzero(answers.label_S >= 0)
        scores = None
        if len(labelled):
            scores = score(
                answers.p_SQ[labelled],
                answers.label_S[labelled],
                fitted.classes,
                predicted_N=predicted_S[labelled],
                positive=fitted.positive,
                resamples=RESAMPLES,
            )
        return AnswerFigures(
            len(answers),
            shares,
            tuple((np.bincount(predicted_S, minlength=len(fitted.classes)) / len(answers)).tolist()),
            float(answers.p_SQ.max(axis=1).mean()),
            scores,
        )

    def _fields(self, batch: Measured, known: Measured, comparison: Comparison) -> Iterator[FieldWatch]:
        differences = {difference.name: difference for difference in comparison.differences}
        for f in self.preparation.vectoriser.table_schema.fields:
            own = {kind: differences[f.name, kind] for kind in OF_FIELDS if (f.name, kind) in differences}
            two_cells: tuple[Kind, Kind] = ("missing", "new")
            missing, new = (
                (known.share(f.name, kind), batch.share(f.name, kind)) if kind in own else None for kind in two_cells
            )
            p = min(difference.adjusted for difference in own.values())
            yield FieldWatch(f.name, f.display_name, missing, new, own["values"].distance, p)


# ---- what is found ---------------------------------------------------------------------------------------------------


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
    class_shares: ClassShares
    predicted_shares: tuple[float, ...]
    mean_confidence: float
    #: with labels
    scores: Scores | None = None


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
