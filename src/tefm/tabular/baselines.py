"""Conventional models on the same split as ours: inputs and settings are chosen on validation, the test is scored once.

First the kind of inputs is chosen, with the first setting, then the form of free text, if the language model reads any,
then the setting. On a large training part, LightGBM, XGBoost and logistic regression choose on a sample (20,000
sequences of two classes, at least 10,000 with more, which need a tree per class and round); only the chosen model is
fitted on all sequences.

Shapes: N records or sequences, D slots, F raw columns, Q classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.scoring.calibration import Calibration, prior_shift
from tefm.scoring.decision import ACCURACY, Decision
from tefm.scoring.metrics import score
from tefm.scoring.numbers import Buckets, NumberScores, PredictedNumbers, levels_of, margin_of
from tefm.tables.layout import Layout
from tefm.tables.sequences import PARTS, Sequences, class_numbers
from tefm.tabular.inputs import (
    COMPONENTS,
    PLUS,
    RAW,
    TELLING,
    WORDS,
    Kind,
    RecordSlots,
    scoped,
    sequence_features,
    sequence_texts,
    with_text,
)
from tefm.tabular.learners import (
    LEAST,
    STEPS,
    Chosen,
    Examples,
    LearningTask,
    Numbers,
    Probabilities,
    fit_lightgbm,
    fit_logistic,
    fit_quantiles,
)

#: Training sequences times classes of the sample that large comparisons are searched on, and its fewest sequences.
SEARCHED, FEWEST_SEARCHED = 40_000, 10_000


@dataclass(frozen=True, eq=False)
class BaselineData:
    """Sequences of vectorised records, with a label and a part for each sequence."""

    slots_ND: NDArray[Any]
    layout: Layout
    #: row numbers of `slots_ND`
    sequences: Sequences
    #: None where a sequence has no label: it is left out
    labels: NDArray[Any]
    #: "train", "validation" or "test"
    parts: NDArray[np.str_]
    #: the records of each sequence as text, for models that read words
    texts: Sequence[str] | None = None
    #: the raw values of the same records (`raw_values`), for boosted trees
    raw: tuple[NDArray[Any], Layout] | None = None
    #: the free text of each record of `slots_ND`, where the language model reads it too
    notes: Sequence[str] | None = None
    #: where the label is a number: that of each sequence; labels are its buckets
    numbers: NDArray[np.float64] | None = None

    def select(self, which: NDArray[np.integer[Any]]) -> BaselineData:
        """Some of the sequences, by index."""
        return replace(
            self,
            sequences=self.sequences.select(which),
            labels=self.labels[which],
            parts=self.parts[which],
            numbers=None if self.numbers is None else self.numbers[which],
            texts=None if self.texts is None else [self.texts[int(i)] for i in which],
        )


#: The inputs that a model may choose from, by name; each has one entry per sequence.
InputChoices = Callable[[BaselineData, Sequence[str]], list[tuple[str, Any]]]


def slot_features(data: BaselineData, kinds: Sequence[str]) -> list[tuple[str, Any]]:
    """One row per sequence for each kind of features, of slots or (`raw last`, …) of raw values.

    After a `+` comes a form of the text (`last + words of all records`); its words are those of the training part.
    """

    def features(kind: str) -> Any:
        fields, _, form = kind.partition(PLUS)
        values_ND, layout = (data.slots_ND, data.layout) if data.raw is None or RAW not in fields else data.raw
        plain: Any = fields.removeprefix(RAW)
        rows = sequence_features(RecordSlots(values_ND, layout, data.sequences), plain)
        if not form:
            return rows
        assert data.notes is not None, "there is text"
        return with_text(rows, sequence_texts(data.notes, data.sequences, form), form, data.labels, data.parts)

    return [(kind, features(kind)) for kind in kinds]


@dataclass(frozen=True)
class Baseline:
    """A model that learns from training examples and is chosen on validation examples."""

    fit: Callable[[Any, Any, LearningTask], Chosen]
    inputs: InputChoices = slot_features
    #: whether it may choose raw values too
    raw: bool = False
    #: whether a large search is made on a sample
    samples: bool = False
    #: how it can be given text
    text_forms: tuple[str, ...] = ()


#: The baselines that `tefm fit` compares with, by name.
TABULAR: Mapping[str, Baseline] = {
    "lightgbm": Baseline(fit_lightgbm, raw=True, samples=True, text_forms=(COMPONENTS, TELLING)),
    "logistic": Baseline(fit_logistic, samples=True, text_forms=(WORDS,)),
}

#: What a label that is a number is compared with.
QUANTILES = Baseline(fit_quantiles, raw=True, samples=True, text_forms=(COMPONENTS, TELLING))


@dataclass(frozen=True, eq=False)
class Compared:
    """A fitted baseline: its figures, and its calibrated probabilities and predictions for the test sequences."""

    figures: dict[str, Any]
    test_NQ: Probabilities
    predicted_N: Numbers
    #: where the label is a number
    numbers: PredictedNumbers | None = None


def fit_baselines(
    data: BaselineData,
    models: Mapping[str, Baseline] = TABULAR,
    *,
    kinds: Sequence[Kind] = ("last", "history"),
    positive: int = 1,
    decision: Decision = ACCURACY,
    shares: Sequence[float] = (),
    resamples: int = 1000,
    seed: int = 0,
    device: str | None = None,
    steps: int = STEPS,
) -> dict[str, Compared]:
    """Fit and score models on the same split, by name.

    Models that take one row per sequence use whichever of `kinds` does best on validation, boosted trees also of the
    raw values. The test part is scored once, with the model's own probabilities (`test`) and after the calibration and
    decision that our own model gets too (`test_calibrated`); `shares` are those of the classes in the population, where
    the training part has others.
    """
    data, classes = _numbered(data)
    labels_of: dict[str, Numbers] = {part: data.labels[data.parts == part] for part in PARTS}
    task = LearningTask(len(classes), positive, seed, device, steps)
    trained = np.bincount(labels_of["train"], minlength=len(classes)) / len(labels_of["train"])
    shift = prior_shift(trained.tolist(), shares or trained.tolist())

    def scored(p_NQ: NDArray[Any], part: str, predicted_N: Numbers | None = None) -> dict[str, Any]:
        settings: dict[str, Any] = {"positive": positive, "resamples": resamples, "seed": seed}
        return score(p_NQ, labels_of[part], classes, predicted_N=predicted_N, **settings).to_dict()

    results: dict[str, Compared] = {}
    for name, model in models.items():
        began = time.perf_counter()
        best, kind, tried, test = _fit(model, data, kinds, task)
        test_NQ = best.predict_proba(test)
        seconds = time.perf_counter() - began
        validation_NQ, logits_NQ = (np.log(np.maximum(p_NQ, LEAST)) for p_NQ in (best.validation_NQ, test_NQ))
        calibration = Calibration.fit(
            validation_NQ, labels_of["validation"], positive=positive, decision=decision, shift=shift
        )
        calibrated_NQ = calibration.probabilities(logits_NQ)
        predicted_N = calibration.predict(calibrated_NQ)
        figures = {
            "kind": kind,
            "settings": dict(best.settings),
            "tried": tried,
            "train": len(labels_of["train"]),
            "seconds": seconds,
            "validation": scored(best.validation_NQ, "validation"),
            "calibration": calibration.to_dict(),
            "test": scored(test_NQ, "test"),
            "test_calibrated": scored(calibrated_NQ, "test", predicted_N),
        }
        results[name] = Compared(figures, calibrated_NQ, predicted_N)
    return results


def fit_numbers(data: BaselineData, buckets: Buckets, *, kinds: Sequence[Kind], seed: int = 0) -> dict[str, Compared]:
    """LightGBM's quantile regression on numbers, and always the median, scored on the same split.

    Inputs and settings are chosen as for classes, by the median's mean absolute error on validation. The interval is
    made conformal on validation like that of our own model.
    """
    began = time.perf_counter()
    data, _ = _numbered(data)
    assert data.numbers is not None, "the label is a number"
    values: dict[str, NDArray[np.float64]] = {part: data.numbers[data.parts == part] for part in PARTS}
    task = LearningTask(len(buckets.names), seed=seed, interval=buckets.interval)
    best, kind, tried, test = _fit(QUANTILES, data, kinds, task)
    train = values["train"]
    low, median, high = np.quantile(train, levels_of(buckets.interval))
    medians = [np.tile([median, train.mean(), low, high], (len(values[part]), 1)) for part in PARTS[1:]]
    how = {"kind": kind, "settings": dict(best.settings), "tried": tried, "seconds": time.perf_counter() - began}
    results = {}
    for name, given, (held_NL, test_NL) in (
        ("lightgbm", how, (best.validation_NQ, best.predict_proba(test))),
        ("median", {}, medians),
    ):
        raw = PredictedNumbers(*held_NL.T)
        margin = margin_of(raw, values["validation"], buckets.interval) or 0.0
        predicted = PredictedNumbers(*test_NL.T).widened(margin)
        validation = NumberScores.of(raw.widened(margin), values["validation"], buckets.interval)
        scores = NumberScores.of(predicted, values["test"], buckets.interval)
        figures = {**given, "validation": validation.to_dict(), "test_calibrated": scores.to_dict()}
        results[name] = Compared(figures, test_NL, buckets.class_of(predicted.median_S), predicted)
    return results


def _numbered(data: BaselineData) -> tuple[BaselineData, tuple[str, ...]]:
    """The sequences that have a label, with class numbers in place of labels; and the classes.

    A model needs two classes to learn, early stopping one of these, and a score at least one sequence.
    """
    RecordSlots(data.slots_ND, data.layout, data.sequences)  # refuses slots of another layout
    for what, values in (("labels", data.labels), ("parts", data.parts), ("texts", data.texts)):
        if values is not None and len(values) != len(data.sequences):
            raise InputError(
                f"there are {len(data.sequences)} sequences, but {len(values)} {what}", remedy="give one per sequence"
            )
    data = data.select(np.flatnonzero([label is not None for label in data.labels]))
    classes, numbers_N = class_numbers(data.labels)
    trained = np.unique(numbers_N[data.parts == "train"])
    for part, least, where in (("train", 2, ""), ("validation", 1, " of the train part"), ("test", 1, "")):
        present = np.unique(numbers_N[data.parts == part])
        usable = len(np.intersect1d(present, trained)) if part == "validation" else len(present)
        if usable < least:
            raise InputError(
                f"the {part} part has labels of {usable} classes{where}",
                value=part,
                remedy="give more labelled sequences, or split stratified by the label",
            )
    return replace(data, labels=numbers_N), classes


def _fit(
    baseline: Baseline, data: BaselineData, kinds: Sequence[str], task: LearningTask
) -> tuple[Chosen, str, list[dict[str, Any]], Any]:
    """The model on the inputs that do best on validation, their name, all settings tried, and the test inputs."""
    if baseline.raw and data.raw is not None:
        kinds = [*kinds, *(RAW + kind for kind in kinds)]
    train = np.flatnonzero(data.parts == "train")
    most = max(FEWEST_SEARCHED, SEARCHED // task.classes)
    is_large = baseline.samples and len(train) > most
    forms = [] if data.notes is None else scoped(baseline.text_forms, data.sequences)
    if not is_large and not forms:
        return _choose(baseline, data, kinds, task)
    searched = data
    if is_large:
        drawn = train[stratified_sample(data.labels[train], most, task.seed)]
        searched = data.select(np.sort(np.concatenate([drawn, np.flatnonzero(data.parts == "validation")])))
    first = replace(task, tries=1)
    _, kind, tried_kinds, _ = _choose(baseline, searched, kinds, first)
    if forms:
        texts = [kind, *(kind + PLUS + form for form in forms)]
        _, kind, tried_forms, _ = _choose(baseline, searched, texts, first)
        tried_kinds += tried_forms
    chosen, _, tried, test = _choose(baseline, searched, [kind], task)
    if is_large:
        chosen, kind, _, test = _choose(baseline, data, [kind], replace(task, settled=chosen.settings))
    return chosen, kind, tried_kinds + tried, test


def _choose(
    baseline: Baseline, data: BaselineData, kinds: Sequence[str], task: LearningTask
) -> tuple[Chosen, str, list[dict[str, Any]], Any]:
    train_N, validation_N, test_N = (data.parts == part for part in PARTS)
    best: tuple[Chosen, str, Any] | None = None
    tried: list[dict[str, Any]] = []
    for kind, inputs in baseline.inputs(data, kinds):
        targets_N = data.labels if data.numbers is None else data.numbers
        train, validation = (Examples(inputs[part_N], targets_N[part_N]) for part_N in (train_N, validation_N))
        chosen = baseline.fit(train, validation, task)
        tried += [{"kind": kind, **settings} for settings in chosen.tried]
        if best is None or chosen.rank < best[0].rank:
            best = chosen, kind, inputs[test_N]
    if best is None:
        raise SettingsError("there are no features to learn from", value=tuple(kinds), remedy="name at least one kind")
    return best[0], best[1], tried, best[2]


def stratified_sample(labels_N: NDArray[Any], most: int, seed: int) -> NDArray[np.int64]:
    """A random sample with the class shares of the whole, and at least one of every class.

    >>> labels_N = np.array([0] * 90 + [1] * 9 + [2])
    >>> np.bincount(labels_N[stratified_sample(labels_N, 20, seed=0)]).tolist()
    [17, 2, 1]
    """
    order = np.random.default_rng(seed).permutation(len(labels_N))
    place_N = np.zeros(len(labels_N))
    for label in np.unique(labels_N):
        members = order[labels_N[order] == label]
        place_N[members] = np.arange(len(members)) / len(members)  # the first of a class has 0
    return np.sort(np.argsort(place_N, kind="stable")[:most])
