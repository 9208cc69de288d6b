"""Sequences: records in order, and their split into train, validation and test.

A sequence is the ordered records of one entity (a patient) or a window of consecutive records (10 flows).
Nothing is copied: a `Sequences` holds row numbers of the table, and a split gives one part per sequence,
so the records of one sequence never end up in two parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from tefm.errors import InputError, SettingsError, did_you_mean
from tefm.records import roles
from tefm.records.roles import Texts
from tefm.records.schema import Schema

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, eq=False)
class Sequences:
    """Row numbers of a table, sequence after sequence.

    >>> frame = pl.DataFrame({"who": ["a", "b", "a"], "day": [2, 1, 1], "ill": [1, 0, 0], "x": [5, 6, 7]})
    >>> schema = Schema.from_yaml("{entity: who, time: day, label: ill, fields: {x: number}}")
    >>> sequences = by_entity(frame, schema)
    >>> [(name, sequences[i].tolist(), sequences.labels[i]) for i, name in enumerate(sequences.ids)]
    [('a', [2, 0], '1'), ('b', [1], '0')]
    """

    #: row numbers, sequence after sequence, each in order
    rows: NDArray[np.int64]
    #: where each sequence starts in `rows`, and the end of the last one
    starts: NDArray[np.int64]
    #: the entity, or "0", "1", … where records or windows have no name
    ids: Texts
    #: one per sequence, None where it has no label; None altogether when the schema has no label
    labels: Texts | None
    #: when each sequence ends, as a rank: sequences are compared by it, never measured
    ends: NDArray[np.int64]
    #: what messages call the table that the rows are of
    file: str | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> NDArray[np.int64]:
        """The row numbers of sequence i, in order."""
        i = range(len(self))[i]  # IndexError past the end, -1 is the last
        return self.rows[self.starts[i] : self.starts[i + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    @property
    def last(self) -> NDArray[np.int64]:
        """The row number of each sequence's last record."""
        return self.rows[self.starts[1:] - 1]

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which sequences have a label."""
        if self.labels is None:
            return np.zeros(len(self), dtype=bool)
        return np.array([label is not None for label in self.labels], dtype=bool)

    def select(self, which: ArrayLike) -> Sequences:
        """Some of the sequences, by mask or by number; their row numbers stay those of the whole table."""
        chosen = np.asarray(which)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        lengths = self.lengths[chosen]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        moved = np.repeat(self.starts[chosen] - starts[:-1], lengths)
        labels = self.labels[chosen] if self.labels is not None else None
        rows = self.rows[moved + np.arange(starts[-1])]
        return Sequences(rows, starts, self.ids[chosen], labels, self.ends[chosen], self.file)


def by_entity(
    frame: pl.DataFrame, schema: Schema, *, background: str | None = None, file: str | None = None
) -> Sequences:
    """The records of each entity, ordered by the time column; entities in the order of their first row.

    Records of the same time keep the file's order, and so do all records when the schema has no time.
    Without an entity column every record is a sequence of its own.

    A sequence has the label of its last record. With `background` (the label of nothing special, e.g. "BENIGN")
    it has its first label that is another one, if there is any; records without a label are passed over.
    """
    when, labels = roles.time_ranks(frame, schema, file), roles.labels(frame, schema, file)
    if schema.entity is None:
        numbers = np.arange(frame.height)
        return _sequences(numbers, numbers, _numbered(frame.height), when, labels, background, file)
    who = roles.entities(frame, schema.entity, schema, file)
    numbered = pl.DataFrame({"who": who}).with_row_index("row").cast({"row": pl.Int64})
    first = numbered.select(pl.col("row").min().over("who")).to_series().to_numpy()  # names the entity of each row
    rows = np.lexsort((when, first))  # stable: ties keep the file's order
    starts = np.flatnonzero(np.diff(first[rows], prepend=-1))
    ids = np.array(who.gather(first[rows[starts]]).to_list(), dtype=object)
    return _sequences(rows, starts, ids, when, labels, background, file)


def by_window(
    frame: pl.DataFrame,
    schema: Schema,
    size: int,
    *,
    drop_last: bool = True,
    background: str | None = None,
    file: str | None = None,
) -> Sequences:
    """Windows of `size` consecutive records in the order of time, side by side, whatever their entity.

    The last window may be shorter; `drop_last` leaves it out. The label is that of `by_entity`.
    """
    if size < 1:
        raise SettingsError("a window needs at least one record", value=size, remedy="set size to 1 or more")
    when, labels = roles.time_ranks(frame, schema, file), roles.labels(frame, schema, file)
    rows = np.argsort(when, kind="stable")
    if drop_last:
        rows = rows[: len(rows) // size * size]
        if not len(rows):
            raise InputError(
                f"{frame.height} records do not fill one window of {size}",
                file=file,
                remedy="give more records, a smaller size, or drop_last=False",
            )
    starts = np.arange(0, len(rows), size)
    return _sequences(rows, starts, _numbered(len(starts)), when, labels, background, file)


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

    >>> frame = pl.DataFrame({"x": range(10), "day": [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]})
    >>> days = by_entity(frame, Schema.from_yaml("{time: day, fields: {x: number}}"))
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


# ---- how the sequences are put together -----------------------------------------------------------------------


def _sequences(
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    ids: Texts,
    when: NDArray[np.int64],
    labels: Texts | None,
    background: str | None,
    file: str | None,
) -> Sequences:
    """`when` and `labels` are per row of the table."""
    bounds = np.append(starts, len(rows))
    last = rows[bounds[1:] - 1]
    of_sequence = labels[last] if labels is not None else None
    if labels is not None and background is not None:
        of_sequence = _first_unusual(labels[rows], bounds, background)
    return Sequences(rows, bounds, ids, of_sequence, when[last], file)


def _first_unusual(labels: Texts, bounds: NDArray[np.int64], background: str) -> Texts:
    """Of each sequence the first label that is not `background`; else `background`, or None if it has no label."""
    known = np.array([label is not None for label in labels], dtype=bool)
    if known.any() and background not in labels[known]:
        seen = sorted(set(labels[known]))
        raise InputError("no record has the background label", value=background, remedy=did_you_mean(background, seen))
    sequence = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    found = np.full(len(bounds) - 1, None, dtype=object)
    found[sequence[known]] = background
    unusual = np.flatnonzero(known & (labels != background))[::-1]  # backwards, so that the first one is written last
    found[sequence[unusual]] = labels[unusual]
    return found


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


def _numbered(count: int) -> Texts:
    return np.array([str(i) for i in range(count)], dtype=object)
