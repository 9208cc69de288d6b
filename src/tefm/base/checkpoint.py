"""What a fit leaves for a run that is resumed later, stage by stage.

The folder of a stage is named after everything it depends on. With other settings, the stages that do not depend on
them are found again and the others start afresh: nothing is in the way, and nothing has to be deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tefm.base.progress import note


def stage_folder(work: Path | None, stage: str, depends_on: Callable[[], Mapping[str, Any]]) -> Path | None:
    """The folder of a stage that depends on these values; None when nothing is to be kept, and nothing is hashed."""
    if work is None:
        return None
    values = {name: str(value) for name, value in depends_on().items()}
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    folder = work / f"{stage}-{digest[:12]}"
    if folder.is_dir():
        note(f"resuming from {folder}")
    return folder


def identity(*values: Any) -> str:
    """A hash of arrays, texts and lists of texts.

    >>> identity(np.arange(3), None) == identity(np.arange(3), None) != identity(np.arange(3), ["a"])
    True
    """
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray) and value.dtype != object:
            digest.update(f"{value.dtype}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        else:
            texts = list(value) if isinstance(value, (np.ndarray, list, tuple)) else [value]
            digest.update(json.dumps([None if text is None else str(text) for text in texts]).encode())
    return digest.hexdigest()
