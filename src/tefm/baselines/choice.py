"""How validation picks among fitted models; the same rule for every baseline.

Of two classes the highest AUROC wins, of several (or where validation lacks a class) the lowest log-loss; ties go to
the lower log-loss, then to the setting that is named first.

Shapes: N sequences, Q classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tefm.scoring.metrics import score

Numbers = NDArray[np.int64]
Probabilities = NDArray[np.float64]
Inputs = TypeVar("Inputs")

#: A probability below this costs as much as this one, so that one confident error does not decide a choice.
LEAST = 1e-6
#: Steps that a network is given; it stops long before.
STEPS = 2_000


@dataclass(frozen=True)
class Task:
    """What a model is told beside the sequences."""

    #: how many classes there are, whether training has all of them or not
    classes: int
    #: of two, the class that AUROC is about
    positive: int = 1
    seed: int = 0
    #: for the models that use one: "cpu", "cuda", … ; None takes a GPU where there is one
    device: str | None = None
    #: of the models that learn step by step, at most
    steps: int = STEPS


@dataclass(frozen=True, eq=False)
class Examples(Generic[Inputs]):
    """Sequences as a model reads them, with their class numbers."""

    inputs: Inputs
    labels_N: Numbers

    @property
    def seen(self) -> tuple[Numbers, Numbers]:
        """The class numbers that occur, and each label as a place among them."""
        classes, places_N = np.unique(self.labels_N, return_inverse=True)
        return classes, places_N


class Model(Protocol):
    """A fitted model."""

    def predict_proba(self, inputs: Any) -> Probabilities: ...


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model of the classes that training has; its probabilities have a column for every class."""

    predict: Callable[[Any], NDArray[Any]]
    seen: Numbers
    classes: int

    def predict_proba(self, inputs: Any) -> Probabilities:
        p_NQ = np.zeros((len(inputs), self.classes))
        p_NQ[:, self.seen] = self.predict(inputs)
        p_NQ /= p_NQ.sum(axis=1, keepdims=True)  # libraries that answer in single precision are a little off
        return p_NQ


@dataclass(frozen=True, eq=False)
class Chosen:
    """The model that did best on validation."""

    model: Model
    settings: Mapping[str, Any]
    #: what it says about the validation sequences
    validation_NQ: Probabilities
    #: smaller is better: negative AUROC (0 where it does not count), log-loss
    rank: tuple[float, float]
    #: every setting that was tried, with its AUROC and log-loss on validation
    tried: tuple[Mapping[str, Any], ...]

    def predict_proba(self, inputs: Any) -> Probabilities:
        return self.model.predict_proba(inputs)


def choose(candidates: Iterable[tuple[Model, Mapping[str, Any]]], validation: Examples[Any], task: Task) -> Chosen:
    """The best of models, each with its settings."""
    ranked, tried = [], []
    for model, settings in candidates:
        p_NQ = model.predict_proba(validation.inputs)
        auroc, loss = auroc_of(p_NQ, validation.labels_N, task), log_loss(p_NQ, validation.labels_N)
        ranked.append(((-auroc if auroc is not None and task.classes == 2 else 0.0, loss), model, settings, p_NQ))
        tried.append({**settings, "auroc": auroc, "log_loss": loss})
    rank, model, settings, p_NQ = min(ranked, key=lambda candidate: candidate[0])
    return Chosen(model, settings, p_NQ, rank, tuple(tried))


def auroc_of(p_NQ: Probabilities, labels_N: Numbers, task: Task) -> float | None:
    """The AUROC, None where it is not defined."""
    names = tuple(map(str, range(task.classes)))
    return score(p_NQ, labels_N, names, positive=task.positive, resamples=0).auroc.to_dict()["value"]


def log_loss(p_NQ: Probabilities, labels_N: Numbers) -> float:
    """The mean negative log-likelihood of the labels."""
    return -float(np.log(np.maximum(p_NQ[np.arange(len(labels_N)), labels_N], LEAST)).mean())
