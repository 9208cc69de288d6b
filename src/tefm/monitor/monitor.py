"""Monitor a model: what changed in each batch of a table, and how good the answers should be.

Given a reference table with labels, LightGBM is fitted on it and scored on the same batches. A bundle has no LightGBM;
one that is fitted on recent records answers what someone who monitors a model asks: would refitting something simple do
better by now?
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.base.progress import log, progress
from tefm.monitor.causes import Diagnosis, Diagnostician
from tefm.monitor.differences import LEVEL, Comparison, Means, compare
from tefm.monitor.observe import (
    ClassShares,
    Expected,
    Observed,
    SequenceAnswers,
    batches_of,
    expected,
    observe,
    reweighted,
    shares_of,
)
from tefm.monitor.reference import Measured, MonitorReference
from tefm.monitor.tally import OF_FIELDS, Kind, Seen, unit_effect
from tefm.pipeline.data import feature_kinds
from tefm.pipeline.fitted import Fitted
from tefm.pipeline.prepare import Preparation, label_numbers
from tefm.scoring.metrics import Scores, score
from tefm.scoring.weighted import ranked_classes
from tefm.show.figures import plain
from tefm.tables.records import Records

#: Resamples for the intervals of figures with labels.
RESAMPLES = 500
#: Of the sequences that LightGBM is fitted on, the share that settings and calibration are chosen on, and the fewest of
#: a class.
HELD_OUT, FEWEST = 0.2, 10
#: Probabilities and predictions of another model.
Beside = tuple[NDArray[np.float64], NDArray[np.int64]]


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
    arrivals, beside = batches.arrivals, None
    answerer = fitted.answerer.remembering()
    with progress("reading the tables", 2) as advance:
        if reference is not None:
            old = batches_of(preparation.to_predict(reference, absent=absent, labelled=True), by).arrivals
            observed = observe(fitted, preparation, old, answerer)
            seen = None if stored is None else stored.scale.seen
            stored = MonitorReference.of(observed, fitted, vectoriser, seen, name=old.file)
            if seen is None:  # words of the reference table are not new in the batch
                stored = replace(stored, scale=replace(stored.scale, seen=Seen.of(old.records.frame, vectoriser)))
            if arrivals.records.sequences.labelled.any():
                beside = lightgbm_beside(fitted, preparation, old.records, arrivals.records)
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
            other = None if beside is None else (beside[0][chosen], beside[1][chosen])
            reports.append(watcher.report(name, int(arrivals.own.lengths[chosen].sum()), part, known, other))
            advance(1)
    (shares,) = shares_of((known.answers,), fitted.shares)
    return Monitoring(
        preparation.title,
        fitted.classes,
        stored.name,
        known.records,
        watcher.answered(known.answers, shares, prior=shares),
        known.errors,
        tuple(reports),
        level,
        by,
    )


@dataclass(frozen=True, eq=False)
class Watcher:
    """A model with its reference: compares one batch, names the causes, and says how good the answers are."""

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

    def report(
        self, name: str, size: int, observed: Observed, known: Measured, beside: Beside | None = None
    ) -> BatchReport:
        """All about one batch of `size` records, of which those that were observed are counted."""
        batch, comparison, diagnosis = self.diagnosed(observed, known)
        shares = shares_of((known.answers, batch.answers), self.fitted.shares)
        moved = any(cause.kind == "labels" for cause in diagnosis.causes)
        return BatchReport(
            name,
            size,
            self.answered(batch.answers, shares[1], prior=shares[1 if moved else 0], beside=beside),
            comparison,
            diagnosis,
            tuple(self._fields(batch, known, comparison)),
            batch.errors,
        )

    def answered(
        self, answers: SequenceAnswers, shares: ClassShares, *, prior: ClassShares, beside: Beside | None = None
    ) -> AnswerFigures:
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

        return AnswerFigures(
            len(answers),
            expected(p_SQ, predicted_S, positive=fitted.positive, seed=self.seed),
            shares,
            tuple((np.bincount(predicted_S, minlength=len(fitted.classes)) / len(answers)).tolist()),
            float(answers.p_SQ.max(axis=1).mean()),
            scored(answers.p_SQ, predicted_S) if len(labelled) else None,
            scored(*beside) if len(labelled) and beside is not None else None,
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


def lightgbm_beside(fitted: Fitted, preparation: Preparation, old: Records, new: Records) -> Beside | None:
    """Probabilities and predictions for new sequences of a LightGBM fitted on the labelled ones of a reference table.

    None where that is not possible, with a log line that says why.
    """
    label_S = label_numbers(old.sequences, fitted.classes)
    known = np.flatnonzero(label_S >= 0)
    counts = np.bincount(label_S[known], minlength=len(fitted.classes))
    if counts.min() < FEWEST:
        rarest = fitted.classes[int(counts.argmin())]
        log.warning(f"not compared with LightGBM: the reference table has {counts.min()} sequences of {rarest}")
        return None
    if find_spec("lightgbm") is None:
        log.warning("not compared with LightGBM: pip install 'tefm[doctor]'")
        return None
    from tefm.tabular.baselines import BaselineData, fit_baselines

    slots = preparation.slots(old.select(known))
    both = replace(slots, labels=None).followed_by(preparation.slots(new))
    part_S = np.where(np.random.default_rng(0).random(len(known)) < HELD_OUT, "validation", "train")
    # the test part is only answered: any class will do where there is no label
    labels_S = np.append(label_S[known], np.maximum(label_numbers(new.sequences, fitted.classes), 0))
    data = BaselineData(
        both.x_ND,
        fitted.coder.layout,
        both.with_values(np.arange(len(both.values))),
        np.array(fitted.classes, dtype=object)[labels_S],
        np.append(part_S, np.full(len(new), "test")),
    )
    compared = fit_baselines(
        data,
        models=("lightgbm",),
        kinds=feature_kinds(preparation.config, both),
        positive=fitted.positive,
        decision=fitted.decision,
        resamples=0,
    )["lightgbm"]
    return compared.test_NQ, compared.predicted_N


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
