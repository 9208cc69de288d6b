"""LightGBM and logistic regression, each with the settings that do best on validation.

With two classes the highest validation AUROC wins, with more (or where validation lacks a class) the lowest log-loss.
Ties go to the lower log-loss, then to the setting that was tried first.
Six settings each: LightGBM 15, 7 or 31 leaves and learning rate 0.04 or 0.1, logistic regression six strengths.

Shapes: N sequences, F features, Q classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import extra
from tefm.base.training import side_by_side, threads_for
from tefm.scoring.metrics import score
from tefm.scoring.numbers import levels_of
from tefm.tabular.inputs import Features, for_regression

Numbers = NDArray[np.int64]
Probabilities = NDArray[np.float64]
Inputs = TypeVar("Inputs")
Settings = Mapping[str, Any]
#: The probabilities of the classes of training, from inputs; and the settings of the model that gives them.
Candidate = tuple[Callable[[Any], NDArray[Any]], Settings]
#: Rows of features and the class, or the number, of each.
Labelled = tuple[NDArray[Any], NDArray[Any]]

#: Lower probabilities count as this one, so that one confident error does not decide a choice.
LEAST = 1e-6
#: The most training steps of a network; early stopping ends it long before.
STEPS = 2_000

#: For a few hundred to tens of thousands of rows of many sparse slots: small trees, slow learning, and sampled rows
#: and columns, so that raw slots do not suffer from over-fitting. Deterministic, so that results can be reproduced. The
#: code ceiling uses exactly these; a comparison tries others of `LEAVES` and `RATES` too.
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
    # as many threads as OpenMP allows: on shared cores, more threads mostly wait for each other
    "n_jobs": 0,
}
#: Trees are added until the validation loss has not fallen for `PATIENCE` of them, at most `TREES`.
PATIENCE, TREES = 50, 2_000
LEAVES, RATES = (15, 7, 31), (0.04, 0.1)
#: The strengths of a logistic regression, C.
STRENGTHS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
#: With words, whose weights are small; the first is the one that a search for the best inputs uses.
WORD_STRENGTHS = (3.0, 0.1, 0.3, 1.0, 10.0, 30.0)


@dataclass(frozen=True)
class LearningTask:
    """What a model needs to know apart from the sequences."""

    #: number of classes, whether or not all of them occur in training
    classes: int
    #: with two classes, the one that AUROC is about
    positive: int = 1
    seed: int = 0
    #: for models that use one: "cpu", "cuda", … ; None picks a GPU if there is one
    device: str | None = None
    #: the most training steps, for models that learn step by step
    steps: int = STEPS
    #: settings that were chosen before, on a sample: only these are fitted
    settled: Settings | None = None
    #: how many settings are tried, at most
    tries: int | None = None
    #: of a number: the share that an interval is to hold
    interval: float = 0.8

    def grid(self, settings: Sequence[Settings]) -> list[Settings]:
        """Those of a model's settings that are to be fitted.

        >>> LearningTask(2, settled={"C": 1, "trees": 80}).grid([{"C": 0.1}, {"C": 1}])
        [{'C': 1}]
        """
        settled = self.settled
        kept = [setting for setting in settings if settled is None or setting.items() <= settled.items()]
        return kept[: self.tries]


@dataclass(frozen=True, eq=False)
class Examples(Generic[Inputs]):
    """Sequences as a model is given them, with their class numbers."""

    inputs: Inputs
    labels_N: Numbers

    @property
    def seen(self) -> tuple[Numbers, Numbers]:
        """The class numbers that occur, and each label as a position among them."""
        classes, positions_N = np.unique(self.labels_N, return_inverse=True)
        return classes, positions_N


@dataclass(frozen=True, eq=False)
class Chosen:
    """The model that did best on validation."""

    #: the probability of each class, also of those that training lacks
    predict_proba: Callable[[Any], Probabilities]
    settings: Settings
    #: its probabilities for the validation sequences
    validation_NQ: Probabilities
    #: lower is better: negative AUROC (0 where it is not used), then log-loss
    rank: tuple[float, float]
    #: every setting that was tried, with its AUROC and log-loss on validation
    tried: tuple[Settings, ...]


def choose(candidates: Iterable[Candidate], seen: Numbers, validation: Examples[Any], task: LearningTask) -> Chosen:
    """The candidate that does best on validation; `seen` are the classes of training, which are all that they know."""

    def all_classes(predict: Callable[[Any], NDArray[Any]], inputs: Any) -> Probabilities:
        p_NQ = np.zeros((len(inputs), task.classes))
        p_NQ[:, seen] = predict(inputs)
        p_NQ /= p_NQ.sum(axis=1, keepdims=True)  # single-precision libraries are slightly off
        return p_NQ

    tried: list[Chosen] = []
    figures = []
    with _without_advice():
        for predict, settings in candidates:
            predict_proba = partial(all_classes, predict)
            p_NQ = predict_proba(validation.inputs)
            auroc, loss = auroc_of(p_NQ, validation.labels_N, task), log_loss(p_NQ, validation.labels_N)
            rank = (-auroc if auroc is not None and task.classes == 2 else 0.0, loss)
            figures.append({**settings, "auroc": auroc, "log_loss": loss})
            tried.append(Chosen(predict_proba, settings, p_NQ, rank, ()))
    return replace(min(tried, key=lambda candidate: candidate.rank), tried=tuple(figures))


@contextmanager
def _without_advice() -> Iterator[None]:
    """Without warnings of libraries that need no action; set once, because filters are shared by all threads."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # a regression that stops early is a weaker candidate, and validation decides whether it is good enough
        warnings.simplefilter("ignore", ConvergenceWarning)
        # LightGBM's successors of it, eval_X and eval_y, are missing from earlier versions
        warnings.filterwarnings("ignore", message="The argument 'eval_set' is deprecated")
        yield


