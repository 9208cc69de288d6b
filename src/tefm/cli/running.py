"""Commands for a model in use, monitor and serve, and the one that shows what the software can do: demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tefm.base.errors import MissingExtraError
from tefm.base.progress import shown
from tefm.cli.app import JsonOption, check_target, command, page_written, present
from tefm.cli.options import DeviceOption, ModelArg, ModelOptions, TableArg
from tefm.serve.limits import ServeSettings

#: The exit status when a batch has drifted; 0 is no alarm, 1 an error.
ALARM = 3


@command("tefm monitor model new_admissions.csv --by week --html drift.html")
def monitor(
    model: ModelArg,
    table: TableArg,
    options: ModelOptions,
    reference: Annotated[
        str | None,
        typer.Option(help="table of usual records to compare with (default: the held-out records of the fit)"),
    ] = None,
    by: Annotated[str | None, typer.Option(help="batches by day, week or month (default: one batch)")] = None,
    html: Annotated[Path | None, typer.Option(help="also write one HTML page")] = None,
    level: Annotated[float, typer.Option(help="false alarms per batch, over all tests together")] = 0.05,
    as_json: JsonOption = False,
) -> None:
    """Compare new records with those at fit time: what changed, and the accuracy to expect.

    Exit status: 0 no alarm, 3 alarm in at least one batch, 1 error. Labels in the table are used if it has them.
    """
    from tefm.monitor.drift_page import drift_page, drift_tables
    from tefm.tables.readers.table import open_table

    check_target(html, "the page is written as HTML", "--html drift.html", ".html")
    with shown():
        usual = None if reference is None else open_table(reference)
        loaded, opened = options.opened(model, table)
        report = loaded.monitor(opened, reference=usual, by=by, absent=options.absent, level=level)
    if html is not None:
        page_written("page", html, drift_page(report))
    present(report.to_dict(), drift_tables(report), as_json=as_json)
    if report.alarm:
        raise typer.Exit(ALARM)


@command("tefm serve model --port 8000")
def serve(
    models: Annotated[list[str], typer.Argument(help="model folders; NAME=FOLDER serves one under another name")],
    settings: ServeSettings,
    host: Annotated[str, typer.Option(help="address to listen on; without keys, loopback only")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on; 0 takes a free one", min=0, max=65_535)] = 8_000,
    api_key_file: Annotated[Path | None, typer.Option(help="file with one API key per line")] = None,
    remember: Annotated[bool, typer.Option(help="cache answers to repeated prompts")] = True,
    access_log: Annotated[bool, typer.Option(help="log one line per request, without its contents")] = True,
    device: DeviceOption = None,
) -> None:
    """Serve models over HTTP: predictions, explanations, and a page to try them at /.

    Put a proxy in front for TLS. On SIGTERM, accepted requests are still answered.
    """
    try:
        from tefm.serve.protect import Keys, check_host
        from tefm.serve.server import load_models, run
    except ImportError as error:
        raise MissingExtraError(f"serving needs {error.name}", remedy="pip install 'tefm[serve]'") from error

    keys = Keys([]) if api_key_file is None else Keys.read(api_key_file)
    check_host(host, keys)  # before anything is loaded
    with shown():
        loaded = load_models(models, remember=remember, device=device)
    run(loaded, host=host, port=port, settings=settings, keys=keys, access_log=access_log)


@command("tefm demo")
def demo(
    steps: Annotated[int, typer.Option(help="training steps of the tokenizer")] = 1_500,
    layers: Annotated[int, typer.Option(help="use only the first N blocks of the language model")] = 4,
    tune_steps: Annotated[int, typer.Option(help="training steps of the language model")] = 160,
    target: Annotated[Path, typer.Option("--out", help="HTML file for the details")] = Path("tefm-demo.html"),
    save: Annotated[Path | None, typer.Option(help="also keep the model, in this folder")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="also print the tables of every stage")] = False,
    as_json: JsonOption = False,
) -> None:
    """Predict death from hospital admissions on embedded data, against LightGBM, and explain one prediction."""
    from tefm.cli.story import run_demo

    with shown(on_stdout=not as_json):
        story = run_demo(steps=steps, layers=layers, tune_steps=tune_steps, report=target, save=save)
    present(story.to_dict(), story.shown(verbose=verbose), as_json=as_json)
