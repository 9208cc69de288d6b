"""`Trajectory`: the fields of a sequence over time, and the probability after each record, as small pictures.

It needs neither torch nor the libraries that read tables, like the explanation that it belongs to. The pictures are
inline SVG (`templates/trajectory.html`); here is where their points lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

#: The width of a picture, its height for numbers and for events, and what stays free above and below.
WIDTH, NUMBERS, EVENTS, MARGIN = 600, 40, 18, 5


@dataclass(frozen=True)
class Lane:
    """One field over the records."""

    title: str
    kind: Literal["number", "category", "flag"]
    #: of each record: a number, or 1 where there is a value; None where there is none
    values: tuple[float | None, ...]
    #: the value of each record in words
    words: tuple[str, ...]
    #: the places of the values that the rule is about
    cited: tuple[int, ...] = ()
    #: of a number, between which values eight of ten records of the training population lie
    band: tuple[float, float] | None = None

    @property
    def height(self) -> int:
        return NUMBERS if self.kind == "number" else EVENTS

    def y(self, value: float | None) -> float:
        """How far below the top a value lies; one that is missing lies at the bottom."""
        if value is None:
            return self.height - 1
        if self.kind != "number":
            return self.height / 2
        known = [*(one for one in self.values if one is not None), *(self.band or ())]
        low, high = min(known), max(known)
        return _below(value, low, high) if high > low else self.height / 2

    @property
    def points(self) -> Iterator[tuple[float, float, str]]:
        """Where the value of each record lies, and the value in words; records without one are left out."""
        for place, (value, words) in enumerate(zip(self.values, self.words, strict=True)):
            if value is not None:
                yield place_of_record(place, len(self.values)), self.y(value), words

    @property
    def changes(self) -> tuple[bool, ...]:
        """Of each point, whether the value is another than the one before; of an event, every one is news."""
        if self.kind == "flag":
            return (True,) * len(self.values)
        words = [words for value, words in zip(self.values, self.words, strict=True) if value is not None]
        return (True, *(now != before for before, now in pairwise(words)))

    @property
    def marks(self) -> Iterator[tuple[float, float, str]]:
        """Where the cited values lie, and what they are."""
        for place in self.cited:
            yield place_of_record(place, len(self.values)), self.y(self.values[place]), self.words[place]


@dataclass(frozen=True)
class Trajectory:
    """The last records of a sequence: some of its fields, and what the model would have said after each of them."""

    #: the number of the first record that is drawn, from 1 on, and how many are
    first: int
    count: int
    #: the fields that the rule is about come first
    lanes: tuple[Lane, ...]
    #: how many more fields change over these records
    others: int
    #: the number of a record, and the probability of the answer after it; empty where earlier texts are not known
    p: tuple[tuple[int, float], ...] = ()
    #: from which record on the model has given its answer
    since: int | None = None

    height = NUMBERS

    @property
    def points(self) -> list[tuple[float, float, str]]:
        """Where the probability after each record lies, and the probability in words."""
        return [
            (place_of_record(number - self.first, self.count), _below(p, 0, 1), f"after {number}: {p:.2f}")
            for number, p in self.p
        ]


def place_of_record(place: int, count: int) -> float:
    """How far from the left a record lies."""
    return WIDTH * (place + 0.5) / count


def _below(value: float, low: float, high: float) -> float:
    return NUMBERS - MARGIN - (NUMBERS - 2 * MARGIN) * (value - low) / (high - low)