def stopping_examples(validation: Examples[Any], seen: Numbers) -> tuple[Any, Numbers]:
    """The validation inputs that early stopping is measured on, with their labels as positions among `seen`.

    Classes that training lacks are left out: a model cannot learn them.
    """
    seen_N = np.isin(validation.labels_N, seen)
    return validation.inputs[seen_N], np.searchsorted(seen, validation.labels_N[seen_N])


def auroc_of(p_NQ: Probabilities, labels_N: Numbers, task: LearningTask) -> float | None:
    """The AUROC; None where it is not defined."""
    names = tuple(map(str, range(task.classes)))
    return score(p_NQ, labels_N, names, positive=task.positive, resamples=0).auroc.to_dict()["value"]


def log_loss(p_NQ: Probabilities, labels_N: Numbers) -> float:
    """The mean negative log-likelihood of the labels."""
    return -float(np.log(np.maximum(p_NQ[np.arange(len(labels_N)), labels_N], LEAST)).mean())


# ---- LightGBM --------------------------------------------------------------------------------------------------------


def fit_lightgbm(train: Examples[Features], validation: Examples[Features], task: LearningTask) -> Chosen:
    """LightGBM, with early stopping and settings chosen on validation."""

    def fit(settings: Settings, learn: Labelled, stop: Labelled) -> tuple[Any, int]:
        model = early_stopped("LGBMClassifier", settings, learn, stop, train.inputs, task)
        return model, int(model.best_iteration_)

    return choose_trees(lightgbm_grid(), fit, train, validation, task)


def lightgbm_grid() -> list[Settings]:
    """The settings of LightGBM that are tried."""
    return [{"num_leaves": leaves, "learning_rate": rate} for leaves in LEAVES for rate in RATES]


def early_stopped(
    kind: str, settings: Settings, learn: Labelled, stop: Labelled, features: Features, task: LearningTask
) -> Any:
    """A model of LightGBM with these settings, whose trees are added until the loss on the rows `stop` stays."""
    with extra("baselines", "this baseline needs LightGBM"):
        import lightgbm

    model = getattr(lightgbm, kind)(**{**LIGHTGBM, **settings, "n_estimators": TREES, "random_state": task.seed})
    stopping = lightgbm.early_stopping(PATIENCE, verbose=False)
    categories = features.of_kind("category")
    return model.fit(*learn, eval_set=[stop], categorical_feature=categories, callbacks=[stopping])


