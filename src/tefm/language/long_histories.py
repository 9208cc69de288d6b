"""Long histories: beyond a limit of tokens, the oldest records are told by the first level of their codes alone.

The last records say the most, so they stay whole. An old record becomes its coarsest code, one token; where that is
still too much, several neighbouring records share one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Tokens of codes in a prompt, at most, where `code_tokens` is not set.
CODE_TOKENS = 1_024


class Condensed(NamedTuple):
    """How a history is told: one token for every `group` of its `old` records, the others whole."""

    old: int
    group: int


def condensed(records: int, levels: int, most: int | None) -> Condensed:
    """How many of the oldest records are told coarsely, so that a history has at most this number of tokens.

    As many records as possible stay whole, and half of the tokens are always theirs.

    >>> condensed(10, levels=3, most=30), condensed(12, levels=3, most=30), condensed(1_000, levels=3, most=30)
    (Condensed(old=0, group=1), Condensed(old=3, group=1), Condensed(old=995, group=67))
    """
    if most is None or records * levels <= most:
        return Condensed(0, 1)
    whole = max(1, most // (2 * levels))
    old = math.ceil((records * levels - most) / (levels - 1)) if levels > 1 else records
    if old <= records - whole:
        return Condensed(old, 1)
    old = max(0, records - whole)
    return Condensed(old, math.ceil(old / max(1, most - whole * levels)))


def coarse(tokens_N: NDArray[np.int64], group: int) -> NDArray[np.int64]:
    """One token for every `group` of records: the most frequent one, of equally frequent ones the latest.

    >>> coarse(np.array([5, 7, 7, 8, 9]), 3).tolist()
    [7, 9]
    """
    periods = (tokens_N[start : start + group] for start in range(0, len(tokens_N), group))
    return np.array([_most_frequent(period) for period in periods], dtype=np.int64)


def _most_frequent(tokens: NDArray[np.int64]) -> int:
    latest_first = tokens[::-1]
    values, first, counts = np.unique(latest_first, return_index=True, return_counts=True)
    return int(values[np.lexsort((first, -counts))[0]])


def about_long(lengths_S: NDArray[np.integer], levels: int, most: int | None = CODE_TOKENS) -> str | None:
    """What a user should know about histories that are too long to be told whole.

    >>> about_long(np.array([3, 400]), levels=4)[:52]
    '1 of 2 sequences have more than 256 records: their o'
    """
    if most is None or not (long := int((lengths_S * levels > most).sum())):
        return None
    return (
        f"{long:,} of {len(lengths_S):,} sequences have more than {most // levels:,} records: their oldest records are "
        f"told by one token each, or one for several (`code_tokens` in `prompt:`, now {most:,})"
    )
