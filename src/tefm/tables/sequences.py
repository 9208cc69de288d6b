"""`Sequences`: records in order, at every stage of the pipeline.

A sequence is the ordered records of one entity (a patient) or a window of consecutive records (10 flows). The same
sequences pass through all stages: as row numbers of a table, as slots, as codes. Arrays only.

They are split into train, validation and test here; the records of one sequence are always in the same part.

Shapes: S sequences, N records of all of them, D slots, K levels, W words of 8 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.scoring.numbers import in_order

#: An array of texts, None where one is missing.
Texts = NDArray[np.object_]
#: Labels with more classes than this must occur more than once.
FEW_CLASSES = 50
#: What belongs to a sequence and not to a record.
PER_SEQUENCE = ("ids", "labels", "ends", "texts")


@dataclass(frozen=True, eq=False)
class Sequences:
    """S sequences: the values of all their records, one sequence after another, and where each begins.

    >>> slots = Sequences(np.array([[1, 0], [2, 3], [1, 1]]), np.array([0, 2, 3]), texts=["first", "second"])
    >>> slots[0].tolist(), slots.select([1]).texts
    ([[1, 0], [2, 3]], ['second'])
    >>> codes = slots.with_values(np.array([[7], [8], [7]]))
    >>> codes[0].tolist(), codes.texts
    ([[7], [8]], ['first', 'second'])
    """

    #: per record: its row number in a table (N), its slots (N×D) or its codes (N×K), depending on the stage
    values: NDArray[Any]
    #: where each sequence starts in `values`, and the end of the last one
    starts: NDArray[np.int64]
    #: the entity of each sequence; None where it does not matter
    ids: Texts | None = None
    #: one per sequence, None where it has no label; None as a whole when the schema has no label
    labels: Texts | None = None
    #: when each sequence ends, as a rank: it orders the sequences and has no unit
    ends: NDArray[np.int64] | None = None
    #: text per sequence for the language model: in addition to the codes (of the last record, or the notes of every
    #: record: see `Notes`), or instead of them
    texts: Sequence[Any] | None = None
    #: what error messages call the table that the records come from
    file: str | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, i: int) -> NDArray[Any]:
        """The values of sequence i, in order."""
        i = range(len(self))[i]  # IndexError past the end, -1 is the last
        return self.values[self.starts[i] : self.starts[i + 1]]

    @property
    def rows(self) -> NDArray[np.int64]:
        """`values` where they are row numbers of a table."""
        return self.values

    @property
    def x_ND(self) -> NDArray[Any]:
        """`values` where they are slots."""
        return self.values

    @property
    def codes_NK(self) -> NDArray[Any]:
        """`values` where they are codes."""
        return self.values

    @property
    def names(self) -> Texts:
        """The ids, or consecutive numbers if there are none."""
        return self.ids if self.ids is not None else np.array([str(i) for i in range(len(self))], dtype=object)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many records each sequence has."""
        return np.diff(self.starts).astype(np.int64)

    @property
    def sequence_N(self) -> NDArray[np.int64]:
        """The index of the sequence that each record belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def last(self) -> NDArray[Any]:
        """The value of each sequence's last record."""
        return self.values[self.starts[1:] - 1]

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which sequences have a label."""
        if self.labels is None:
            return np.zeros(len(self), dtype=bool)
        return np.array([label is not None for label in self.labels], dtype=bool)

    def places(self, chosen: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """The positions in `values` of the records of the chosen sequences, one sequence after another."""
        return runs(self.starts[:-1][chosen], self.lengths[chosen])[0]

    def select(self, which: ArrayLike) -> Sequences:
        """Some of the sequences, by mask or by index; an index may occur more than once."""
        chosen = np.asarray(which)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        places, starts = runs(self.starts[:-1][chosen], self.lengths[chosen])

        def taken(of: Any) -> Any:
            if of is None or isinstance(of, np.ndarray):
                return None if of is None else of[chosen]
            return [of[i] for i in chosen.tolist()]

        own = {name: taken(getattr(self, name)) for name in PER_SEQUENCE}
        return replace(self, values=self.values[places], starts=starts, **own)

    def up_to(self, ends: NDArray[np.int64]) -> Sequences:
        """Prefixes: the records of each sequence up to an end, which is a position in the records of all sequences.

        They keep the notes of their records; a text of the last record alone is not known of them.

        >>> grown = Sequences(np.array([7, 8, 9]), np.array([0, 2, 3])).up_to(np.array([0, 1, 2]))
        >>> [grown[i].tolist() for i in range(3)]
        [[7], [7, 8], [9]]
        """
        of_H = self.sequence_N[ends]
        firsts, texts = self.starts[of_H], None
        places, starts = runs(firsts, ends - firsts + 1)
        if self.texts is not None and not any(isinstance(text, str) for text in self.texts):
            texts = [self.texts[of][:count] for of, count in zip(of_H.tolist(), np.diff(starts).tolist(), strict=True)]
        return Sequences(self.values[places], starts, ids=self.names[of_H], texts=texts, file=self.file)

    def with_values(self, values: NDArray[Any]) -> Sequences:
        """These sequences with other values for their records."""
        assert len(values) == len(self.values), "one value per record"
        return replace(self, values=values)

    def followed_by(self, other: Sequences) -> Sequences:
        """These sequences, then the others.

        >>> both = Sequences(np.array([4, 5]), np.array([0, 2])).followed_by(Sequences(np.array([6]), np.array([0, 1])))
        >>> both.values.tolist(), both.starts.tolist()
        ([4, 5, 6], [0, 2, 3])
        """

        def joined(mine: Any, others: Any) -> Any:
            if mine is None or others is None:
                return None
            return np.concatenate([mine, others]) if isinstance(mine, np.ndarray) else [*mine, *others]

        starts = np.concatenate([self.starts, self.starts[-1] + other.starts[1:]])
        names = ("values", *PER_SEQUENCE)
        return replace(
            self, starts=starts, **{name: joined(getattr(self, name), getattr(other, name)) for name in names}
        )

    def distinct(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first of each group of equal sequences (values and text), and the number of each one's group.

        >>> sequences = Sequences(np.array([[1], [2], [1], [2], [2]]), np.array([0, 2, 4, 5]))
        >>> first, number_S = sequences.distinct()
        >>> sorted(first.tolist()), bool(number_S[0] == number_S[1] != number_S[2])
        ([0, 2], True)
        """
        record_N = distinct_rows(self.values)[1]
        text_S = np.zeros(len(self), dtype=np.int64) if self.texts is None else numbered(self.texts)
        first, number_S = [np.zeros(0, dtype=np.int64)], np.zeros(len(self), dtype=np.int64)
        for length in np.unique(self.lengths):
            same = np.flatnonzero(self.lengths == length)
            records = record_N[self.starts[same, None] + np.arange(length)]
            own_first, own_number = distinct_rows(np.column_stack([text_S[same], records]))
            number_S[same] = own_number + sum(map(len, first))
            first.append(same[own_first])
        return np.concatenate(first), number_S

    def masked(self, keep_ND: NDArray[np.bool_]) -> Sequences:
        """x ⊙ m: slots outside the mask become absent."""
        assert keep_ND.shape == self.values.shape, "one mask per record"
        return replace(self, values=np.where(keep_ND, self.values, 0).astype(self.values.dtype))


