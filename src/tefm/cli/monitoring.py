"""The command that watches a model in use: monitor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tefm.base.errors import TefmError
from tefm.base.progress import err, out, shown
from tefm.cli.app import (
    AbsentOption,
    DeviceOption,
    DomainOption,
    JsonOption,
    ModelArg,
    QueryOption,
    TableArg,
    app,
    print_json,
    readable,
)

#: The exit status when a batch has drifted; 0 is no alarm, 1 an error.
ALARM = 3


@app.command(epilog="Example: tefm monitor model new_admissions.csv --by week --html drift.html")
def monitor(
    model: ModelArg,
    table: TableArg,
    reference: Annotated[
        str | None,
        typer.Option(help="table of usual records to compare with; by default the held-out records of the fit"),
    ] = None,
    by: Annotated[str | None, typer.Option(help="batches by day, week or month; one batch when left out")] = None,
    html: Annotated[Path | None, typer.Option(help="also write one HTML page")] = None,
    level: Annotated[float, typer.Option(help="false alarms per batch, over all tests together")] = 0.05,
    query: QueryOption = None,
    absent: AbsentOption = False,
    domain: DomainOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare new records with those at fit time: what changed, and how good the answers should be.

    Exit status: 0 no alarm, 3 alarm in at least one batch, 1 error. Labels in the table are used if it has them.
    """
    from tefm.base.files import write_text
    from tefm.model import TEFM
    from tefm.records.readers.table import open_table
    from tefm.show.drift import drift_page, drift_tables

    if html is not None and html.suffix != ".html":
        raise TefmError("the page is written as HTML", value=html.name, remedy="--html drift.html")
    with shown():
        opened, domain = readable(model, table, query, absent, domain)
        usual = None if reference is None else open_table(reference)
        loaded = TEFM.load(model, device=device, domain=domain)
        report = loaded.monitor(opened, reference=usual, by=by, absent=absent, level=level)
    if html is not None:
        write_text(html, drift_page(report))
        err.print(f"page written to {html}", highlight=False)
    if as_json:
        print_json(report.to_dict())
    else:
        for part in drift_tables(report):
            out.print(part, highlight=False)
    if report.alarm:
        raise typer.Exit(ALARM)
