"""What can go wrong for a user, in a small hierarchy.

Every message names what was found (file, column, value) and what to do next.
Anything that is not one of these and escapes from `tefm` is a bug.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


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
        where = [
            f"{name} {shown}"
            for name, shown in (
                ("file", self.file),
                ("column", repr(self.column) if self.column is not None else None),
                ("value", repr(self.value) if self.value is not None else None),
            )
            if shown is not None
        ]
        text = self.problem
        if where:
            text += f" [{', '.join(where)}]"
        if self.remedy:
            text += f"\n  → {self.remedy}"
        return text


class InputError(TefmError, ValueError):
    """The user's table cannot be read or does not fit what was learned."""


class SchemaError(TefmError, ValueError):
    """The schema is malformed or contradicts the table."""


class SettingsError(TefmError, ValueError):
    """A setting is out of range or two settings contradict each other."""


class NotFittedError(TefmError, ValueError):
    """Something was used before it was fitted."""


class ArtefactError(TefmError, ValueError):
    """A saved folder is damaged, incomplete, or was made by something else."""


class MissingExtraError(TefmError, ImportError):
    """An optional dependency is needed for this call."""


class TefmWarning(UserWarning):
    """Something a user should know that does not stop the work."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A remedy that names the nearest known names."""
    known = list(known)
    folded = {other.lower(): other for other in known}
    near = [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)]
    if near:
        return f"did you mean {' or '.join(repr(n) for n in near)}?"
    shown = ", ".join(repr(n) for n in known[:12])
    return f"known: {shown}{' …' if len(known) > 12 else ''}"
