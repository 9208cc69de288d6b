"""Linear functions and trees that answer yes or no: of a history's codes, of its fields, or of what the language model
makes of it.

Heads are stored as numbers, so that a model from elsewhere runs no code of others.

Shapes: S sequences, F features, T trees, W ways through them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Setting
from scipy.special import logit

from tefm.base.progress import log
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
#: Sequences on which trees are compared with the numbers that they are stored as.
CHECKED = 200
#: Steps from a root to a leaf, at most: trees that are learned take a few dozen.
DEEPEST = 1_000
#: The highest number of a category that trees take as unordered.
MOST_BITS = 62

Floats = NDArray[np.float64]
#: The number of a node or a feature; −1: none. Larger ones are forged, and no array could hold them.
NodeNumber = Annotated[int, Setting(ge=-1, lt=2**31)]


class _Stored(Settings):
    """What is stored of a plain model; arrays that were computed from it do not count when two are compared."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.model_dump() == other.model_dump()

    __hash__ = None  # type: ignore[assignment]


class Linear(_Stored):
    """A weighted sum of features."""

    weights: tuple[float, ...]
    bias: float = Setting(allow_inf_nan=False)

    @classmethod
    def of(cls, weights_F: NDArray[Any], bias: float) -> Linear:
        """From arrays; more digits than these say nothing."""
        return cls(weights=tuple(float(f"{weight:.7g}") for weight in weights_F.tolist()), bias=float(f"{bias:.7g}"))

    def score(self, x_SF: NDArray[Any]) -> Floats:
        """The log-odds of yes."""
        return x_SF.astype(np.float64) @ self.weights_F + self.bias

    @cached_property
    def weights_F(self) -> Floats:
        return np.array(self.weights)

    def fits(self, width: int) -> bool:
        """Whether it reads this many features."""
        return len(self.weights) == width and bool(np.isfinite(self.weights).all())


class Nodes(NamedTuple):
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


