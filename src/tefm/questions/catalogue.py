"""From settings, titles and value names to questions in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field as Setting

from tefm.base.errors import InputError, SettingsError, did_you_mean
from tefm.base.settings import Settings
from tefm.language.prompts import LONGEST_TEXT, filled, pieces
from tefm.questions.config import EVERY, PLACEHOLDERS, QuestionsConfig, QuestionSettings, seconds_of
from tefm.tables.mappers import CategoryMapper, FlagMapper, Mapper, NumberMapper, SetMapper
from tefm.tables.schema import FALSE_WORDS, TRUE_WORDS, Schema
from tefm.tables.vectorise import Vectoriser
from tefm.tables.words import text_of

#: Values of a field that are asked about when `values` is left out.
MOST_VALUES = 50
#: Values of a category, where all fields are asked about and `values` is left out.
FEW_VALUES = 5
#: Values of a column, which are classes: more than this are no classes.
MOST_CLASSES = 50
#: An entry with at least this many questions has some of them held out.
SEVERAL = 5

Kind = Literal["column", "next", "threshold", "within"]


class WordQuestion(Settings):
    """A question in words, and where its answer is found."""

    text: str = Setting(max_length=LONGEST_TEXT)
    kind: Kind
    #: the column (`column`) or the field whose answer it is; None: any further record (`within`)
    source: str | None = None
    #: the value that means yes; None for a threshold and for any further record
    value: str | None = None
    above: float | None = None
    #: the threshold of questions of earlier versions
    below: float | None = None
    #: asked also where the value was recorded before
    again: bool = False
    #: exactly one of the questions about this field is answered with yes
    one_of: bool = False
    #: seconds, of `within`
    horizon: float | None = None
    #: the entry of `questions:` that it comes from
    entry: int = 0


def catalogue(
    config: QuestionsConfig, vectoriser: Vectoriser, schema: Schema, frame: pl.DataFrame, *, file: str | None = None
) -> tuple[WordQuestion, ...]:
    """All questions of a task, as worded; `frame` is the training table, which says which values a column has."""
    questions = [
        question.model_copy(update={"entry": entry})
        for entry, asked in enumerate(config.asked)
        for question in _questions(asked, vectoriser, schema, frame, file=file)
    ]
    texts = Counter(normal(question.text) for question in questions)
    double = next((question.text for question in questions if texts[normal(question.text)] > 1), None)
    if double is not None:
        remedy = "give one of them other words with `ask`, for example with {title} in it"
        raise SettingsError("two questions have the same words", value=double, remedy=remedy)
    return tuple(questions)


def normal(text: str) -> str:
    """A question without what does not make it another one: case, blanks, the last mark.

    >>> normal("Next admission:  Heart failure? ") == normal("next admission: heart failure")
    True
    """
    return " ".join(text.lower().split()).rstrip("?!. ")


def _questions(
    asked: QuestionSettings, vectoriser: Vectoriser, schema: Schema, frame: pl.DataFrame, *, file: str | None
) -> list[WordQuestion]:
    if asked.column is not None:
        return of_column(asked, schema, frame, file=file)
    if asked.next == EVERY:
        measured = [mapper for f, mapper, _ in vectoriser.parts if not f.derived and f.name not in schema.static]
        of_fields = filter(None, (_about(asked, mapper, vectoriser.mappers) for mapper in measured))
        return [question for of in of_fields for question in _questions(of, vectoriser, schema, frame, file=file)]
    if asked.within is not None and schema.time is None:
        raise SettingsError(
            "an event within a time needs a time column", value=asked.within, remedy="add `time: COLUMN` to the schema"
        )
    horizon = None if asked.within is None else seconds_of(asked.within)
    words = {"record": schema.record, "horizon": asked.within or ""}
    name = asked.next or asked.event
    if name is None:
        text = _worded(asked, "Within {horizon}: another {record}?", words)
        return [WordQuestion(text=text, kind="within", again=True, horizon=horizon)]
    mappers = {mapper.field: mapper for mapper in vectoriser.mappers}
    if name not in mappers:
        remedy = did_you_mean(name, mappers)
        raise SettingsError("a question names a field that is not in the schema", value=name, remedy=remedy)
    mapper, words["title"] = mappers[name], vectoriser.table_schema.field(name).display_name
    if isinstance(mapper, NumberMapper):
        if asked.above is None:
            problem = "the field is a number: ask whether it is above a threshold"
            raise SettingsError(problem, value=name, remedy=f"write `{{next: {name}, above: {mapper.middle[-1]:g}}}`")
        text = _worded(asked, "Next {record}: {title} above {threshold}?", {**words, "threshold": f"{asked.above:g}"})
        return [WordQuestion(text=text, kind="threshold", source=name, above=asked.above)]
    if asked.above is not None:
        raise SettingsError("`above` is for numbers", value=name, remedy="ask about `values` of this field")
    when = "Next {record}" if asked.within is None else "Within {horizon}"
    what = {"set": "{value}", "category": "{title} {value}", "flag": "{title}"}[mapper.kind]
    kind = "next" if asked.within is None else "within"
    one_of = kind == "next" and isinstance(mapper, CategoryMapper) and asked.again is not False
    where = {"kind": kind, "source": name, "again": one_of or bool(asked.again), "one_of": one_of, "horizon": horizon}
    return _of_values(asked, f"{when}: {what}?", words, _values(asked, mapper), **where)


def _about(asked: QuestionSettings, mapper: Mapper, mappers: Sequence[Mapper]) -> QuestionSettings | None:
    """The entry about every field, for one of them; None for a number that is always the same.

    A number is compared with its median. A category has few values that come and go, so it is asked about always; a
    value of a set only where it is new, unless `again` is given.
    """
    if isinstance(mapper, NumberMapper):
        if len(mapper.middle) < 2:
            return None
        median = mapper.middle[(len(mapper.middle) - 1) // 2]
        return QuestionSettings(next=mapper.field, above=median, ask=asked.ask)
    if not isinstance(mapper, SetMapper):
        values: int | tuple[str, ...] | None = asked.values or FEW_VALUES
        if isinstance(mapper, CategoryMapper) and len(mapper.values) == 2:
            values = mapper.values[1:]  # the other one is its opposite
        return QuestionSettings(next=mapper.field, values=values, again=True, ask=asked.ask)
    several = sum(isinstance(other, SetMapper) for other in mappers) > 1
    ask = asked.ask or ("Next {record}: {title} {value}?" if several else None)
    return QuestionSettings(next=mapper.field, values=asked.values, again=asked.again, ask=ask)


def of_column(asked: QuestionSettings, schema: Schema, frame: pl.DataFrame, *, file: str | None) -> list[WordQuestion]:
    """One question per class of a column; of two classes that mean yes and no, one."""
    name = str(asked.column)
    if name not in frame.columns:
        remedy = did_you_mean(name, frame.columns)
        raise InputError("the column of a question is not in the table", file=file, column=name, remedy=remedy)
    if (field := schema.field_reading(name)) is not None:
        raise SettingsError(
            f"the answer to a question is also the field {field.name!r}: the codes would give it away",
            value=name,
            remedy="move the column to `ignore:` in the schema",
        )
    if name in schema.text:
        problem = "the answer to a question is also text that the model reads"
        raise SettingsError(problem, value=name, remedy="move the column from `text:` to `ignore:` in the schema")
    counts = Counter(text_of(frame[name], schema.missing_words).drop_nulls().to_list())
    if len(counts) < 2:
        problem, remedy = "the column of a question has fewer than two values", "leave the question out"
        raise InputError(problem, file=file, column=name, remedy=remedy)
    ordered = sorted(counts, key=lambda value: (-counts[value], value))
    yes = [value for value in ordered if value.lower() in TRUE_WORDS]
    no = [value for value in ordered if value.lower() in FALSE_WORDS]
    plain = len(counts) == 2 and len(yes) == len(no) == 1
    if isinstance(asked.values, tuple):
        chosen = [*asked.values]
        if unknown := next((value for value in chosen if value not in counts), None):
            problem, remedy = "the column does not have this value", did_you_mean(unknown, counts)
            raise InputError(problem, file=file, column=name, value=unknown, remedy=remedy)
    elif len(counts) == 2:
        chosen = yes if plain else ordered[1:]  # the rarer one: the other is its opposite
    elif asked.values is None and len(counts) > MOST_CLASSES:
        raise InputError(
            f"the column has {len(counts)} values: each would be a question",
            file=file,
            column=name,
            remedy="name some of them: `values: [a, b]`, or how many: `values: 10`",
        )
    else:
        chosen = ordered[: asked.values]
    words = {"record": schema.record, "title": name.replace("_", " ").strip()}
    template = "{title}?" if plain and not isinstance(asked.values, tuple) else "{title}: {value}?"
    return _of_values(asked, template, words, {value: value for value in chosen}, kind="column", source=name)


def _values(asked: QuestionSettings, mapper: CategoryMapper | SetMapper | FlagMapper) -> dict[str, str]:
    """The values of a field that are asked about, each in words: those named, or the most common ones.

    Where two have the same name, the value stands behind it.
    """
    if isinstance(mapper, FlagMapper):
        return {mapper.on: mapper.on}
    values = asked.values if isinstance(asked.values, tuple) else mapper.values[: asked.values or MOST_VALUES]
    if unknown := next((value for value in values if value not in mapper.values), None):
        raise SettingsError(
            f"{unknown!r} is not among the {len(mapper.values)} values of {mapper.field!r} that are told apart",
            value=unknown,
            remedy=did_you_mean(unknown, mapper.values),
        )
    words = {value: mapper.names.get(value, value) for value in values}
    often = Counter(normal(name) for name in words.values())
    return {value: f"{name} ({value})" if often[normal(name)] > 1 else name for value, name in words.items()}


def _of_values(
    asked: QuestionSettings, template: str, words: dict[str, str], values: dict[str, str], **where: Any
) -> list[WordQuestion]:
    """One question for each of these values, which are given with their words; `where` says what holds the answers."""
    if asked.ask is not None and "{value}" not in asked.ask and len(values) != 1:
        raise SettingsError(
            f"`ask` is one question, but the entry has {len(values)} values",
            value=asked.ask,
            remedy="name the value that means yes: `values: [VALUE]`, or write {value} in it",
        )
    return [
        WordQuestion(text=_worded(asked, template, {**words, "value": name}), value=value, **where)
        for value, name in values.items()
    ]


def _worded(asked: QuestionSettings, template: str, words: dict[str, str]) -> str:
    return filled(pieces(asked.ask or template, PLACEHOLDERS), words).strip()


def slot_of(vectoriser: Vectoriser, question: WordQuestion) -> tuple[int, int] | None:
    """The slot of a question's value, and the slot's value that means yes; None where no field tells it from others."""
    for _, mapper, own in vectoriser.parts:
        if mapper.field == question.source:
            if isinstance(mapper, FlagMapper):
                return own.start, 1
            if isinstance(mapper, NumberMapper) or question.value not in mapper.values:
                return None
            number = mapper.values.index(question.value)
            if isinstance(mapper, SetMapper):
                return own.start + (mapper.count is not None) + number, 1
            return own.start, 1 + number
    return None


def held_out_of(entries: Sequence[int], share: float, seed: int) -> NDArray[np.bool_]:
    """Which questions are held out of training, drawn at random; `entries` are the entries that they come from.

    Only entries with several questions (at least `SEVERAL`) have some of them held out: one that was asked for by
    itself is always learned.

    >>> held_out_of([0] * 10 + [1], 0.2, seed=0).sum(), held_out_of([0, 1, 2], 0.5, seed=0).any()
    (np.int64(2), np.False_)
    """
    held = np.zeros(len(entries), dtype=bool)
    counts = Counter(entries)
    several = np.array([counts[entry] >= SEVERAL for entry in entries], dtype=bool)
    candidates = np.flatnonzero(several)
    if len(candidates) and share > 0:
        count = max(1, round(share * len(candidates)))
        held[np.random.default_rng((seed, 15)).permutation(candidates)[:count]] = True
    return held
