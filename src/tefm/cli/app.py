"""The command line itself: what a command is, how an error is shown, and what commands print."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from functools import partial
from inspect import Parameter, Signature, signature
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import RenderableType
from rich.markup import escape

from tefm.base import __version__
from tefm.base.errors import TefmError, TefmWarning
from tefm.base.files import check_writable, write_text
from tefm.base.progress import err, out
from tefm.base.settings import Settings

#: What typer exits with after Ctrl-C.
INTERRUPTED = 130

app = typer.Typer(
    help="Structured records as a few discrete tokens for language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

JsonOption = Annotated[bool, typer.Option("--json", help="print JSON for machines")]


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


def command(example: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command. A parameter whose type is a group of options stands for all of them, after its own.

    A group is a dataclass of annotated options, or settings of the library with their descriptions.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own, groups, options = [], {}, {}
        for name, parameter in signature(function, eval_str=True).parameters.items():
            group = parameter.annotation
            if isinstance(group, type) and (is_dataclass(group) or issubclass(group, Settings)):
                groups[name], options[name] = group, _options_of(group)
            else:
                own.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

        def called(**given: Any) -> None:
            for name, group in groups.items():
                values = {option.name: given.pop(option.name) for option in options[name]}
                given[name] = group.checked(values) if issubclass(group, Settings) else group(**values)
            function(**given)

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
            annotation=Annotated[field.annotation, typer.Option(help=field.description)],
        )
        for name, field in group.model_fields.items()
    ]


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
