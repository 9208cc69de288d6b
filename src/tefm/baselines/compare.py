"""Baselines on one split: inputs and settings are chosen on validation, the test part is scored once.

Shapes: N records or sequences, D slots, Q classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError, MissingExtraError, SettingsError, did_you_mean
from tefm.base.progress import note
from tefm.baselines.boosted import fit_lightgbm
from tefm.baselines.choice import LEAST, STEPS, Chosen, Examples, Numbers, Task
from tefm.baselines.inputs import Kind, records_of, sequence_features
from tefm.baselines.linear import fit_logistic
from tefm.codes.coder import class_numbers
from tefm.records.layout import Layout
from tefm.records.sequences import Sequences
from tefm.records.splitting import PARTS
from tefm.scoring.calibration import Calibration
from tefm.scoring.metrics import Scores, score


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


#: The inputs that a model may choose from, by name; each has one entry per sequence.
InputChoices = Callable[[BaselineData, Sequence[Kind]], list[tuple[str, Any]]]


def slot_features(data: BaselineData, kinds: Sequence[Kind]) -> list[tuple[str, Any]]:
    """One row of slots per sequence, for each kind of features."""
    records = records_of(data.slots_ND, data.sequences, data.layout)
    return [(kind, sequence_features(records, kind)) for kind in kinds]


@dataclass(frozen=True)
class Baseline:
    """A model that learns from training examples and is chosen on validation examples."""

    fit: Callable[[Any, Any, Task], Chosen]
    inputs: InputChoices = slot_features


#: The baselines that `tefm fit` compares with, by name.
TABULAR: Mapping[str, Baseline] = {"lightgbm": Baseline(fit_lightgbm), "logistic": Baseline(fit_logistic)}


def evaluate_baselines(
    data: BaselineData,
    *,
    models: Sequence[str] = tuple(TABULAR),
    available: Mapping[str, Baseline] = TABULAR,
    kinds: Sequence[Kind] = ("last", "history"),
    positive: int = 1,
    resamples: int = 1000,
    seed: int = 0,
    device: str | None = None,
    steps: int = STEPS,
    skip_missing: bool = False,
    predictions: bool = False,
) -> dict[str, dict[str, Any]]:
    """Fit and score models on the same split, each by its name in `available`.

    Models that take one row per sequence use whichever of `kinds` does best on validation. The test part is scored
    once, with the model's own probabilities (`test`) and after the calibration that our own model gets too
    (`test_calibrated`). With `skip_missing`, models whose package or weights are missing are skipped; otherwise that is
    an error. With `predictions`, the calibrated probabilities and the decisions for the test sequences come along.
    """
    for name in models:
        if name not in available:
            raise SettingsError("not a valid baseline", value=name, remedy=did_you_mean(name, available))
    data = _labelled(data)
    classes, numbers_N = class_numbers(data.labels)
    _check_parts(numbers_N, data.parts)
    task = Task(len(classes), positive, seed, device, steps)

    def scored(p_NQ: NDArray[Any], part: str, predicted_N: Numbers | None = None) -> Scores:
        labels_N = numbers_N[data.parts == part]
        return score(
            p_NQ, labels_N, classes, predicted_N=predicted_N, positive=positive, resamples=resamples, seed=seed
        )

    results: dict[str, dict[str, Any]] = {}
    for name in models:
        began = time.perf_counter()
        try:
            best, kind, tried, test = _fit(available[name], data, numbers_N, kinds, task)
        except MissingExtraError as error:
            if not skip_missing:
                raise
            note(f"{name} skipped: {error.problem} → {error.remedy}")
            continue
        test_NQ = best.predict_proba(test)
        seconds = time.perf_counter() - began
        validation_N = numbers_N[data.parts == "validation"]
        calibration = Calibration.fit(_logits(best.validation_NQ), validation_N, positive=positive)
        calibrated_NQ = calibration.probabilities(_logits(test_NQ))
        decided_N = calibration.predict(calibrated_NQ)
        results[name] = {
            "kind": kind,
            "settings": dict(best.settings),
            "tried": tried,
            "train": int((data.parts == "train").sum()),
            "seconds": seconds,
            "validation": scored(best.validation_NQ, "validation").to_dict(),
            "calibration": calibration.to_dict(),
            "test": scored(test_NQ, "test").to_dict(),
            "test_calibrated": scored(calibrated_NQ, "test", decided_N).to_dict(),
        }
        if predictions:
            results[name] |= {"probabilities": calibrated_NQ, "predicted": decided_N}
    return results


def _fit(
    baseline: Baseline, data: BaselineData, numbers_N: Numbers, kinds: Sequence[Kind], task: Task
) -> tuple[Chosen, str, list[dict[str, Any]], Any]:
    """The model on the inputs that do best on validation, their name, all settings tried, and the test inputs."""
    train_N, validation_N, test_N = (data.parts == part for part in PARTS)
    best: tuple[Chosen, str, Any] | None = None
    tried: list[dict[str, Any]] = []
    for kind, inputs in baseline.inputs(data, kinds):
        train, validation = (Examples(inputs[part_N], numbers_N[part_N]) for part_N in (train_N, validation_N))
        chosen = baseline.fit(train, validation, task)
        tried += [{"kind": kind, **settings} for settings in chosen.tried]
        if best is None or chosen.rank < best[0].rank:
            best = chosen, kind, inputs[test_N]
    if best is None:
        raise SettingsError("there are no features to learn from", value=tuple(kinds), remedy="name at least one kind")
    return best[0], best[1], tried, best[2]


def _labelled(data: BaselineData) -> BaselineData:
    """The sequences that have a label."""
    counts = {"labels": len(data.labels), "parts": len(data.parts)}
    counts |= {} if data.texts is None else {"texts": len(data.texts)}
    sequences = len(data.sequences)
    for what, count in counts.items():
        if count != sequences:
            raise InputError(f"there are {sequences} sequences, but {count} {what}", remedy="give one per sequence")
    labelled_N = np.array([label is not None for label in data.labels], dtype=bool)
    records = records_of(data.slots_ND, data.sequences, data.layout)[labelled_N]
    return replace(
        data,
        sequences=records.sequences,
        labels=data.labels[labelled_N],
        parts=data.parts[labelled_N],
        texts=None if data.texts is None else [data.texts[int(i)] for i in np.flatnonzero(labelled_N)],
    )


def _logits(p_NQ: NDArray[Any]) -> NDArray[Any]:
    logits_NQ: NDArray[Any] = np.log(np.maximum(p_NQ, LEAST))
    return logits_NQ


def _check_parts(numbers_N: Numbers, parts: NDArray[np.str_]) -> None:
    """A model needs two classes to learn, early stopping one of these, and a score at least one sequence."""
    train_classes = np.unique(numbers_N[parts == "train"])
    for part in PARTS:
        classes = np.unique(numbers_N[parts == part])
        usable = len(np.intersect1d(classes, train_classes)) if part == "validation" else len(classes)
        if usable < (2 if part == "train" else 1):
            raise InputError(
                f"the {part} part has labels of {usable} classes{' of the train part' if part == 'validation' else ''}",
                value=part,
                remedy="give more labelled sequences, or split stratified by the label",
            )
