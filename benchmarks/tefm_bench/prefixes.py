"""The paper's hierarchy table: do records that share more of their code resemble each other more?

Shapes: N records, D slots, K levels, P pairs.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.codes.fidelity import check_codes, squared_error
from tefm.tables.layout import Layout, Slots

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class PrefixDistance:
    """Distances between records with and without a common prefix of `length` levels.

    Means, deviations and the ratio are None where no two records share the prefix, or all do.
    """

    #: as the paper writes it: a, a+b, a+b+c
    prefix: str
    length: int
    #: distinct prefixes
    groups: int
    #: share of records that have the prefix in common with another: those that intra pairs are drawn from
    partnered: float
    intra_mean: float | None
    intra_std: float | None
    inter_mean: float | None
    inter_std: float | None
    #: intra / inter: lower means clearer groups
    ratio: float | None


def hierarchy(
    x_ND: Slots, codes_NK: NDArray[np.integer[Any]], layout: Layout, *, pairs: int = 5000, seed: int = 0
) -> list[PrefixDistance]:
    """The distances for each prefix length.

    For each prefix length 1…K, `pairs` pairs of records that share the prefix (intra) are compared with as many that do
    not (inter). If the ratio of the two mean distances falls with each level, every level refines the one before.
    """
    check_codes(x_ND, codes_NK)
    rows = []
    for length in range(1, codes_NK.shape[1] + 1):
        rng = np.random.default_rng([seed, length])
        group_N = np.unique(codes_NK[:, :length], axis=0, return_inverse=True)[1]
        sizes_G = np.bincount(group_N)
        intra, inter = (_distance(x_ND, *_pairs(group_N, pairs, rng, same=same), layout) for same in (True, False))
        ratio = intra[0] / inter[0] if intra[0] is not None and inter[0] else None
        prefix, partnered = "+".join(string.ascii_lowercase[:length]), float((sizes_G[group_N] > 1).mean())
        rows.append(PrefixDistance(prefix, length, len(sizes_G), partnered, *intra, *inter, ratio))
    return rows


def _pairs(group_N: Rows, pairs: int, rng: np.random.Generator, *, same: bool) -> tuple[Rows, Rows]:
    """Pairs of records of the same group, or of two groups; none if there is no such pair.

    A record is drawn uniformly among those that have a partner, then its partner uniformly. With the records sorted by
    group, a record's own group is contiguous, so a partner is a random position inside or outside of it: no draw is
    ever rejected, however rare such pairs are.
    """
    order = np.argsort(group_N, kind="stable")
    sizes_G = np.bincount(group_N)
    start_N, size_N = (np.cumsum(sizes_G) - sizes_G)[group_N], sizes_G[group_N]
    candidates = np.flatnonzero(size_N > 1 if same else size_N < len(group_N))
    if not len(candidates):
        return candidates, candidates
    left = rng.choice(candidates, pairs)
    if same:
        position_N = np.argsort(order)
        right = start_N[left] + rng.integers(size_N[left] - 1)
        right += right >= position_N[left]  # skip the record itself
    else:
        right = rng.integers(len(group_N) - size_N[left])
        right += size_N[left] * (right >= start_N[left])  # skip its whole group
    return left, order[right]


def _distance(x_ND: Slots, left: Rows, right: Rows, layout: Layout) -> tuple[float | None, float | None]:
    """The mean distance between the records of pairs, and its standard deviation; None without any pair."""
    if not len(left):
        return None, None
    distances_P = np.sqrt(squared_error(x_ND[left], x_ND[right], layout).sum(axis=1))
    return float(distances_P.mean()), float(distances_P.std())
