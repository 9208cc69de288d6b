"""Splitting sequences into train, validation and test; the records of one sequence are always in the same part."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.tables.sequences import Sequences, check_label

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = get_args(Part)


def split(
    sequences: Sequences,
    *,
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1),
    by: Literal["random", "time"] = "random",
    seed: int = 0,
    stratify: bool = True,
) -> NDArray[np.str_]:
    """The part of each sequence ("train", "validation" or "test"); a part with a share above 0 is never empty.

    `random` depends only on the seed; `stratify` keeps the shares within each class, to within one sequence.
    `time` trains on the sequences that end first and tests on those that end last (in the file's order if the schema
    has no time column), regardless of class.

    >>> days = Sequences(np.arange(10), np.arange(11), ends=np.arange(10)[::-1])
    >>> parts = split(days, by="time", shares=(0.6, 0.2, 0.2))
    >>> days.rows[parts == "test"].tolist()
    [0, 1]
    """
    shares_P = np.array(shares, dtype=float)
    if shares_P.shape != (3,) or not (shares_P >= 0).all() or abs(shares_P.sum() - 1) > 1e-6:
        raise SettingsError(
            "the shares of train, validation and test must be three numbers that add up to 1",
            value=shares,
            remedy="try (0.8, 0.1, 0.1)",
        )
    needed = int((shares_P > 0).sum())
    if len(sequences) < needed:
        raise InputError(
            f"{len(sequences)} sequences cannot be split into {needed} parts",
            remedy=f"at least {needed} are needed: give more records, or set the share of a part to 0",
        )
    if by == "time":
        assert sequences.ends is not None, "sequences of a table have their end times"
        strata = [np.argsort(sequences.ends, kind="stable")]
    else:
        shuffled = np.random.default_rng(seed).permutation(len(sequences))
        strata = [shuffled]
        if stratify and sequences.labels is not None:
            names = np.array([f"={label}" if label is not None else "" for label in sequences.labels[shuffled]])
            strata = [shuffled[names == name] for name in np.unique(names)]
    counts_SP = _allocate(np.array([len(stratum) for stratum in strata]), shares_P)
    parts = np.empty(len(sequences), dtype="<U10")
    for stratum, counts in zip(strata, counts_SP, strict=True):
        parts[stratum] = np.repeat(PARTS, counts)
    return parts


def balance(sequences: Sequences, *, seed: int = 0) -> NDArray[np.int64]:
    """The sequences to keep so that all classes are as large as the smallest; unlabelled ones are left out."""
    classes = check_label(sequences.labels)
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(sequences.labels == name) for name in classes]
    size = min(map(len, members))
    return np.sort(np.concatenate([rng.choice(of_class, size, replace=False) for of_class in members]))


def _allocate(sizes_S: NDArray[np.int64], shares_P: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many sequences of each stratum S go to each part P: whole numbers within one of size × share.

    What remains after rounding down goes to the parts that are furthest below their quota over all strata so far,
    so that the parts also have the right total size, however many small classes there are.
    """
    # rounded, because 100 × 0.29 is 28.999… in floating point, which would move a sequence to another part
    quota_SP = np.round(np.outer(sizes_S, shares_P), 9)
    counts_SP = np.floor(quota_SP).astype(np.int64)
    for stratum, size in enumerate(sizes_S):
        deficit_P = quota_SP[: stratum + 1].sum(axis=0) - counts_SP[: stratum + 1].sum(axis=0)
        deficit_P[quota_SP[stratum] == counts_SP[stratum]] = -np.inf
        if shares_P[0] > 0 and not counts_SP[stratum, 0]:  # the only sequence of a class goes to train
            deficit_P[0] = np.inf
        remaining = size - counts_SP[stratum].sum()
        counts_SP[stratum, np.argsort(-deficit_P, kind="stable")[:remaining]] += 1
    for empty_part in np.flatnonzero((counts_SP.sum(axis=0) == 0) & (shares_P > 0)):
        donor = counts_SP.sum(axis=0).argmax()
        largest = counts_SP[:, donor].argmax()
        counts_SP[largest, [donor, empty_part]] += (-1, 1)
    return counts_SP
