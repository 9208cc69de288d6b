"""The command line itself: what a command is, the options of several commands, errors, and what commands print."""

from __future__ import annotations

import errno
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, is_dataclass
from functools import partial
from inspect import Parameter, Signature, signature
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import RenderableType
from rich.markup import escape
from typer import Argument, Option

from tefm.base import __version__
from tefm.base.errors import TefmError, TefmWarning, shortened
from tefm.base.files import check_writable, write_text
from tefm.base.progress import err, out, shown
from tefm.base.settings import Settings

if TYPE_CHECKING:
    from tefm import TEFM
    from tefm.cluster.work import OnRay
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


def main() -> NoReturn:
    """Run the command line; a user error is one clear message, never a traceback."""
    leave_cores_to_others()
    warnings.showwarning = partial(_warned, otherwise=warnings.showwarning)
    try:
        app(standalone_mode=True)
    except TefmError as error:
        err.print(f"[bold red]error[/]: {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        sys.exit(f"error: the name is too long: {shortened(repr(error.filename))}")
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            err.print("interrupted; run the same command again to resume `fit` or `tokenize`")
        raise
    sys.exit(0)


def leave_cores_to_others() -> None:
    """One thread per core that is free; set before torch is imported."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    busy = others_running() / (os.cpu_count() or 1)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, round(cores * (1 - busy)))))


def others_running(counted: Path = Path("/proc/loadavg")) -> float:
    """How many threads of other programs run now; a load average still counts what ended a minute ago."""
    if not counted.is_file():
        return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    counts = []
    for _ in range(9):
        running, _, _ = counted.read_text().split()[3].partition("/")
        counts.append(int(running) - 1)  # without this one
        time.sleep(0.005)
    return float(statistics.median(counts))


def _warned(message: Warning | str, category: type[Warning], *where: Any, otherwise: Any, **more: Any) -> None:
    """A warning of ours is one line for the user; the libraries' stay as they are."""
    if issubclass(category, TefmWarning):
        err.print(f"! {escape(str(message))}", style="yellow", highlight=False, soft_wrap=True)
    else:
        otherwise(message, category, *where, **more)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, Option("--version", help="print the version")] = False) -> None:
    if version:
        out.print(__version__)
        raise typer.Exit


# ---- what a command is ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Results:
    """What a command prints: the body for machines or the parts for people, then a remark on stderr."""

    #: plain values, or what gives them
    body: Any
    parts: Iterable[RenderableType] = ()
    remark: str = ""
    #: the exit status
    status: int = 0


def command(example: str, *, log: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function a command. A parameter whose type is a group of options stands for all of them, after its own.

    A group is a dataclass of annotated options, or settings of the library with their descriptions. A command that
    returns `Results` has the option `--json`, which it is told if it has a parameter `as_json`, and its progress is
    shown; with `log`, that belongs to its output.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        own, groups, options = [], {}, {}
        inspected = signature(function, eval_str=True)
        for name, parameter in inspected.parameters.items():
            group = parameter.annotation
            if isinstance(group, type) and (is_dataclass(group) or issubclass(group, Settings)):
                groups[name], options[name] = group, _options_of(group)
            elif name != "as_json":
                own.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

        has_results = inspected.return_annotation is not None
        if has_results:
            own.append(Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption))

        def called(as_json: bool = False, **given: Any) -> None:
            for name, group in groups.items():
                values = {option.name: given.pop(option.name) for option in options[name]}
                given[name] = group.checked(values) if issubclass(group, Settings) else group(**values)
            with shown(on_stdout=log and not as_json) if has_results else nullcontext():
                results = function(**given, **({"as_json": as_json} if "as_json" in inspected.parameters else {}))
            if results is not None:
                body = results.body() if as_json and callable(results.body) else results.body
                present(body, results.parts, as_json=as_json)
                if results.remark:
                    err.print(results.remark, highlight=False)
                if results.status:
                    raise typer.Exit(results.status)

        called.__signature__ = Signature([*own, *chain.from_iterable(options.values())])  # type: ignore[attr-defined]
        app.command(function.__name__, help=function.__doc__, epilog=f"Example: {example}")(called)
        return function

    return register


def _options_of(group: Any) -> list[Parameter]:
    """The options of a group, for typer."""
    if not issubclass(group, Settings):
        parameters = signature(group, eval_str=True).parameters.values()
        return [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
    return [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[field.annotation, Option(help=field.description)],
        )
        for name, field in group.model_fields.items()
    ]


