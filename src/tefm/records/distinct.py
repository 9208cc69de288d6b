"""Equal rows found once: what is costly per record is computed once for all records that are the same.

Shapes: N rows, D columns, W words of 8 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: 2⁶⁴ / φ, the multiplier of Fibonacci hashing.
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def distinct_rows(x_ND: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first of each group of equal rows, and the number of each row's group.

    >>> first, number_N = distinct_rows(np.array([[7, 1], [3, 2], [7, 1]]))
    >>> sorted(first.tolist()), bool(number_N[0] == number_N[2] != number_N[1])
    ([0, 1], True)
    """
    _, first, number_N = np.unique(_hashes(x_ND), return_index=True, return_inverse=True)
    if not np.array_equal(x_ND[first][number_N], x_ND):  # two different rows have the same hash
        _, first, number_N = np.unique(x_ND, axis=0, return_index=True, return_inverse=True)
    return first, number_N


def numbered(values: Iterable[Hashable]) -> NDArray[np.int64]:
    """Equal values get equal numbers: 0 for the first one, 1 for the next that differs, …

    >>> numbered(["b", "a", "b"]).tolist()
    [0, 1, 0]
    """
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64)


def _hashes(x_ND: NDArray[Any]) -> NDArray[np.uint64]:
    """One number per row; sorting numbers is much faster than sorting rows."""
    bytes_NB = np.ascontiguousarray(x_ND).reshape(len(x_ND), math.prod(x_ND.shape[1:])).view(np.uint8)
    words_NW = np.zeros((len(x_ND), -(-bytes_NB.shape[1] // 8)), dtype=np.uint64)
    words_NW.view(np.uint8)[:, : bytes_NB.shape[1]] = bytes_NB
    hash_N = np.zeros(len(x_ND), dtype=np.uint64)
    for word_N in words_NW.T:
        hash_N = (hash_N ^ word_N) * MULTIPLIER
        hash_N ^= hash_N >> np.uint64(29)
    return hash_N
