"""Structured records as a few discrete tokens, read by a language model.

>>> from tefm import TEFM, RecordTokenizer, Schema
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tefm.base import __version__ as __version__

# Threads of GNU's OpenMP first wait in a busy loop. In a long one (the default) they fight on a busy machine; without
# one, to wake a thread takes longer than what it then does: two were slower than one in training the codes.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")

if TYPE_CHECKING:
    from tefm.codes.config import TokenizerConfig
    from tefm.codes.tokenizer import RecordTokenizer
    from tefm.model.domains import Domains
    from tefm.model.estimator import TEFM, scorers
    from tefm.model.task import Task
    from tefm.tables.infer import infer_schema
    from tefm.tables.readers.table import open_table
    from tefm.tables.schema import Field, Schema
    from tefm.tables.vectorise import Vectoriser

#: Public names and where they live; imported on first use, so that `import tefm` is quick.
_HOME = {
    "Domains": "tefm.model.domains",
    "Field": "tefm.tables.schema",
    "RecordTokenizer": "tefm.codes.tokenizer",
    "Schema": "tefm.tables.schema",
    "TEFM": "tefm.model.estimator",
    "Task": "tefm.model.task",
    "TokenizerConfig": "tefm.codes.config",
    "Vectoriser": "tefm.tables.vectorise",
    "infer_schema": "tefm.tables.infer",
    "open_table": "tefm.tables.readers.table",
    "scorers": "tefm.model.estimator",
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
    "scorers",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tefm' has no attribute {name!r}")
