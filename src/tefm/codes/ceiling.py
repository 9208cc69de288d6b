"""The code ceiling: how well could anything predict from the codes, before a language model is trained?

LightGBM with the same untuned settings is fitted on each representation of the same records (raw slots, quantised
vectors, codes) and scored on the same test rows: only their differences matter. A language model cannot recover what is
lost from raw slots to codes.

Shapes: N records, F features of one representation, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import f1_score

from tefm.base.errors import InputError, extra
from tefm.base.training import threads_for
from tefm.scoring import weighted
from tefm.scoring.bootstrap import bootstrap, resample_counts
from tefm.tabular.learners import LIGHTGBM

#: Enough to know the standard error to about 5% (1 / √(2 × 200)).
RESAMPLES = 200


@dataclass(frozen=True)
class Score:
    """How well one representation predicts: AUROC (with several classes, the mean of one against the rest)
    with its bootstrap standard error over the test rows, accuracy and macro F1."""

    auroc: float
    auroc_se: float
    accuracy: float
    macro_f1: float
    train_records: int
    test_records: int


def ceiling(
    features: Mapping[str, NDArray[Any]],
    labels: NDArray[Any],
    train: NDArray[np.bool_],
    test: NDArray[np.bool_],
    *,
    seed: int = 0,
) -> dict[str, Score]:
    """Score each named N×F representation."""
    with extra("doctor", "the code ceiling needs LightGBM"):
        from lightgbm import LGBMClassifier
    for name, rows in {"train": train, "test": test, **features}.items():
        if len(rows) != len(labels):
            raise InputError(f"{name!r} has {len(rows)} rows, but there are {len(labels)} labels")
    if both := int((train & test).sum()):
        raise InputError(f"{both} records are in both the training and the test rows", remedy="score on held-out rows")
    classes = np.unique(labels[train | test])
    train_labels, test_labels = (np.searchsorted(classes, labels[rows]) for rows in (train, test))
    _check_classes(classes, {"training": train_labels, "test": test_labels})

    scores = {}
    for name, x_NF in features.items():
        model: Any = LGBMClassifier(**LIGHTGBM, random_state=seed)
        with threads_for(len(train_labels)):
            model.fit(x_NF[train], train_labels)
        probabilities_NC = model.predict_proba(x_NF[test])
        predicted_N = probabilities_NC.argmax(axis=1)
        auroc, auroc_se = auroc_with_error(probabilities_NC, test_labels, seed)
        scores[name] = Score(
            auroc=auroc,
            auroc_se=auroc_se,
            accuracy=float((predicted_N == test_labels).mean()),
            macro_f1=float(f1_score(test_labels, predicted_N, average="macro", zero_division=0)),
            train_records=len(train_labels),
            test_records=len(test_labels),
        )
    return scores


def _check_classes(classes: NDArray[Any], parts: Mapping[str, NDArray[np.int64]]) -> None:
    if len(classes) < 2:
        raise InputError(
            f"the label has {len(classes)} classes, but prediction needs two", remedy="choose another label"
        )
    for part, labels_N in parts.items():
        missing = np.setdiff1d(np.arange(len(classes)), labels_N)
        if len(missing):
            raise InputError(
                f"{len(missing)} of {len(classes)} classes of the label do not occur in the {part} rows",
                value=classes[missing].tolist()[0],
                remedy="split stratified by the label, take more records, or leave the class out",
            )


def auroc_with_error(
    probabilities_NC: NDArray[np.float64], labels_N: NDArray[np.int64], seed: int
) -> tuple[float, float]:
    """The AUROC and its bootstrap standard error, stratified by class so that no sample lacks one."""

    def metric(weights_RN: NDArray[np.float64]) -> NDArray[np.float64]:
        return weighted.macro(weighted.auroc, probabilities_NC, labels_N, weights_RN)

    auroc, *resampled = bootstrap(metric, resample_counts(len(labels_N), RESAMPLES, seed, strata_N=labels_N))
    return float(auroc), float(np.std(resampled, ddof=1))
