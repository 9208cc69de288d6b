"""`Watcher`: a model with its reference; it compares one batch, names the causes, and says how good the answers are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tefm.fitted import Fitted
from tefm.prepare import Preparation
from tefm.records.vectorise import Vectoriser
from tefm.scoring.metrics import Scores, score
from tefm.scoring.weighted import ranked_classes
from tefm.watch.answers import ClassShares, expected, reweighted
from tefm.watch.causes import Diagnosis, Diagnostician
from tefm.watch.compare import DRAWS, LEVEL, Comparison, Means, compare
from tefm.watch.observe import Answers, Records, coder_of
from tefm.watch.reference import Measured, Reference
from tefm.watch.report import Answered, BatchReport, FieldWatch
from tefm.watch.seen import Seen
from tefm.watch.tally import OF_FIELDS, Kind, unit_effect

#: Resamples for the intervals of figures with labels.
RESAMPLES = 500
#: Probabilities and predictions of another model.
Beside = tuple[NDArray[np.float64], NDArray[np.int64]]


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

    def diagnosed(self, records: Records, answers: Answers, known: Measured) -> tuple[Measured, Comparison, Diagnosis]:
        """Whether a batch has drifted, and why."""
        measured = Measured.of(records, answers, self.fitted, self.vectoriser, self.reference.scale)
        comparison = compare(
            measured.tallies,
            known.tallies,
            list(self._probabilities(measured.answers, known.answers)),
            level=self.level,
            draws=self.draws,
            seed=self.seed,
        )
        diagnosis = Diagnostician(measured, known, comparison, self.vectoriser, self.fitted).diagnose()
        return measured, comparison, diagnosis

    def _probabilities(self, batch: Answers, known: Answers) -> Iterator[Means]:
        """The probability of each class, of two classes that of the positive one."""
        for q in ranked_classes(len(self.fitted.classes), self.fitted.positive):
            yield Means(self.fitted.classes[q], batch.p_SQ[:, q], known.p_SQ[:, q], unit_effect(known.unit_S))

    def report(
        self, name: str, size: int, records: Records, answers: Answers, known: Measured, beside: Beside | None = None
    ) -> BatchReport:
        """All about one batch; `size` are all its records, `records` those that are counted."""
        measured, comparison, diagnosis = self.diagnosed(records, answers, known)
        shares = Diagnostician(measured, known, comparison, self.vectoriser, self.fitted).shares()
        moved = any(cause.kind == "labels" for cause in diagnosis.causes)
        return BatchReport(
            name,
            size,
            self.answered(measured.answers, shares[1], prior=shares[1 if moved else 0], beside=beside),
            comparison,
            diagnosis,
            tuple(self._fields(measured, known, comparison)),
            measured.errors,
        )

    def answered(
        self, answers: Answers, shares: ClassShares, *, prior: ClassShares, beside: Beside | None = None
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
            (tally.name, which): tally.shares_J
            for which, of in (("was", known), ("now", batch))
            for tally in of.tallies
        }
        for f in self.vectoriser.table_schema.fields:
            own = [difference for name, difference in p_of.items() if name[0] == f.name and name[1] in OF_FIELDS]

            def second(kind: Kind, name: str = f.name) -> tuple[float, float] | None:
                if ((name, kind), "was") not in shares:
                    return None
                return float(shares[(name, kind), "was"][1]), float(shares[(name, kind), "now"][1])

            values = next(one for one in own if one.kind == "values")
            yield FieldWatch(
                f.name, f.display_name, second("missing"), second("new"), values.distance, min(o.adjusted for o in own)
            )