def choose_trees(
    grid: Sequence[Settings],
    fit: Callable[[Settings, Labelled, Labelled], tuple[Any, int]],
    train: Examples[Features],
    validation: Examples[Features],
    task: LearningTask,
) -> Chosen:
    """The best boosted trees of a grid of settings.

    `fit` takes settings, the rows to learn from and the rows for early stopping; it returns a model and its number of
    trees.
    """
    seen, positions_N = train.seen
    stopping, stopping_positions_N = stopping_examples(validation, seen)

    def candidate(settings: Settings) -> Candidate:
        with threads_for(len(positions_N)):
            model, trees = fit(settings, (train.inputs.x_NF, positions_N), (stopping.x_NF, stopping_positions_N))
        return lambda inputs: model.predict_proba(inputs.x_NF), {**settings, "trees": trees}

    calls = [partial(candidate, settings) for settings in task.grid(grid)]
    return choose(side_by_side(calls, train.inputs.x_NF.nbytes), seen, validation, task)


def fit_quantiles(train: Examples[Features], validation: Examples[Features], task: LearningTask) -> Chosen:
    """LightGBM's quantile regression: median, mean and the ends of an interval, one model each.

    The median's mean absolute error on validation chooses the settings of all.
    """
    learn = train.inputs.x_NF, train.labels_N
    stop = validation.inputs.x_NF, validation.labels_N.astype(np.float64)
    low, middle, high = ({"objective": "quantile", "alpha": level} for level in levels_of(task.interval))

    def predicted(models: Sequence[Any], inputs: Features) -> Probabilities:
        p_NL = np.stack([model.predict(inputs.x_NF) for model in models], axis=1)
        p_NL[:, [2, 0, 3]] = np.sort(p_NL[:, [2, 0, 3]], axis=1)  # models of their own may cross
        return p_NL

    def fit(settings: Settings, objective: Settings) -> Any:
        with threads_for(len(train.labels_N)):
            return early_stopped("LGBMRegressor", {**settings, **objective}, learn, stop, train.inputs, task)

    grid, memory = task.grid(lightgbm_grid()), learn[0].nbytes
    with _without_advice():
        medians = side_by_side([partial(fit, settings, middle) for settings in grid], memory)
        tried = [
            (float(np.abs(median.predict(stop[0]) - stop[1]).mean()), settings, median)
            for settings, median in zip(grid, medians, strict=True)
        ]
        loss, settings, median = min(tried, key=lambda of: of[0])
        others = [partial(fit, settings, objective) for objective in ({"objective": "regression"}, low, high)]
        predict = partial(predicted, [median, *side_by_side(others, memory)])
    all_tried = tuple({**settings, "mae": loss} for loss, settings, _ in tried)
    return Chosen(predict, settings, predict(validation.inputs), (loss, 0.0), all_tried)


# ---- logistic regression ---------------------------------------------------------------------------------------------


def fit_logistic(train: Examples[Features], validation: Examples[Features], task: LearningTask) -> Chosen:
    """A logistic regression on the slots, with its strength chosen on validation."""
    features = train.inputs
    columns = for_regression(features.of_kind("category"), features.of_kind("number"), features.of_kind("flag"))
    columns.fit(features.x_NF)

    def transform(features: Features) -> Any:
        from scipy.sparse import csr_matrix, hstack

        x_NF = columns.transform(features.x_NF)
        return x_NF if features.words_NV is None else hstack([csr_matrix(x_NF), features.words_NV], format="csr")

    strengths = STRENGTHS if features.words_NV is None else WORD_STRENGTHS
    return choose(regressions(train, transform, strengths, {}, task), train.seen[0], validation, task)


def regressions(
    train: Examples[Any],
    transform: Callable[[Any], Any],
    strengths: Sequence[float],
    settings: Settings,
    task: LearningTask,
) -> Iterator[Candidate]:
    """A logistic regression on the transformed inputs for each strength; `settings` are those of the transformation."""
    from sklearn.linear_model import LogisticRegression

    x_NF, (_, positions_N) = transform(train.inputs), train.seen

    def candidate(tried: Settings) -> Candidate:
        linear = LogisticRegression(C=tried["C"], max_iter=1_000, random_state=task.seed).fit(x_NF, positions_N)
        return lambda inputs: linear.predict_proba(transform(inputs)), tried

    calls = [partial(candidate, tried) for tried in task.grid([{**settings, "C": strength} for strength in strengths])]
    return side_by_side(calls, x_NF.data.nbytes)
