"""The teacher of task-aware codes: the targets of the label head.

A label head trained on the labels themselves memorises them: with a few hundred positive records and an
encoder that can distinguish every record, held-out AUROC falls while the training loss goes to zero.
So the head learns a *cross-fitted* score instead: for every training record, the log-odds of two
plain models that never saw that record's entity. The score is smooth in the record, known for every
record (labelled or not), and cannot leak the record's own label.

Shapes: N records, D slots, Q targets (1 for two classes, one per class otherwise).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.progress import progress

#: In each fit, a frequent class has at most this many times the records of the rarest class.
CLASS_RATIO = 10
#: A class is never sampled below this many records.
CLASS_FLOOR = 5_000


def cross_fitted_scores(
    x_ND: NDArray[Any], labels_N: NDArray[np.int64], groups_N: NDArray[np.int64], *, seed: int = 0, folds: int = 5
) -> NDArray[np.float32]:
    """Standardised log-odds of every record, from models that never saw its group.

    `labels_N` holds class numbers, −1 where the label is unknown.
    """
    rng = np.random.default_rng(seed)
    fold_of_group = rng.permutation(int(groups_N.max()) + 1) % folds
    fold_N = fold_of_group[groups_N]
    classes = int(labels_N.max()) + 1
    scores_NQ = np.zeros((len(x_ND), 1 if classes == 2 else classes))
    with progress("learning which features predict the label", folds) as advance:
        for fold in range(folds):
            advance(0, note=f"fold {fold + 1} of {folds}")
            train = _downsampled(np.flatnonzero((fold_N != fold) & (labels_N >= 0)), labels_N, rng)
            held_out_N = fold_N == fold
            # with a class so rare that the other folds lack it, there is nothing to learn: the scores stay 0
            if held_out_N.any() and len(np.unique(labels_N[train])) > 1:
                scores_NQ[held_out_N] = _scores(x_ND[train], labels_N[train], x_ND[held_out_N], classes, seed)
            advance(1)
    return ((scores_NQ - scores_NQ.mean(axis=0)) / (scores_NQ.std(axis=0) + 1e-9)).astype(np.float32)


def _scores(
    x_ND: NDArray[Any], labels_N: NDArray[np.int64], new_ND: NDArray[Any], classes: int, seed: int
) -> NDArray[np.float64]:
    """Summed standardised log-odds of a logistic regression and of boosted trees, which make different errors."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    linear = make_pipeline(
        OneHotEncoder(handle_unknown="ignore"), LogisticRegression(C=0.05, max_iter=300, class_weight="balanced")
    )
    trees = HistGradientBoostingClassifier(
        max_iter=100,
        learning_rate=0.06,
        max_leaf_nodes=15,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=seed,
    )
    total_NQ = np.zeros((len(new_ND), 1 if classes == 2 else classes))
    for model in (linear, trees):
        model.fit(x_ND, labels_N)
        odds_NQ = np.asarray(model.decision_function(new_ND), dtype=np.float64).reshape(len(new_ND), -1)
        spread_Q = np.asarray(model.decision_function(x_ND)).reshape(len(x_ND), -1).std(axis=0) + 1e-9
        if classes == 2:
            total_NQ += odds_NQ / spread_Q
        else:  # a fold may lack a class; if it has only two, there is one column of log-odds for both
            both_NQ = odds_NQ if odds_NQ.shape[1] > 1 else np.hstack([-odds_NQ, odds_NQ])
            total_NQ[:, model.classes_] += both_NQ / spread_Q
    return total_NQ


def _downsampled(rows: NDArray[np.int64], labels_N: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """The rows with frequent classes sampled down, so that a rare outcome does not mean fitting all records."""
    labels, counts = np.unique(labels_N[rows], return_counts=True)
    limit = max(CLASS_FLOOR, CLASS_RATIO * int(counts.min(initial=CLASS_FLOOR)))
    samples = [rng.permutation(rows[labels_N[rows] == label])[:limit] for label in labels]
    return np.sort(np.concatenate([rows[:0], *samples]))
