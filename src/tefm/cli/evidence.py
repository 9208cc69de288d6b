"""Commands that show what the software can do: bench and demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tefm.base.progress import out, shown
from tefm.cli.app import JsonOption, app, print_json


@app.command(epilog="Example: tefm bench prediction rationalization --data cicids2017=corrected.parquet --seeds 3")
def bench(
    tables: Annotated[list[str] | None, typer.Argument(help="names of tables; all of them when left out")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="diabetes130 (embedded), mimic3=FOLDER, cicids2017=PATH, or the FOLDER of the user tables; "
            "may be given several times"
        ),
    ] = None,
    backbone: Annotated[
        list[str] | None,
        typer.Option(help="smollm2-135m, a folder, or a hub id; further ones join the prediction table"),
    ] = None,
    seeds: Annotated[str, typer.Option(help="number of splits, or the first and the last: 20-25")] = "3",
    quick: Annotated[bool, typer.Option("--quick", help="tiny settings, to check that everything runs")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="a user table of `tables`, like unsw_nb15; may be given several times")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="`tables` on all sequences, one seed")] = False,
    folder: Annotated[Path, typer.Option("--runs", help="folder for the measurements")] = Path("runs/bench"),
    results: Annotated[Path, typer.Option("--out", help="folder for the tables, as JSON")] = Path("results"),
    html: Annotated[Path | None, typer.Option(help="also write one HTML page with all tables")] = None,
    markdown: Annotated[Path | None, typer.Option(help="also write a Markdown page per table into this folder")] = None,
    workers: Annotated[int, typer.Option(help="measurements to run in parallel")] = 1,
    prepare: Annotated[bool, typer.Option("--prepare", help="only prepare the arrays, then stop")] = False,
    measure: Annotated[bool, typer.Option(help="measure what is missing, or only lay out what is there")] = True,
    as_json: JsonOption = False,
) -> None:
    """Measure the tables of the paper and our own; what was measured before is reused."""
    from tefm.bench.make_tables import Request, run

    request = Request.of(
        tables or [], data or [], backbone or [], seeds=seeds, quick=quick, only=only or [], whole=whole
    )
    with shown(on_stdout=not as_json):
        outcome = run(
            request, folder, results, html=html, markdown=markdown, workers=workers, prepare=prepare, measure=measure
        )
    if as_json:
        print_json(outcome.to_dict())
        return
    for part in outcome.renderables():
        out.print(part)


@app.command(epilog="Example: tefm demo")
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
    from tefm.demo import run_demo

    with shown(on_stdout=not as_json):
        story = run_demo(steps=steps, layers=layers, tune_steps=tune_steps, report=target, save=save)
    if as_json:
        print_json(story.to_dict())
        return
    for part in story.shown(verbose=verbose):
        out.print(part, highlight=False)
