"""Monitor a model: a table in, in batches; out comes what changed in each, and how good the answers should be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.base.progress import progress
from tefm.fitted import Fitted
from tefm.language.remember import RememberedLogits
from tefm.prepare import Preparation
from tefm.watch.beside import lightgbm_beside
from tefm.watch.causes import Diagnostician
from tefm.watch.compare import LEVEL
from tefm.watch.observe import Answers, Asked, Records, answers_to, coder_of, look_at
from tefm.watch.periods import Periods, by_period
from tefm.watch.reference import Reference
from tefm.watch.report import Monitoring
from tefm.watch.seen import Seen
from tefm.watch.watcher import Watcher


@dataclass(frozen=True, eq=False)
class _View:
    """A table as it is monitored."""

    frame: pl.DataFrame
    asked: Asked
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
        return cls(frame, Asked.whole(sequences) if periods is None else periods.asked, periods, opened.name)

    def observed(self, fitted: Fitted, preparation: Preparation, logits: RememberedLogits) -> tuple[Records, Answers]:
        return look_at(fitted, preparation, self.frame, self.asked), answers_to(
            fitted, preparation, self.frame, self.asked, logits
        )

    def parts(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """The name and the sequences of each batch."""
        if self.periods is None:
            yield Path(self.file).name, np.arange(len(self.asked))
            return
        for number, name in enumerate(self.periods.names):
            if len(chosen := np.flatnonzero(self.periods.period_S == number)):
                yield name, chosen


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
            "this model has no reference to compare with: an older version saved it, or it had no validation records",
            remedy="give a table of usual records with --reference (in Python `reference=`), or fit the model again",
        )
    view = _View.of(preparation, table, by, absent)
    logits, beside = RememberedLogits(fitted.classifier), None
    with progress("reading the tables", 2) as advance:
        if reference is not None:
            old = _View.of(preparation, reference, by, absent)
            seen = None if stored is None else stored.scale.seen
            assert preparation.vectoriser is not None, "codes come from slots"
            observed = old.observed(fitted, preparation, logits)
            stored = Reference.of(*observed, fitted, preparation.vectoriser, seen, name=Path(old.file).name)
            if view.asked.sequences.labelled.any():
                new = view.frame, view.asked.sequences
                beside = lightgbm_beside(fitted, preparation, (old.frame, old.asked.sequences), new)
        assert stored is not None, "checked above"
        advance(1)
        records, answers = view.observed(fitted, preparation, logits)
        advance(1)
    watcher = Watcher(fitted, preparation, stored, level=level, seed=seed)
    known = stored.measured(growing=by is not None)
    seen = stored.scale.seen
    if seen is None:  # words of the reference table are not new in the batch
        assert reference is not None, "a stored reference knows the words of training"
        watcher = watcher.knowing(Seen.of(old.frame, watcher.vectoriser))
    batches = []
    with progress("comparing batches", None) as advance:
        for name, chosen in view.parts():
            other = None if beside is None else (beside[0][chosen], beside[1][chosen])
            size = int(view.asked.sizes_S[chosen].sum())
            batches.append(watcher.report(name, size, records.part(chosen), answers.part(chosen), known, other))
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
