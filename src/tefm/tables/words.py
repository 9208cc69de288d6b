"""Columns as words: each value of a column as one of its distinct words.

Cleaning (blanks, words for missing values, `1.0` for the code 1) is done once per distinct word, so it costs next to
nothing on a long column.

Shapes: N records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tefm.base.errors import InputError, failing_as
from tefm.tables.readers.source import unnamed
from tefm.tables.schema import Field

#: A number with commas between the thousands.
THOUSANDS = r"^[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?$"
_NUMBER = r"([+-]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
#: An open-ended number, such as > 89, <0.01, ≥90 or 90+: the sign and the number, or the number before the plus.
OPEN_ENDED = rf"^(?:([<>]=?|[≤≥])\s*{_NUMBER}|{_NUMBER}\s*\+)$"


@dataclass(frozen=True)
class Words:
    """Pairs (row, word): `ids` index `vocabulary`; rows without a value have no pair."""

    rows: NDArray[np.int64]
    ids: NDArray[np.int64]
    vocabulary: list[str]


def word_ids(series: pl.Series, missing: Iterable[str]) -> tuple[NDArray[np.int64], list[str | None]]:
    """Each value as the index of its word in a list of words, where None means missing.

    A word that the column writes in several ways, with and without blanks, is in the list several times.
    """
    ids_N, distinct = _distinct(series)
    missing = frozenset(missing)
    words = [None if not (word := raw.strip()) or word.lower() in missing else word for raw in distinct]
    return ids_N, [*words, None]


def words_of(series: pl.Series, missing: Iterable[str]) -> Words:
    """The words of a column; a list column gives several pairs per row."""
    rows = np.arange(len(series))
    if isinstance(series.dtype, pl.List | pl.Array):
        lists = unnamed(series)
        lengths = lists.list.len().fill_null(0).to_numpy()
        rows = np.repeat(rows, lengths)
        series = lists.filter(lengths > 0).explode().alias(series.name)
    ids_N, words = word_ids(series, missing)
    vocabulary = [word for word in dict.fromkeys(words) if word is not None]
    index: dict[str | None, int] = {word: position for position, word in enumerate(vocabulary)}
    ids_N = np.array([index.get(word, -1) for word in words])[ids_N]
    present = ids_N >= 0
    return Words(rows[present], ids_N[present], vocabulary)


def concatenated(parts: Sequence[Words]) -> Words:
    """The words of several columns as one."""
    vocabulary = list(dict.fromkeys(word for part in parts for word in part.vocabulary))
    index = {word: position for position, word in enumerate(vocabulary)}
    ids = [np.array([index[word] for word in part.vocabulary], dtype=np.int64)[part.ids] for part in parts]
    return Words(np.concatenate([part.rows for part in parts]), np.concatenate(ids), vocabulary)


def distinct_pairs(words: Words) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each (row, word) once."""
    size = max(len(words.vocabulary), 1)
    pairs = np.unique(words.rows * size + words.ids)
    return pairs // size, pairs % size


def split_strings(series: pl.Series, delimiter: str) -> pl.Series:
    """A column of delimited strings as a list column.

    >>> import datetime
    >>> split_strings(pl.Series(["a;b", None]), ";").to_list()
    [['a', 'b'], None]
    >>> split_strings(pl.Series([datetime.timedelta(hours=2)]), ";").to_list()
    [['2:00:00']]
    """
    if isinstance(series.dtype, pl.Duration):  # polars casts them to no text
        ids_N, words = _distinct(series)
        series = pl.Series(series.name, [*words, None], pl.String).gather(ids_N)
    return unnamed(series).cast(pl.String).str.split(delimiter).alias(series.name)


def _distinct(series: pl.Series) -> tuple[NDArray[np.int64], list[str]]:
    """The index of each value in the distinct values (one past the end for null), and those values as strings."""
    if series.dtype == pl.Object:  # e.g. Python objects from a pandas column of mixed types
        series = pl.Series(series.name, [None if v is None or v != v else str(v) for v in series.to_list()], pl.String)
    if isinstance(series.dtype, pl.Categorical | pl.Enum | pl.Int128):  # Arrow has no 128-bit integers
        series = unnamed(series).cast(pl.String).alias(series.name)
    if getattr(series.dtype, "time_unit", None) == "ns":  # Python's times know no nanoseconds
        series = unnamed(series).dt.cast_time_unit("us").alias(series.name)
    if series.dtype.is_nested():
        raise InputError(
            f"the column contains {series.dtype} values",
            column=series.name,
            remedy="give one value per row, or one list of plain values; flatten lists of lists first",
        )
    array = series.to_arrow()
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    encoded = array if pa.types.is_dictionary(array.type) else pc.dictionary_encode(array)
    ids: NDArray[np.int64] = encoded.indices.cast(pa.int64()).fill_null(len(encoded.dictionary)).to_numpy()
    problem, remedy = f"{series.dtype} values are out of range: {{reason}}", "write the column as text"
    with failing_as((pa.ArrowException, ValueError, OverflowError), problem, column=series.name, remedy=remedy):
        return ids, [_as_word(value) for value in encoded.dictionary.to_pylist()]


