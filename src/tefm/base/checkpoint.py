"""Where the stages of a fit leave their work, so that a run that was killed goes on.

A stage has a folder that is named by all it depends on. With other settings, the stages that these do not concern are
found again, and the others begin afresh: nothing is in the way, and nothing has to be deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from tefm.base.progress import note


def stage_folder(work: Path | None, stage: str, settings: Mapping[str, Any]) -> Path | None:
    """The folder of a stage with these settings; None when nothing is to be left."""
    if work is None:
        return None
    said = {name: str(value) for name, value in settings.items()}
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    folder = work / f"{stage}-{digest[:12]}"
    if folder.is_dir():
        note(f"going on from {folder}")
    return folder


def identity(*tables: pl.DataFrame) -> str:
    """What tells the records of tables from others."""
    digest = hashlib.sha256()
    for table in tables:
        digest.update(str(table.schema).encode())
        digest.update(table.hash_rows(seed=0).to_numpy().tobytes())
    return digest.hexdigest()
