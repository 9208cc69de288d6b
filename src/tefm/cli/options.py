"""Arguments and options of several commands, in groups: which records are read, by which model, on which machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tefm.base.errors import TefmError

if TYPE_CHECKING:
    from tefm.model.estimator import TEFM
    from tefm.tables.readers.table import Table

TableArg = Annotated[
    str,
    typer.Argument(
        help="CSV, CSV.gz, TSV, Parquet (file, folder, glob), Arrow, JSON lines, DuckDB, postgresql://…, MEDS"
    ),
]
ModelArg = Annotated[Path, typer.Argument(help="folder of a model")]
TokenizerArg = Annotated[Path, typer.Argument(help="folder of a tokenizer")]
QueryOption = Annotated[
    str | None, typer.Option(help="SQL for DuckDB; SQL or a table's name for PostgreSQL; the label file for MEDS")
]
AbsentOption = Annotated[
    bool, typer.Option("--absent", help="treat fields whose columns are missing as absent, instead of an error")
]
SideOption = Annotated[
    list[str] | None,
    typer.Option("--side", help="side table of a field as FIELD=TABLE; a saved model opens none by itself"),
]
DeviceOption = Annotated[str | None, typer.Option(help="cpu or cuda (default: the GPU if there is one)")]


@dataclass(frozen=True)
class TableOptions:
    """How the table of a command is read for a model."""

    query: QueryOption = None
    absent: AbsentOption = False
    side: SideOption = None
    domain: Annotated[
        str | None,
        typer.Option(help="domain to use, of a model with several; default: found by the columns of the table"),
    ] = None

    def readable(self, model: Path, table: str, *, labelled: bool = False) -> tuple[Table, str | None]:
        """The table, checked before the weights of the model are loaded, and the domain that reads it."""
        from tefm.model.domains import find_domain
        from tefm.tables.columns import with_sides
        from tefm.tables.readers.table import open_table

        domain, preparation = find_domain(model, table, self.domain, query=self.query)
        opened = open_table(table, query=self.query, meds=preparation.schema.meds)
        opened = with_sides(opened, preparation.schema, side_tables(self.side))
        return preparation.readable(opened, labelled=labelled, absent=self.absent), domain


@dataclass(frozen=True)
class ModelOptions(TableOptions):
    """How the table is read, and where the model works."""

    device: DeviceOption = None

    def opened(self, model: Path, table: str, *, labelled: bool = False) -> tuple[TEFM, Table]:
        """The model, and the table as it reads it."""
        from tefm.model.estimator import TEFM

        opened, domain = self.readable(model, table, labelled=labelled)
        return TEFM.load(model, device=self.device, domain=domain), opened


@dataclass(frozen=True)
class RayOptions:
    """Whether the work is done on a Ray cluster."""

    engine: Annotated[str, typer.Option(help="local, or ray for a cluster")] = "local"
    address: Annotated[str | None, typer.Option(help="address of a Ray cluster (default: start one locally)")] = None
    workers: Annotated[
        int | None, typer.Option(help="number of Ray workers (default: one per GPU, or per CPU without GPUs)")
    ] = None

    def cluster(self, query: str | None, sides: Sequence[str] | None) -> Any:
        """The Ray engine, or None for the local one."""
        if self.engine not in ("local", "ray"):
            raise TefmError("no such engine", value=self.engine, remedy="--engine local or --engine ray")
        if self.engine == "local":
            if self.address is not None or self.workers is not None:
                option = "--workers" if self.address is None else "--address"
                raise TefmError(f"{option} is for a Ray cluster", remedy="add --engine ray")
            return None
        if query is not None:
            remedy = "write the rows as Parquet first"
            raise TefmError("the Ray engine reads Parquet files, without --query", remedy=remedy)
        if sides:
            remedy = "write a column with a list per record into the files"
            raise TefmError("the Ray engine reads Parquet files, without --side", value=sides[0], remedy=remedy)
        from tefm.cluster.engine import Engine

        return Engine(self.address, self.workers)


def side_tables(sides: Sequence[str] | None) -> dict[str, str]:
    """The values of `--side`: the field and its table."""
    sides = sides or ()
    for side in sides:
        if not all(side.partition("=")):
            raise TefmError("--side needs a field and a table", value=side, remedy="--side diagnoses=diagnoses.csv")
    return {name: table for name, _, table in (side.partition("=") for side in sides)}
