"""`questions:` of a task file: what is asked, how it is worded, and how much of it is learned and held out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field as Setting
from pydantic import model_validator

from tefm.base.settings import Retired, Settings
from tefm.language.prompts import pieces

#: As the field of `next`: every field of the schema.
EVERY = "*"
#: What a template may leave open.
PLACEHOLDERS = ("record", "title", "value", "threshold", "horizon")
#: Pairs to learn from, unless the user says how many: with a GPU, and without one where there are texts to read.
GPU_PAIRS, TEXT_PAIRS = 320_000, 20_000
UNITS = {
    "second": 1,
    "minute": 60,
    "hour": 3_600,
    "day": 86_400,
    "week": 604_800,
    "month": 2_592_000,
    "year": 31_536_000,
}


class QuestionSettings(Settings):
    """One entry of `questions:`; with several values it is as many questions.

    Exactly one of `column` (of the last record), `next` (a field of the next record) and `within` (a time) is given;
    `within` may name the field with `event`.
    """

    #: a column that holds the answer, at the last record of a sequence
    column: str | None = None
    #: a field, of the next record; `*` is every field
    next: str | None = None
    #: a time, such as `30 days`: whether an event happens in it
    within: str | None = None
    #: with `within`: the field whose values are the events; None: any further record is one
    event: str | None = None
    #: the number of the most common values, or which ones; None: all of a column, the most common 50 of a field
    values: int | tuple[str, ...] | None = None
    #: for a number: yes where it is above this
    above: float | None = None
    #: also ask where the value has been recorded before; None: the next value of a category, which is one of all its
    #: values, but not a member of a set, since chronic conditions make any model look good
    again: bool | None = None
    #: the question in your own words; placeholders: {record}, {title}, {value}, {threshold}, {horizon}
    ask: str | None = Setting(default=None, min_length=1)

    RETIRED: ClassVar[Mapping[str, Retired]] = {
        "below": Retired(None, "ask whether the number is above this with `above`: the answer is no where it is not"),
        "template": Retired(None, "write it as `ask`, which knows the same placeholders"),
    }

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_versions(cls, given: Any) -> Any:
        """An entry is a part of `QuestionsConfig`, so it is checked for retired settings here."""
        if not isinstance(given, dict):
            return given
        for name, (default, instead) in cls.RETIRED.items():
            if given.get(name, default) != default:
                raise ValueError(f"the setting {name!r} was removed → {instead}")
        return cls.without_retired(given)

    @model_validator(mode="after")
    def _consistent(self) -> QuestionSettings:
        if sum(given is not None for given in (self.column, self.next, self.within)) != 1:
            raise ValueError(
                "a question is about one of `column`, `next` and `within` → write for example `next: diagnoses`"
            )
        if self.event is not None and self.within is None:
            raise ValueError("`event` needs a time → add `within: 30 days`, or use `next` for the next record")
        if self.above is not None and (self.next is None or self.values is not None):
            raise ValueError("`above` is for a number of the next record → use it with `next` alone")
        if isinstance(self.values, int) and self.values < 1:
            raise ValueError("`values` asks about at least one value → give 1 or more, or a list of values")
        if self.next == EVERY and (self.above is not None or isinstance(self.values, tuple)):
            raise ValueError("`next: '*'` is about every field → leave `above` and a list of values out")
        if self.within is not None:
            seconds_of(self.within)
        if self.ask is not None:
            try:
                pieces(self.ask, PLACEHOLDERS)
            except ValueError as error:
                known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
                raise ValueError(
                    f"the question has an unknown placeholder: {error} → use {known}; write {{{{ and }}}} for braces"
                ) from error
        return self


class QuestionsConfig(Settings):
    """All questions of a task. A plain list of entries is short for `asked:`.

    >>> QuestionsConfig.of([{"next": "diagnoses", "values": 20}]).asked[0].values
    20
    """

    asked: tuple[QuestionSettings, ...] = Setting(min_length=1)
    #: the share of the questions that training never sees: on them it is measured what new questions are worth; None:
    #: a fifth, but none of those about a category of which exactly one value is next
    hold_out: float | None = Setting(default=None, ge=0, lt=1)
    #: questions with fewer training histories that answer yes (or no) than this are left out
    least: int = Setting(default=20, ge=1)
    #: histories of a part of the data, at most, drawn at random
    histories: int = Setting(default=40_000, ge=1)
    #: pairs of a history and a question that the language model learns from, at most; 0: it learns none of them, and
    #: the fields answer alone; None: see `pairs_for`
    pairs: int | None = Setting(default=None, ge=0)
    #: histories that every question is measured on; a tenth as many with the answer yes come from the others
    scored: int = Setting(default=300, ge=1)

    RETIRED: ClassVar[Mapping[str, Retired]] = {
        "stand_ins": Retired(10, "leave it out: the ten most common questions are compared with held-out ones"),
        "scored_yes": Retired(30, "leave it out: it is a tenth of `scored`"),
    }

    @classmethod
    def as_stored(cls, given: Any) -> dict[str, Any]:
        """Settings of a model that an earlier version may have stored; it was fitted, and what was asked is known."""
        settings = {"asked": given} if isinstance(given, list) else given
        asked = [
            QuestionSettings.without_retired({"ask": entry.get("template"), **entry}) for entry in settings["asked"]
        ]
        return {**cls.without_retired(settings), "asked": asked}

    def pairs_for(self, *, gpu: bool, texts: bool) -> int:
        """The pairs to learn from: as many as a language model needs for rare questions, where there is a GPU.

        What two cores can learn in an hour is worse than what the fields say. Only texts are read by nothing else.
        """
        if self.pairs is not None:
            return self.pairs
        return GPU_PAIRS if gpu else TEXT_PAIRS if texts else 0

    @classmethod
    def of(cls, given: Any) -> QuestionsConfig:
        """Settings, or a list of entries."""
        return cls.checked({"asked": given} if isinstance(given, list | tuple) else dict(given))


def seconds_of(horizon: str) -> float:
    """A time such as `30 days` in seconds.

    >>> seconds_of("2 weeks"), seconds_of("1 day")
    (1209600.0, 86400.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*", horizon)
    if match is None or match[2] not in UNITS or float(match[1]) == 0:
        raise ValueError(f"{horizon!r} is not a time → write for example `30 days`, `12 hours` or `1 year`")
    return float(match[1]) * UNITS[match[2]]
