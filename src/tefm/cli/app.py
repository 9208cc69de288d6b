"""The command line itself: its options, how an error is shown, and what commands print."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import RenderableType
from rich.markup import escape

from tefm import __version__
from tefm.base.errors import TefmError, TefmWarning
from tefm.base.files import check_writable, write_text
from tefm.base.progress import err, out

if TYPE_CHECKING:
    from tefm.model.estimator import TEFM
    from tefm.tables.readers.table import Table

#: What typer exits with after Ctrl-C.
INTERRUPTED = 130

app = typer.Typer(
    help="Structured records as a few discrete tokens for language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

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
SchemaOption = Annotated[Path | None, typer.Option(help="schema YAML (default: inferred)")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON for machines")]
EntityOption = Annotated[str | None, typer.Option(help="column that names the entity, e.g. the patient")]
TimeOption = Annotated[str | None, typer.Option(help="column that orders the records of an entity")]
LabelOption = Annotated[str | None, typer.Option(help="column to predict")]
AbsentOption = Annotated[
    bool, typer.Option("--absent", help="treat fields whose columns are missing as absent, instead of an error")
]
SideOption = Annotated[
    list[str] | None,
    typer.Option("--side", help="side table of a field as FIELD=TABLE; a saved model opens none by itself"),
]
DomainOption = Annotated[
    str | None, typer.Option(help="domain to use, of a model with several; default: found by the columns of the table")
]
EngineOption = Annotated[str, typer.Option(help="local, or ray for a cluster")]
AddressOption = Annotated[str | None, typer.Option(help="address of a Ray cluster (default: start one locally)")]
WorkersOption = Annotated[
    int | None, typer.Option(help="number of Ray workers (default: one per GPU, or per CPU without GPUs)")
]
DeviceOption = Annotated[str | None, typer.Option(help="cpu or cuda (default: the GPU if there is one)")]


def main() -> NoReturn:
    """Run the command line; a user error is one clear message, never a traceback."""
    warnings.showwarning = partial(_warned, otherwise=warnings.showwarning)
    try:
        app(standalone_mode=True)
    except TefmError as error:
        err.print(f"[bold red]error[/]: {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            err.print("interrupted; give the same command again to resume `fit` or `tokenize`")
        raise
    sys.exit(0)


def _warned(message: Warning | str, category: type[Warning], *where: Any, otherwise: Any, **more: Any) -> None:
    """A warning of ours is one line for the user; the libraries' stay as they are."""
    if issubclass(category, TefmWarning):
        err.print(f"! {escape(str(message))}", style="yellow", highlight=False, soft_wrap=True)
    else:
        otherwise(message, category, *where, **more)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    if version:
        out.print(__version__)
        raise typer.Exit


# ---- what commands share ------------------------------------------------------------------------------------------


def readable(
    model: Path,
    table: str,
    query: str | None,
    absent: bool,
    sides: list[str] | None,
    domain: str | None,
    *,
    labelled: bool = False,
) -> tuple[Table, str | None]:
    """The table, checked before the weights of the model are loaded, and the domain that reads it."""
    from tefm.model.domains import find_domain
    from tefm.tables.columns import with_sides
    from tefm.tables.readers.table import open_table

    domain, preparation = find_domain(model, table, domain, query=query)
    opened = open_table(table, query=query, meds=preparation.schema.meds)
    opened = with_sides(opened, preparation.schema, side_tables(sides))
    return preparation.readable(opened, labelled=labelled, absent=absent), domain


def with_model(model: Path, *table: Any, device: str | None, labelled: bool = False) -> tuple[TEFM, Table]:
    """The model, and the table as `readable` opens it."""
    from tefm.model.estimator import TEFM

    opened, domain = readable(model, *table, labelled=labelled)
    return TEFM.load(model, device=device, domain=domain), opened


def check_target(target: Path | None, problem: str, example: str, *endings: str) -> None:
    """Refuse a file in another format, or one that cannot be written, before anything is loaded."""
    if target is None:
        return
    if target.suffix not in endings:
        raise TefmError(problem, value=target.name, remedy=example)
    check_writable(target)


def present(body: Any, parts: Iterable[RenderableType], *, as_json: bool) -> None:
    """Print results: as JSON, or part by part for people."""
    if as_json:
        sys.stdout.write(json.dumps(body, indent=1, ensure_ascii=False, default=str) + "\n")
        return
    for part in parts:
        out.print(part, highlight=False)


def page_written(what: str, target: Path, page: str) -> None:
    """Write a page and say so."""
    write_text(target, page)
    err.print(f"{what} written to {target}", highlight=False)


def side_tables(sides: Sequence[str] | None) -> dict[str, str]:
    """The values of `--side`: the field and its table."""
    sides = sides or ()
    for side in sides:
        if not all(side.partition("=")):
            raise TefmError("--side needs a field and a table", value=side, remedy="--side diagnoses=diagnoses.csv")
    return {name: table for name, _, table in (side.partition("=") for side in sides)}


def ray_engine(
    engine: str, address: str | None, workers: int | None, *, query: str | None, sides: Sequence[str] | None
) -> Any:
    """The Ray engine, or None for the local one."""
    if engine not in ("local", "ray"):
        raise TefmError("no such engine", value=engine, remedy="--engine local or --engine ray")
    if engine == "local":
        if address is not None or workers is not None:
            option = "--workers" if address is None else "--address"
            raise TefmError(f"{option} is for a Ray cluster", remedy="add --engine ray")
        return None
    if query is not None:
        raise TefmError("the Ray engine reads Parquet files, without --query", remedy="write the rows as Parquet first")
    if sides:
        remedy = "write a column with a list per record into the files"
        raise TefmError("the Ray engine reads Parquet files, without --side", value=sides[0], remedy=remedy)
    from tefm.cluster.engine import Engine

    return Engine(address, workers)
