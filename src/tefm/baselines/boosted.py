"""Boosted trees on the slots of a sequence: LightGBM and XGBoost.

Settings, chosen on validation (6 each), categories without an order in both; trees are added until the validation loss
has not fallen for 50, at most 2,000; every tree sees 80% of the rows and half of the columns.
LightGBM: 15, 7 or 31 leaves, learning rate 0.04 or 0.1, the rest as the code ceiling has it (whose setting is the
first). XGBoost: depth 4, 3 or 6, the same two learning rates, a leaf's weight of 1 or more.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from tefm.base.errors import MissingExtraError
from tefm.baselines.choice import Chosen, Examples, Fitted, Numbers, Task, choose
from tefm.baselines.inputs import Features

PATIENCE, TREES = 50, 2_000
LEAVES, DEPTHS, RATES = (15, 7, 31), (4, 3, 6), (0.04, 0.1)


def fit_lightgbm(train: Examples[Features], validation: Examples[Features], task: Task) -> Chosen:
    """LightGBM, stopped and chosen on validation."""
    try:
        from lightgbm import LGBMClassifier, early_stopping
    except ImportError as error:
        raise MissingExtraError("this baseline needs LightGBM", remedy="pip install 'tefm[baselines]'") from error
    from tefm.codes.ceiling import LIGHTGBM

    seen, places_N = train.seen
    judged, judged_places_N = _stopping(validation, seen)

    def candidates() -> Iterator[tuple[Fitted, dict[str, Any]]]:
        for leaves in LEAVES:
            for rate in RATES:
                tried: dict[str, Any] = {"num_leaves": leaves, "learning_rate": rate}
                model = LGBMClassifier(**{**LIGHTGBM, **tried, "n_estimators": TREES, "random_state": task.seed})
                with warnings.catch_warnings():
                    # its successors eval_X and eval_y are missing from the versions before
                    warnings.filterwarnings("ignore", message="The argument 'eval_set' is deprecated")
                    model.fit(
                        train.inputs.x_NF,
                        places_N,
                        eval_set=[(judged.x_NF, judged_places_N)],
                        categorical_feature=train.inputs.of_kind("category"),
                        callbacks=[early_stopping(PATIENCE, verbose=False)],
                    )
                yield _fitted(model, seen, task), {**tried, "trees": int(model.best_iteration_)}

    return choose(candidates(), validation, task)


def fit_xgboost(train: Examples[Features], validation: Examples[Features], task: Task) -> Chosen:
    """XGBoost, stopped and chosen on validation."""
    try:
        from xgboost import XGBClassifier
    except ImportError as error:
        raise MissingExtraError("this baseline needs XGBoost", remedy="pip install 'tefm[baselines]'") from error

    seen, places_N = train.seen
    judged, judged_places_N = _stopping(validation, seen)

    def candidates() -> Iterator[tuple[Fitted, dict[str, Any]]]:
        for depth in DEPTHS:
            for rate in RATES:
                tried: dict[str, Any] = {"max_depth": depth, "learning_rate": rate}
                model = XGBClassifier(
                    **tried,
                    n_estimators=TREES,
                    subsample=0.8,
                    colsample_bytree=0.5,
                    tree_method="hist",
                    enable_categorical=True,
                    feature_types=["c" if kind == "category" else "q" for kind in train.inputs.kinds],
                    early_stopping_rounds=PATIENCE,
                    eval_metric="logloss" if len(seen) == 2 else "mlogloss",
                    random_state=task.seed,
                )
                model.fit(train.inputs.x_NF, places_N, eval_set=[(judged.x_NF, judged_places_N)], verbose=False)
                yield _fitted(model, seen, task), {**tried, "trees": int(model.best_iteration) + 1}

    return choose(candidates(), validation, task)


def _stopping(validation: Examples[Features], seen: Numbers) -> tuple[Features, Numbers]:
    """What stopping is decided on: neither library takes classes that it has not learned."""
    known_N = np.isin(validation.labels_N, seen)
    return validation.inputs[known_N], np.searchsorted(seen, validation.labels_N[known_N])


def _fitted(model: Any, seen: Numbers, task: Task) -> Fitted:
    return Fitted(lambda inputs: model.predict_proba(inputs.x_NF), seen, task.classes)
