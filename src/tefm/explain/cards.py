"""What cards of explanations and of rationales share: features in words, JSON, templates.

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
from tefm.tables.references import Reference


@dataclass(frozen=True)
class TextPart:
    """Words of a text, and by how much the probability of a class falls when they are left out."""

    words: str
    change: float


@dataclass(frozen=True)
class Finding:
    """A condition of a rule, or a feature of one record, in words."""

    #: starts at 1; of several, the last one
    record: int
    field: str
    #: its value as the table has it: a member of a set, a category; empty where there is none or several
    value: str
    words: str
    #: whether the record has no value there
    absent: bool = False
    #: what the user's references say about it
    references: tuple[Reference, ...] = ()
    #: whether it is about a set: a member of it, or an empty one
    of_set: bool = False
    #: what the codes give back in its place, in words, empty where they give back nothing; None where they keep it
    decoded: str | None = None
    #: which records it is about, where that is not a single one: "in all stays"; empty for a field of the entity
    when: str | None = None


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


def place_of(record: str, back: int) -> str:
    """A record by how many follow it.

    >>> place_of("stay", 0), place_of("stay", 2)
    ('last stay', '2 stays before the last')
    """
    return f"{back} {record}{'s' if back > 1 else ''} before the last" if back else f"last {record}"


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
    #: how many records the sequence has
    records: int
    classes: tuple[str, ...]
    #: the column that holds the classes
    label: str | None = None

    def named(self, name: str) -> str:
        """A class with its column: a bare 0 or yes says little."""
        return f"{self.label} = {name}" if self.label else name

    def numbered(self, records: Sequence[int]) -> str:
        """Some of the records in words, such as stays 1, 3."""
        return f"{self.record}{'s' if len(records) > 1 else ''} {ranges(records)}"

    # ---- its features -----------------------------------------------------------------------------------------

    def placed(self, finding: Finding) -> str:
        """A feature with its records, where there are several."""
        return finding.words + self.place(finding)

    def place(self, finding: Finding) -> str:
        """The records of a feature in brackets, counted from the last one."""
        return "".join(f" ({when})" for when in self.when(finding))

    def when(self, finding: Finding) -> list[str]:
        """The records of a feature in words; none where there is only one record, or where the entity has it."""
        when = place_of(self.record, self.records - finding.record) if finding.when is None else finding.when
        return [when] if when and self.records > 1 else []

    @property
    def lossy(self) -> list[Finding]:
        """The features on the card that the codes do not keep as they are."""
        raise NotImplementedError

    @property
    def blurred(self) -> str:
        """These features in words, and what the codes give back in their place; empty where they keep all."""
        listed = "; ".join(
            f"{self.placed(of)} ({f'read as {quoted(of.decoded)}' if of.decoded else 'lost'})" for of in self.lossy
        )
        return f"The codes that the model reads blur: {listed}." if listed else ""

    # ---- as JSON and in a notebook ----------------------------------------------------------------------------

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
