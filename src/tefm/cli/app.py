"""The command line itself: its options, how an error is shown, and what commands print."""

from __future__ import annotations

import json
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from tefm.base.errors import TefmError, TefmWarning
from tefm.base.progress import err, out
from tefm.base.version import __version__

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
SchemaOption = Annotated[Path | None, typer.Option(help="schema YAML; inferred when left out")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON for machines")]
EntityOption = Annotated[str | None, typer.Option(help="column that names the entity, e.g. the patient")]
TimeOption = Annotated[str | None, typer.Option(help="column that orders the records of an entity")]
LabelOption = Annotated[str | None, typer.Option(help="column to predict")]
AbsentOption = Annotated[
    bool, typer.Option("--absent", help="read fields whose columns are missing as absent; an error by default")
]
DomainOption = Annotated[
    str | None, typer.Option(help="of a model with several domains, the one to ask; found by the columns of the table")
]
EngineOption = Annotated[str, typer.Option(help="local, or ray for a cluster")]
AddressOption = Annotated[str | None, typer.Option(help="of a Ray cluster; by default one is started on this machine")]
WorkersOption = Annotated[int | None, typer.Option(help="Ray workers; by default one per GPU, or per CPU without any")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu or cuda; the GPU when there is one")]


def main() -> NoReturn:
    """Run the command line; a user error is one clear message, never a traceback."""
    warnings.showwarning = partial(_warned, otherwise=warnings.showwarning)
    try:
        app(standalone_mode=True)
    except TefmError as error:
        err.print(f"[bold red]error[/]: {escaped(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            err.print("interrupted; give the same command again to resume `fit`, `tokenize` or `bench`")
        raise
    sys.exit(0)


def _warned(message: Warning | str, category: type[Warning], *where: Any, otherwise: Any, **more: Any) -> None:
    """A warning of ours is one line for the user; the libraries' stay as they are."""
    if issubclass(category, TefmWarning):
        err.print(f"! {escaped(str(message))}", style="yellow", highlight=False, soft_wrap=True)
    else:
        otherwise(message, category, *where, **more)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    if version:
        out.print(__version__)
        raise typer.Exit


# ---- what commands share ------------------------------------------------------------------------------------------


def readable(
    model: Path, table: str, query: str | None, absent: bool, domain: str | None, *, labelled: bool = False
) -> tuple[Any, str | None]:
    """The table, checked before the weights of the model are loaded, and the domain that reads it."""
    from tefm.domains import find_domain
    from tefm.records.readers.table import open_table

    domain, preparation = find_domain(model, table, domain, query=query)
    opened = open_table(table, query=query, meds=preparation.schema.meds)
    return preparation.readable(opened, labelled=labelled, absent=absent), domain


def ray_engine(engine: str, address: str | None, workers: int | None, *, query: str | None) -> Any:
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
    from tefm.cluster.engine import Engine

    return Engine(address, workers)


def escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def print_json(body: Any) -> None:
    sys.stdout.write(json.dumps(body, indent=1, ensure_ascii=False, default=str) + "\n")
