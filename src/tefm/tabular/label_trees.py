"""Boosted trees for the label, which answer beside the language model: `beside: trees`.

They read the fields of a sequence themselves, and make other errors than a language model that reads their codes.

Shapes: S sequences, F features, Q classes, W shares.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Setting

from tefm.base.files import refusing, write_json
from tefm.base.progress import progress
from tefm.base.settings import Settings
from tefm.scoring.calibration import Calibration, log_softmax, prior_shift
from tefm.tables.layout import Layout
from tefm.tables.sequences import Sequences
from tefm.tabular import teacher
from tefm.tabular.heads import Floats, Trees, of_boosted
from tefm.tabular.inputs import Features, Kind, RecordSlots, empty_record, sequence_features

#: The shares of the language model that are tried.
SHARES = tuple(number / 10 for number in range(11))
#: With few validation sequences the share stays near one half: it has a normal prior with this standard deviation.
SPREAD = 0.25
#: A search for an explanation asks thousands of times; with more trees than this it would take minutes.
MOST_SEARCHED = 400


class LabelTrees(Settings):
    """Trees that answer the label, at the class shares that the language model was trained on."""

    #: what they read of a sequence, and how many features that is
    kind: Kind
    width: int = Setting(ge=1, lt=2**31)
    #: the trees of each class that they know, and its number; of two classes, those of the second alone
    trees: tuple[Trees, ...] = Setting(min_length=1)
    numbers: tuple[int, ...]
    #: added to the log-odds of each class
    bias: tuple[float, ...]
    #: the share of the language model's logits in the answer; what is left is that of the trees
    share: float = Setting(default=0.5, ge=0, le=1)

    def logits(self, slots: Sequences, layout: Layout) -> Floats:
        """The logarithm of each class's probability."""
        x_SF = sequence_features(RecordSlots.of(slots, layout), self.kind).x_NF
        # windows are read from their end; what is asked about records before the first is answered by an absent column
        x_SF = np.pad(x_SF, ((0, 0), (1, 0)))
        logits_SQ = np.tile(np.array(self.bias), (len(x_SF), 1))
        for number, trees in zip(self.numbers, self.trees, strict=True):
            logits_SQ[:, number] += trees.score(x_SF, x_SF.shape[1] - self.width)
        return log_softmax(logits_SQ)

    @property
    def count(self) -> int:
        """How many trees there are."""
        return sum(len(of_class.roots) for of_class in self.trees)

    @property
    def cheap(self) -> bool:
        """Whether the trees are so few that a search may ask them thousands of times."""
        return self.count <= MOST_SEARCHED

    def fits(self, layout: Layout, classes: int, records: int = 1) -> bool:
        """Whether they read such records, at most this many side by side, and answer such a label."""
        width = sequence_features(empty_record(layout), self.kind).x_NF.shape[1]
        most = records * width if self.kind == "flat" else width
        return (
            (self.width % width == 0 and self.width <= most)
            and len(self.bias) == classes
            and bool(np.isfinite(self.bias).all())
            and len(self.numbers) == len(self.trees) == len(set(self.numbers))
            and all(0 <= number < classes for number in self.numbers)
            and all(trees.fits(self.width) for trees in self.trees)
        )

    def save(self, path: Path) -> None:
        write_json(path, self.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> LabelTrees:
        with refusing(path, "set of trees"):
            return cls.checked(json.loads(path.read_text(encoding="utf-8")))


def grow(
    choices: Mapping[Kind, Features],
    labels_S: NDArray[np.int64],
    groups_S: NDArray[np.int64],
    shares: Sequence[float],
    *,
    seed: int,
) -> LabelTrees | None:
    """Learn from all labelled sequences (−1: no label); `shares` are those that the language model was trained on.

    They read the features, and are as many, as does best on a fold, for which the sequences of a group are held out
    together. None where there is nothing to learn, or where scikit-learn keeps its trees in a form that is not known.
    """
    classes, rng = len(shares), np.random.default_rng((seed, 23))
    rows, kept_Q = teacher.downsampled(np.flatnonzero(labels_S >= 0), labels_S, classes, rng)
    if len(np.unique(labels_S[rows])) < 2:
        return None
    first_S = teacher.folds_of(groups_S, rng) == 0
    kept, held_out = rows[~first_S[rows]], rows[first_S[rows]]
    with progress("growing trees beside the language model", 1 + len(choices)) as advance:
        tried = []
        for kind, features in choices.items():
            boosted = partial(teacher.boosted_trees, seed=seed, unordered_F=teacher.unordered(features))
            untrained, grown = teacher.stopped_trees(boosted, features.x_NF, labels_S, kept, held_out)
            loss = 0.0
            if len(choices) > 1 and len(held_out) and len(np.unique(labels_S[kept])) > 1:
                trees = grown or teacher.learned(untrained(), features.x_NF[kept], labels_S[kept])
                (log_SQ,) = teacher.Fold([trees], np.ones(classes)).answers(features.x_NF[held_out])
                loss = teacher.loss_of(log_SQ, labels_S[held_out])
            tried.append((loss, kind, untrained))
            advance(1)
        _, kind, untrained = min(tried, key=lambda choice: choice[0])
        x_SF = choices[kind].x_NF
        model = teacher.learned(untrained(), x_SF[rows], labels_S[rows])
        advance(1)
    trees, known = of_boosted(model, x_SF), model.classes_.tolist()
    if trees is None:
        return None
    # at the shares of the labels, then at those of the language model; a class that was not seen stays improbable
    share_Q = np.bincount(labels_S[labels_S >= 0], minlength=classes) / (labels_S >= 0).sum()
    bias_Q = -np.log(kept_Q) + np.array(prior_shift(tuple(share_Q.tolist()), tuple(shares)) or [0.0] * classes)
    bias_Q[np.setdiff1d(np.arange(classes), known)] = np.log(teacher.LEAST)
    numbers = known[1:] if len(trees) == 1 else known
    return LabelTrees(kind=kind, width=x_SF.shape[1], trees=trees, numbers=tuple(numbers), bias=tuple(bias_Q.tolist()))


def best_share(
    model_SQ: NDArray[Any], trees_SQ: Floats, labels_S: NDArray[np.int64], shift: tuple[float, ...]
) -> float:
    """The language model's share in the answers with the smallest loss, after calibration, on validation sequences."""
    if not len(labels_S):
        return 0.5

    def loss(share: float) -> float:
        logits_SQ = share * model_SQ + (1 - share) * trees_SQ
        p_SQ = Calibration.fit(logits_SQ, labels_S, shift=shift).probabilities(logits_SQ)
        prior = ((share - 0.5) / SPREAD) ** 2 / 2
        return prior - float(np.log(np.maximum(p_SQ[np.arange(len(labels_S)), labels_S], teacher.LEAST)).sum())

    return min(SHARES, key=loss)