# ---- options of several commands ------------------------------------------------------------------------------------

JsonOption = Annotated[bool, Option("--json", help="print JSON for machines")]
TableArg = Annotated[
    str,
    Argument(help="CSV, CSV.gz, TSV, Parquet (file, folder, glob), Arrow, JSON lines, DuckDB, postgresql://…, MEDS"),
]
ModelArg = Annotated[Path, Argument(help="folder of a model")]
TokenizerArg = Annotated[Path, Argument(help="folder of a tokenizer")]
QueryOption = Annotated[
    str | None, Option(help="SQL for DuckDB; SQL or a table's name for PostgreSQL; the label file for MEDS")
]
AbsentOption = Annotated[
    bool, Option("--absent", help="treat missing columns as absent values instead of raising an error")
]
SideOption = Annotated[
    list[str] | None,
    Option("--side", help="side table of a field, as FIELD=TABLE (a saved model never opens one by itself)"),
]
DeviceOption = Annotated[str | None, Option(help="cpu or cuda (default: the GPU if there is one)")]


@dataclass(frozen=True)
class TableOptions:
    """How the table of a command is read for a model."""

    query: QueryOption = None
    absent: AbsentOption = False
    side: SideOption = None
    domain: Annotated[
        str | None, Option(help="domain of a model with several (default: the one whose columns the table has)")
    ] = None

    def readable(self, model: Path, table: str, *, labelled: bool = False) -> tuple[Table, str | None]:
        """The table, checked before the weights of the model are loaded, and the domain that reads it."""
        from tefm import open_table
        from tefm.model.domains import find_domain
        from tefm.tables.columns import with_sides

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
        from tefm import TEFM

        opened, domain = self.readable(model, table, labelled=labelled)
        return TEFM.load(model, device=self.device, domain=domain), opened


@dataclass(frozen=True)
class RayOptions:
    """Whether the work is done on a Ray cluster."""

    engine: Annotated[str, Option(help="local, or ray for a cluster")] = "local"
    address: Annotated[str | None, Option(help="address of a Ray cluster (default: start one locally)")] = None
    workers: Annotated[
        int | None, Option(help="number of Ray workers (default: one per GPU, or per CPU without GPUs)")
    ] = None

    def job(
        self, folder: Path, table: str, *, query: str | None, side: Sequence[str] | None, **reading: Any
    ) -> OnRay | None:
        """The work on a Ray cluster, or None for this machine."""
        if self.engine not in ("local", "ray"):
            raise TefmError("unknown engine", value=self.engine, remedy="--engine local or --engine ray")
        if self.engine == "local":
            if self.address is not None or self.workers is not None:
                option = "--workers" if self.address is None else "--address"
                raise TefmError(f"{option} applies to a Ray cluster only", remedy="add --engine ray")
            return None
        if query is not None:
            remedy = "write the rows as Parquet first"
            raise TefmError("the Ray engine reads Parquet files and does not support --query", remedy=remedy)
        if side:
            remedy = "write a column with a list per record into the files"
            raise TefmError(
                "the Ray engine reads Parquet files and does not support --side", value=side[0], remedy=remedy
            )
        from tefm.cluster.engine import Engine
        from tefm.cluster.work import OnRay

        return OnRay(Engine(self.address, self.workers), folder, table, **reading)


def warn_of_training_data(model: TEFM, table: str) -> None:
    """Warn that a table is the one that the model was fitted on."""
    from tefm.tables.readers.databases import shown_location

    if model.source_ is not None and model.source_["table"] == shown_location(table):
        err.print("! the model was fitted on this table: most of these sequences are training data", style="yellow")


def side_tables(sides: Sequence[str] | None) -> dict[str, str]:
    """The values of `--side`: the field and its table."""
    sides = sides or ()
    for side in sides:
        if not all(side.partition("=")):
            raise TefmError("--side needs a field and a table", value=side, remedy="--side diagnoses=diagnoses.csv")
    return {name: table for name, _, table in (side.partition("=") for side in sides)}


# ---- what commands print --------------------------------------------------------------------------------------------


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
        out.print(part, highlight=False, soft_wrap=isinstance(part, str))


def page_written(what: str, target: Path, page: str) -> None:
    """Write a page and say so."""
    write_text(target, page)
    err.print(f"{what} written to {target}", highlight=False)