class Trees(_Stored):
    """Decision trees. Their nodes follow one another, every node before its children."""

    #: the first node of each tree
    roots: tuple[NodeNumber, ...]
    #: of each node, the feature that it asks about, −1 for a leaf; up to `threshold`, a value goes to the left
    feature: tuple[NodeNumber, ...]
    threshold: tuple[float, ...]
    #: of each node that asks about a category, the values that go to the left, as bits; −1 for others. Empty: no such
    among: tuple[int, ...] = ()
    left: tuple[NodeNumber, ...]
    right: tuple[NodeNumber, ...]
    #: what a leaf adds
    value: tuple[float, ...]
    #: whether leaves add up to the share of yes; otherwise to its log-odds
    shares: bool
    bias: float = Setting(default=0.0, allow_inf_nan=False)

    def score(self, x_SF: NDArray[Any], shift: int = 0) -> Floats:
        """The log-odds of yes; feature f is column f + `shift`, and the first column where it would be before that."""
        sum_S = np.zeros(len(x_SF))
        x_SF, roots = x_SF.astype(np.float32), self._nodes.roots  # as in scikit-learn
        column = np.maximum(self._nodes.feature + shift, 0)
        for first in range(0, len(x_SF), CHUNK):
            part_SF, sum_C = x_SF[first : first + CHUNK], sum_S[first : first + CHUNK]
            for start in range(0, len(roots), TREES_AT_ONCE):
                sum_C += self._nodes.value[self._leaves(part_SF, column, roots[start : start + TREES_AT_ONCE])].sum(
                    axis=0
                )
        sum_S += self.bias
        return log_odds(sum_S) if self.shares else sum_S

    def _leaves(
        self, x_SF: NDArray[np.float32], column: NDArray[np.int64], roots: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The leaf of each of these trees where every sequence ends; `column` is what each node asks about."""
        nodes, row_S = self._nodes, np.arange(len(x_SF)) * x_SF.shape[1]
        node_W, row_W = np.repeat(roots, len(x_SF)), np.tile(row_S, len(roots))
        going = np.arange(len(node_W))  # ways that are not at a leaf: most are short
        for _ in range(nodes.depth):
            at = node_W[going]
            x_W = x_SF.ravel()[column[at] + row_W[going]]
            to_right_W = x_W > nodes.threshold[at]
            if self.among:
                bits_W = nodes.among[at]
                is_among_W = (bits_W >> np.clip(x_W, 0, MOST_BITS).astype(np.int64)) & 1 == 1
                to_right_W = np.where(bits_W >= 0, ~is_among_W, to_right_W)
            node_W[going] = at = nodes.children[2 * at + to_right_W]
            going = going[nodes.children[2 * at] != at]
        return node_W.reshape(len(roots), len(x_SF))

    @cached_property
    def _nodes(self) -> Nodes:
        roots, feature, among = (np.array(of, dtype=np.int64) for of in (self.roots, self.feature, self.among))
        number, is_leaf = np.arange(len(feature)), feature < 0
        left, right = (np.where(is_leaf, number, np.array(of, dtype=np.int64)) for of in (self.left, self.right))
        children, depth, reached = np.stack([left, right], axis=1).ravel(), 0, np.unique(roots)
        while len(reached := reached[~is_leaf[reached]]):
            reached, depth = np.unique(np.concatenate([left[reached], right[reached]])), depth + 1
            if depth > DEEPEST:
                raise ValueError(f"a tree is more than {DEEPEST} nodes deep")
        threshold, value = np.array(self.threshold), np.array(self.value)
        return Nodes(roots, np.maximum(feature, 0), threshold, among, children, value, depth)

    def fits(self, width: int) -> bool:
        """Whether it reads this many features, and every way through it ends."""
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
            and self._nodes.depth <= DEEPEST
        )


class HeadPart(Settings):
    """One of the models that a head consists of, and how much its log-odds count."""

    reads: Reads
    share: float = Setting(gt=0, allow_inf_nan=False)
    model: Linear | Trees


class Head(Settings):
    """The log-odds of yes of several models, each with its share."""

    parts: tuple[HeadPart, ...] = Setting(min_length=1)
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
    return Head(parts=(HeadPart(reads="fields", share=1.0, model=regression),))


@dataclass(frozen=True, eq=False)
class Way:
    """How one question is answered: by the language model, by a head, or by both."""

    text: str
    head: Head | None = None
    #: the share of the language model's log-odds in the answer; what is left is the head's
    share: float = 1.0

    @property
    def model_share(self) -> float:
        """The language model's share in the answer: all of it where there is no head."""
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


# ---- trees of scikit-learn as numbers -------------------------------------------------------------------------------


#: Of one tree, the arrays of its nodes by the names that `Trees` has for them, and which nodes are leaves (`leaf`).
TreeNodes = Mapping[str, NDArray[Any]]


def joined_trees(trees: Sequence[TreeNodes], *, shares: bool, bias: float = 0.0) -> Trees:
    """Trees one after the other. A leaf has no feature and no children, and only a leaf has a value."""
    starts = np.cumsum([0, *(len(nodes["leaf"]) for nodes in trees[:-1])])
    is_leaf = np.concatenate([nodes["leaf"] for nodes in trees])
    first = np.repeat(starts, [len(nodes["leaf"]) for nodes in trees])
    arrays = {name: np.concatenate([nodes[name] for nodes in trees]) for name in trees[0]}
    for name in ("left", "right"):
        arrays[name] = arrays[name] + first
    at_leaf = {"feature": -1, "threshold": 0.0, "among": -1, "left": -1, "right": -1}
    columns = {name: np.where(is_leaf, at_leaf[name], arrays[name]) for name in at_leaf if name in arrays}
    columns["value"] = np.where(is_leaf, arrays["value"], 0.0)
    nodes = {name: tuple(column.tolist()) for name, column in columns.items()}
    return Trees(roots=tuple(starts.tolist()), **nodes, shares=shares, bias=bias)


def nodes_of(tree: Any, value: Floats) -> TreeNodes:
    """The nodes of a tree of a forest, where a leaf has no children; `value` is what each of them adds as a leaf."""
    left, right = tree.children_left, tree.children_right
    split = {"feature": tree.feature, "threshold": tree.threshold, "left": left, "right": right}
    return {**split, "leaf": left < 0, "value": value}


def of_boosted(model: Any, x_SF: NDArray[Any]) -> tuple[Trees, ...] | None:
    """A `HistGradientBoostingClassifier`; None where these do not answer as that model on the first of `x_SF`.

    They are the log-odds of the second of two classes, or of each of several. The model reorders its features, those
    that are categories first, and numbers their values. scikit-learn has no public way to ask for its trees: they are
    in attributes of its own, which another version may keep elsewhere. What they start from is public: the difference
    to the model's answer.
    """
    try:
        trees = tuple(_of_boosted(model, number) for number in range(len(model._predictors[0])))
        x_SF = x_SF[:CHECKED]
        score_ST = np.stack([of_class.score(x_SF) for of_class in trees], axis=1)
        expected_ST = model.decision_function(x_SF).reshape(score_ST.shape)
        bias_T = expected_ST[0] - score_ST[0]
        if np.allclose(score_ST + bias_T, expected_ST, atol=1e-6):
            return tuple(of.model_copy(update={"bias": bias}) for of, bias in zip(trees, bias_T.tolist(), strict=True))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        pass
    log.warning("this version of scikit-learn stores trees differently: the model answers without them")
    return None


def _of_boosted(model: Any, number: int) -> Trees:
    is_category_F = model.is_categorical_
    has_categories = is_category_F is not None and bool(is_category_F.any())
    given, known = np.arange(model.n_features_in_), []
    if has_categories:
        given = np.concatenate([np.flatnonzero(is_category_F), np.flatnonzero(~is_category_F)])
        known = model._preprocessor.named_transformers_["encoder"].categories_
    trees = []
    for predictor in (of_iteration[number] for of_iteration in model._predictors):
        nodes, bitsets = predictor.nodes, predictor.raw_left_cat_bitsets
        left, right, feature = (nodes[name].astype(np.int64) for name in ("left", "right", "feature_idx"))
        tree = {"feature": given[feature], "threshold": nodes["num_threshold"], "left": left, "right": right}
        if has_categories:
            tree["among"] = np.array([_goes_left(node, bitsets, known) for node in nodes], dtype=np.int64)
        trees.append({**tree, "leaf": nodes["is_leaf"].astype(bool), "value": nodes["value"]})
    return joined_trees(trees, shares=False)


def _goes_left(node: Any, bitsets: NDArray[np.uint32], known: Sequence[NDArray[Any]]) -> int:
    """Which values of a category go to the left, as bits; −1 for a node that asks about a number."""
    if node["is_leaf"] or not node["is_categorical"]:
        return -1
    words, values = bitsets[int(node["bitset_idx"])], known[int(node["feature_idx"])].astype(np.int64).tolist()
    left = {value for number, value in enumerate(values) if int(words[number // 32]) >> (number % 32) & 1}
    if node["missing_go_to_left"]:  # values that it has not seen
        left |= set(range(MOST_BITS)) - set(values)
    return sum(1 << value for value in left)