def runs(firsts: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The positions in runs of these lengths, each counted from its first one; and where each run starts among them.

    >>> places, starts = runs(np.array([7, 2]), np.array([2, 3]))
    >>> places.tolist(), starts.tolist()
    ([7, 8, 2, 3, 4], [0, 2, 5])
    """
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return np.repeat(firsts - starts[:-1], lengths) + np.arange(starts[-1]), starts


def check_label(labels: Texts | None, *, column: str | None = None, file: str | None = None) -> tuple[str, ...]:
    """The classes, in alphabetical order, buckets of a number from low to high; an error if none can be learned."""
    present = [] if labels is None else [str(label) for label in labels if label is not None]
    missing = "a class written as 'none' or 'n/a' counts as missing unless you remove it from the schema's 'missing'"
    unsupervised = "learn codes without the label (task_aware=False, --unsupervised)"
    if labels is None:
        problem, remedy = "there is no label to learn", "name its column in the schema: `label: COLUMN`"
    elif not present:
        problem = f"the label is empty: none of {len(labels)} has one"
        remedy = f"fill it in, or {unsupervised}; {missing}"
    elif len(set(present)) == 1:
        problem = f"all {len(present)} labels are the same: one class is not enough to learn from"
        remedy = f"add records of another class, name another label column, or {unsupervised}; {missing}"
    elif FEW_CLASSES < len(set(present)) > len(present) / 2:
        problem = f"the label has {len(set(present)):,} classes among {len(present):,} sequences: most occur only once"
        remedy = "name another label column, or write numbers so that they can be read (12.5, not 12,5 or 12.5 kg)"
    else:
        return in_order(set(present))
    raise InputError(problem, file=file, column=column, value=present[0] if present else None, remedy=remedy)


def class_numbers(labels_N: NDArray[Any]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The classes in alphabetical order, and each record's class number (−1 where unknown)."""
    classes = check_label(labels_N)
    index = {label: number for number, label in enumerate(classes)}
    return classes, np.array([-1 if label is None else index[str(label)] for label in labels_N], dtype=np.int64)


#: For each record of a sequence, the text of each column.
Notes = tuple[tuple[str, ...], ...]
#: The text of a sequence.
Text = str | Notes


def notes_of(text: Text, records: int) -> Notes:
    """The text of a sequence as notes of its records; a string is the note of the last one.

    >>> notes_of("cough", 2)
    (('',), ('cough',))
    """
    return (("",),) * (records - 1) + ((text,),) if isinstance(text, str) else text


def record_texts(sequences: Sequences) -> list[str] | None:
    """The text of every record, one sequence after another; None where there are none."""
    if sequences.texts is None:
        return None
    notes = (notes_of(text, int(n)) for text, n in zip(sequences.texts, sequences.lengths, strict=True))
    return ["\n".join(filter(None, note)) for of_sequence in notes for note in of_sequence]


def stored(texts: Sequence[Text | list[list[str]]] | None) -> list[Text] | None:
    """Texts as they are read from JSON, which knows no tuples."""
    if texts is None:
        return None
    return [text if isinstance(text, str) else tuple(tuple(note) for note in text) for text in texts]


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


# ---- splitting -------------------------------------------------------------------------------------------------------


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
