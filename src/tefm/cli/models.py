"""Commands about a model and its answers: fit, predict, evaluate, report, tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tefm.base.errors import TefmError
from tefm.base.progress import err, out, shown
from tefm.base.targets import check_writable
from tefm.cli.app import (
    AbsentOption,
    AddressOption,
    DeviceOption,
    DomainOption,
    EngineOption,
    JsonOption,
    ModelArg,
    QueryOption,
    TableArg,
    WorkersOption,
    app,
    escaped,
    print_json,
    ray_engine,
    readable,
)

if TYPE_CHECKING:
    from tefm.task import Outcome


@app.command(epilog="Example: tefm fit task.yaml --out model")
def fit(
    tasks: Annotated[
        list[Path], typer.Argument(help="task YAML: table, entity, time, label, any settings; several share one model")
    ],
    folder: Annotated[Path, typer.Option("--out", help="folder for the model")],
    backbone: Annotated[str | None, typer.Option(help="smollm2-135m, a folder, or a hub id")] = None,
    layers: Annotated[int | None, typer.Option(help="use only the first N transformer blocks of the backbone")] = None,
    inputs: Annotated[str | None, typer.Option(help="codes, or text for the raw-text baseline")] = None,
    align: Annotated[str | None, typer.Option(help="auto, none, default, paper")] = None,
    unsupervised: Annotated[bool, typer.Option("--unsupervised", help="codes that do not use the label")] = False,
    compare: Annotated[bool, typer.Option(help="fit LightGBM and logistic regression on the same split")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="a first look in a minute, without explanations")] = False,
    seed: Annotated[int | None, typer.Option(help="random seed of the model")] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a task file: codes, alignment, fine-tuning, explanations; score the test part; save one folder.

    Several task files become the domains of one language model, each called as its file.
    Resumes if interrupted. Redirected to a file, the output is a log: a line per stage and per minute.
    """
    from tefm.domains import domain_names
    from tefm.fit import fit_task, fit_tasks
    from tefm.task import ModelConfig, Task

    given = {"backbone": backbone, "layers": layers, "inputs": inputs, "align": align, "seed": seed}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if unsupervised:
        changes["task_aware"] = False
    if quick:
        changes["quick"] = True
    loaded = {}
    for name, path in domain_names(tasks).items():
        task = Task.load(path)
        task = task.model_copy(update={"model": ModelConfig.checked({**dict(task.model), **changes})})
        loaded[name] = task
    with shown(on_stdout=not as_json):
        if len(loaded) == 1:
            outcomes = {"": fit_task(task, folder, device=device, compare=compare)[1]}
        else:
            outcomes = fit_tasks(loaded, folder, device=device, compare=compare)[1]
    print_outcomes(outcomes, folder, as_json=as_json)


