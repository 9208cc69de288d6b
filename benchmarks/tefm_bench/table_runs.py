"""User tables, measured through the code of `tefm fit`: our model, what its codes know, and tabular models.

Every run stores the probabilities of all test sequences, so that intervals can be computed again.

Shapes: N records, S sequences, Q classes, R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field as Setting

from tefm.model.estimator import TEFM
from tefm.model.run import baseline_data, fit_frame
from tefm.model.task import Task
from tefm.pipeline.data import Given, TaskData, feature_kinds
from tefm.pipeline.fit import fit as fit_pipeline
from tefm.pipeline.fitted import Fitted
from tefm.pipeline.prepare import Preparation, label_numbers, prepare
from tefm.pipeline.stages import calibrate
from tefm.scoring.decision import ACCURACY, Decision
from tefm.scoring.metrics import Metric, Predicted, score
from tefm_bench.mean_differences import mean_differences
from tefm_bench.measurement import Bench, Figures, Measurement
from tefm_bench.user_data import UserData, file_for, prepared
from tefm_bench.user_tables import ALL_TABLES

#: Sequences of a table that a seed is measured on, at most: by default, and in the tables `tables` and `sequences`.
MOST, SAMPLED = 40_000, 12_000
#: Significant digits of the stored probabilities: scores computed from them are those of the exact ones. (Decimals are
#: not enough: probabilities of a rare class that differ beyond the sixth one would be ties.)
DIGITS = 9
#: How much longer a model takes to fit than the fastest, roughly.
SLOWER = {"gru": 100, "set-transformer": 100, "lightgbm": 20, "xgboost": 10, "logistic": 3}
#: What methods are compared by.
COMPARED: tuple[Metric, ...] = ("auroc", "accuracy", "macro_f1")
#: What a run stores of our own model.
OURS = "tefm"
#: What a run of the defaults stores: the language model and the trees together, and each alone.
TOGETHER, LANGUAGE, TREES = "together", "language", "trees"


class TableRun(Measurement):
    """A user table with one seed, which is that of the sample, the split and the model."""

    table: str
    seed: int
    #: sequences that are drawn from a larger table; None takes all
    most: int | None = MOST
    #: settings on top of the task file, for a quick run or another backbone
    settings: dict[str, Any] = Setting(default_factory=dict)

    @property
    def task(self) -> Task:
        """The task file of the table; explanations are left out, because nothing here is explained."""
        return ALL_TABLES[self.table].task_for(self.seed, explanations="none", **self.settings)

    def turn(self, bench: Bench) -> tuple[float, float]:
        """The largest tables of a split first, by cells."""
        path = file_for(bench.sources, self.table, self.task, self.most)
        if not path.exists():
            return self.seed, -math.inf
        stored = pl.scan_parquet(path)
        return self.seed, -float(stored.select(pl.len()).collect().item() * len(stored.collect_schema()))

    def prepare(self, bench: Bench) -> None:
        prepared(bench.sources, self.table, self.task, self.most)

    def open(self, bench: Bench) -> UserData:
        return UserData.open(bench.sources, self.table, self.task, self.most)

    @staticmethod
    def arrays_of(data: UserData) -> tuple[Preparation, TaskData]:
        """The training and validation part as the pipeline takes them."""
        prepared = prepare(data.training, data.task.model, validation=data.validation)
        return prepared.preparation, prepared.given.data


class ModelRun(TableRun):
    """Our model."""

    KIND: ClassVar[str] = "table-model"

    def measure(self, bench: Bench) -> Figures:
        data = self.open(bench)
        model = TEFM(data.schema, **dict(data.task.model))
        outcome = fit_frame(model, data.own.frame, data.task.split, compare=False, file=data.task.table)
        fitted, p_SQ = model.fitted, model.fitted.probabilities(model.preparation.slots(data.test))
        methods = {OURS: (p_SQ, fitted.decide(p_SQ))}
        tokens = outcome.test.tokens_mean
        return {"tokens": tokens, **figures_on_test(data, fitted.classes, fitted.positive, methods)}


class BesideRun(TableRun):
    """Our model, whose language model and trees answer together, and each of them alone."""

    KIND: ClassVar[str] = "table-beside"

    def measure(self, bench: Bench) -> Figures:
        data = self.open(bench)
        preparation, arrays = self.arrays_of(data)
        fitted = fit_pipeline(Given(arrays, data.task.model))
        test = preparation.slots(data.test)
        methods = {}
        for name, model in _each_alone(fitted, arrays).items():
            p_SQ = model.probabilities(test)
            methods[name] = p_SQ, model.decide(p_SQ)
        assert fitted.trees is not None, "they were grown"
        found = {"share": fitted.trees.share, "tokens": float(fitted.tokens(fitted.codes(test)).mean())}
        return {**found, **figures_on_test(data, fitted.classes, fitted.positive, methods)}


def _each_alone(fitted: Fitted, arrays: TaskData) -> dict[str, Fitted]:
    """The model, and its language model and its trees, each calibrated on the same validation sequences."""
    models, slots = {TOGETHER: fitted}, arrays.validation.slots
    codes, labels_S = fitted.codes(slots), arrays.validation.labels_S
    assert fitted.trees is not None, "they were grown"
    for name, share in {LANGUAGE: 1.0, TREES: 0.0}.items():
        alone = fitted.with_trees(fitted.trees.model_copy(update={"share": share}))
        models[name] = calibrate(alone, slots, codes, labels_S, arrays.trained_shares)
    return models


class BaselineRun(TableRun):
    """A model that reads no codes, on the same sequences; its settings are chosen on the validation part."""

    KIND: ClassVar[str] = "table-baseline"

    model: str

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.KIND, self.model

    def turn(self, bench: Bench) -> tuple[float, float]:
        seed, size = super().turn(bench)
        return seed, size * SLOWER.get(self.model, 1)

    def measure(self, bench: Bench) -> Figures:
        from tefm_bench.baselines.compare import fit_baselines

        data = self.open(bench)
        preparation, arrays = self.arrays_of(data)
        result = fit_baselines(
            baseline_data(preparation, data.records, data.parts),
            models=(self.model,),
            kinds=feature_kinds(data.task.model, data.records.sequences),
            positive=arrays.positive,
            decision=self._decision(arrays.classes, arrays.shares),
            shares=arrays.shares,
            seed=self.seed,
            resamples=0,
        )[self.model]
        methods = {self.model: (result.test_NQ, result.predicted_N)}
        chosen = {name: result.figures[name] for name in ("kind", "settings", "train", "seconds")}
        return {"chosen": chosen, **figures_on_test(data, arrays.classes, arrays.positive, methods)}

    def _decision(self, classes: tuple[str, ...], shares: tuple[float, ...]) -> Decision:
        """That of our model; the majority class is the most frequent one, whatever predictions should be good at."""
        return ACCURACY if self.model == "majority" else self.task.model.decision_for(classes, shares)


def figures_on_test(
    data: UserData,
    classes: tuple[str, ...],
    positive: int,
    methods: Mapping[str, tuple[NDArray[np.float64], NDArray[np.int64]]],
) -> Figures:
    """The test sequences of each test, and what every method predicts for them."""
    labels_S = label_numbers(data.test.sequences, classes)
    tests = {"test": ~data.is_other} | ({"other": data.is_other} if data.is_other.any() else {})
    return {
        "classes": list(classes),
        "positive": positive,
        "sequences": {part: int((data.parts == part).sum()) for part in ("train", "validation", "test")},
        "remarks": list(data.remarks),
        "tests": {
            test: {"rows": data.test_rows[in_test].tolist(), "labels": labels_S[in_test].tolist()}
            for test, in_test in tests.items()
        },
        "methods": {
            name: {
                test: scored(p_SQ[in_test], predicted_S[in_test], labels_S[in_test], classes, positive)
                for test, in_test in tests.items()
            }
            for name, (p_SQ, predicted_S) in methods.items()
        },
    }


def scored(
    p_SQ: NDArray[np.float64],
    predicted_S: NDArray[np.int64],
    labels_S: NDArray[np.int64],
    classes: tuple[str, ...],
    positive: int,
    *,
    resamples: int = 0,
) -> Figures:
    """The scores of a method, and what they are computed from."""
    scores = score(p_SQ, labels_S, classes, predicted_N=predicted_S, positive=positive, resamples=resamples)
    return {
        "scores": scores.to_dict(),
        "probabilities": [[float(f"{p:.{DIGITS}g}") for p in p_Q] for p_Q in p_SQ.tolist()],
        "predicted": predicted_S.tolist(),
    }


def predicted_of(figures: Figures, method: str, test: str = "test") -> Predicted:
    """What a method predicted for the sequences of a test."""
    stored, sequences = figures["methods"][method][test], figures["tests"][test]
    return Predicted.of(
        np.array(stored["probabilities"]),
        np.array(sequences["labels"]),
        np.array(stored["predicted"]),
        figures["positive"],
    )


class Difference(Measurement):
    """How far a method is ahead of another on the same test sequences, with a 95% interval; a pair of runs per seed."""

    KIND: ClassVar[str] = "table-difference"

    runs: tuple[ModelRun | BesideRun | BaselineRun, ...]
    method: str
    reference_runs: tuple[BaselineRun, ...]
    test: str = "test"
    resamples: int = 1_000
    #: whether the interval is that of other fits too
    refitted: bool = False

    @property
    def description(self) -> str:
        reference = self.reference_runs[0]
        return f"{self.KIND} of {self.method}, {reference.table}, {len(self.runs)} seeds from {reference.seed}"

    def needs(self) -> tuple[Measurement, ...]:
        return (*self.runs, *self.reference_runs)

    def measure(self, bench: Bench) -> Figures:
        pairs = []
        for run, reference in zip(self.runs, self.reference_runs, strict=True):
            figures, other = bench.figures(run), bench.figures(reference)
            assert figures is not None and other is not None, "they were measured before"
            pairs.append(((figures, self.method), (other, reference.model)))
        return differences(pairs, self.test, resamples=self.resamples, refitted=self.refitted)


def differences(
    pairs: Iterable[tuple[tuple[Figures, str], tuple[Figures, str]]],
    test: str = "test",
    *,
    resamples: int,
    refitted: bool = False,
) -> Figures:
    """How far a method is ahead of another, on average over pairs of both, each as the figures of a run and a name."""
    ours, theirs, rows = [], [], []
    for (figures, method), (other, reference) in pairs:
        assert figures["tests"] == other["tests"], "the test sequences are the same"
        ours.append(predicted_of(figures, method, test))
        theirs.append(predicted_of(other, reference, test))
        rows.append(np.array(figures["tests"][test]["rows"]))
    intervals = mean_differences(COMPARED, ours, theirs, rows, resamples=resamples, refitted=refitted)
    return {name: interval.to_dict() for name, interval in intervals.items()}
