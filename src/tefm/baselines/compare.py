"""All baselines on one split: inputs and settings chosen on validation, the test part scored once.

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
from tefm.baselines.boosted import fit_lightgbm, fit_xgboost
from tefm.baselines.choice import LEAST, STEPS, Chosen, Examples, Numbers, Task
from tefm.baselines.inputs import Features, Kind, Ordered, Records, records_of, sequence_features
from tefm.baselines.linear import fit_logistic, fit_tfidf
from tefm.baselines.majority import fit_majority
from tefm.baselines.set_transformer import fit_set_transformer
from tefm.baselines.tabpfn import fit_tabpfn
from tefm.codes.coder import class_numbers
from tefm.records.layout import Layout
from tefm.scoring.calibration import Calibration
from tefm.scoring.metrics import Scores, score

PARTS = ("train", "validation", "test")
#: Every baseline by its name: learns from training examples, and chooses on validation examples.
FITS: Mapping[str, Callable[[Any, Any, Task], Chosen]] = {
    "majority": fit_majority,
    "tfidf": fit_tfidf,
    "logistic": fit_logistic,
    "xgboost": fit_xgboost,
    "lightgbm": fit_lightgbm,
    "set-transformer": fit_set_transformer,
    "tabpfn": fit_tabpfn,
}


@dataclass(frozen=True, eq=False)
class BaselineData:
    """Sequences of vectorised records with their labels and parts, one each per sequence."""

    slots_ND: NDArray[Any]
    layout: Layout
    sequences: Ordered
    #: None where a sequence has no label: it is left out
    labels: NDArray[Any]
    #: "train", "validation" or "test"
    parts: NDArray[np.str_]
    #: the records of each sequence as text, for the models that read words
    texts: Sequence[str] | None = None


def evaluate_baselines(
    data: BaselineData,
    *,
    models: Sequence[str] = tuple(FITS),
    kinds: Sequence[Kind] = ("last", "history"),
    positive: int = 1,
    resamples: int = 1000,
    seed: int = 0,
    device: str | None = None,
    steps: int = STEPS,
    skip_missing: bool = False,
) -> dict[str, dict[str, Any]]:
    """Every model on the same split.

    Of `kinds`, the features that models of one row per sequence may read, each takes those that do best on validation.
    The test part is scored once, as the model answers (`test`) and after the calibration our own model gets too
    (`test_calibrated`). `skip_missing` leaves out models whose package or weights are absent, which is an error
    otherwise.
    """
    for name in models:
        if name not in FITS:
            raise SettingsError("there is no such baseline", value=name, remedy=did_you_mean(name, FITS))
    data = _labelled(data)
    classes, numbers_N = class_numbers(data.labels)
    _check_parts(numbers_N, data.parts)
    task = Task(len(classes), positive, seed, device, steps)

    def judged(p_NQ: NDArray[Any], part: str, predicted_N: Numbers | None = None) -> Scores:
        labels_N = numbers_N[data.parts == part]
        return score(
            p_NQ, labels_N, classes, predicted_N=predicted_N, positive=positive, resamples=resamples, seed=seed
        )

    results: dict[str, dict[str, Any]] = {}
    for name in models:
        began = time.perf_counter()
        try:
            best, kind, tried, test = _fit(name, data, numbers_N, kinds, task)
        except MissingExtraError as error:
            if not skip_missing:
                raise
            note(f"without {name}: {error.problem} → {error.remedy}")
            continue
        test_NQ = best.predict_proba(test)
        seconds = time.perf_counter() - began
        validation_N = numbers_N[data.parts == "validation"]
        calibration = Calibration.fit(_logits(best.validation_NQ), validation_N, positive=positive)
        calibrated_NQ = calibration.probabilities(_logits(test_NQ))
        results[name] = {
            "kind": kind,
            "settings": dict(best.settings),
            "tried": tried,
            "train": int((data.parts == "train").sum()),
            "seconds": seconds,
            "validation": judged(best.validation_NQ, "validation").to_dict(),
            "calibration": calibration.to_dict(),
            "test": judged(test_NQ, "test").to_dict(),
            "test_calibrated": judged(calibrated_NQ, "test", calibration.predict(calibrated_NQ)).to_dict(),
        }
    return results


def _fit(
    name: str, data: BaselineData, numbers_N: Numbers, kinds: Sequence[Kind], task: Task
) -> tuple[Chosen, str, list[dict[str, Any]], Any]:
    """The model on the inputs that do best on validation: it, their name, what was tried, and the test inputs."""
    train_N, validation_N, test_N = (data.parts == part for part in PARTS)
    best: tuple[Chosen, str, Any] | None = None
    tried: list[dict[str, Any]] = []
    for kind, inputs in _inputs(name, data, kinds):
        train, validation = (Examples(inputs[here_N], numbers_N[here_N]) for here_N in (train_N, validation_N))
        chosen = FITS[name](train, validation, task)
        tried += [{"kind": kind, **settings} for settings in chosen.tried]
        if best is None or chosen.rank < best[0].rank:
            best = chosen, kind, inputs[test_N]
    if best is None:
        raise SettingsError("there are no features to read", value=tuple(kinds), remedy="name at least one kind")
    return best[0], best[1], tried, best[2]


def _inputs(
    name: str, data: BaselineData, kinds: Sequence[Kind]
) -> list[tuple[str, Features | Records | NDArray[Any]]]:
    """What a model may read, by name."""
    records = records_of(data.slots_ND, data.sequences, data.layout)
    if name == "majority":
        return [("nothing", Features(np.zeros((len(records), 0)), ()))]
    if name == "set-transformer":
        return [("records", records)]
    if name == "tfidf":
        if data.texts is None:
            raise InputError(
                "there are no texts to read", value=name, remedy="give `texts`, one per sequence, or leave tfidf out"
            )
        return [("text", np.array(data.texts, dtype=object))]
    return [(kind, sequence_features(records, kind)) for kind in kinds]


def _labelled(data: BaselineData) -> BaselineData:
    """The sequences that have a label."""
    counts = {"labels": len(data.labels), "parts": len(data.parts)}
    counts |= {} if data.texts is None else {"texts": len(data.texts)}
    count = len(data.sequences.starts) - 1
    for what, found in counts.items():
        if found != count:
            raise InputError(f"there are {count} sequences, but {found} {what}", remedy="give one each")
    labelled_N = np.array([label is not None for label in data.labels], dtype=bool)
    kept = records_of(data.slots_ND, data.sequences, data.layout)[labelled_N]
    texts = None if data.texts is None else [text for text, here in zip(data.texts, labelled_N, strict=True) if here]
    return replace(data, sequences=kept, labels=data.labels[labelled_N], parts=data.parts[labelled_N], texts=texts)


def _logits(p_NQ: NDArray[Any]) -> NDArray[Any]:
    logits_NQ: NDArray[Any] = np.log(np.maximum(p_NQ, LEAST))
    return logits_NQ


def _check_parts(numbers_N: Numbers, parts: NDArray[np.str_]) -> None:
    learned = np.unique(numbers_N[parts == "train"])
    for part in PARTS:
        here = np.unique(numbers_N[parts == part])
        # a model needs two classes to learn, stopping needs one that was learned, a score some sequence
        found = len(np.intersect1d(here, learned)) if part == "validation" else len(here)
        if found < (2 if part == "train" else 1):
            raise InputError(
                f"the {part} part has labels of {found} classes{' of the train part' if part == 'validation' else ''}",
                value=part,
                remedy="give more labelled sequences, or split stratified by the label",
            )
