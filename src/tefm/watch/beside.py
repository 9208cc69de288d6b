"""LightGBM beside the model: fitted on the labelled sequences of a reference table, scored on the same batches.

A bundle has no LightGBM. One that is fitted on recent records answers what someone who monitors a model asks: would
refitting something simple do better by now? So it needs a reference table with labels.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.progress import log
from tefm.fitted import Fitted
from tefm.prepare import Preparation
from tefm.records.sequences import Sequences
from tefm.watch.observe import label_numbers

#: The share of the reference that settings and calibration are chosen on, and the fewest sequences of a class.
HELD_OUT, FEWEST = 0.2, 10


def lightgbm_beside(
    fitted: Fitted, preparation: Preparation, old: tuple[pl.DataFrame, Sequences], new: tuple[pl.DataFrame, Sequences]
) -> tuple[NDArray[np.float64], NDArray[np.int64]] | None:
    """Probabilities and predictions for the new sequences, or None with a log line that says why."""
    label_S = label_numbers(old[1], fitted.classes)
    counts = np.bincount(label_S[label_S >= 0], minlength=len(fitted.classes))
    if counts.min() < FEWEST:
        rarest = fitted.classes[int(counts.argmin())]
        log.warning(f"no LightGBM beside: the reference table has {counts.min()} sequences of {rarest}")
        return None
    if find_spec("lightgbm") is None:
        log.warning("no LightGBM beside: pip install 'tefm[doctor]'")
        return None
    from tefm.baselines.compare import BaselineData, fit_baselines

    labelled = old[1].select(np.flatnonzero(label_S >= 0))
    slots = [preparation.slots(frame, sequences) for frame, sequences in ((old[0], labelled), new)]
    both = replace(slots[0], labels=None).followed_by(slots[1])
    part_S = np.where(np.random.default_rng(0).random(len(labelled)) < HELD_OUT, "validation", "train")
    new_labels = label_numbers(new[1], fitted.classes)
    names = np.array(fitted.classes, dtype=object)
    data = BaselineData(
        both.x_ND,
        fitted.coder.layout if fitted.coder is not None else preparation.vectoriser.layout,  # type: ignore[union-attr]
        both.with_values(np.arange(len(both.values))),
        # the test part is only answered: any class will do where there is no label
        np.concatenate([names[label_S[label_S >= 0]], names[np.maximum(new_labels, 0)]]),
        np.concatenate([part_S, np.full(len(new[1]), "test")]),
    )
    lengths = both.lengths.max()
    compared = fit_baselines(
        data,
        models=("lightgbm",),
        kinds=("last",) if lengths == 1 else ("last", "flat" if preparation.config.window else "history"),
        positive=fitted.positive,
        decision=fitted.decision,
        resamples=0,
    )["lightgbm"]
    return compared.test_NQ, compared.predicted_N
