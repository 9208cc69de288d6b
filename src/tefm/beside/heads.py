"""Linear functions and trees that answer yes or no: of a history's codes, of its fields, or of what the language model
makes of it.

Heads are stored as numbers, so that a model from elsewhere runs no code of others.

Shapes: S sequences, F features, T trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Setting
from scipy.special import logit

from tefm.base.settings import Settings

#: What is read of a history: its codes; its fields, with a column per value; its slots, for trees; the state of the
#: language model.
Reads = Literal["codes", "fields", "slots", "state"]
#: Shares of yes are clipped this far from 0 and 1, which have no log-odds.
LEAST = 1e-4
#: Log-odds of heads that go beyond this grow as slowly as their logarithm: fields that separate all training histories
#: are not sure of the next one.
SURE = 5.0
#: Sequences and trees that are looked at together: the ways through them fit the processor's cache.
CHUNK, TREES_AT_ONCE = 512, 64
#: The highest number of a category that trees take as unordered.
MOST_BITS = 62

Floats = NDArray[np.float64]


class Linear(Settings):
    """A weighted sum of features."""

    weights: tuple[float, ...]
    bias: float = Setting(allow_inf_nan=False)

    @classmethod
    def of(cls, weights_F: NDArray[Any], bias: float) -> Linear:
        """From arrays; more digits than these say nothing."""
        return cls(weights=tuple(float(f"{weight:.7g}") for weight in weights_F.tolist()), bias=float(f"{bias:.7g}"))

    def score(self, x_SF: NDArray[Any]) -> Floats:
        """The log-odds of yes."""
        score_S: Floats = x_SF.astype(np.float64) @ self.weights_F + self.bias
        return score_S

    @cached_property
    def weights_F(self) -> Floats:
        return np.array(self.weights)

    def fits(self, width: int) -> bool:
        """Whether it reads so many features."""
        return len(self.weights) == width and bool(np.isfinite(self.weights).all())


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of trees as arrays. A leaf is its own child, so that all ways take the same number of steps."""

    roots: NDArray[np.int64]
    feature: NDArray[np.int64]
    threshold: Floats
    among: NDArray[np.int64]
    #: of each node, the left child and the right one
    children: NDArray[np.int64]
    value: Floats
    #: the longest way from a root to a leaf
    depth: int

    @classmethod
    def of(cls, trees: Trees) -> Nodes:
        roots, feature, among = (np.array(of, dtype=np.int64) for of in (trees.roots, trees.feature, trees.among))
        number, is_leaf = np.arange(len(feature)), feature < 0
        left, right = (np.where(is_leaf, number, np.array(of, dtype=np.int64)) for of in (trees.left, trees.right))
        children, depth, reached = np.stack([left, right], axis=1).ravel(), 0, np.unique(roots)
        while len(reached := reached[~is_leaf[reached]]):
            reached, depth = np.unique(np.concatenate([left[reached], right[reached]])), depth + 1
        threshold, value = np.array(trees.threshold), np.array(trees.value)
        return cls(roots, np.maximum(feature, 0), threshold, among, children, value, depth)


