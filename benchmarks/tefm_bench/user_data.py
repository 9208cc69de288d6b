"""The rows of a user table that are measured, as one file, and which of their sequences is in which part.

A machine that only measures needs these files, not those of the tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.files import replacing
from tefm.model.remarks import without_unseen
from tefm.model.run import split_parts, used_records
from tefm.model.task import Task
from tefm.pipeline.prepare import records_of
from tefm.tables.records import Records
from tefm.tables.schema import Schema
from tefm_bench.data import Sources
from tefm_bench.user_table import UserTable
from tefm_bench.user_tables import ALL_TABLES, write_synthetic

#: Columns of the stored file: the number of a row in the user's table, and whether it is one of the other test rows.
ROW, OTHER = "tefm:row", "tefm:other"


@dataclass(frozen=True)
class UserData:
    """A user table, split as `tefm fit` splits it, and the rows of the other test below it."""

    task: Task
    #: the user's table, and its training and validation part, also with sequences that balancing leaves out
    own: Records
    training: Records
    validation: Records
    #: all rows, with the sequences that are trained on, validated on or tested on, and the part of each
    records: Records
    parts: NDArray[np.str_]
    remarks: tuple[str, ...]
    #: per test sequence: the number of its last row in the user's table, and whether it is one of the other test
    test_rows: NDArray[np.int64]
    is_other: NDArray[np.bool_]

    @classmethod
    def open(cls, sources: Sources, name: str, task: Task, most: int | None) -> UserData:
        """A table with at most `most` sequences, drawn by the seed of the task."""
        table, stored = ALL_TABLES[name], pl.read_parquet(prepared(sources, name, task, most))
        frame, own = stored.drop(ROW, OTHER), int((~stored[OTHER]).sum())
        schema = table.schema_for(task, frame.head(own), tables_folder(sources))
        first = records_of(frame.head(own), schema, task.model, file=table.title).timed()
        parts, remarks = split_parts(task.model, first.sequences, task.split)
        training, validation = (first.part(parts == part) for part in ("train", "validation"))
        # the sequences of the other rows come after all others
        everything = records_of(frame, first.schema, task.model, file=table.title)
        parts = np.append(parts, ["test"] * (len(everything) - len(first)))
        parts, unseen = without_unseen(everything.sequences, parts)
        # tabular models learn from all training labels, as those of `tefm fit` do
        records, parts = used_records(task.model, everything, parts, whole_training=True)
        last = records.sequences.select(parts == "test").last
        return cls(
            task,
            first,
            training,
            validation,
            records,
            parts,
            (*remarks, *unseen),
            stored[ROW].to_numpy()[last],
            last >= own,
        )

    @property
    def schema(self) -> Schema:
        return self.records.schema

    @property
    def test(self) -> Records:
        return self.records.select(self.parts == "test")


def prepared(sources: Sources, name: str, task: Task, most: int | None) -> Path:
    """The file with the rows that are measured, written first if it does not exist."""
    path = file_for(sources, name, task, most)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        frame = sampled(ALL_TABLES[name], tables_folder(sources), task, most)
        with replacing(path) as temporary:
            frame.write_parquet(temporary)
    return path


def file_for(sources: Sources, name: str, task: Task, most: int | None) -> Path:
    """The file with the rows that are measured, written or not."""
    return sources.folder / "tables" / f"{name}_{'whole' if most is None else f'{task.split.seed}_{most}'}.parquet"


def tables_folder(sources: Sources) -> Path:
    """The folder with the files of the user tables; a quick run makes its own."""
    if not sources.quick:
        return sources.paths.get("tables", Path())
    folder = sources.folder / "synthetic"
    if not folder.exists():
        with replacing(folder, ours=Path.is_dir) as temporary:
            write_synthetic(temporary)
    return folder


def sampled(table: UserTable, folder: Path, task: Task, most: int | None) -> pl.DataFrame:
    """The rows of at most `most` sequences in their order, and the other test rows, whole, below them."""
    frame = table.read(folder).with_row_index(ROW).with_columns(pl.lit(False).alias(OTHER))
    entity = table.schema_for(task, frame.drop(ROW, OTHER), folder).entity or ROW
    names = frame[entity].unique(maintain_order=True)
    if most is not None and len(names) > most:
        chosen = np.random.default_rng(task.split.seed).permutation(len(names))[:most]
        frame = frame.filter(pl.col(entity).is_in(names.gather(chosen).implode()))
    if table.other is not None:
        other = table.other(folder).with_row_index(ROW).with_columns(pl.lit(True).alias(OTHER))
        frame = pl.concat([frame, other])
    return frame