def _as_word(value: object) -> str:
    """Whole floats as integers: a column of codes with a missing value arrives as 1.0, 2.0, null."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else "" if value != value else str(value)
    return "" if value is None else str(value)


def as_numbers(text: pl.Series) -> pl.Series:
    """Text as floats, null where it is not a number; 22,946.46 is one, 12,5 is not (a decimal comma, or two values).

    An open-ended number keeps its place in the order: `> 89` is the next float above 89 and `<0.01` the next one below
    0.01; `≥90`, `<=5` and `90+` are the number itself.

    >>> as_numbers(pl.Series(["7", "22,946.46", "12,5", "old", "90+", "> 7"])).to_list()
    [7.0, 22946.46, None, None, 90.0, 7.000000000000001]
    """
    text = unnamed(text)
    numbers = _plain_numbers(text)
    unread = (numbers.is_null() & text.is_not_null()).arg_true()
    if not len(unread):
        return numbers
    words = text.gather(unread)
    sign = words.str.extract(OPEN_ENDED, 1).fill_null("").to_numpy()
    digits = pl.coalesce(words.str.extract(OPEN_ENDED, group) for group in (2, 3))
    bounds = _plain_numbers(pl.select(digits).to_series()).to_numpy()  # null becomes NaN
    towards = np.select([sign == ">", sign == "<"], [np.inf, -np.inf], bounds)
    with np.errstate(over="ignore"):  # above the largest float is infinity, which is absent
        values = pl.Series(np.nextafter(bounds, towards), nan_to_null=True)
    return numbers.scatter(unread, values)


def is_open_ended(text: pl.Series) -> pl.Series:
    """Whether each value is an open-ended number, such as > 89 or 90+."""
    text = unnamed(text)
    is_open = text.str.contains(OPEN_ENDED)
    return is_open & as_numbers(text.set(~is_open, None)).is_not_null()


def _plain_numbers(text: pl.Series) -> pl.Series:
    plain = pl.when(text.str.contains(THOUSANDS)).then(text.str.replace_all(",", "")).otherwise(text)
    return pl.select(plain).to_series().cast(pl.Float64, strict=False)


def numbers_of(series: pl.Series, field: Field, missing: Iterable[str], *, file: str | None) -> NDArray[np.float64]:
    """A column as floats, NaN where absent; a word that is neither a number nor declared missing is an error."""
    missing = frozenset(missing)
    values_N = _as_floats(series, field, missing, file)
    sentinels = _numbers_among(missing)
    return np.where(np.isin(values_N, sentinels), np.nan, values_N) if sentinels else values_N


@cache
def _numbers_among(words: frozenset[str]) -> list[float]:
    """The numbers among the words for missing values, such as 999 for an unknown age."""
    numbers = pl.Series(sorted(words), dtype=pl.String).cast(pl.Float64, strict=False)
    return numbers.filter(numbers.is_finite()).to_list()


def _as_floats(series: pl.Series, field: Field, missing: frozenset[str], file: str | None) -> NDArray[np.float64]:
    if series.dtype.is_temporal():
        remedy = "give it the role `time:`, put it under `ignore:`, or turn it into a duration first"
        raise InputError("a date or time is not a number", file=file, column=series.name, remedy=remedy)
    if series.dtype.is_numeric() or series.dtype == pl.Boolean:
        return unnamed(series).cast(pl.Float64).to_numpy()  # null becomes NaN
    if series.dtype == pl.Null:
        return np.full(len(series), np.nan)
    text = unnamed(series).cast(pl.String)
    values = text.cast(pl.Float64, strict=False)
    if values.null_count() > text.null_count():
        text = text.str.strip_chars()
        # also "> 89", where it is declared missing
        text = text.set(text.str.to_lowercase().is_in(["", *missing]), None)
        values = as_numbers(text)
        failed = text.is_not_null() & values.is_null()
        if failed.any():
            word, count = text.filter(failed).alias("word").value_counts(sort=True).row(0)
            raise InputError(
                f"field {field.name!r} is a number, but {count:,} of {len(series):,} values in this batch are not",
                file=file,
                column=series.name,
                value=word,
                remedy="if the word means missing, add it to the field's `absent:`; if the column contains names "
                "or codes, change its kind to `category`",
            )
    return values.to_numpy()


def text_of(series: pl.Series, missing: Iterable[str]) -> pl.Series:
    """A column as cleaned text, null where missing."""
    words = words_of(series, missing)
    ids_N = np.full(len(series), len(words.vocabulary))  # the index of null, past the words
    ids_N[words.rows] = words.ids
    return pl.Series([*words.vocabulary, None], dtype=pl.String).gather(ids_N).alias(series.name)
