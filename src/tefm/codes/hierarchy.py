"""Do records that share more of their code resemble each other more? The paper's hierarchy table.

For each prefix length, pairs of records that share the prefix (intra) are compared with pairs that do not
(inter). If the ratio of the two mean distances falls with each level, every level refines the one before.

Shapes: N records, D slots, K levels, P pairs.
"""

from __future__ import annotations

import string
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.codes.fidelity import row_ids, squared_error
from tefm.records.layout import Layout, Slots

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class PrefixDistance:
    """Distances between records with and without a common prefix of `length` levels.

    Means, deviations and the ratio are None where no two records share the prefix, or all do.
    """

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

    @property
    def name(self) -> str:
        """The prefix as the paper writes it: a, a+b, a+b+c."""
        return "+".join(string.ascii_lowercase[: self.length])

    def to_dict(self) -> dict[str, Any]:
        return {"prefix": self.name} | asdict(self)


def hierarchy(
    x_ND: Slots, codes_NK: NDArray[np.integer[Any]], layout: Layout, *, pairs: int = 5000, seed: int = 0
) -> list[PrefixDistance]:
    """Distances for prefix lengths 1…K, each from `pairs` intra and `pairs` inter pairs."""
    if not len(x_ND) or len(codes_NK) != len(x_ND):
        raise InputError(f"{len(x_ND)} records and {len(codes_NK)} codes: give one code per record")
    return [
        _prefix_distance(x_ND, codes_NK[:, :length], layout, pairs, np.random.default_rng([seed, length]))
        for length in range(1, codes_NK.shape[1] + 1)
    ]


def _prefix_distance(
    x_ND: Slots, prefix_Nk: NDArray[np.integer[Any]], layout: Layout, pairs: int, rng: np.random.Generator
) -> PrefixDistance:
    group_N = row_ids(prefix_Nk)
    size_N = np.bincount(group_N)[group_N]
    intra_mean, intra_std = _spread(_distances(x_ND, _intra_pairs(group_N, pairs, rng), layout))
    inter_mean, inter_std = _spread(_distances(x_ND, _inter_pairs(group_N, pairs, rng), layout))
    return PrefixDistance(
        length=prefix_Nk.shape[1],
        groups=int(group_N.max()) + 1,
        partnered=float((size_N > 1).mean()),
        intra_mean=intra_mean,
        intra_std=intra_std,
        inter_mean=inter_mean,
        inter_std=inter_std,
        ratio=intra_mean / inter_mean if intra_mean is not None and inter_mean else None,
    )


# Both samplers draw a record uniformly among those that have a partner, then its partner uniformly. With the
# records sorted by group, a record's own group is contiguous, so a partner is a random position inside
# or outside of it: no draw is ever rejected, however rare such pairs are.


def _intra_pairs(group_N: Rows, pairs: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    order, start, size, position = _sorted_groups(group_N)
    candidates = np.flatnonzero(size > 1)
    if not len(candidates):
        return candidates, candidates
    left = rng.choice(candidates, pairs)
    right = start[left] + rng.integers(size[left] - 1)
    right += right >= position[left]  # skip the record itself
    return left, order[right]


def _inter_pairs(group_N: Rows, pairs: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    order, start, size, _ = _sorted_groups(group_N)
    candidates = np.flatnonzero(size < len(group_N))
    if not len(candidates):
        return candidates, candidates
    left = rng.choice(candidates, pairs)
    right = rng.integers(len(group_N) - size[left])
    right += size[left] * (right >= start[left])  # skip its whole group
    return left, order[right]


def _sorted_groups(group_N: Rows) -> tuple[Rows, Rows, Rows, Rows]:
    """The records sorted by group, and for each record: where its group starts, the group's size, its own position."""
    order = np.argsort(group_N, kind="stable")
    sizes = np.bincount(group_N)
    starts = np.cumsum(sizes) - sizes
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    return order, starts[group_N], sizes[group_N], position


def _distances(x_ND: Slots, pairs: tuple[Rows, Rows], layout: Layout) -> NDArray[np.float64]:
    left, right = pairs
    distances_P: NDArray[np.float64] = np.sqrt(squared_error(x_ND[left], x_ND[right], layout).sum(axis=1))
    return distances_P


def _spread(distances_P: NDArray[np.float64]) -> tuple[float | None, float | None]:
    if not len(distances_P):
        return None, None
    return float(distances_P.mean()), float(distances_P.std())
