"""References: what a published source says about a value, from a table that the user supplies.

They are looked up and cited beside the features of a rationale, never written by a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tefm.base.errors import InputError, did_you_mean, listed

if TYPE_CHECKING:  # references are looked up without the libraries that read tables
    import polars as pl

    from tefm.tables.readers.table import Table

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
        #: by field, value or its beginning, and whether other endings count too
        self._known: dict[tuple[str, str, bool], list[Reference]] = {}
        for reference in self._references:
            key = (reference.field, reference.value.removesuffix("*"), reference.value.endswith("*"))
            self._known.setdefault(key, []).append(reference)

    def __len__(self) -> int:
        return len(self._references)

    def __iter__(self) -> Iterator[Reference]:
        return iter(self._references)

    def __repr__(self) -> str:
        return f"<References: {len(self)}>"

    def about(self, field: str, value: str) -> tuple[Reference, ...]:
        """The references about a value: exact ones first, then patterns, the longest first, in the table's order."""
        beginnings = [(field, value[:length], True) for length in range(len(value), -1, -1)]
        keys = [(field, value, False), *beginnings]
        return tuple(reference for key in keys for reference in self._known.get(key, ()))

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
        problem = f"a table of references needs the columns {listed(REQUIRED)}; it has {listed(table.columns)}"
        raise InputError(problem, file=table.name, column=missing[0], remedy=f"add or rename {listed(missing)}")
    if unknown:
        problem = "unknown column in a table of references"
        remedy = f"{did_you_mean(unknown[0], known)}; otherwise leave {listed(unknown)} out"
        raise InputError(problem, file=table.name, column=unknown[0], remedy=remedy)


def _texts(column: pl.Series, missing: Iterable[str], file: str) -> list[str]:
    texts = _clean(column, missing, file)
    if texts.null_count():
        row = int(texts.is_null().arg_true()[0])
        problem = f"the reference in row {row + 1} has no {column.name}"
        remedy = f"a reference needs {listed(REQUIRED)}: complete the row, or leave it out"
        raise InputError(problem, file=file, column=column.name, value=column[row], remedy=remedy)
    return texts.to_list()


def _weights(column: pl.Series, file: str) -> list[float | None]:
    from tefm.tables.schema import MISSING_WORDS

    texts = _clean(column, MISSING_WORDS, file)
    weights = texts.cast(float, strict=False)
    refused = (texts.is_not_null() & ~weights.is_finite().fill_null(False)).arg_true()
    if len(refused):
        problem = f"the weight of the reference in row {refused[0] + 1} is not a number"
        remedy = "write a number with a decimal point, such as 7 or -0.5, or leave the cell empty"
        raise InputError(problem, file=file, column=column.name, value=texts[refused[0]], remedy=remedy)
    return weights.to_list()


def _clean(column: pl.Series, missing: Iterable[str], file: str) -> pl.Series:
    """A column as clean text, spelled as the values of a field are: `428` where Parquet has the number 428.0."""
    from tefm.tables.grouping import role_column
    from tefm.tables.words import text_of

    return text_of(role_column(column.to_frame(), column.name, "reference", file), missing)
