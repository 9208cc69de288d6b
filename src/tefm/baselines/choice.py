"""How validation picks among fitted models; the same rule for every baseline.

With two classes the highest AUROC wins, with more (or where validation lacks a class) the lowest log-loss. Ties go to
the lower log-loss, then to the setting that was tried first.

Shapes: N sequences, Q classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tefm.scoring.metrics import score

Numbers = NDArray[np.int64]
Probabilities = NDArray[np.float64]
Inputs = TypeVar("Inputs")

#: Lower probabilities count as this one, so that one confident error does not decide a choice.
LEAST = 1e-6
#: The most training steps of a network; early stopping ends it long before.
STEPS = 2_000


@dataclass(frozen=True)
class Task:
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
    settled: Mapping[str, Any] | None = None
    #: how many settings are tried, at most
    tries: int | None = None

    def grid(self, settings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Those of a model's settings that are to be fitted.

        >>> Task(2, settled={"C": 1, "trees": 80}).grid([{"C": 0.1}, {"C": 1}])
        [{'C': 1}]
        """
        settled = self.settled
        kept = [one for one in settings if settled is None or one.items() <= settled.items()]
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


class Model(Protocol):
    """A fitted model."""

    def predict_proba(self, inputs: Any) -> Probabilities: ...


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model of the classes that occur in training; its probabilities have a column for every class."""

    predict: Callable[[Any], NDArray[Any]]
    seen: Numbers
    classes: int

    def predict_proba(self, inputs: Any) -> Probabilities:
        p_NQ = np.zeros((len(inputs), self.classes))
        p_NQ[:, self.seen] = self.predict(inputs)
        p_NQ /= p_NQ.sum(axis=1, keepdims=True)  # single-precision libraries are slightly off
        return p_NQ


@dataclass(frozen=True, eq=False)
class Chosen:
    """The model that did best on validation."""

    model: Model
    settings: Mapping[str, Any]
    #: its probabilities for the validation sequences
    validation_NQ: Probabilities
    #: lower is better: negative AUROC (0 where it is not used), then log-loss
    rank: tuple[float, float]
    #: every setting that was tried, with its AUROC and log-loss on validation
    tried: tuple[Mapping[str, Any], ...]

    def predict_proba(self, inputs: Any) -> Probabilities:
        return self.model.predict_proba(inputs)


def choose(candidates: Iterable[tuple[Model, Mapping[str, Any]]], validation: Examples[Any], task: Task) -> Chosen:
    """The candidate that does best on validation; each comes with its settings."""
    ranked, tried = [], []
    for model, settings in candidates:
        p_NQ = model.predict_proba(validation.inputs)
        auroc, loss = auroc_of(p_NQ, validation.labels_N, task), log_loss(p_NQ, validation.labels_N)
        ranked.append(((-auroc if auroc is not None and task.classes == 2 else 0.0, loss), model, settings, p_NQ))
        tried.append({**settings, "auroc": auroc, "log_loss": loss})
    rank, model, settings, p_NQ = min(ranked, key=lambda candidate: candidate[0])
    return Chosen(model, settings, p_NQ, rank, tuple(tried))


def stopping_examples(validation: Examples[Any], seen: Numbers) -> tuple[Any, Numbers]:
    """The validation inputs that early stopping is measured on, with their labels as positions among `seen`.

    Classes that training lacks are left out: a model cannot learn them.
    """
    seen_N = np.isin(validation.labels_N, seen)
    return validation.inputs[seen_N], np.searchsorted(seen, validation.labels_N[seen_N])


def auroc_of(p_NQ: Probabilities, labels_N: Numbers, task: Task) -> float | None:
    """The AUROC; None where it is not defined."""
    names = tuple(map(str, range(task.classes)))
    return score(p_NQ, labels_N, names, positive=task.positive, resamples=0).auroc.to_dict()["value"]


def log_loss(p_NQ: Probabilities, labels_N: Numbers) -> float:
    """The mean negative log-likelihood of the labels."""
    return -float(np.log(np.maximum(p_NQ[np.arange(len(labels_N)), labels_N], LEAST)).mean())
