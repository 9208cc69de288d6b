"""The code ceiling: how well could anything predict from the codes, before a language model is trained?

The same LightGBM is fitted on each representation of the same records (raw slots, quantised vectors, codes)
and scored on the same test rows. What it loses from raw slots to codes, a language model will not find again.

Shapes: N records, F features of one representation, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import f1_score

from tefm.base.errors import InputError, MissingExtraError

#: For a few hundred to a few ten thousand rows of many sparse slots: small trees, slow learning, and rows and
#: columns sampled, so that raw slots are not put at a disadvantage by over-fitting. One setting for all
#: representations and no tuning: only their differences are read. Deterministic, so that a figure can be repeated.
LIGHTGBM: Mapping[str, Any] = {
    "n_estimators": 200,
    "learning_rate": 0.04,
    "num_leaves": 15,
    "min_child_samples": 20,
    "subsample": 0.8,
    "subsample_freq": 1,
    "colsample_bytree": 0.5,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
    # as many threads as OpenMP is allowed: on cores that others use too, threads waiting for each other cost far more
    "n_jobs": 0,
}

#: Enough for a standard error to about 5% of itself (1 / √(2 × 200)).
RESAMPLES = 200


@dataclass(frozen=True)
class Score:
    """How well one representation predicts: AUROC (of several classes: the mean of one against the rest)
    with its bootstrap standard error over the test rows, accuracy and macro F1."""

    auroc: float
    auroc_se: float
    accuracy: float
    macro_f1: float
    train_records: int
    test_records: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def ceiling(
    features: Mapping[str, NDArray[Any]],
    labels: NDArray[Any],
    train: NDArray[np.bool_],
    test: NDArray[np.bool_],
    *,
    categorical: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
) -> dict[str, Score]:
    """Scores each named N×F representation; `categorical` names its columns that have no order.

    For example `ceiling({"raw slots": x_ND, "codes": codes_NK}, …, categorical={"codes": range(K)})`.
    """
    _check_rows(features, labels, train, test)
    classes = np.unique(labels[train | test])
    train_labels, test_labels = (np.searchsorted(classes, labels[rows]) for rows in (train, test))
    _check_classes(classes, {"training": train_labels, "test": test_labels})

    scores = {}
    for name, x_NF in features.items():
        model = _lightgbm(seed)
        unordered = [int(column) for column in (categorical or {}).get(name, ())]
        model.fit(x_NF[train], train_labels, categorical_feature=unordered)
        chances_NC = model.predict_proba(x_NF[test])
        guess_N = chances_NC.argmax(axis=1)
        auroc, auroc_se = _auroc_and_error(chances_NC, test_labels, np.random.default_rng(seed))
        scores[name] = Score(
            auroc=auroc,
            auroc_se=auroc_se,
            accuracy=float((guess_N == test_labels).mean()),
            macro_f1=float(f1_score(test_labels, guess_N, average="macro")),
            train_records=len(train_labels),
            test_records=len(test_labels),
        )
    return scores


def _lightgbm(seed: int) -> Any:
    try:
        from lightgbm import LGBMClassifier
    except ImportError as error:
        raise MissingExtraError("the code ceiling needs LightGBM", remedy="pip install 'tefm[doctor]'") from error
    return LGBMClassifier(**LIGHTGBM, random_state=seed)


def _check_rows(
    features: Mapping[str, NDArray[Any]], labels: NDArray[Any], train: NDArray[np.bool_], test: NDArray[np.bool_]
) -> None:
    lengths = {"train": len(train), "test": len(test)} | {name: len(x_NF) for name, x_NF in features.items()}
    for name, length in lengths.items():
        if length != len(labels):
            raise InputError(f"{name!r} has {length} rows, but there are {len(labels)} labels")
    if both := int((train & test).sum()):
        raise InputError(f"{both} records are in the training and in the test rows", remedy="score on held-out rows")


def _check_classes(classes: NDArray[Any], parts: Mapping[str, NDArray[np.int64]]) -> None:
    if len(classes) < 2:
        raise InputError(f"the label has {len(classes)} classes, a prediction needs two", remedy="choose another label")
    for part, found in parts.items():
        missing = np.setdiff1d(np.arange(len(classes)), found)
        if len(missing):
            raise InputError(
                f"{len(missing)} of {len(classes)} classes of the label do not occur in the {part} rows",
                value=classes[missing].tolist()[0],
                remedy="split stratified by the label, take more records, or leave the class out",
            )


def _auroc_and_error(
    chances_NC: NDArray[np.float64], labels_N: NDArray[np.int64], rng: np.random.Generator
) -> tuple[float, float]:
    """The macro AUROC and its bootstrap standard error."""
    classes = chances_NC.shape[1]
    # With two classes, each against the rest is the same comparison.
    asked = range(1, classes) if classes == 2 else range(classes)
    ranks = [(np.unique(chances_NC[:, c], return_inverse=True)[1], labels_N == c) for c in asked]

    def macro(weight_N: NDArray[np.int64]) -> float:
        return float(np.mean([_auroc(rank_N, positive_N, weight_N) for rank_N, positive_N in ranks]))

    # Drawn within each class, so that none is ever missing from a sample.
    rows_of = [np.flatnonzero(labels_N == c) for c in range(classes)]
    samples = (np.concatenate([rng.choice(rows, len(rows)) for rows in rows_of]) for _ in range(RESAMPLES))
    resampled = [macro(np.bincount(rows, minlength=len(labels_N))) for rows in samples]
    return macro(np.ones_like(labels_N)), float(np.std(resampled, ddof=1))


def _auroc(rank_N: NDArray[np.int64], positive_N: NDArray[np.bool_], weight_N: NDArray[np.int64]) -> float:
    """The chance that a positive record ranks above a negative one; a tie counts half, a record as often as it weighs.

    scikit-learn's own sorts again at each call; here a bootstrap sample is two counts over ranks sorted once.

    >>> _auroc(np.array([0, 1, 1, 2]), np.array([False, False, True, True]), np.array([1, 1, 1, 1]))
    0.875
    """
    ranks = int(rank_N.max()) + 1
    positive = np.bincount(rank_N, weight_N * positive_N, minlength=ranks)
    negative = np.bincount(rank_N, weight_N * ~positive_N, minlength=ranks)
    below = np.cumsum(negative) - negative
    return float(positive @ (below + negative / 2) / (positive.sum() * negative.sum()))
