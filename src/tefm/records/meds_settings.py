"""How the events of a MEDS folder (Medical Event Data Standard) become records: part of a schema, and of a task."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal

from pydantic import Field as Setting
from pydantic import field_validator

from tefm.base.settings import Settings

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


class MedsRecords(Settings):
    """What one record is, and its columns; what is left out is found in the folder.

    >>> MedsRecords(records="window", window="36h").span
    datetime.timedelta(days=1, seconds=43200)
    """

    records: Literal["visit", "window"] = "visit"
    #: how long a window is: 12h, 7d, 4w
    window: str = "7d"
    #: the column that names the visit of an event
    visit: str | None = None
    #: codes (or what they begin with, up to a //) that begin a visit, where no column names it
    starts: tuple[str, ...] | None = Setting(default=None, min_length=1)
    #: vocabularies, which is what a code begins with: one set field each
    sets: tuple[str, ...] | None = None
    #: codes whose numeric value is a field
    numbers: tuple[str, ...] | None = None
    #: where `numbers` is left out, so many of the most frequent codes that have values
    most: int = Setting(default=50, ge=0)
    #: which value of several in a record counts
    value: Literal["last", "first", "mean", "min", "max"] = "last"
    #: whether the folder knows when subjects were born
    age: bool | None = None

    @field_validator("window")
    @classmethod
    def _is_duration(cls, text: str) -> str:
        if not re.fullmatch(r"[1-9]\d*[hdw]", text):
            raise ValueError("a window is a number with h, d or w, such as 12h, 7d or 4w")
        return text

    @property
    def span(self) -> timedelta:
        """How long a window is."""
        return timedelta(**{_UNITS[self.window[-1]]: int(self.window[:-1])})
