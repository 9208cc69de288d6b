"""References: what a published source says about a value, from a table that the user supplies.

They are looked up and cited beside the features of a rationale, never written by a model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tefm.base.errors import InputError, did_you_mean, listed

if TYPE_CHECKING:  # references are looked up without the libraries that read tables
    import polars as pl

    from tefm.tables.readers.table import Table

__all__ = ["Reference", "References"]

#: The columns of a table of references.
REQUIRED = ("field", "value", "statement", "source")
OPTIONAL = ("weight",)


@dataclass(frozen=True)
class Reference:
    """What a source says about one value of a field, or about all values that begin in the same way."""

    field: str
    #: the value as the table of records writes it; with `*` at the end, every value that begins so
    value: str
    #: one sentence
    statement: str
    #: the citation
    source: str
    #: the number that the source gives the value, for example points in a score
    weight: float | None = None


class References:
    """References by field and value.

    A `*` at the end of a value stands for any ending, also an empty one; anywhere else it is an ordinary character.

    >>> heart = Reference("diagnoses", "428*", "Heart failure: 7 points.", "van Walraven 2009", 7)
    >>> acute = Reference("diagnoses", "428.21", "Acute systolic heart failure.", "ICD-9-CM")
    >>> references = References([heart, acute])
    >>> [reference.value for reference in references.about("diagnoses", "428.21")]
    ['428.21', '428*']
    >>> references.about("diagnoses", "42")
    ()
    """

    def __init__(self, references: Iterable[Reference] = ()) -> None:
        self._references = tuple(dict.fromkeys(references))
        self._exact: dict[tuple[str, str], list[Reference]] = {}
        self._beginnings: dict[tuple[str, str], list[Reference]] = {}
        self._longest = 0
        for reference in self._references:
            beginning = reference.value.removesuffix("*")
            if beginning == reference.value:
                self._exact.setdefault((reference.field, reference.value), []).append(reference)
            else:
                self._beginnings.setdefault((reference.field, beginning), []).append(reference)
                self._longest = max(self._longest, len(beginning))

    def __len__(self) -> int:
        return len(self._references)

    def __iter__(self) -> Iterator[Reference]:
        return iter(self._references)

    def __repr__(self) -> str:
        return f"<References: {len(self)}>"

    def about(self, field: str, value: str) -> tuple[Reference, ...]:
        """The references about a value: exact ones first, then patterns, the longest first, in the table's order."""
        matches = list(self._exact.get((field, value), ()))
        for length in range(min(len(value), self._longest), -1, -1):
            matches += self._beginnings.get((field, value[:length]), ())
        return tuple(matches)

    @classmethod
    def read(cls, path: str | Path) -> References:
        """The references in a table (CSV, Parquet …) with `field`, `value`, `statement`, `source` and maybe `weight`.

        Values are spelled as in the table of records: `428*` is every value that begins with 428, `428` only itself.
        """
        from tefm.tables.readers.table import open_table
        from tefm.tables.schema import MISSING_WORDS

        table = open_table(path)
        _check_columns(table)
        frame = table.frame()
        if not frame.height:
            raise InputError(
                "the table of references has no rows", file=table.name, remedy="write one row per reference"
            )
        # "none" may be a value of a field, but it is not a statement
        fields, values = (_texts(frame[name], (), table.name) for name in ("field", "value"))
        statements, sources = (_texts(frame[name], MISSING_WORDS, table.name) for name in ("statement", "source"))
        weights = _weights(frame["weight"], table.name) if "weight" in table.columns else [None] * frame.height
        return cls(map(Reference, fields, values, statements, sources, weights))


# ---- checks ---------------------------------------------------------------------------------------------------------


def _check_columns(table: Table) -> None:
    known = (*REQUIRED, *OPTIONAL)
    missing = [name for name in REQUIRED if name not in table.columns]
    unknown = [name for name in table.columns if name not in known]
    if missing:
        raise InputError(
            f"a table of references needs the columns {listed(REQUIRED)}; it has {listed(table.columns)}",
            file=table.name,
            column=missing[0],
            remedy=f"add or rename {listed(missing)}",
        )
    if unknown:
        raise InputError(
            "a table of references has no such column",
            file=table.name,
            column=unknown[0],
            remedy=f"{did_you_mean(unknown[0], known)}; otherwise leave {listed(unknown)} out",
        )


def _texts(column: pl.Series, missing: Iterable[str], file: str) -> list[str]:
    texts = []
    for row, text in enumerate(_cells(column, missing, file), start=1):
        if text is None:
            raise InputError(
                f"the reference in row {row} has no {column.name}",
                file=file,
                column=column.name,
                value=column[row - 1],
                remedy=f"a reference needs {listed(REQUIRED)}: complete the row, or leave it out",
            )
        texts.append(text)
    return texts


def _weights(column: pl.Series, file: str) -> list[float | None]:
    from tefm.tables.schema import MISSING_WORDS

    weights: list[float | None] = []
    for row, text in enumerate(_cells(column, MISSING_WORDS, file), start=1):
        try:
            weight = None if text is None else float(text)
        except ValueError:
            weight = math.nan
        if weight is not None and not math.isfinite(weight):
            raise InputError(
                f"the weight of the reference in row {row} is not a number",
                file=file,
                column=column.name,
                value=text,
                remedy="write a number with a decimal point, such as 7 or -0.5, or leave the cell empty",
            )
        weights.append(weight)
    return weights


def _cells(column: pl.Series, missing: Iterable[str], file: str) -> list[str | None]:
    """A column as clean text, spelled as the values of a field are: `428` where Parquet has the number 428.0."""
    from tefm.tables.words import text_of

    if column.dtype.is_nested():
        raise InputError(
            f"the column contains {column.dtype}, not text",
            file=file,
            column=column.name,
            remedy="write one value per row",
        )
    cells: list[str | None] = text_of(column, missing).to_list()
    return cells
