"""Boosted trees on the slots of a sequence, or on the raw values of its fields: LightGBM.

Six settings, chosen on validation: 15, 7 or 31 leaves, learning rate 0.04 or 0.1; the rest is as in the code ceiling
(whose own setting is the first). Categories are unordered. Trees are added until the validation loss has not fallen for
50 trees, at most 2,000; every tree sees 80% of the rows and half of the columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from tefm.base.errors import MissingExtraError
from tefm.base.training import threads_for
from tefm.baselines.choice import Chosen, Examples, Fitted, Numbers, Task, choose, stopping_examples
from tefm.baselines.inputs import Features

PATIENCE, TREES = 50, 2_000
LEAVES, RATES = (15, 7, 31), (0.04, 0.1)

Settings = Mapping[str, Any]
#: Rows of features and the class of each.
Labelled = tuple[NDArray[Any], Numbers]


def fit_lightgbm(train: Examples[Features], validation: Examples[Features], task: Task) -> Chosen:
    """LightGBM, with early stopping and settings chosen on validation."""
    try:
        from lightgbm import LGBMClassifier, early_stopping
    except ImportError as error:
        raise MissingExtraError("this baseline needs LightGBM", remedy="pip install 'tefm[baselines]'") from error
    from tefm.codes.ceiling import LIGHTGBM

    def fit(settings: Settings, learn: Labelled, stop: Labelled) -> tuple[Any, int]:
        model = LGBMClassifier(**{**LIGHTGBM, **settings, "n_estimators": TREES, "random_state": task.seed})
        with warnings.catch_warnings():
            # its successors eval_X and eval_y are missing from earlier versions
            warnings.filterwarnings("ignore", message="The argument 'eval_set' is deprecated")
            model.fit(
                *learn,
                eval_set=[stop],
                categorical_feature=train.inputs.of_kind("category"),
                callbacks=[early_stopping(PATIENCE, verbose=False)],
            )
        return model, int(model.best_iteration_)

    grid = [{"num_leaves": leaves, "learning_rate": rate} for leaves in LEAVES for rate in RATES]
    return choose_trees(grid, fit, train, validation, task)


def choose_trees(
    grid: Sequence[Settings],
    fit: Callable[[Settings, Labelled, Labelled], tuple[Any, int]],
    train: Examples[Features],
    validation: Examples[Features],
    task: Task,
) -> Chosen:
    """The best boosted trees of a grid of settings.

    `fit` takes settings, the rows to learn from and the rows for early stopping; it returns a model and its number of
    trees.
    """
    seen, positions_N = train.seen
    stopping, stopping_positions_N = stopping_examples(validation, seen)

    def candidates() -> Iterator[tuple[Fitted, Settings]]:
        for settings in task.grid(grid):
            with threads_for(len(positions_N)):
                model, trees = fit(settings, (train.inputs.x_NF, positions_N), (stopping.x_NF, stopping_positions_N))
            yield Fitted(partial(_predict, model), seen, task.classes), {**settings, "trees": trees}

    return choose(candidates(), validation, task)


def _predict(model: Any, inputs: Features) -> NDArray[Any]:
    p_NQ: NDArray[Any] = model.predict_proba(inputs.x_NF)
    return p_NQ
