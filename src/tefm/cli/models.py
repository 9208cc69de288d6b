"""Commands about a model and its answers: fit, extend, predict, evaluate, report, tokens, ask, teach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from rich.markup import escape
from rich.rule import Rule
from typer import Argument, Option

from tefm.base.errors import TefmError
from tefm.base.files import check_writable
from tefm.base.progress import err
from tefm.cli.app import (
    DeviceOption,
    ModelArg,
    ModelOptions,
    RayOptions,
    Results,
    TableArg,
    TableOptions,
    check_target,
    command,
    page_written,
    warn_of_training_data,
)

if TYPE_CHECKING:
    from tefm.show.figures import Outcome


ThresholdOption = Annotated[
    float | None, Option(help="predict the positive of two classes from this probability upwards")
]


@command("tefm fit task.yaml --out model", log=True)
def fit(
    tasks: Annotated[
        list[Path],
        Argument(help="task YAML: table, entity, time, label, any settings; several become domains of one model"),
    ],
    folder: Annotated[Path, Option("--out", help="folder for the model")],
    backbone: Annotated[str | None, Option(help="smollm2-135m, a folder, or a hub id")] = None,
    layers: Annotated[int | None, Option(help="use only the first N transformer blocks of the backbone")] = None,
    align: Annotated[str | None, Option(help="auto, none, default, paper")] = None,
    unsupervised: Annotated[bool, Option("--unsupervised", help="codes that do not use the label")] = False,
    compare: Annotated[bool, Option(help="fit LightGBM and logistic regression on the same split")] = True,
    quick: Annotated[
        bool, Option("--quick", help="a first look: short training on a sample (minutes of CPU), no explanations")
    ] = False,
    seed: Annotated[int | None, Option(help="random seed of the model")] = None,
    device: DeviceOption = None,
) -> Results:
    """Fit a task file: codes, alignment, fine-tuning, explanations; score the test part; save one folder.

    Several task files become the domains of one language model, each named after its file.
    Resumes if interrupted. Redirected to a file, the output is a log: a line per stage and per minute.
    """
    from tefm import Task
    from tefm.model.domains import domain_names
    from tefm.model.run import fit_tasks
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
        loaded[name if len(tasks) > 1 else ""] = task
    _, outcomes = fit_tasks(loaded, folder, device=device, compare=compare)
    return results_of(outcomes, folder)


@command("tefm extend model flows.yaml --out model2", log=True)
def extend(
    model: ModelArg,
    task: Annotated[Path, Argument(help="task YAML of the new domain, which is named after this file")],
    folder: Annotated[Path | None, Option("--out", help="folder to write (default: the model itself)")] = None,
    compare: Annotated[bool, Option(help="fit LightGBM and logistic regression on the same split")] = True,
    device: DeviceOption = None,
) -> Results:
    """Add a domain to a model: new codes and an adapter. Predictions of the other domains stay bit-identical."""
    from tefm import Domains, Task
    from tefm.model.domains import domain_names
    from tefm.model.run import extend_task

    ((name, path),) = domain_names([task]).items()
    loaded, target = Task.load(path), folder or model
    domains = Domains.open(model, device=device)
    _, outcome = extend_task(domains, name, loaded, target, device=device, compare=compare)
    return results_of({name: outcome}, target)


def results_of(outcomes: Mapping[str, Outcome], folder: Path) -> Results:
    """The results of a fit, domain by domain; a single one has no name."""
    from tefm.show.terminal import outcome_tables

    bodies = {name: outcome.to_dict() for name, outcome in outcomes.items()}

    def parts() -> Iterator[RenderableType]:
        for name, outcome in outcomes.items():
            if name:
                yield Rule(f"domain {escape(name)}")
            yield from outcome_tables(outcome)
        yield f"saved to {folder}. Next: tefm predict {folder} TABLE"

    return Results({"folder": str(folder), **bodies.get("", {"domains": bodies})}, parts())


@command("tefm predict model admissions.csv --out predictions.csv")
def predict(
    model: ModelArg,
    table: TableArg,
    options: ModelOptions,
    ray: RayOptions,
    target: Annotated[Path | None, Option("--out", help="CSV or Parquet file (default: print)")] = None,
    threshold: ThresholdOption = None,
    each_record: Annotated[
        bool, Option("--each-record", help="predict after every record: when did the answer change?")
    ] = False,
) -> Results | None:
    """Predict every sequence of a table: its class and the probability of each class."""
    import polars as pl

    from tefm.show.terminal import prediction_table
    from tefm.tables.chunks import write_frames

    check_target(target, "predictions are written as CSV or Parquet", "--out predictions.csv", ".csv", ".parquet")
    decided: dict[str, Any] = {}
    if (job := ray.job(model, table, **vars(options), threshold=threshold)) is not None:
        if each_record:
            raise TefmError("--each-record works with the local engine only", remedy="leave out --engine ray")
        batches = job.predict()
    else:
        loaded, opened = options.opened(model, table)
        loaded = loaded.with_threshold(threshold)
        decided = {"decision": loaded.fitted.decision_in_words}
        batches = loaded.predict_batches(opened, each_record=each_record)
    words = "".join(f"Predicted: {escape(rule)}." for rule in decided.values())
    if target is not None:
        err.print(f"{write_frames(batches, target):,} predictions written to {target}. {words}", highlight=False)
        return None
    predictions = pl.concat(batches)
    return Results(lambda: [decided | row for row in predictions.to_dicts()], [prediction_table(predictions), words])


@command("tefm evaluate model labelled.csv")
def evaluate(model: ModelArg, table: TableArg, options: ModelOptions, threshold: ThresholdOption = None) -> Results:
    """Score a model on labelled sequences that it has not seen, with bootstrap intervals."""
    from tefm.show.terminal import evaluation_tables

    loaded, opened = options.opened(model, table, labelled=True)
    evaluation = loaded.with_threshold(threshold).evaluate(opened)
    warn_of_training_data(loaded, table)
    return Results(evaluation.to_dict(), evaluation_tables(evaluation))


@command("tefm report model --table admissions.csv --out report.html")
def report(
    model: ModelArg,
    options: ModelOptions,
    table: Annotated[
        str | None, Argument(help="labelled table, used whole; or a task file, whose test part is used")
    ] = None,
    fitted_on: Annotated[
        str | None, Option("--table", help="table that the model was fitted on; its test part is used")
    ] = None,
    target: Annotated[Path, Option("--out", help="HTML file")] = Path("report.html"),
) -> Results:
    """Write one HTML page about a model: decisions, scores, curves, groups, data, explanations, tokens, codes."""
    from tefm import TEFM
    from tefm.model.report import figures_of, split_of, task_of
    from tefm.show.report_page import report_page

    if table is not None and fitted_on is not None:
        raise TefmError("a report needs one table, not two", value=table, remedy="leave out this one, or --table")
    check_target(target, "a report is written as HTML", "--out report.html", ".html")
    name = table if fitted_on is None else fitted_on
    opened, domain = None, options.domain
    if name is not None and not name.endswith((".yaml", ".yml")):
        opened, domain = options.readable(model, name, labelled=True)
    loaded = TEFM.load(model, device=options.device, domain=domain)
    split = None if fitted_on is None else split_of(loaded)
    figures = figures_of(loaded, opened or task_of(loaded, table), split=split)
    page_written("report", target, report_page(figures))
    return Results(figures.to_dict)


@command("tefm tokens model admissions.csv")
def tokens(model: ModelArg, table: TableArg, options: TableOptions) -> Results:
    """Count the tokens the model reads per sequence, and those of the same records as text."""
    from tefm import TEFM
    from tefm.model.run import count_tokens
    from tefm.show.terminal import token_table

    opened, domain = options.readable(model, table)
    loaded = TEFM.load(model, device="cpu", domain=domain)
    counts = count_tokens(loaded, loaded.preparation.to_predict(opened))
    return Results([vars(count) for count in counts], [token_table(counts)])


# ---- questions in words --------------------------------------------------------------------------------------------


@command('tefm ask model admissions.csv "Next admission: heart failure?"')
def ask(
    model: ModelArg,
    options: ModelOptions,
    table: Annotated[str | None, Argument(help="records to ask about, as for `tefm predict`")] = None,
    questions: Annotated[list[str] | None, Argument(help="one question or more, in words")] = None,
    listed: Annotated[
        bool, Option("--list", help="list the questions that the model was trained on, with their scores")
    ] = False,
    entity: Annotated[list[str] | None, Option("--entity", help="ask only about this entity; repeatable")] = None,
    anyway: Annotated[
        bool, Option("--anyway", help="answer new questions even if the accuracy on new questions is unknown")
    ] = False,
    target: Annotated[Path | None, Option("--out", help="CSV or Parquet file (default: print)")] = None,
) -> Results:
    """Ask about every sequence of a table: the probability of yes, and how reliable answers to this question are."""
    import polars as pl

    from tefm import TEFM
    from tefm.model.bundle import load_book
    from tefm.questions.book import checked_question, question_frame
    from tefm.show.terminal import answer_table, question_tables
    from tefm.tables.chunks import write_frames

    if listed:
        book = load_book(model, options.domain)
        body = {"questions": question_frame(book).to_dicts(), "new": book.new.model_dump()}
        return Results(body, question_tables(book))
    if table is None or not questions:
        raise TefmError(
            "`tefm ask` needs a table and a question",
            remedy='tefm ask MODEL TABLE "Next admission: heart failure?"; `tefm ask MODEL --list` shows what it knows',
        )
    check_target(target, "answers are written as CSV or Parquet", "--out answers.csv", ".csv", ".parquet")
    texts = [checked_question(text) for text in questions]
    opened, domain = options.readable(model, table)
    book = load_book(model, domain)
    loaded = TEFM.load(model, device=options.device, domain=domain)
    batches = loaded.ask_batches(opened, texts, anyway=anyway)
    if entity:
        noun = loaded.preparation.sequence_noun
        batches = (part.filter(pl.col(noun).cast(pl.String).is_in(entity)) for part in batches)
    worth = {text: book.worth(text) for text in texts}
    said = [_worth(*of) for of in worth.items()]
    if target is not None:
        err.print(f"{write_frames(batches, target):,} answers written to {target}")
        return Results({"worth": worth}, said)
    answers = pl.concat(batches)
    if entity and not answers.height:
        raise TefmError(f"no such {noun} in this table", value=entity[0], remedy="check its name")
    return Results(lambda: {"answers": answers.to_dicts(), "worth": worth}, [answer_table(answers), *said])


@command('tefm teach model labelled.csv --question "Is the wound infected?" --answer infected')
def teach(
    model: ModelArg,
    table: Annotated[str, Argument(help="labelled records, as for `tefm predict`")],
    question: Annotated[str, Option(help="the new question, in words")],
    answer: Annotated[str, Option(help="column that holds the answer, at the last record of a sequence")],
    options: ModelOptions,
    yes: Annotated[str | None, Option(help="value that means yes (default: detected)")] = None,
    share: Annotated[float | None, Option(help="share of yes in the population, if not the table's")] = None,
    target: Annotated[Path | None, Option("--out", help="folder to write (default: the model itself)")] = None,
) -> Results:
    """Teach a model a new question from eight or more labelled sequences; all other answers stay the same."""
    from tefm import TEFM, Domains
    from tefm.base.files import check_replaceable
    from tefm.model.bundle import is_saved
    from tefm.questions.book import checked_question

    text, folder = checked_question(question), target or model
    check_replaceable(folder, is_saved)
    check_writable(folder)
    opened, domain = options.readable(model, table)
    saved = (TEFM if domain is None else Domains).load(model, device=options.device)
    taught = saved if isinstance(saved, TEFM) else saved[str(domain)]
    worth = taught.teach(opened, text, answer=answer, yes=yes, share=share, absent=options.absent)
    saved.save(folder)
    remark = f"written to {folder}; ask it: tefm ask {folder} TABLE “{escape(text)}”"
    return Results({"question": text, "worth": worth, "model": str(folder)}, [_worth(text, worth)], remark)


def _worth(text: str, worth: str) -> str:
    """What answers to a question are worth."""
    return f"“{escape(text)}” {escape(worth)}"
