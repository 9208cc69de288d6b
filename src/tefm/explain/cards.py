"""What cards of explanations and of rationales share: words, JSON, templates.

Nothing here needs torch or the libraries that read tables, so that a stored card can be shown anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import TypeAdapter, ValidationError

from tefm.base.errors import InputError
from tefm.base.templates import environment


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


def plain(lines: Iterable[str]) -> str:
    """The lines of a card as text, without empty ones."""
    return "\n".join(printable(line) for line in lines if line)


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


@dataclass(frozen=True, repr=False, kw_only=True)
class Card:
    """One sequence and its answer, explained in words. Notebooks show it as a card; `print` gives it as text."""

    #: what it is called, and so its template
    kind: ClassVar[str]
    #: properties that are stored as well, for readers of the JSON
    stored: ClassVar[tuple[str, ...]]

    #: what the sequences are called (a patient, a host), and which one this is
    entity: str
    sequence: str
    #: what one record is called
    record: str
    classes: tuple[str, ...]
    #: the column that holds the classes
    label: str | None = None

    def named(self, name: str) -> str:
        """A class with its column: a bare 0 or yes says little."""
        return f"{self.label} = {name}" if self.label else name

    def numbered(self, records: Sequence[int]) -> str:
        """Some of the records in words, such as stays 1, 3."""
        return f"{self.record}{'s' if len(records) > 1 else ''} {ranges(records)}"

    def _repr_html_(self) -> str:
        """The card for a notebook: no scripts, no network, and styles that touch nothing else."""
        return rendered("notebook.html", card=self)

    def to_json(self) -> dict[str, Any]:
        """Plain types for `from_json`, with sentences added for readers."""
        body: dict[str, Any] = self._adapter().dump_python(self, mode="json")
        return body | {name: getattr(self, name) for name in self.stored}

    @classmethod
    def from_json(cls, body: Any) -> Self:
        """The card that `to_json` wrote."""
        try:
            card: Self = cls._adapter().validate_python(body)
            return card
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(
                f"not a valid {cls.kind}: {first['msg']}",
                column=".".join(map(str, first["loc"])) or None,
                remedy="use the unchanged output of `to_json` or `tefm explain --json`",
            ) from error

    @classmethod
    @cache
    def _adapter(cls) -> TypeAdapter[Any]:
        return TypeAdapter(cls)


def rendered(name: str, **values: object) -> str:
    """The HTML template of this name with these values."""
    return _environment().get_template(f"explain/{name}").render(**values)


_environment = cache(environment)
