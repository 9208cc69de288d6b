"""Structured records as a few discrete tokens, read by a language model.

>>> from tefm import TEFM, RecordTokenizer, Schema
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tefm.base.version import __version__ as __version__

if TYPE_CHECKING:
    from tefm.codes.config import TokenizerConfig
    from tefm.codes.tokenizer import RecordTokenizer
    from tefm.domains import Domains
    from tefm.model import TEFM
    from tefm.records.infer import infer_schema
    from tefm.records.readers.table import open_table
    from tefm.records.schema import Field, Schema
    from tefm.records.vectorise import Vectoriser
    from tefm.task import Task

#: Public names and where they live; imported on first use, so that `import tefm` is quick.
_HOME = {
    "Domains": "tefm.domains",
    "Field": "tefm.records.schema",
    "RecordTokenizer": "tefm.codes.tokenizer",
    "Schema": "tefm.records.schema",
    "TEFM": "tefm.model",
    "Task": "tefm.task",
    "TokenizerConfig": "tefm.codes.config",
    "Vectoriser": "tefm.records.vectorise",
    "infer_schema": "tefm.records.infer",
    "open_table": "tefm.records.readers.table",
}

__all__ = [
    "TEFM",
    "Domains",
    "Field",
    "RecordTokenizer",
    "Schema",
    "Task",
    "TokenizerConfig",
    "Vectoriser",
    "infer_schema",
    "open_table",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tefm' has no attribute {name!r}")
