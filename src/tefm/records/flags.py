"""Flags: which words mean yes, and how words that mean neither yes nor no are handled.

Shapes: N records.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError, TefmWarning
from tefm.records.schema import FALSE_WORDS, TRUE_WORDS, Field
from tefm.records.words import as_numbers


def flags_of(ids_N: NDArray[np.int64], words: Sequence[str | None], f: Field, file: str) -> NDArray[np.uint8]:
    """Whether each record's flag is on.

    A value that is neither yes nor no is not an error after training: a number other than 0 is on (a count that was 0
    or 1 in training), any other word is absent, and a warning names it.
    """
    on = frozenset(f.on if f.on is not None else TRUE_WORDS)
    state = np.array([word is not None and (word in on or word.lower() in on) for word in words], dtype=np.uint8)
    unknown = _neither(words, f)
    if unknown:
        values = as_numbers(pl.Series([words[i] for i in unknown])).fill_null(0)
        state[unknown] = (values.is_finite() & (values != 0)).to_numpy()
        count = int(np.isin(ids_N, unknown).sum())
        warnings.warn(
            f"field {f.name!r} is a flag, but {count:,} of {len(ids_N):,} values in this batch are neither yes nor no; "
            "numbers other than 0 count as on, anything else as absent "
            f"[file {file}, column {f.source[0]!r}, value {words[unknown[0]]!r}]",
            TefmWarning,
            stacklevel=2,
        )
    return state[ids_N]


def refuse_neither(words: Sequence[str | None], f: Field, file: str) -> None:
    """Refuse words of the training table that are neither yes nor no: the schema needs a correction."""
    unknown = _neither(words, f)
    if unknown:
        are_numbers = as_numbers(pl.Series([words[i] for i in unknown])).null_count() == 0
        raise InputError(
            f"field {f.name!r} is a flag, but this value is neither yes nor no",
            file=file,
            column=f.source[0],
            value=words[unknown[0]],
            remedy=f"change its kind to `{'number' if are_numbers else 'category'}`, "
            "or list the values that mean yes under the field's `on:`",
        )


def _neither(words: Sequence[str | None], f: Field) -> list[int]:
    """The indices of the words that are neither yes nor no; if the field lists its yes words, all others mean no."""
    if f.on is not None:
        return []
    yes_or_no = {*TRUE_WORDS, *FALSE_WORDS}
    return [i for i, word in enumerate(words) if word is not None and word.lower() not in yes_or_no]