@app.command(epilog="Example: tefm extend model flows.yaml --out model2")
def extend(
    model: ModelArg,
    task: Annotated[Path, typer.Argument(help="task YAML of the new domain, which is called as this file")],
    folder: Annotated[Path | None, typer.Option("--out", help="folder to write; the model itself by default")] = None,
    compare: Annotated[bool, typer.Option(help="fit LightGBM and logistic regression on the same split")] = True,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a domain to a model: new codes and an adapter. What the other domains answer stays the same, to the bit."""
    from tefm.domains import Domains, domain_names
    from tefm.fit import extend_task
    from tefm.task import Task

    ((name, path),) = domain_names([task]).items()
    loaded, target = Task.load(path), folder or model
    with shown(on_stdout=not as_json):
        domains = Domains.open(model, device=device)
        _, outcome = extend_task(domains, name, loaded, target, device=device, compare=compare)
    print_outcomes({name: outcome}, target, as_json=as_json)


def print_outcomes(outcomes: Mapping[str, Outcome], folder: Path, *, as_json: bool) -> None:
    """What came of a fit, domain by domain; a single one has no name."""
    from tefm.show.terminal import outcome_tables

    if as_json:
        body = {name: outcome.to_dict() for name, outcome in outcomes.items()}
        print_json({"folder": str(folder), **body.get("", {"domains": body})})
        return
    for name, outcome in outcomes.items():
        if name:
            out.rule(f"domain {escaped(name)}")
        for part in outcome_tables(outcome):
            out.print(part)
    out.print(f"saved to {folder}. Next: tefm predict {folder} TABLE", highlight=False)


@app.command(epilog="Example: tefm predict model admissions.csv --out predictions.csv")
def predict(
    model: ModelArg,
    table: TableArg,
    target: Annotated[Path | None, typer.Option("--out", help="CSV or Parquet file; printed when left out")] = None,
    query: QueryOption = None,
    absent: AbsentOption = False,
    domain: DomainOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    workers: WorkersOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict every sequence of a table: its class and the probability of each class."""
    import polars as pl

    from tefm.model import TEFM
    from tefm.records.writers import write_frames
    from tefm.show.terminal import prediction_table

    if target is not None and target.suffix not in (".csv", ".parquet"):
        raise TefmError("predictions are written as CSV or Parquet", value=target.name, remedy="--out predictions.csv")
    if target is not None:
        check_writable(target)
    with shown():
        if (cluster := ray_engine(engine, address, workers, query=query)) is not None:
            from tefm.cluster.work import predict_on_ray

            batches = predict_on_ray(cluster, model, table, domain=domain, absent=absent, device=device)
        else:
            opened, domain = readable(model, table, query, absent, domain)
            batches = TEFM.load(model, device=device, domain=domain).predict_batches(opened)
        if target is not None:
            written = write_frames(batches, target)
        else:
            predictions = pl.concat(batches)
    if target is not None:
        err.print(f"{written:,} predictions written to {target}")
    elif as_json:
        print_json(predictions.to_dicts())
    else:
        out.print(prediction_table(predictions))


@app.command(epilog="Example: tefm evaluate model labelled.csv")
def evaluate(
    model: ModelArg,
    table: TableArg,
    query: QueryOption = None,
    absent: AbsentOption = False,
    domain: DomainOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score a model on labelled sequences that it has not seen, with bootstrap intervals."""
    from tefm.model import TEFM
    from tefm.records.readers.postgresql import shown_location
    from tefm.show.terminal import evaluation_table

    with shown():
        opened, domain = readable(model, table, query, absent, domain, labelled=True)
        loaded = TEFM.load(model, device=device, domain=domain)
        evaluation = loaded.evaluate(opened)
    if loaded.source_ is not None and loaded.source_["table"] == shown_location(table):
        err.print("! the model was fitted on this table: most of these sequences are training data", style="yellow")
    if as_json:
        print_json(evaluation.to_dict())
    else:
        out.print(evaluation_table(evaluation))


@app.command(epilog="Example: tefm report model --out report.html")
def report(
    model: ModelArg,
    table: Annotated[
        str | None, typer.Argument(help="labelled table; by default the test part of the table the model was fitted on")
    ] = None,
    target: Annotated[Path, typer.Option("--out", help="HTML file")] = Path("report.html"),
    query: QueryOption = None,
    absent: AbsentOption = False,
    domain: DomainOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write one HTML page about a model: decisions, scores, curves, groups, data, explanations, tokens, codes."""
    from tefm.base.files import write_text
    from tefm.model import TEFM
    from tefm.report import figures_of, source_of
    from tefm.show.page import report_page

    if target.suffix != ".html":
        raise TefmError("a report is written as HTML", value=target.name, remedy="--out report.html")
    check_writable(target)
    with shown():
        is_table = table is not None and not table.endswith((".yaml", ".yml"))
        opened = None
        if is_table:
            opened, domain = readable(model, str(table), query, absent, domain, labelled=True)
        loaded = TEFM.load(model, device=device, domain=domain)
        figures = figures_of(loaded, opened or source_of(loaded, table, query=query))
    write_text(target, report_page(figures))
    if as_json:
        print_json(figures.to_dict())
    err.print(f"report written to {target}", highlight=False)


@app.command(epilog="Example: tefm tokens model admissions.csv --families")
def tokens(
    model: ModelArg,
    table: TableArg,
    query: QueryOption = None,
    families: Annotated[
        bool, typer.Option("--families", help="also count as Qwen3, Gemma-2 and Phi-4-mini do")
    ] = False,
    absent: AbsentOption = False,
    domain: DomainOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count the tokens the model reads per sequence, and those of the same records as text."""
    from tefm.fit import count_tokens
    from tefm.language.token_counts import families as family_tokenizers
    from tefm.model import TEFM
    from tefm.show.terminal import token_table

    opened, domain = readable(model, table, query, absent, domain)
    loaded = TEFM.load(model, device="cpu", domain=domain)
    frame, sequences = loaded.preparation.to_predict(opened)
    counts = count_tokens(loaded, frame, sequences, family_tokenizers() if families else {})
    if as_json:
        print_json([vars(count) for count in counts])
    else:
        out.print(token_table(counts))
