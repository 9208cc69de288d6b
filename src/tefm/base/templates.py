"""Pages from templates. A template is called by its room: `rationale/card.html`."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined


def environment(*rooms: str) -> Environment:
    """The templates of these rooms: in HTML every value is escaped, and a value that does not exist is an error."""
    return Environment(
        loader=PrefixLoader({room: PackageLoader(f"tefm.{room}") for room in rooms}),
        autoescape=lambda name: name is not None and name.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
