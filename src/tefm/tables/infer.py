"""A first schema from the data: what each column probably is, and why.

Every guess is printed and written to YAML, where a person can correct it. A column is left out (`ignore`) only if it
cannot help: empty, constant, an identifier, free text or a date.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl

from tefm.base.errors import InputError, SchemaError
from tefm.tables.grouping import role_column
from tefm.tables.overview import static_fields
from tefm.tables.readers.meds import LABEL, SUBJECT, TIME, with_meds
from tefm.tables.readers.source import unnamed
from tefm.tables.readers.table import Table, open_table
from tefm.tables.schema import FALSE_WORDS, MISSING_WORDS, TRUE_WORDS, Field, Kind, NumberLabel, Schema
from tefm.tables.words import as_numbers, is_open_ended, text_of

#: Rows sampled, and the first rows they are drawn from: a file sorted by time starts with outdated conventions.
SAMPLE = 20_000
SPREAD = 500_000
#: At most this many cells are read for the sample.
CELLS = 50_000_000
#: Unexpected words kept per column while all rows are read.
MOST_ODD = 1_000
#: A column with at least this share of numbers is a number; its other words mean absent.
NUMERIC_SHARE = 0.95
#: A text column with more distinct values than this share of its rows is an identifier.
IDENTIFIER_SHARE = 0.9
#: With so few rows, distinct values in all of them do not make an identifier.
FEW = 20
#: A number column has at most this many words that mean absent; with more, it is a column of codes.
MOST_WORDS = 3
#: The limit is higher for words so rare that the sample missed them: a long table has more typing errors.
MOST_RARE_WORDS = 20
#: Text is a list if this share of its items occurs in more than one row (not so the years of 2024;00017).
REPEATED_SHARE = 0.15
#: Integers in a column with such a name are codes, not quantities.
CODE_NAME = re.compile(r"(^|[_\s:])(id|code|type|class|category|icd\d*|zip|port|resource)$", re.IGNORECASE)
#: Integers in a column with such a name, and with more than MOST_CODES different values, identify something.
IDENTIFIER_NAME = re.compile(r"(?:^|[_\s.:-])(?i:id|ids|uuid|guid|key|nbr|nr|no|number|identifier)$|(?<=[a-z])I[dD]$")
MOST_CODES = 300
#: A label that is a number is predicted as one if it has more different values than this.
MANY_NUMBERS = 20
#: An identifier with at least ten rows per value, such as an item, is a category of its most frequent values.
ITEM_SHARE = 0.1
#: Rows needed to tell a counter from a measurement that happens to be different in each row.
COUNTED_ROWS = 200
#: Text with more different values than this, in more than this share of its rows, is titles or an identifier.
MOST_TITLES, TITLE_SHARE = 1_000, 0.3
ENTITY_NAME = re.compile(  # the last ones are those of event logs
    r"^(patient|subject|customer|user|account|client|member|person|host)([_\s]?(id|nbr|no|number|key))?$"
    r"|^case[_\s]?(id|nbr|no|number|key)$|^case:concept:name$",
    re.IGNORECASE,
)
#: The time in event logs.
TIME_NAME = re.compile(r"^time:timestamp$", re.IGNORECASE)
LABEL_NAME = re.compile(r"^(label|labels|target|class|outcome|y)$", re.IGNORECASE)
NUMBERED = re.compile(r"^(.*?)[_\s]?(\d+)$")
DELIMITERS = (";", "|", ",")
DATE = re.compile(r"^(\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2})?|\d{1,2}\.\d{1,2}\.\d{4}(\s|$))")
UNCLEAR_DATE = re.compile(r"^\d{1,2}[./-]\d{1,2}[./-]\d{4}(\s|$)")
DECIMAL_COMMA = re.compile(r"^[-+]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?$")
#: How to overrule a guess.
AS_CATEGORY = "to use it, move it from `ignore` to `fields` as a category"
DATES = "a date or time: use it with --time to order records, or write it under `fields` as a date"
AS_NUMBER = "if it is a quantity, write it under `fields` as a number"
#: What people write in an empty cell.
DASHES = frozenset(("-", "--", "–", "—"))


@dataclass(frozen=True)
class Guess:
    """What a column probably is (a field, a role or ignored), and why."""

    column: str
    kind: str
    why: str
    distinct: int
    missing: float
    field: Field | None = None


def infer_schema(
    source: Any, *, entity: str | None = None, time: str | None = None, label: str | None = None
) -> Schema:
    """A schema guessed from a sample of a table's first rows, and corrected so that all rows can be read with it.

    >>> import polars as pl
    >>> columns = {"age": [31.5, 40.0, 52.2], "ward": ["A", "B", "B"], "sepsis": ["no", "yes", "no"]}
    >>> table = pl.DataFrame(columns)
    >>> [(field.name, field.kind) for field in infer_schema(table).fields]
    [('age', 'number'), ('ward', 'category'), ('sepsis', 'flag')]
    """
    return schema_of(open_table(source), entity=entity, time=time, label=label)[0]


def schema_of(
    table: Table, *, entity: str | None = None, time: str | None = None, label: str | None = None
) -> tuple[Schema, list[Guess]]:
    """The schema, and the guess for each column."""
    if table.meds is not None:
        entity, time = entity or SUBJECT, time or TIME
        label = label or (LABEL if LABEL in table.columns else None)
    for role, name in (("entity", entity), ("time", time), ("label", label)):
        if name is not None:
            role_column(table.head(0), name, role, table.name)
    frame = sample_of(table)
    if frame.height == 0:
        raise InputError("the table has no rows", file=table.name, remedy="inferring a schema needs at least one row")
    entity = entity or _named(frame, ENTITY_NAME, repeated=True)
    time = time or (entity and _named(frame, TIME_NAME))
    label = label or _named(frame, LABEL_NAME, taken=(entity,))
    named = [(role, name) for role, name in (("entity", entity), ("time", time), ("label", label)) if name is not None]
    roles = {name: role for role, name in named}
    if len(roles) < len(named):
        pairs = ", ".join(f"{role} {name!r}" for role, name in named)
        raise InputError(f"one column has two roles: {pairs}", file=table.name, remedy="give each role its own column")
    number = None if label is None else _number_label(frame[label])
    why = dict.fromkeys(roles, "by its name, or as specified")
    if label is not None and number is not None:
        why[label] += "; predicted as a number (`kind: category` for classes)"
    guesses = [
        _guessed(frame[name], why[name], frame[name].n_unique(), roles[name]) if name in roles else _guess(frame[name])
        for name in frame.columns
    ]
    if frame.height >= min(SAMPLE, _reach(table)):  # the table may have more rows
        guesses = _checked_on_all_rows(guesses, frame, table)
    fields = _with_sets([guess.field for guess in guesses if guess.field is not None], frame)
    if not fields:
        reasons = "; ".join(f"{guess.column}: {guess.why}" for guess in guesses[:5])
        raise SchemaError("no column of this table can be a field", file=table.name, remedy=f"columns: {reasons}")
    ignored = tuple(guess.column for guess in guesses if guess.kind == "ignore")
    schema = Schema(fields=tuple(fields), entity=entity, time=time, label=label, number=number, ignore=ignored)
    set_of = {column: field.name for field in fields if len(field.columns) > 1 for column in field.columns}
    guesses = [
        replace(guess, kind="set", why=f"one of the columns of the set {set_of[guess.column]!r}", field=None)
        if guess.column in set_of
        else guess
        for guess in guesses
    ]
    if table.meds is not None:
        schema = with_meds(schema, table.meds, Path(table.name))
    return _with_static(schema, guesses, table)


def _number_label(labels: pl.Series) -> NumberLabel | None:
    """How a label that is a number with many different values is predicted; None where it holds classes."""
    guess = _guess(labels)
    return NumberLabel() if guess.kind == "number" and guess.distinct > MANY_NUMBERS else None


def _with_static(schema: Schema, guesses: list[Guess], table: Table) -> tuple[Schema, list[Guess]]:
    """The schema with the fields of the entity, and the guesses that say so."""
    if schema.entity is None:
        return schema, guesses
    found = static_fields(table.head(_reach(table)), schema, table.name)
    reasons = {column: one.reason(schema.entity) for one in found for column in schema.field(one.field).source}
    guesses = [replace(g, why=f"{g.why}; {reasons[g.column]}") if g.column in reasons else g for g in guesses]
    return Schema.checked({**dict(schema), "static": tuple(one.field for one in found)}), guesses


def sample_of(table: Table) -> pl.DataFrame:
    """Up to `SAMPLE` rows in order, drawn at random from the start of a table (every n-th could hit a pattern)."""
    frame = table.head(_reach(table))
    if frame.height <= SAMPLE:
        return frame
    return frame[np.sort(np.random.default_rng(0).choice(frame.height, SAMPLE, replace=False))]


def _reach(table: Table) -> int:
    """The first rows of a table that a sample is drawn from."""
    return max(1, min(SPREAD, CELLS // max(1, len(table.columns))))


# ---- all rows -------------------------------------------------------------------------------------------------------


def _checked_on_all_rows(guesses: list[Guess], frame: pl.DataFrame, table: Table) -> list[Guess]:
    """The guesses, corrected if a row outside the sample contradicts one, so that the schema reads every row."""
    odd = {
        guess.column: pl.Series(guess.column, [], dtype=pl.String)
        for guess in guesses
        if guess.kind == "flag" or (guess.kind == "number" and frame[guess.column].dtype == pl.String)
    }
    at_risk = [guess for guess in guesses if guess.column in odd]
    for batch in table.batches([*odd]) if odd else ():
        for guess in at_risk:
            if len(new := _odd_words(batch[guess.column], guess)):
                words = pl.concat([odd[guess.column], new]).unique(maintain_order=True)
                # words that are not numbers decide what else the column can be, so they are kept first
                is_number = as_numbers(words).is_not_null()
                odd[guess.column] = words.gather(is_number.arg_sort()).head(MOST_ODD)
    return [
        _corrected(guess, frame[guess.column], odd[guess.column]) if len(odd.get(guess.column, ())) else guess
        for guess in guesses
    ]


def _odd_words(series: pl.Series, guess: Guess) -> pl.Series:
    """The words of a column that contradict its guess, each once."""
    assert guess.field is not None
    series = unnamed(series)
    missing = (*MISSING_WORDS, *(word.lower() for word in guess.field.absent))
    if guess.kind == "flag":
        words = text_of(series.unique(maintain_order=True), missing).drop_nulls()
        return words.filter(~words.str.to_lowercase().is_in([*TRUE_WORDS, *FALSE_WORDS]))
    numbers = series.cast(pl.Float64, strict=False)
    if numbers.null_count() == series.null_count():
        return series.clear()
    words = text_of(series.filter(numbers.is_null()).unique(maintain_order=True), missing).drop_nulls()
    return words.filter(as_numbers(words).is_null() | is_open_ended(words))


def _corrected(guess: Guess, sampled: pl.Series, odd: pl.Series) -> Guess:
    """The guess for a column when the words outside the sample are included."""
    is_open = is_open_ended(odd)
    if guess.kind == "number" and (~is_open).sum() <= MOST_RARE_WORDS:
        return _with_absent(_with_open_ended(guess, odd.filter(is_open)), tuple(odd.filter(~is_open).sort()))
    new = _guess(pl.concat([text_of(sampled, ()), odd]))
    return replace(new, missing=guess.missing, why=f"{new.why}; {odd[0]!r} is in a row outside the sample")


# ---- one column -----------------------------------------------------------------------------------------------------


def _named(
    frame: pl.DataFrame, pattern: re.Pattern[str], *, repeated: bool = False, taken: Sequence[str | None] = ()
) -> str | None:
    """The only column whose name matches; None if several do."""
    matches = [name for name in frame.columns if pattern.match(name.strip()) and name not in taken]
    matches = [name for name in matches if not frame[name].dtype.is_nested()]
    if repeated:
        matches = [name for name in matches if frame[name].n_unique() < frame.height]
    return matches[0] if len(matches) == 1 else None


def _guess(series: pl.Series, missing: Sequence[str] = MISSING_WORDS) -> Guess:
    """The kind of one column."""
    name = series.name
    if name.startswith("^") and name.endswith("$"):  # polars would take it for a pattern
        guess = _guess(unnamed(series), missing)
        return replace(guess, column=name, field=guess.field and guess.field.model_copy(update={"name": name}))
    if isinstance(series.dtype, pl.List):
        return _list(series)
    if series.dtype.is_temporal():
        return _guessed(series, DATES, series.drop_nulls().n_unique())
    words = text_of(series, missing)
    present = words.drop_nulls()
    counts = present.alias("word").value_counts(sort=True)  # a column may itself be called "count"
    distinct = counts.height
    if distinct == 0:
        return _guessed(words, "always missing", 0)
    if distinct == 1 and len(present) == len(words):  # if some are missing, being present is information
        return _guessed(words, f"always {counts['word'][0]!r}", 1)
    dashes = tuple(sorted(DASHES.intersection(counts["word"])))
    if dashes and distinct > 1 + len(dashes):  # with one other word, "+" or "x", a dash is a value
        return _with_absent(_guess(series, (*missing, *dashes)), dashes)
    lower = {word.lower() for word in counts["word"]} if distinct <= 2 else set()
    if lower & {*TRUE_WORDS} and lower <= {*TRUE_WORDS, *FALSE_WORDS}:
        return _guessed(words, "yes or no", distinct, "flag")
    numbers = as_numbers(present)
    open_ended = counts["word"].filter(is_open_ended(counts["word"]))
    mostly_open = len(open_ended) and 2 * len(open_ended) >= as_numbers(counts["word"]).count()  # >200, >300, normal
    if not mostly_open and numbers.null_count() <= (1 - NUMERIC_SHARE) * len(numbers):
        return _with_open_ended(_number(words, present, numbers, distinct), open_ended)
    guess = _text(words, present, distinct)
    commas = present.filter(present.str.contains(","))
    if len(commas) and present.str.contains(DECIMAL_COMMA.pattern).mean() >= NUMERIC_SHARE:  # type: ignore[operator]
        why = f"numbers with a decimal comma, such as {commas[0]!r}, are words here: write them with a point"
        return replace(guess, why=why)
    return guess


def _list(series: pl.Series) -> Guess:
    if series.dtype.inner.is_nested():  # type: ignore[attr-defined]
        return _guessed(series, "nested lists: flatten them to use them", 0)
    distinct = series.explode().drop_nulls().n_unique()
    if distinct == 0:
        return _guessed(series, "always missing", 0)
    return _guessed(series, "a list of values", distinct, "set")


def _number(words: pl.Series, present: pl.Series, numbers: pl.Series, distinct: int) -> Guess:
    name = words.name
    values = numbers.drop_nulls()
    is_identifier = IDENTIFIER_NAME.search(name) is not None
    if bool((values.is_finite() & (values == values.round())).all()):
        if (
            (is_identifier or CODE_NAME.search(name))
            and len(values) > FEW
            and distinct > IDENTIFIER_SHARE * len(values)
        ):
            return _guessed(words, f"a different number in nearly every row: an identifier; {AS_CATEGORY}", distinct)
        if CODE_NAME.search(name) and distinct <= MOST_CODES:
            return _guessed(words, "integers that look like codes", distinct, "category")
        if is_identifier and distinct > MOST_CODES:
            return _item(words, len(values), distinct)
        if _is_counter(values, distinct, len(words)):
            return _guessed(words, f"counts the rows, or numbers them in order; {AS_NUMBER}", distinct)
    odd = tuple(sorted(set(present.filter(numbers.is_null())))) if numbers.null_count() else ()
    if len(odd) > MOST_WORDS:  # codes such as ICD: 250.01, 428, V45, E878
        return _text(words, present, distinct)
    return _with_absent(_guessed(words, "numbers", distinct, "number"), odd)


def _item(words: pl.Series, rows: int, distinct: int) -> Guess:
    """An identifier: the most frequent values where each has many rows, nothing otherwise."""
    if distinct > ITEM_SHARE * rows:
        why = f"an identifier, by its name, with {distinct:,} values in {rows:,} rows; if it groups the records, "
        why += f"--entity {words.name}; {AS_CATEGORY}"
        return _guessed(words, why, distinct)
    most = Field(name=words.name, kind="category").limit
    why = f"an identifier, by its name: its {most} most frequent values (`top:`); {AS_NUMBER}"
    return _guessed(words, why, distinct, "category")


def _is_counter(values: pl.Series, distinct: int, rows: int) -> bool:
    """Whether whole numbers count the rows: different in each, and either in order or without large gaps."""
    if rows < COUNTED_ROWS or len(values) < rows or distinct < rows:
        return False
    steps, numbers = values.diff().drop_nulls(), values.to_numpy()
    in_order = (steps > 0).all() or (steps < 0).all()
    return bool(in_order) or bool(np.ptp(numbers) < 2 * rows)


def _text(words: pl.Series, present: pl.Series, distinct: int) -> Guess:
    if present.head(200).str.contains(DATE.pattern).mean() == 1:
        return _guessed(words, DATES, distinct)
    if present.head(200).str.contains(UNCLEAR_DATE.pattern).mean() == 1:
        why = f"dates such as {present[0]!r}, day or month first: write them like 2024-01-31 to use them"
        return _guessed(words, why, distinct)
    for delimiter in DELIMITERS:
        if present.str.contains(delimiter, literal=True).mean() >= 0.3:  # type: ignore[operator]
            items = present.str.split(delimiter).list.eval(pl.element().str.strip_chars()).list.unique().explode()
            rows_each = items.alias("item").value_counts(name="rows")["rows"]
            share = float((rows_each > 1).mean())  # type: ignore[arg-type]
            is_list = delimiter != "," or _is_listed(present, share, distinct > len(rows_each))
            if share >= REPEATED_SHARE and is_list:
                why = f"values separated by {delimiter!r}"
                return _guessed(words, why, len(rows_each), "set", delimiter=delimiter)
    lengths = present.str.split(" ").list.len()
    if distinct > 0.5 * len(present) and float(np.median(lengths)) > 6:
        return _guessed(words, "free text: list it under `text:` to pass it to the prompt", distinct)
    if len(present) > FEW and distinct > IDENTIFIER_SHARE * len(present):
        return _guessed(words, f"a different value in nearly every row: an identifier; {AS_CATEGORY}", distinct)
    if distinct > MOST_TITLES and distinct > TITLE_SHARE * len(present):
        is_text = float(np.median(lengths)) > 1
        what = "titles, which `text:` passes to the prompt" if is_text else "an identifier"
        why = f"{distinct:,} different values in {len(present):,} rows: {what}; {AS_CATEGORY}"
        return _guessed(words, why, distinct)
    return _guessed(words, "words", distinct, "category")


def _is_listed(present: pl.Series, share: float, is_mixed: bool) -> bool:
    """Whether text with commas is a list: most items come again, in other mixtures ("Portland, OR" is none)."""
    return is_mixed and share >= 0.5 and present.str.count_matches(",").n_unique() > 1


def _guessed(column: pl.Series, why: str, distinct: int, kind: str = "ignore", **settings: Any) -> Guess:
    """What a column is: a role, ignored, or a field with these settings."""
    field = None
    if kind in get_args(Kind):
        field = Field.model_validate({"name": column.name, "kind": kind, **settings})
    return Guess(column.name, kind, why, distinct, column.null_count() / len(column), field)


def _with_absent(guess: Guess, odd: tuple[str, ...]) -> Guess:
    """The guess, with these words of the column meaning absent."""
    if guess.field is None or not odd:
        return guess
    field = guess.field.model_copy(update={"absent": (*guess.field.absent, *odd)})
    return replace(guess, field=field, why=f"{guess.why}; counted as absent: {', '.join(map(repr, odd[:3]))}")


def _with_open_ended(guess: Guess, words: pl.Series) -> Guess:
    """The guess, with how open-ended values are read."""
    if guess.kind != "number" or not len(words) or "open-ended" in guess.why:
        return guess
    read = [f"{word!r} {_as_read(word)}" for word in words.sort().head(3)]
    return replace(guess, why=f"{guess.why}; open-ended: {', '.join(read)}")


def _as_read(word: str) -> str:
    """How an open-ended value is read: as in `as_numbers`."""
    number = word.strip("<>=≤≥+ ")
    if word.startswith((">", "<")) and "=" not in word:
        return f"is just {'above' if word.startswith('>') else 'below'} {number}"
    return f"is {number}"


def _with_sets(fields: list[Field], frame: pl.DataFrame) -> list[Field]:
    """Numbered columns with the same words (diag_1, diag_2, diag_3) as one set."""
    stems: dict[str, list[Field]] = {}
    for field in fields:
        numbered = NUMBERED.match(field.name)
        if field.kind == "category" and numbered and numbered[1]:
            stems.setdefault(numbered[1], []).append(field)
    sets = {}
    for stem, members in stems.items():
        if len(members) > 1 and _share_words([frame[member.name] for member in members]):
            joined = Field(name=stem.strip("_ "), kind="set", columns=tuple(member.name for member in members))
            if joined.name not in {field.name for field in fields}:
                sets[members[0].name] = joined
    inside = {column for joined in sets.values() for column in joined.columns}
    return [sets.get(field.name, field) for field in fields if field.name in sets or field.name not in inside]


def _share_words(columns: list[pl.Series]) -> bool:
    """Whether the columns have many frequent words, and most of them in common."""
    tops = [
        set(text_of(column, MISSING_WORDS).drop_nulls().alias("word").value_counts(sort=True)["word"][:50])
        for column in columns
    ]
    common, together = set.intersection(*tops), set.union(*tops)
    return len(together) > 10 and len(common) >= 0.25 * len(together)
