"""The tables of the paper and our own, each one command: `python -m tefm_bench TABLE …`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tefm.base.progress import out, shown
from tefm.cli.app import JsonOption, present

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(
    epilog="Example: python -m tefm_bench prediction rationalization --data cicids2017=corrected.parquet --seeds 3"
)
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
    folder: Annotated[Path, typer.Option("--runs", help="folder for the measurements")] = Path("runs/bench"),
    results: Annotated[Path, typer.Option("--out", help="folder for the tables, as JSON")] = Path("results"),
    html: Annotated[Path | None, typer.Option(help="also write one HTML page with all tables")] = None,
    markdown: Annotated[Path | None, typer.Option(help="also write a Markdown page per table into this folder")] = None,
    workers: Annotated[int, typer.Option(help="measurements to run in parallel, split by split, one thread each")] = 1,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="make only these measurements and no tables, e.g. table-beside (our fits), table-baseline, or one of "
            "the latter, like gru; may be given several times"
        ),
    ] = None,
    prepare: Annotated[bool, typer.Option("--prepare", help="only prepare the arrays, then stop")] = False,
    measure: Annotated[bool, typer.Option(help="measure what is missing, or only lay out what is there")] = True,
    as_json: JsonOption = False,
) -> None:
    """Measure the tables of the paper and our own; what was measured before is reused."""
    from tefm_bench.make_tables import Request, run

    request = Request.of(tables or [], data or [], backbone or [], seeds=seeds, quick=quick, only=only or [])
    with shown(on_stdout=not as_json):
        outcome = run(
            request,
            folder,
            results,
            html=html,
            markdown=markdown,
            workers=workers,
            kinds=kind or [],
            prepare=prepare,
            measure=measure,
        )
    if as_json:
        present(outcome.to_dict(), [], as_json=True)
        return
    for part in outcome.renderables():
        out.print(part)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
