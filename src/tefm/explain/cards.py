"""What cards of explanations and of rationales share: answers, words, JSON, templates.

Nothing here needs torch or the libraries that read tables, so that a stored card can be shown anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from tefm.base.errors import InputError
from tefm.base.templates import environment

Stored = TypeVar("Stored")


@dataclass(frozen=True)
class Answer:
    """The model's answer to some of the features."""

    #: the predicted class
    says: str
    #: per class
    probabilities: dict[str, float]

    @property
    def p(self) -> float:
        """The probability of the predicted class."""
        return self.probabilities[self.says]


@dataclass(frozen=True)
class TextPart:
    """Words of a text, and by how much the probability of a class falls when they are left out."""

    words: str
    change: float


def quoted(name: str) -> str:
    """A class name within a sentence, where a bare 1 or normal would be misread.

    >>> quoted("1")
    '“1”'
    """
    return f"“{name}”"


def printable(text: str) -> str:
    """Text from a user's table without characters that a terminal would obey.

    >>> printable("ward\\x1b[2J 7")
    'ward [2J 7'
    """
    return "".join(character if character.isprintable() else " " for character in text)


def ranges(numbers: Sequence[int]) -> str:
    """Rising numbers in words.

    >>> ranges([1, 2, 3, 5, 7, 8])
    '1–3, 5, 7–8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def from_stored(adapter: TypeAdapter[Stored], body: Any, what: str) -> Stored:
    """An explanation or a rationale from the JSON that it was stored as."""
    try:
        return adapter.validate_python(body)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(
            f"not a valid {what}: {first['msg']}",
            column=".".join(map(str, first["loc"])) or None,
            remedy="use the unchanged output of `to_json` or `tefm explain --json`",
        ) from error


def rendered(name: str, **values: object) -> str:
    """The HTML template of this name with these values."""
    return _environment().get_template(f"explain/{name}").render(**values)


_environment = cache(environment)
