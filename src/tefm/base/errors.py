"""The errors a user can meet, in a small hierarchy.

Every message names the file, column and value concerned, and what to do next.
Any other exception that escapes from `tefm` is a bug.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Characters of a value or of a name that a message shows, at most.
SHOWN = 500
#: The exceptions of a library.
Kinds = type[Exception] | tuple[type[Exception], ...]


class TefmError(Exception):
    """The base of all errors that `tefm` raises on purpose."""

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        column: str | None = None,
        value: object = None,
        remedy: str | None = None,
    ) -> None:
        self.problem = problem
        self.file = str(file) if file is not None else None
        self.column = column
        self.value = value
        self.remedy = remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        context = [] if self.file is None else [f"file {self.file}"]
        quoted = {"column": self.column, "value": self.value}
        context += [f"{name} {shortened(repr(value))}" for name, value in quoted.items() if value is not None]
        message = self.problem
        if context:
            message += f" [{', '.join(context)}]"
        if self.remedy:
            message += f"\n  → {self.remedy}"
        return message


class InputError(TefmError, ValueError):
    """The user's table cannot be read or does not match the fitted model."""


class SchemaError(TefmError, ValueError):
    """The schema is malformed or contradicts the table."""


class SettingsError(TefmError, ValueError):
    """A setting is out of range or two settings contradict each other."""


class NotFittedError(TefmError, ValueError, AttributeError):
    """Something was used before it was fitted, or that the model was fitted without.

    As in scikit-learn it is also an `AttributeError`: `hasattr` and `dir` leave out what a model does not have.
    """


class ArtefactError(TefmError, ValueError):
    """A saved folder is damaged, incomplete, or was written by something else."""


class MissingExtraError(TefmError, ImportError):
    """An optional dependency is needed for this call."""


class TefmWarning(UserWarning):
    """Something a user should know that does not stop the run."""


@contextmanager
def extra(name: str, problem: str, *, file: str | Path | None = None) -> Iterator[None]:
    """Around the imports of an optional extra: the error says how to install it. `{package}` is what is missing."""
    try:
        yield
    except ImportError as error:
        remedy = f"pip install 'tefm[{name}]'"
        raise MissingExtraError(problem.format(package=error.name), file=file, remedy=remedy) from error


@contextmanager
def failing_as(kinds: Kinds, problem: str, *, error: type[TefmError] = InputError, **details: Any) -> Iterator[None]:
    """Turn exceptions of a library into an error of ours; `{reason}` is the first line of their message."""
    try:
        yield
    except kinds as failure:
        raise error(problem.replace("{reason}", first_line(failure)), **details) from failure


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A remedy that suggests the most similar names, or lists all of them.

    >>> did_you_mean("wards", ["ward", "age"])
    "did you mean 'ward'?"
    >>> did_you_mean("x", ["ward", "age"])
    "known: 'ward', 'age'"
    """
    known = list(known)
    folded = {other.lower(): other for other in known}
    similar = [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)]
    if similar:
        return f"did you mean {' or '.join(map(repr, similar))}?"
    return f"known: {listed(known)}"


def shortened(text: str, most: int = SHOWN) -> str:
    """A text for a message, cut to a number of characters.

    >>> shortened("abcdef", most=3)
    'abc…'
    """
    return text if len(text) <= most else text[:most] + "…"


def first_line(error: BaseException) -> str:
    """The error's message, without the context that only its library's developers need."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def listed(names: Sequence[str], most: int = 12) -> str:
    """Names in quotes; of a long list, the first ones and how many there are.

    >>> listed(["age", "ward", "sex"], most=2)
    "'age', 'ward' … (3 in all)"
    """
    return ", ".join(map(repr, names[:most])) + (f" … ({len(names)} in all)" if len(names) > most else "")
