"""Pages from templates, which are named after their package: `explain/cards.html` is in `explain/templates`."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined


def environment() -> Environment:
    """The templates of all rooms: in HTML every value is escaped, and a value that does not exist is an error."""
    return Environment(
        loader=FunctionLoader(_text),
        autoescape=lambda name: name is not None and name.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _text(name: str) -> str | None:
    room, _, file = name.partition("/")
    path = files("tefm") / room / "templates" / file
    return path.read_text(encoding="utf-8") if path.is_file() else None
