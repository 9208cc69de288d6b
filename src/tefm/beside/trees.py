"""Trees of scikit-learn as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.beside.heads import MOST_BITS, Floats, Trees


def joined_trees(trees: Sequence[Any], values: Sequence[Floats], *, shares: bool, bias: float = 0.0) -> Trees:
    """Trees one after the other; a leaf has no children in scikit-learn, and here no feature."""
    leaf = [tree.children_left < 0 for tree in trees]
    return _joined(
        leaf,
        [tree.feature for tree in trees],
        [tree.threshold for tree in trees],
        [(tree.children_left, tree.children_right) for tree in trees],
        values,
        shares=shares,
        bias=bias,
    )


def of_boosted(model: Any, x_SF: NDArray[Any]) -> tuple[Trees, ...] | None:
    """A `HistGradientBoostingClassifier`; None where these do not answer as that model on `x_SF`.

    They are the log-odds of the second of two classes, or of each of several. The model reorders its features, those
    that are categories first, and numbers their values; scikit-learn keeps how in attributes of its own, which another
    version may keep elsewhere.
    """
    try:
        trees = tuple(_of_boosted(model, number) for number in range(len(model._predictors[0])))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        return None
    score_ST = np.stack([of_class.score(x_SF) for of_class in trees], axis=1)
    same = np.allclose(score_ST, model.decision_function(x_SF).reshape(score_ST.shape), atol=1e-6)
    return trees if same else None


def _of_boosted(model: Any, number: int) -> Trees:
    predictors = [of_iteration[number] for of_iteration in model._predictors]
    nodes = [predictor.nodes for predictor in predictors]
    feature, among = [of["feature_idx"].astype(np.int64) for of in nodes], None
    if model.is_categorical_ is not None and model.is_categorical_.any():
        category_F = model.is_categorical_
        given = np.concatenate([np.flatnonzero(category_F), np.flatnonzero(~category_F)])
        known = model._preprocessor.named_transformers_["encoder"].categories_
        among = [
            np.array([_goes_left(node, predictor.raw_left_cat_bitsets, known) for node in of], dtype=np.int64)
            for predictor, of in zip(predictors, nodes, strict=True)
        ]
        feature = [given[of] for of in feature]
    return _joined(
        [of["is_leaf"].astype(bool) for of in nodes],
        feature,
        [of["num_threshold"] for of in nodes],
        [(of["left"].astype(np.int64), of["right"].astype(np.int64)) for of in nodes],
        [of["value"] for of in nodes],
        among=among,
        shares=False,
        bias=float(np.ravel(model._baseline_prediction)[number]),
    )


def _goes_left(node: Any, bitsets: NDArray[np.uint32], known: Sequence[NDArray[Any]]) -> int:
    """Which values of a category go to the left, as bits; −1 for a node that asks about a number."""
    if node["is_leaf"] or not node["is_categorical"]:
        return -1
    words, values = bitsets[int(node["bitset_idx"])], known[int(node["feature_idx"])].astype(np.int64).tolist()
    left = {value for number, value in enumerate(values) if int(words[number // 32]) >> (number % 32) & 1}
    if node["missing_go_to_left"]:  # values that it has not seen
        left |= set(range(MOST_BITS)) - set(values)
    return sum(1 << value for value in left)


def _joined(
    leaf: Sequence[NDArray[np.bool_]],
    feature: Sequence[NDArray[Any]],
    threshold: Sequence[NDArray[Any]],
    children: Sequence[tuple[NDArray[Any], NDArray[Any]]],
    values: Sequence[NDArray[Any]],
    *,
    shares: bool,
    bias: float,
    among: Sequence[NDArray[np.int64]] | None = None,
) -> Trees:
    """Trees one after the other, from what is known of the nodes of each."""
    starts = np.cumsum([0, *(len(of) for of in leaf[:-1])])

    def joined(arrays: Sequence[NDArray[Any]], at_leaf: float) -> tuple[Any, ...]:
        return tuple(
            np.concatenate([np.where(of, at_leaf, array) for of, array in zip(leaf, arrays, strict=True)]).tolist()
        )

    left, right = (
        joined([start + of[side] for start, of in zip(starts, children, strict=True)], -1) for side in (0, 1)
    )
    return Trees(
        roots=tuple(starts.tolist()),
        feature=joined(feature, -1),
        threshold=joined(threshold, 0.0),
        among=() if among is None else joined(among, -1),
        left=left,
        right=right,
        value=tuple(
            np.concatenate([np.where(of, value, 0.0) for of, value in zip(leaf, values, strict=True)]).tolist()
        ),
        shares=shares,
        bias=bias,
    )
