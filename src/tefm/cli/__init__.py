"""`tefm`: one command per verb, each a thin call into the library."""

# in the order of `tefm --help`
from tefm.cli import tables, models, using  # noqa: F401, I001
from tefm.cli.app import app, main

__all__ = ["app", "main"]
