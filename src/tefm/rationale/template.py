"""The HTML templates of this room."""

from __future__ import annotations

from functools import cache

from tefm.base.templates import environment

_environment = cache(environment)


def rendered(name: str, **values: object) -> str:
    """The template of this name with these values."""
    return _environment("rationale").get_template(f"rationale/{name}").render(**values)
