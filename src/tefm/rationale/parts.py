"""The parts of a rationale: answers of the model, selected features in words, bars.

The words come from the schema by template. Statements, decoded values and the text contain selected slots only. Bars
show the ranking, which includes slots that were not selected; these are marked as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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


@dataclass(frozen=True)
class Retention:
    """How many slots were selected, how many have a value, and how many there are."""

    kept: int
    present: int
    slots: int

    @property
    def of_slots(self) -> float:
        """The selected share of all slots."""
        return self.kept / max(self.slots, 1)

    @property
    def of_present(self) -> float:
        """The selected share of the slots that have a value."""
        return self.kept / max(self.present, 1)


@dataclass(frozen=True)
class KeptStatement:
    """The selected slots of one field in words, with the largest of their weights."""

    field: str
    group: str | None
    words: str
    slots: tuple[int, ...]
    weight: float

    @property
    def within(self) -> str:
        """The words as they appear under the heading of their group, without repeating the group's name."""
        return self.words.removeprefix(f"{self.group}: ") if self.group else self.words


@dataclass(frozen=True)
class Bar:
    """A slot with a value, and its weight in the ranking: 1 for the highest of the sequence."""

    #: field and value; for a set, one of its members
    words: str
    weight: float
    kept: bool


@dataclass(frozen=True)
class RationaleRecord:
    """What was selected from one record."""

    #: starts at 1
    number: int
    #: its time or name
    label: str | None
    #: the codes of the whole record, as tokens
    codes: str
    statements: tuple[KeptStatement, ...]
    #: the slots of each statement as decoded from those codes; empty where none of them come back
    decoded: tuple[str, ...]
    bars: tuple[Bar, ...]

    @property
    def groups(self) -> dict[str | None, list[KeptStatement]]:
        """The statements by group, in the order of the schema."""
        groups: dict[str | None, list[KeptStatement]] = {}
        for statement in self.statements:
            groups.setdefault(statement.group, []).append(statement)
        return groups

    @property
    def text(self) -> str:
        """One sentence per group."""
        sentences = [
            (f"{group}: " if group else "") + "; ".join(statement.within for statement in statements) + "."
            for group, statements in self.groups.items()
        ]
        return " ".join(sentences) or "No features selected."

    @property
    def decoded_text(self) -> str:
        """The selected slots as decoded from the codes; differences from the record are in brackets."""
        texts = []
        for statement, decoded in zip(self.statements, self.decoded, strict=True):
            if decoded == statement.words:
                texts.append(decoded)
            elif decoded:
                value = statement.words.partition(": ")[2]  # both begin with the name of the field
                texts.append(f"{decoded} [recorded: {value}]")
            else:
                texts.append(f"[lost: {statement.words}]")
        return "; ".join(texts)

    @property
    def lossless(self) -> bool:
        """Whether the codes preserve every selected slot."""
        return all(decoded == statement.words for statement, decoded in zip(self.statements, self.decoded, strict=True))

    @property
    def unshown(self) -> int:
        """The number of selected slots without a bar."""
        return sum(len(statement.slots) for statement in self.statements) - sum(bar.kept for bar in self.bars)


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
