"""Train, validation and test: one part per sequence, so that the records of a sequence never end up in two."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.records.sequences import Sequences, Texts

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
    """One of "train", "validation" and "test" per sequence; a part with a share above 0 is never empty.

    `random` is the same for the same seed; `stratify` keeps the shares within each class, to within one sequence.
    `time` trains on the sequences that end first and tests on those that end last
    (in the file's order when the schema has no time), whatever their class.

    >>> days = Sequences(np.arange(10), np.arange(11), ends=np.arange(10)[::-1])
    >>> parts = split(days, by="time", shares=(0.6, 0.2, 0.2))
    >>> rows_of(days, parts, "test")
    array([0, 1])
    """
    wanted = np.array(shares, dtype=float)
    if wanted.shape != (3,) or not (wanted >= 0).all() or abs(wanted.sum() - 1) > 1e-6:
        raise SettingsError(
            "shares are those of train, validation and test, and add up to 1",
            value=shares,
            remedy="try (0.8, 0.1, 0.1)",
        )
    needed = int((wanted > 0).sum())
    if len(sequences) < needed:
        raise InputError(
            f"{len(sequences)} sequences cannot be split into {needed} parts",
            remedy=f"at least {needed} are needed: give more records, or set the share of a part to 0",
        )
    if by == "time":
        assert sequences.ends is not None, "sequences of a table know when they end"
        strata = [np.argsort(sequences.ends, kind="stable")]
    else:
        shuffled = np.random.default_rng(seed).permutation(len(sequences))
        strata = [shuffled]
        if stratify and sequences.labels is not None:
            names = np.array([f"={label}" if label is not None else "" for label in sequences.labels[shuffled]])
            strata = [shuffled[names == name] for name in np.unique(names)]
    counts_SP = _shared_out(np.array([len(stratum) for stratum in strata]), wanted)
    parts = np.empty(len(sequences), dtype="<U10")
    for stratum, counts in zip(strata, counts_SP, strict=True):
        parts[stratum] = np.repeat(PARTS, counts)
    return parts


def rows_of(sequences: Sequences, parts: NDArray[np.str_], part: Part) -> NDArray[np.int64]:
    """The row numbers of all records in one part."""
    return sequences.select(parts == part).rows


def check_label(labels: Texts | None, *, column: str | None = None, file: str | None = None) -> tuple[str, ...]:
    """The classes, in alphabetical order; an error when there is nothing to tell apart."""
    known = [] if labels is None else [str(label) for label in labels if label is not None]
    words = "a class that is written 'none' or 'n/a' counts as missing until it leaves the schema's 'missing' words"
    without = "learn codes without the label (task_aware=False, --unsupervised)"
    if labels is None:
        problem, remedy = "there is no label to learn", "name its column in the schema: `label: COLUMN`"
    elif not known:
        problem, remedy = f"the label is empty: none of {len(labels)} has one", f"fill it in, or {without}; {words}"
    elif len(set(known)) == 1:
        problem = f"all {len(known)} labels are the same: with one class there is nothing to tell apart"
        remedy = f"add records of another class, name another label column, or {without}; {words}"
    else:
        return tuple(sorted(set(known)))
    raise InputError(problem, file=file, column=column, value=known[0] if known else None, remedy=remedy)


def balance(sequences: Sequences, *, seed: int = 0) -> NDArray[np.int64]:
    """Which sequences to keep so that every class has as many as the smallest one; unlabelled ones are left out."""
    classes = check_label(sequences.labels)
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(sequences.labels == name) for name in classes]
    size = min(len(member) for member in members)
    return np.sort(np.concatenate([rng.choice(member, size, replace=False) for member in members]))


def _shared_out(sizes_S: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many sequences of each stratum go to each part: whole numbers within one of size × share.

    What remains after rounding down goes to the parts that are furthest behind over all strata so far,
    so that the parts have the right size in total too, however many small classes there are.
    """
    # rounded, because 100 × 0.29 is 28.999…: it would lose a sequence to another part
    quota_SP = np.round(np.outer(sizes_S, shares), 9)
    counts_SP = np.floor(quota_SP).astype(np.int64)
    for stratum, size in enumerate(sizes_S):
        behind = quota_SP[: stratum + 1].sum(axis=0) - counts_SP[: stratum + 1].sum(axis=0)
        behind[quota_SP[stratum] == counts_SP[stratum]] = -np.inf
        if shares[0] > 0 and not counts_SP[stratum, 0]:  # a class of one can only be learned from
            behind[0] = np.inf
        left = size - counts_SP[stratum].sum()
        counts_SP[stratum, np.argsort(-behind, kind="stable")[:left]] += 1
    for part in np.flatnonzero((counts_SP.sum(axis=0) == 0) & (shares > 0)):
        giver = counts_SP.sum(axis=0).argmax()
        largest = counts_SP[:, giver].argmax()
        counts_SP[largest, [giver, part]] += (-1, 1)
    return counts_SP
