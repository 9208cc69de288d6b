"""Commands about a model and its answers: fit, predict, evaluate, report, tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.rule import Rule

from tefm.base.errors import TefmError
from tefm.base.progress import err, shown
from tefm.cli.app import JsonOption, check_target, command, page_written, present
from tefm.cli.options import DeviceOption, ModelArg, ModelOptions, RayOptions, TableArg, TableOptions

if TYPE_CHECKING:
    from tefm.show.figures import Outcome


@command("tefm fit task.yaml --out model")
def fit(
    tasks: Annotated[
        list[Path],
        typer.Argument(help="task YAML: table, entity, time, label, any settings; several become domains of one model"),
    ],
    folder: Annotated[Path, typer.Option("--out", help="folder for the model")],
    backbone: Annotated[str | None, typer.Option(help="smollm2-135m, a folder, or a hub id")] = None,
    layers: Annotated[int | None, typer.Option(help="use only the first N transformer blocks of the backbone")] = None,
    align: Annotated[str | None, typer.Option(help="auto, none, default, paper")] = None,
    unsupervised: Annotated[bool, typer.Option("--unsupervised", help="codes that do not use the label")] = False,
    compare: Annotated[bool, typer.Option(help="fit LightGBM and logistic regression on the same split")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="a first look in a minute, without explanations")] = False,
    seed: Annotated[int | None, typer.Option(help="random seed of the model")] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a task file: codes, alignment, fine-tuning, explanations; score the test part; save one folder.

    Several task files become the domains of one language model, each named after its file.
    Resumes if interrupted. Redirected to a file, the output is a log: a line per stage and per minute.
    """
    from tefm.model.domains import domain_names
    from tefm.model.run import fit_task, fit_tasks
    from tefm.model.task import Task
    from tefm.pipeline.config import ModelConfig

    given = {"backbone": backbone, "layers": layers, "align": align, "seed": seed}
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


@command("tefm extend model flows.yaml --out model2")
def extend(
    model: ModelArg,
    task: Annotated[Path, typer.Argument(help="task YAML of the new domain, which is named after this file")],
    folder: Annotated[Path | None, typer.Option("--out", help="folder to write (default: the model itself)")] = None,
    compare: Annotated[bool, typer.Option(help="fit LightGBM and logistic regression on the same split")] = True,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a domain to a model: new codes and an adapter. Predictions of the other domains stay bit-identical."""
    from tefm.model.domains import Domains, domain_names
    from tefm.model.run import extend_task
    from tefm.model.task import Task

    ((name, path),) = domain_names([task]).items()
    loaded, target = Task.load(path), folder or model
    with shown(on_stdout=not as_json):
        domains = Domains.open(model, device=device)
        _, outcome = extend_task(domains, name, loaded, target, device=device, compare=compare)
    print_outcomes({name: outcome}, target, as_json=as_json)


def print_outcomes(outcomes: Mapping[str, Outcome], folder: Path, *, as_json: bool) -> None:
    """The results of a fit, domain by domain; a single one has no name."""
    from tefm.show.terminal import outcome_tables

    bodies = {name: outcome.to_dict() for name, outcome in outcomes.items()}

    def parts() -> Iterator[RenderableType]:
        for name, outcome in outcomes.items():
            if name:
                yield Rule(f"domain {escape(name)}")
            yield from outcome_tables(outcome)
        yield f"saved to {folder}. Next: tefm predict {folder} TABLE"

    present({"folder": str(folder), **bodies.get("", {"domains": bodies})}, parts(), as_json=as_json)


@command("tefm predict model admissions.csv --out predictions.csv")
def predict(
    model: ModelArg,
    table: TableArg,
    options: ModelOptions,
    ray: RayOptions,
    target: Annotated[Path | None, typer.Option("--out", help="CSV or Parquet file (default: print)")] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict every sequence of a table: its class and the probability of each class."""
    import polars as pl

    from tefm.show.terminal import prediction_table
    from tefm.tables.chunks import write_frames

    check_target(target, "predictions are written as CSV or Parquet", "--out predictions.csv", ".csv", ".parquet")
    with shown():
        if (cluster := ray.cluster(options.query, options.side)) is not None:
            from tefm.cluster.work import predict_on_ray

            batches = predict_on_ray(
                cluster, model, table, domain=options.domain, absent=options.absent, device=options.device
            )
        else:
            loaded, opened = options.opened(model, table)
            batches = loaded.predict_batches(opened)
        if target is not None:
            err.print(f"{write_frames(batches, target):,} predictions written to {target}")
            return
        predictions = pl.concat(batches)
    present(predictions.to_dicts() if as_json else None, [prediction_table(predictions)], as_json=as_json)


@command("tefm evaluate model labelled.csv")
def evaluate(
    model: ModelArg,
    table: TableArg,
    options: ModelOptions,
    as_json: JsonOption = False,
) -> None:
    """Score a model on labelled sequences that it has not seen, with bootstrap intervals."""
    from tefm.show.terminal import evaluation_table
    from tefm.tables.readers.databases import shown_location

    with shown():
        loaded, opened = options.opened(model, table, labelled=True)
        evaluation = loaded.evaluate(opened)
    if loaded.source_ is not None and loaded.source_["table"] == shown_location(table):
        err.print("! the model was fitted on this table: most of these sequences are training data", style="yellow")
    present(evaluation.to_dict(), [evaluation_table(evaluation)], as_json=as_json)


@command("tefm report model --table admissions.csv --out report.html")
def report(
    model: ModelArg,
    options: ModelOptions,
    table: Annotated[
        str | None, typer.Argument(help="labelled table, used whole; or a task file, whose test part is used")
    ] = None,
    fitted_on: Annotated[
        str | None, typer.Option("--table", help="table that the model was fitted on; its test part is used")
    ] = None,
    target: Annotated[Path, typer.Option("--out", help="HTML file")] = Path("report.html"),
    as_json: JsonOption = False,
) -> None:
    """Write one HTML page about a model: decisions, scores, curves, groups, data, explanations, tokens, codes."""
    from tefm.model.estimator import TEFM
    from tefm.model.report import figures_of, split_of, task_of
    from tefm.show.report_page import report_page

    if table is not None and fitted_on is not None:
        raise TefmError("a report is about one table", value=table, remedy="leave it out, or leave --table out")
    check_target(target, "a report is written as HTML", "--out report.html", ".html")
    with shown():
        name = table if fitted_on is None else fitted_on
        opened, domain = None, options.domain
        if name is not None and not name.endswith((".yaml", ".yml")):
            opened, domain = options.readable(model, name, labelled=True)
        loaded = TEFM.load(model, device=options.device, domain=domain)
        split = None if fitted_on is None else split_of(loaded)
        figures = figures_of(loaded, opened or task_of(loaded, table), split=split)
    if as_json:
        present(figures.to_dict(), [], as_json=True)
    page_written("report", target, report_page(figures))


@command("tefm tokens model admissions.csv")
def tokens(
    model: ModelArg,
    table: TableArg,
    options: TableOptions,
    as_json: JsonOption = False,
) -> None:
    """Count the tokens the model reads per sequence, and those of the same records as text."""
    from tefm.model.estimator import TEFM
    from tefm.model.run import count_tokens
    from tefm.show.terminal import token_table

    opened, domain = options.readable(model, table)
    loaded = TEFM.load(model, device="cpu", domain=domain)
    frame, sequences = loaded.preparation.to_predict(opened)
    counts = count_tokens(loaded, frame, sequences)
    present([vars(count) for count in counts], [token_table(counts)], as_json=as_json)
