"""Boosted trees on the slots of a sequence: XGBoost.

Six settings, chosen on validation: depth 4, 3 or 6, learning rate 0.04 or 0.1; the weight of a leaf is at least 1.
Categories are unordered, and early stopping and sampling are as for LightGBM (`tefm.tabular.learners`).
"""

from __future__ import annotations

from typing import Any

from tefm.base.errors import extra
from tefm.tabular.inputs import Features
from tefm.tabular.learners import (
    PATIENCE,
    RATES,
    TREES,
    Chosen,
    Examples,
    Labelled,
    LearningTask,
    Settings,
    choose_trees,
)

DEPTHS = (4, 3, 6)


def fit_xgboost(train: Examples[Features], validation: Examples[Features], task: LearningTask) -> Chosen:
    """XGBoost, with early stopping and settings chosen on validation."""
    with extra("baselines", "this baseline needs XGBoost"):
        from xgboost import XGBClassifier

    def fit(settings: Settings, learn: Labelled, stop: Labelled) -> tuple[Any, int]:
        model = XGBClassifier(
            **settings,
            n_estimators=TREES,
            subsample=0.8,
            colsample_bytree=0.5,
            tree_method="hist",
            enable_categorical=True,
            feature_types=["c" if kind == "category" else "q" for kind in train.inputs.kinds],
            early_stopping_rounds=PATIENCE,
            eval_metric="logloss" if len(train.seen[0]) == 2 else "mlogloss",
            random_state=task.seed,
        )
        model.fit(*learn, eval_set=[stop], verbose=False)
        return model, int(model.best_iteration) + 1

    grid = [{"max_depth": depth, "learning_rate": rate} for depth in DEPTHS for rate in RATES]
    return choose_trees(grid, fit, train, validation, task)
