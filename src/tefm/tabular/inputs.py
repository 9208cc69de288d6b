"""The inputs of plain models: one row of features per sequence, and the words of its text.

Words are weighted by TF-IDF, learned from the training part alone. Trees get few columns of them, logistic regression
all. Validation chooses the form, whether the text of the last record or of all records is read, and whether any is.
Needs only numpy, so it also works without the table libraries.

Shapes: N records or sequences, D slots, F features, L records of the longest sequence, V words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError, SettingsError
from tefm.tables.layout import Layout, SlotKind
from tefm.tables.sequences import Sequences

Kind = Literal["last", "history", "flat", "order"]
#: Values of a category, the most frequent ones, of which `order` has columns of their own.
VALUES = 16
#: What the name of a kind begins with where the features are raw values and not slots.
RAW = "raw "
#: Between the kind of the fields and the form of the text, in the name of a kind.
PLUS = " + "
#: The forms: the strongest directions of all words, the words that say most about the label, all words.
COMPONENTS, TELLING, WORDS = "text components", "telling words", "words"
LAST, ALL = " of the last record", " of all records"
#: Columns for trees.
MOST_COMPONENTS, MOST_TELLING = 200, 1_000
#: Words and pairs of neighbours, the most frequent ones that occur in two texts or more.
MOST_WORDS, LONGEST = 50_000, 2


@dataclass(frozen=True, eq=False)
class Features:
    """One row per sequence, and the kind of each column."""

    x_NF: NDArray[Any]
    kinds: tuple[SlotKind, ...]
    #: the words of the sequence's text, as a sparse matrix; only logistic regression reads it
    words_NV: Any = None

    def __len__(self) -> int:
        return len(self.x_NF)

    def __getitem__(self, which: NDArray[Any]) -> Features:
        return Features(self.x_NF[which], self.kinds, None if self.words_NV is None else self.words_NV[which])

    def with_numbers(self, numbers_NM: NDArray[Any]) -> Features:
        """Its rows with further columns."""
        number: SlotKind = "number"
        kinds = self.kinds + (number,) * numbers_NM.shape[1]
        return Features(np.hstack([self.x_NF, numbers_NM], dtype=np.float32), kinds, self.words_NV)

    def of_kind(self, kind: SlotKind) -> list[int]:
        """The columns of one kind."""
        return [column for column, other in enumerate(self.kinds) if other == kind]


def for_regression(categories: Sequence[int], numbers: Sequence[int], flags: Sequence[int] = ()) -> Any:
    """What a regression reads of columns: a flag for each category, numbers of the same spread, flags as they are."""
    from sklearn.compose import make_column_transformer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    return make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), categories), (StandardScaler(), numbers), ("passthrough", flags)
    )


@dataclass(frozen=True, eq=False)
class RecordSlots:
    """The records of every sequence, in order: rows of one array of slots, which is never copied."""

    #: slots (0: absent), or the raw values of fields (nan: absent)
    slots_ND: NDArray[Any]
    layout: Layout
    #: row numbers of `slots_ND`
    sequences: Sequences

    def __post_init__(self) -> None:
        if self.slots_ND.shape[1] != self.layout.width:
            raise InputError(
                f"these records have {self.slots_ND.shape[1]} slots, not {self.layout.width}",
                remedy="give the layout of the vectoriser that made them",
            )

    @classmethod
    def of(cls, slots: Sequences, layout: Layout) -> RecordSlots:
        """The records of sequences of slots."""
        return cls(slots.x_ND, layout, slots.with_values(np.arange(len(slots.x_ND))))

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, which: NDArray[Any]) -> RecordSlots:
        return RecordSlots(self.slots_ND, self.layout, self.sequences.select(which))

    @property
    def x_ND(self) -> NDArray[Any]:
        """The slots of the records, sequence after sequence."""
        return self.slots_ND[self.sequences.rows]

    @property
    def from_end(self) -> NDArray[np.int64]:
        """For each record, how many of its sequence come after it."""
        sequences = self.sequences
        return np.repeat(sequences.starts[1:], sequences.lengths) - np.arange(len(sequences.rows)) - 1


def empty_record(layout: Layout) -> RecordSlots:
    """A sequence of one record without any value: features of it are as many as of any other."""
    return RecordSlots.of(Sequences(np.zeros((1, layout.width), dtype=layout.dtype), np.array([0, 1])), layout)


def sequence_features(records: RecordSlots, kind: Kind) -> Features:
    """One row per sequence.

    `last`: the slots of its last record. `history`: these, the mean of each slot over its records (as a share of the
    slot's size; for a flag, how often it is on), and the number of records. `flat`: the slots of all records side by
    side, the last record at the end and absent ones in front of shorter sequences; meant for windows. `order`: what an
    expert would compute of a long sequence (`_in_order`). Fields of the entity are read in the last record alone. Raw
    values are treated in the same way, and those that are absent do not count in a mean.

    >>> from tefm.tables.layout import Slot
    >>> x = np.array([[1, 0], [3, 1], [4, 1]], dtype=np.uint8)
    >>> layout = Layout((Slot("age", "number", 4), Slot("dx", "flag", 1, "428")))
    >>> records = RecordSlots(x, layout, Sequences(np.arange(3), np.array([0, 2, 3])))
    >>> sequence_features(records, "history").x_NF.tolist()
    [[3.0, 1.0, 0.5, 0.5, 2.0], [4.0, 1.0, 1.0, 1.0, 1.0]]
    >>> sequence_features(records, "flat").x_NF.tolist()
    [[1, 0, 3, 1], [0, 0, 4, 1]]
    """
    if kind not in get_args(Kind):
        raise SettingsError("not a valid kind of features", value=kind, remedy=f"choose one of {get_args(Kind)}")
    layout, sequences = records.layout, records.sequences
    slot_kinds = tuple(slot.kind for slot in layout.slots)
    last_ND = records.slots_ND[sequences.last]
    if kind == "last":
        return Features(last_ND, slot_kinds)
    if kind == "order":
        return _in_order(records)
    all_ND = records.x_ND
    if kind == "flat":
        longest = int(sequences.lengths.max())
        absent = np.nan if all_ND.dtype.kind == "f" else 0
        flat_NLD = np.full((len(records), longest, layout.width), absent, dtype=all_ND.dtype)
        flat_NLD[sequences.sequence_N, longest - 1 - records.from_end] = all_ND
        return Features(flat_NLD.reshape(len(records), longest * layout.width), slot_kinds * longest)
    lengths_N1 = sequences.lengths[:, None]
    changes_D = ~layout.static_D
    all_ND, sizes_D = all_ND[:, changes_D], layout.sizes_D[changes_D].astype(np.float32)
    sums_ND = np.add.reduceat(np.nan_to_num(all_ND / sizes_D), sequences.starts[:-1], axis=0)
    counts_ND = np.add.reduceat(~np.isnan(all_ND), sequences.starts[:-1], axis=0, dtype=np.int64)
    means_ND = np.divide(sums_ND, counts_ND, out=np.full(sums_ND.shape, np.nan, np.float32), where=counts_ND > 0)
    # adding counts of presence and largest buckets did not help on validation (Diabetes130, splits 20, 21)
    x_NF = np.hstack([last_ND, means_ND, lengths_N1], dtype=np.float32)
    number: SlotKind = "number"
    return Features(x_NF, slot_kinds + (number,) * (x_NF.shape[1] - layout.width))


def _in_order(records: RecordSlots) -> Features:
    """What became of each slot over the records of a sequence.

    A number: its last, first, least, greatest and mean value that is not absent, the change from the first to the last,
    and how often it is there. A flag, and each frequent value of a category: how often it is there, and how recently (1
    in the last record, 1/2 in the one before, 0 never): of two events, the later one is the more recent. A category
    also as it is in the last record, the one before, and the first. A field of the entity as it is. And the number of
    records.
    """
    sequences, from_end_N = records.sequences, records.from_end
    starts, lengths_S = sequences.starts[:-1], sequences.lengths
    recent_N = (1 / (1 + from_end_N)).astype(np.float32)
    before = np.maximum(sequences.starts[1:] - 2, starts)
    columns: list[NDArray[Any]] = []
    kinds: list[SlotKind] = []

    def add(kind: SlotKind, *values: NDArray[Any]) -> None:
        columns.extend(np.asarray(of_S, dtype=np.float32) for of_S in values)
        kinds.extend([kind] * len(values))

    def how_often_and_recently(there_N: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
        often_S = np.add.reduceat(there_N, starts, dtype=np.float32) / lengths_S
        return often_S, np.maximum.reduceat(np.where(there_N, recent_N, 0), starts)

    for number, slot in enumerate(records.layout.slots):
        value_N = records.slots_ND[sequences.rows, number]
        if slot.static:
            add(slot.kind, value_N[sequences.starts[1:] - 1])
            continue
        there_N = ~np.isnan(value_N) & (value_N > 0 if value_N.dtype.kind != "f" else True)
        if slot.kind == "number":
            add("number", *_course(value_N.astype(np.float32), there_N, sequences))
        elif slot.kind == "flag":
            add("flag", value_N[sequences.starts[1:] - 1])
            add("number", *how_often_and_recently(there_N))
        else:
            add("category", *(value_N[of_S] for of_S in (sequences.starts[1:] - 1, before, starts)))
            for value in range(1, min(slot.size, VALUES) + 1):
                add("number", *how_often_and_recently(value_N == value))
    add("number", lengths_S)
    return Features(np.column_stack(columns), tuple(kinds))


def _course(value_N: NDArray[np.float32], there_N: NDArray[np.bool_], sequences: Sequences) -> Iterator[NDArray[Any]]:
    """A number over the records of each sequence; 0 where it is never there."""
    starts, place_N = sequences.starts[:-1], np.arange(len(value_N))
    count_S = np.add.reduceat(there_N, starts, dtype=np.int64)
    first_S = np.minimum.reduceat(np.where(there_N, place_N, len(value_N) - 1), starts)
    last_S = np.maximum.reduceat(np.where(there_N, place_N, 0), starts)
    least_S = np.minimum.reduceat(np.where(there_N, value_N, np.inf), starts)
    greatest_S = np.maximum.reduceat(np.where(there_N, value_N, -np.inf), starts)
    sum_S = np.add.reduceat(np.where(there_N, value_N, 0), starts)
    change_S = value_N[last_S] - value_N[first_S]
    for of_S in (value_N[last_S], value_N[first_S], least_S, greatest_S, sum_S / np.maximum(count_S, 1), change_S):
        yield np.where(count_S > 0, of_S, 0)
    yield count_S / sequences.lengths


# ---- words ------------------------------------------------------------------------------------------------------


def scoped(forms: Sequence[str], sequences: Sequences) -> list[str]:
    """The forms of text to choose from; one record's text is that of all."""
    scopes = (LAST, ALL) if sequences.lengths.max(initial=1) > 1 else (ALL,)
    return [form + scope for form in forms for scope in scopes]


def sequence_texts(notes: Sequence[str], sequences: Sequences, form: str) -> list[str]:
    """The text of each sequence.

    >>> sequences = Sequences(np.arange(3), np.array([0, 2, 3]))
    >>> sequence_texts(["cough", "", "well"], sequences, "words of all records")
    ['cough\\n', 'well']
    """
    if form.endswith(LAST):
        return [notes[row] for row in sequences.last.tolist()]
    return ["\n".join(notes[row] for row in sequences[i].tolist()) for i in range(len(sequences))]


def words_of(texts: Sequence[str], train: NDArray[np.int64]) -> Any | None:
    """The weight of each word in each text, N × V, sparse; None where no word occurs in two of the training texts."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    terms = TfidfVectorizer(
        ngram_range=(1, LONGEST),
        token_pattern=r"\w+",
        min_df=2,
        max_features=MOST_WORDS,
        sublinear_tf=True,
        dtype=np.float32,
    )
    try:
        terms.fit([texts[i] for i in train.tolist()])
    except ValueError:  # no such word
        return None
    return terms.transform(texts).tocsr()


def with_text(
    features: Features, texts: Sequence[str], form: str, labels: NDArray[Any], parts: NDArray[np.str_]
) -> Features:
    """The features and the words of the texts; without a word that occurs twice in training, the features alone."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_selection import SelectKBest, chi2

    train = np.flatnonzero(parts == "train")
    words_NV = words_of(texts, train)
    if words_NV is None:
        return features
    if form.startswith(WORDS):
        return replace(features, words_NV=words_NV)
    count = min(MOST_COMPONENTS, words_NV.shape[1] - 1, len(train) - 1)
    if form.startswith(COMPONENTS) and count > 0:
        components = TruncatedSVD(count, random_state=0).fit(words_NV[train])
        return features.with_numbers(components.transform(words_NV))
    telling = SelectKBest(chi2, k=min(MOST_TELLING, words_NV.shape[1])).fit(words_NV[train], labels[train])
    return features.with_numbers(telling.transform(words_NV).toarray())
