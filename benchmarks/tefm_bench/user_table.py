"""`UserTable`: a table as a user brings it, how it is read, and its task file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from tefm.base.errors import InputError
from tefm.model.task import Task
from tefm.tables.readers.table import open_table
from tefm.tables.schema import Schema

#: Which record of an entity is asked about is drawn with this seed, the same in all splits.
DRAWN = 7


@dataclass(frozen=True)
class UserTable:
    """One table: how it is read from the folder, and its task file."""

    title: str
    #: from the folder of all tables to the frame of this one
    read: Callable[[Path], pl.DataFrame]
    #: the settings of the task file, apart from the table
    task: Mapping[str, Any]
    #: what it is, for the readers of the results
    note: str
    #: further rows that the same model is scored on, and their title
    other: Callable[[Path], pl.DataFrame] | None = None
    other_title: str = ""
    #: None infers the schema from the table, as `tefm fit` does
    schema: Callable[[Path], Schema] | None = None

    def task_for(self, seed: int, /, **settings: Any) -> Task:
        """The task file, with a seed for the split and the model, and settings on top."""
        body = {"table": self.title, **self.task, "seed": seed, **settings}
        return Task.from_yaml(yaml.safe_dump({**body, "split": {"seed": seed, **body.get("split", {})}}))

    def schema_for(self, task: Task, frame: pl.DataFrame, folder: Path) -> Schema:
        """The schema that came with the table, or the one that is inferred from it."""
        return task.schema_for(open_table(frame)) if self.schema is None else self.schema(folder)


def file_of(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        remedy = "give --data FOLDER, the folder of all user tables, with this file in it"
        raise InputError("the file of this user table is missing", file=path, remedy=remedy)
    return path