class Trees(Settings):
    """Decision trees. Their nodes follow one another, every node before its children."""

    #: the first node of each tree
    roots: tuple[int, ...]
    #: of each node, the feature that it asks about, −1 for a leaf; up to `threshold`, a value goes to the left
    feature: tuple[int, ...]
    threshold: tuple[float, ...]
    #: of each node that asks about a category, the values that go to the left, as bits; −1 for others. Empty: no such
    among: tuple[int, ...] = ()
    left: tuple[int, ...]
    right: tuple[int, ...]
    #: what a leaf adds
    value: tuple[float, ...]
    #: whether leaves add up to the share of yes; otherwise to its log-odds
    shares: bool
    bias: float = Setting(default=0.0, allow_inf_nan=False)

    def score(self, x_SF: NDArray[Any]) -> Floats:
        """The log-odds of yes."""
        sum_S = np.zeros(len(x_SF))
        x_SF, roots = x_SF.astype(np.float32), self._nodes.roots  # as in scikit-learn
        for first in range(0, len(x_SF), CHUNK):
            part_SF, sum_C = x_SF[first : first + CHUNK], sum_S[first : first + CHUNK]
            for start in range(0, len(roots), TREES_AT_ONCE):
                sum_C += self._nodes.value[self._leaves(part_SF, roots[start : start + TREES_AT_ONCE])].sum(axis=0)
        sum_S += self.bias
        return log_odds(sum_S) if self.shares else sum_S

    def _leaves(self, x_SF: NDArray[np.float32], roots: NDArray[np.int64]) -> NDArray[np.int64]:
        """The leaf of each of these trees where every sequence ends."""
        nodes, row_S = self._nodes, np.arange(len(x_SF)) * x_SF.shape[1]
        node_TS = np.repeat(roots[:, None], len(x_SF), axis=1)
        for _ in range(nodes.depth):
            x_TS = x_SF.ravel()[nodes.feature[node_TS] + row_S]
            to_right_TS = x_TS > nodes.threshold[node_TS]
            if self.among:
                bits_TS = nodes.among[node_TS]
                is_among_TS = (bits_TS >> np.clip(x_TS, 0, MOST_BITS).astype(np.int64)) & 1 == 1
                to_right_TS = np.where(bits_TS >= 0, ~is_among_TS, to_right_TS)
            node_TS = nodes.children[2 * node_TS + to_right_TS]
        return node_TS

    @cached_property
    def _nodes(self) -> Nodes:
        return Nodes.of(self)

    def fits(self, width: int) -> bool:
        """Whether it reads so many features, and every way through it ends."""
        count, inner = len(self.feature), np.array(self.feature, dtype=np.int64) >= 0
        if not count or any(len(of) != count for of in (self.threshold, self.left, self.right, self.value)):
            return False
        if self.among and (len(self.among) != count or not all(-1 <= bits < 2**MOST_BITS for bits in self.among)):
            return False
        number, numbers = np.arange(count), (np.array(self.left), np.array(self.right))
        return (
            all(0 <= root < count for root in self.roots)
            and max(self.feature) < width
            and all(bool(((of > number) & (of < count))[inner].all()) for of in numbers)
            and bool(np.isfinite(self.value).all() and np.isfinite(self.threshold).all())
        )


class Part(Settings):
    """One of the models that a head consists of, and how much its log-odds count."""

    reads: Reads
    share: float = Setting(gt=0, allow_inf_nan=False)
    model: Linear | Trees


class Head(Settings):
    """The log-odds of yes of several models, each with its share."""

    parts: tuple[Part, ...] = Setting(min_length=1)
    #: added to the log-odds: moves probabilities to those of a population
    shift: float = Setting(default=0.0, allow_inf_nan=False)

    @property
    def reads(self) -> frozenset[Reads]:
        """All that its parts read."""
        return frozenset(part.reads for part in self.parts)

    def score(self, features: Mapping[Reads, NDArray[Any]]) -> Floats:
        """The log-odds of yes."""
        score_S: Floats = sum(
            (part.share * part.model.score(features[part.reads]) for part in self.parts), start=np.array(self.shift)
        )
        return bounded(score_S)

    def fits(self, widths: Mapping[Reads, int]) -> bool:
        """Whether its parts read what there is."""
        return all(part.model.fits(widths.get(part.reads, 0)) for part in self.parts)


def of_regression(regression: Linear) -> Head:
    """A regression on the fields as a head."""
    return Head(parts=(Part(reads="fields", share=1.0, model=regression),))


@dataclass(frozen=True, eq=False)
class Way:
    """How one question is answered: by the language model, by a head, or by both."""

    text: str
    head: Head | None = None
    #: the share of the language model's log-odds in the answer; what is left is the head's
    share: float = 1.0

    @property
    def model_share(self) -> float:
        """The same; without a head, all of the answer."""
        return 1.0 if self.head is None else self.share


def bounded(score_S: Floats) -> Floats:
    """Log-odds in the same order, of which those beyond `SURE` grow slowly.

    >>> bounded(np.array([-105.0, -5.0, 2.0])).round(2).tolist()
    [-9.62, -5.0, 2.0]
    """
    beyond_S = np.maximum(np.abs(score_S) - SURE, 0.0)
    bounded_S: Floats = np.clip(score_S, -SURE, SURE) + np.sign(score_S) * np.log1p(beyond_S)
    return bounded_S


def log_odds(share_S: Any) -> Floats:
    """The log-odds of shares of yes."""
    odds_S: Floats = logit(np.clip(share_S, LEAST, 1 - LEAST))
    return odds_S
