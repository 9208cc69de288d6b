"""`tefm`: one command per verb, each a thin call into the library."""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import RenderableType

from tefm.base.errors import TefmError, TefmWarning
from tefm.base.progress import err, note, out, shown
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
    str, typer.Argument(help="CSV, CSV.gz, TSV, Parquet (file, folder, glob), Arrow, JSON lines, DuckDB file")
]
ModelArg = Annotated[Path, typer.Argument(help="folder of a model")]
TokenizerArg = Annotated[Path, typer.Argument(help="folder of a tokenizer")]
QueryOption = Annotated[str | None, typer.Option(help="SQL query, for a DuckDB file")]
SchemaOption = Annotated[Path | None, typer.Option(help="schema YAML; inferred when left out")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON for machines")]
EntityOption = Annotated[str | None, typer.Option(help="column that names the entity, e.g. the patient")]
TimeOption = Annotated[str | None, typer.Option(help="column that orders the records of an entity")]
LabelOption = Annotated[str | None, typer.Option(help="column to predict")]
AbsentOption = Annotated[
    bool, typer.Option("--absent", help="read fields whose columns are missing as absent; an error by default")
]
DeviceOption = Annotated[str | None, typer.Option(help="cpu or cuda; the GPU when there is one")]


def main() -> NoReturn:
    """Run the command line; a user error is one clear message, never a traceback."""
    warnings.showwarning = partial(_warned, otherwise=warnings.showwarning)
    try:
        app(standalone_mode=True)
    except TefmError as error:
        err.print(f"[bold red]error[/]: {_escaped(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            err.print("interrupted; give the same command again to resume `fit`, `tokenize` or `bench`")
        raise
    sys.exit(0)


def _warned(message: Warning | str, category: type[Warning], *where: Any, otherwise: Any, **more: Any) -> None:
    """A warning of ours is one line for the user; the libraries' stay as they are."""
    if issubclass(category, TefmWarning):
        err.print(f"! {_escaped(str(message))}", style="yellow", highlight=False, soft_wrap=True)
    else:
        otherwise(message, category, *where, **more)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    if version:
        out.print(__version__)
        raise typer.Exit


@app.command(epilog="Example: tefm inspect admissions.csv --entity patient_id --label died --out schema.yaml")
def inspect(
    table: TableArg,
    entity: EntityOption = None,
    time: TimeOption = None,
    label: LabelOption = None,
    query: QueryOption = None,
    schema_out: Annotated[Path | None, typer.Option("--out", help="write the schema here, to edit it")] = None,
    as_json: JsonOption = False,
) -> None:
    """Look at a table: the probable kind of each column, and columns that leak the label."""
    from tefm.records.infer import schema_of
    from tefm.records.readers.table import open_table
    from tefm.show.terminal import schema_table

    opened = open_table(table, query=query)
    schema, guesses = schema_of(opened, entity=entity, time=time, label=label)
    leaks, remarks = _leaks(opened, schema), _ambiguities(opened, schema)
    if schema_out is not None:
        schema.save(schema_out)
    if as_json:
        _print_json(
            {
                "table": opened.name,
                "schema": schema.model_dump(mode="json", exclude_defaults=True),
                "columns": [{"column": g.column, "kind": g.kind, "why": g.why, "missing": g.missing} for g in guesses],
                "leaks": [vars(leak) for leak in leaks],
                "remarks": remarks,
            }
        )
        return
    out.print(schema_table(opened.name, schema, guesses))
    for remark in (*leaks, *remarks):
        out.print(f"[yellow]![/] {_escaped(str(remark))}", highlight=False)
    if schema_out is not None:
        out.print(f"schema written to {schema_out}; edit it, then:", highlight=False)
        if schema.label is None:
            out.print(f"tefm tokenize {table} --schema {schema_out} --out tokenizer", highlight=False)
        else:
            out.print(f"task.yaml:  {{table: {table}, schema: {schema_out}}}", highlight=False, markup=False)
            out.print("tefm fit task.yaml --out model", highlight=False)


@app.command(epilog="Example: tefm tokenize admissions.csv --schema schema.yaml --out tokenizer")
def tokenize(
    table: TableArg,
    folder: Annotated[Path, typer.Option("--out", help="folder for the tokenizer")],
    schema: SchemaOption = None,
    entity: EntityOption = None,
    time: TimeOption = None,
    label: LabelOption = None,
    query: QueryOption = None,
    preset: Annotated[str, typer.Option(help="default, or paper for the paper's plain objective")] = "default",
    unsupervised: Annotated[bool, typer.Option("--unsupervised", help="codes that do not use the label")] = False,
    levels: Annotated[int | None, typer.Option(help="K, the number of levels: a record becomes K codes")] = None,
    entries: Annotated[int | None, typer.Option(help="C, the codebook entries per level")] = None,
    buckets: Annotated[int | None, typer.Option(help="B, the buckets of every number field")] = None,
    steps: Annotated[int | None, typer.Option(help="training steps")] = None,
    seed: Annotated[int, typer.Option(help="random seed")] = 0,
    settings: Annotated[list[str] | None, typer.Option("--set", help="any other setting, as name=value")] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a tokenizer: learn slots and codes from a table. Resumes if interrupted."""
    from tefm.base.files import check_replaceable
    from tefm.codes.tokenizer import RecordTokenizer

    check_replaceable(folder, RecordTokenizer.is_saved)
    opened, table_schema = _table_and_schema(table, query, schema, entity, time, label)
    table_schema = table_schema if buckets is None else table_schema.with_buckets(buckets)
    given = {"levels": levels, "entries": entries, "steps": steps, "seed": seed, **_pairs(settings or [])}
    chosen = {name: value for name, value in given.items() if value is not None}
    tokenizer = RecordTokenizer(preset=preset, device=device, **chosen)  # type: ignore[arg-type]
    checkpoint = folder.with_name(f"{folder.name}.checkpoint")
    with shown(on_stdout=not as_json):
        if checkpoint.exists():
            note(f"resuming from {checkpoint}")
        tokenizer.fit(opened, table_schema, task_aware=False if unsupervised else None, checkpoint=checkpoint)
    tokenizer.save(folder)
    history, coder = tokenizer.coder.history_, tokenizer.coder
    facts = {
        "folder": str(folder),
        "slots": coder.layout.width,
        "levels": coder.config.levels,
        "entries": coder.config.entries,
        "task_aware": bool(coder.classes_),
        "classes": list(coder.classes_),
        "steps": history.stopped_at,
        "resumed_from": history.resumed_from,
        "identity": coder.identity,
    }
    if as_json:
        _print_json(facts)
        return
    kind = f"task-aware codes for {table_schema.label!r}" if coder.classes_ else "unsupervised codes"
    out.print(f"{kind}: {coder.layout.width} slots become {coder.config.levels} × {coder.config.entries}")
    out.print(f"saved to {folder}. Next: tefm doctor {folder} {table}")


@app.command(epilog="Example: tefm encode tokenizer admissions.parquet --out codes.parquet")
def encode(
    tokenizer: TokenizerArg,
    table: TableArg,
    target: Annotated[Path, typer.Option("--out", help="Parquet file; a folder when the table is a folder")],
    query: QueryOption = None,
    absent: AbsentOption = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Encode a table to Parquet, with entity, time and label, in bounded memory."""
    from tefm.codes.stream import encode_to_parquet
    from tefm.codes.tokenizer import RecordTokenizer

    with shown():
        loaded = RecordTokenizer.load(tokenizer, device=device)
        records = encode_to_parquet(loaded, table, target, query=query, absent=absent)
    if as_json:
        _print_json({"records": records, "out": str(target)})
    else:
        out.print(f"{records:,} records encoded to {target}")


@app.command(epilog="Example: tefm decode tokenizer codes.parquet --out records.parquet")
def decode(
    tokenizer: TokenizerArg,
    codes: Annotated[Path, typer.Argument(help="Parquet that `tefm encode` wrote")],
    target: Annotated[Path | None, typer.Option("--out", help="Parquet file for the records")] = None,
    words: Annotated[bool, typer.Option("--words", help="print records in words")] = False,
    rows: Annotated[int, typer.Option(help="records to print")] = 3,
    as_json: JsonOption = False,
) -> None:
    """Turn codes back into records: a lossy reconstruction."""
    from tefm.base.files import replacing
    from tefm.codes.stream import read_codes
    from tefm.codes.tokenizer import RecordTokenizer
    from tefm.language.vocabulary import CodeVocabulary
    from tefm.records.describe import describe

    loaded = RecordTokenizer.load(tokenizer)
    codes_NK = read_codes(codes, loaded.config.levels)
    if target is not None:
        with replacing(target) as temporary:
            loaded.decode(codes_NK).write_parquet(temporary)
        err.print(f"{len(codes_NK):,} records decoded to {target}")
    first = loaded.coder.decode(codes_NK[:rows])
    if as_json:
        _print_json(loaded.vectoriser.inverse(first).to_dicts())
    elif words or target is None:
        record, config = loaded.vectoriser.table_schema.record, loaded.config
        tokens = CodeVocabulary.of(record, levels=config.levels, entries=config.entries)
        for code, slots in zip(codes_NK[:rows], first, strict=True):
            out.print(f"[bold]{tokens.text(code)}[/]  {_escaped(describe(loaded.vectoriser, slots))}", highlight=False)


@app.command(epilog="Example: tefm doctor tokenizer admissions.csv")
def doctor(
    tokenizer: TokenizerArg,
    table: TableArg,
    query: QueryOption = None,
    seed: Annotated[int, typer.Option(help="seed of the split that the ceiling is measured on")] = 0,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Examine codes: fidelity, codebook use, collisions, hierarchy, what they could predict; what to change.

    Give it records that the tokenizer was not trained on; on training records the figures are too good.
    """
    from tefm.codes.doctor import examine_table
    from tefm.codes.tokenizer import RecordTokenizer
    from tefm.records.readers.table import open_table
    from tefm.show.terminal import examination_tables

    with shown():
        loaded = RecordTokenizer.load(tokenizer, device=device)
        examination = examine_table(loaded, open_table(table, query=query), seed=seed)
    if as_json:
        _print_json(examination.to_dict())
        return
    for part in examination_tables(examination):
        out.print(part)


@app.command(epilog="Example: tefm fit task.yaml --out model")
def fit(
    task: Annotated[Path, typer.Argument(help="task YAML: table, entity, time, label, and any settings")],
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

    Resumes if interrupted. Redirected to a file, the output is a log: a line per stage and per minute.
    """
    from tefm.fit import fit_task
    from tefm.show.terminal import outcome_tables
    from tefm.task import ModelConfig, Task

    given = {"backbone": backbone, "layers": layers, "inputs": inputs, "align": align, "seed": seed}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if unsupervised:
        changes["task_aware"] = False
    if quick:
        changes["quick"] = True
    loaded = Task.load(task)
    loaded = loaded.model_copy(update={"model": ModelConfig.checked({**dict(loaded.model), **changes})})
    with shown(on_stdout=not as_json):
        _, outcome = fit_task(loaded, folder, device=device, compare=compare)
    if as_json:
        _print_json({"folder": str(folder), **outcome.to_dict()})
        return
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
    with shown():
        opened = _readable(model, table, query, absent)
        batches = TEFM.load(model, device=device).predict_batches(opened)
        if target is not None:
            written = write_frames(batches, target)
        else:
            predictions = pl.concat(batches)
    if target is not None:
        err.print(f"{written:,} predictions written to {target}")
    elif as_json:
        _print_json(predictions.to_dicts())
    else:
        out.print(prediction_table(predictions))


OnlyOption = Annotated[
    list[str] | None, typer.Option("--entity", help="explain only this one; may be given several times")
]
LimitOption = Annotated[int, typer.Option(help="cards to print, at most")]
CardsOption = Annotated[Path | None, typer.Option("--out", help="HTML page, or JSON lines, with all of them")]


@app.command(epilog="Example: tefm explain model admissions.csv --entity 12345 --class died")
def explain(
    model: ModelArg,
    table: TableArg,
    of_class: Annotated[
        str | None, typer.Option("--class", help="show what speaks for and against this class; default: the answer")
    ] = None,
    precision: Annotated[float, typer.Option(help="share of the look-alikes that must get the same answer")] = 0.9,
    most: Annotated[int, typer.Option(help="features that may settle an answer, at most")] = 10,
    population: Annotated[
        int | None, typer.Option(help="what explanations of so many sequences, drawn at random, have in common")
    ] = None,
    references: Annotated[
        Path | None, typer.Option(help="table of field, value, statement, source to cite beside the features")
    ] = None,
    entity: OnlyOption = None,
    limit: LimitOption = 3,
    target: CardsOption = None,
    query: QueryOption = None,
    absent: AbsentOption = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain predictions: features that settle the answer, and what speaks for and against a class."""
    from tefm.model import TEFM
    from tefm.rationale.explanation import to_json
    from tefm.rationale.render import explanation_card, explanations_page
    from tefm.records.references import References
    from tefm.show.terminal import summary_tables

    _refuse_format(target)
    if population is not None and (entity or target is not None):
        remedy = "leave --entity and --out out"
        raise TefmError("--population summarises a whole table on the terminal", value=population, remedy=remedy)
    question: dict[str, Any] = {"of_class": of_class, "precision": precision, "most": most}
    cited = None if references is None else References.read(references)
    with shown():
        opened = _readable(model, table, query, absent)
        loaded = TEFM.load(model, device=device)
        if population is not None:
            summary = loaded.explain_population(opened, sequences=population, **question)
        else:
            explanations = loaded.explain(opened, entities=entity, references=cited, **question)
    if population is not None:
        if as_json:
            _print_json(asdict(summary))
        else:
            for part in summary_tables(summary):
                out.print(part)
        return
    cards = (explanation_card(one) for one in explanations[:limit])
    _print_explained(list(map(to_json, explanations)), lambda: explanations_page(explanations), cards, target, as_json)
    verdicts = Counter(one.verdict for one in explanations)
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.most_common())
    err.print(f"{len(explanations):,} explained: {counts}", highlight=False)


@app.command(epilog="Example: tefm rationale model admissions.csv --keep 5%")
def rationale(
    model: ModelArg,
    table: TableArg,
    keep: Annotated[
        str | None,
        typer.Option(help="share of the slots to keep, like 5%; by default the smallest rationale that suffices"),
    ] = None,
    of: Annotated[str, typer.Option(help="what --keep is a share of: all slots, or those present in a record")] = "all",
    over: Annotated[str, typer.Option(help="keep the share of each record, or of the whole sequence")] = "sequence",
    by: Annotated[str, typer.Option(help="count every slot, or fields: a set counts the values it has")] = "slot",
    entity: OnlyOption = None,
    limit: LimitOption = 3,
    target: CardsOption = None,
    query: QueryOption = None,
    absent: AbsentOption = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Masked sufficiency, as in the paper: a few slots with which alone the model gives the same answer."""
    from tefm.model import TEFM
    from tefm.rationale.card import to_json
    from tefm.rationale.render import card, to_html

    _refuse_format(target)
    choice: dict[str, Any] = {"keep": _share(keep), "of": of, "over": over, "by": by}
    with shown():
        opened = _readable(model, table, query, absent)
        rationales = TEFM.load(model, device=device).explain_masked(opened, entities=entity, **choice)
    cards = (card(one) for one in rationales[:limit])
    _print_explained(list(map(to_json, rationales)), lambda: to_html(rationales), cards, target, as_json)
    sufficient = sum(one.passed for one in rationales)
    default = sum(one.verdict == "default" for one in rationales)
    counts = f"{sufficient:,} with sufficient slots, {default:,} default answers, the same with all slots masked"
    err.print(f"{len(rationales):,} explained: {counts}", highlight=False)


def _refuse_format(target: Path | None) -> None:
    """Before anything is loaded."""
    if target is not None and target.suffix not in (".html", ".jsonl"):
        raise TefmError("explanations are written as HTML or JSON lines", value=target.name, remedy="--out page.html")


def _print_explained(
    as_values: list[dict[str, Any]],
    page: Callable[[], str],
    cards: Iterable[RenderableType],
    target: Path | None,
    as_json: bool,
) -> None:
    """Explanations as a file, as JSON, or as cards."""
    from tefm.base.files import write_text

    if target is not None:
        lines = (json.dumps(values, ensure_ascii=False) + "\n" for values in as_values)
        write_text(target, page() if target.suffix == ".html" else "".join(lines))
        err.print(f"{len(as_values):,} explanations written to {target}")
    elif as_json:
        _print_json(as_values)
    else:
        for shown_card in cards:
            out.print(shown_card)


@app.command(epilog="Example: tefm evaluate model labelled.csv")
def evaluate(
    model: ModelArg,
    table: TableArg,
    query: QueryOption = None,
    absent: AbsentOption = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score a model on labelled sequences that it has not seen, with bootstrap intervals."""
    from tefm.model import TEFM
    from tefm.show.terminal import evaluation_table

    with shown():
        opened = _readable(model, table, query, absent, labelled=True)
        loaded = TEFM.load(model, device=device)
        evaluation = loaded.evaluate(opened)
    if loaded.source_ is not None and Path(loaded.source_["table"]) == Path(table).absolute():
        err.print("! the model was fitted on this table: most of these sequences are training data", style="yellow")
    if as_json:
        _print_json(evaluation.to_dict())
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
    with shown():
        is_table = table is not None and not table.endswith((".yaml", ".yml"))
        opened = _readable(model, str(table), query, absent, labelled=True) if is_table else None
        loaded = TEFM.load(model, device=device)
        figures = figures_of(loaded, opened or source_of(loaded, table, query=query))
    write_text(target, report_page(figures))
    if as_json:
        _print_json(figures.to_dict())
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
    as_json: JsonOption = False,
) -> None:
    """Count the tokens the model reads per sequence, and those of the same records as text."""
    from tefm.fit import count_tokens
    from tefm.language.token_counts import families as family_tokenizers
    from tefm.model import TEFM
    from tefm.show.terminal import token_table

    opened = _readable(model, table, query, absent)
    loaded = TEFM.load(model, device="cpu")
    frame, sequences = loaded.preparation.to_predict(opened)
    counts = count_tokens(loaded, frame, sequences, family_tokenizers() if families else {})
    if as_json:
        _print_json([vars(count) for count in counts])
    else:
        out.print(token_table(counts))


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
        _print_json(outcome.to_dict())
        return
    for part in outcome.renderables():
        out.print(part)


@app.command(epilog="Example: tefm demo")
def demo(
    steps: Annotated[int, typer.Option(help="training steps of the tokenizer")] = 1_500,
    layers: Annotated[int, typer.Option(help="use only the first N blocks of the language model")] = 4,
    tune_steps: Annotated[int, typer.Option(help="training steps of the language model")] = 160,
    target: Annotated[Path, typer.Option("--out", help="HTML file for the details")] = Path("tefm-demo.html"),
    verbose: Annotated[bool, typer.Option("--verbose", help="also print the tables of every stage")] = False,
    as_json: JsonOption = False,
) -> None:
    """Predict death from hospital admissions on embedded data, against LightGBM, and explain one prediction."""
    from tefm.demo import run_demo

    with shown(on_stdout=not as_json):
        story = run_demo(steps=steps, layers=layers, tune_steps=tune_steps, report=target)
    if as_json:
        _print_json(story.to_dict())
        return
    for part in story.shown(verbose=verbose):
        out.print(part, highlight=False)


# ---- helpers ----------------------------------------------------------------------------------------------------


def _readable(model: Path, table: str, query: str | None, absent: bool, *, labelled: bool = False) -> Any:
    """The table, checked before the weights of the model are loaded."""
    from tefm.bundle import load_preparation
    from tefm.records.readers.table import open_table

    return load_preparation(model).readable(open_table(table, query=query), labelled=labelled, absent=absent)


def _table_and_schema(
    table: str, query: str | None, schema: Path | None, entity: str | None, time: str | None, label: str | None
) -> tuple[Any, Any]:
    from tefm.records.infer import infer_schema
    from tefm.records.readers.table import open_table
    from tefm.records.schema import Schema

    opened = open_table(table, query=query)
    if schema is None:
        return opened, infer_schema(opened, entity=entity, time=time, label=label)
    roles = {role: name for role, name in (("entity", entity), ("time", time), ("label", label)) if name is not None}
    if roles:
        raise TefmError(
            f"--{min(roles)} and --schema are both given",
            remedy="write the role into the schema, or leave --schema out",
        )
    return opened, Schema.load(schema)


def _leaks(opened: Any, schema: Any) -> list[Any]:
    """Fields of the first rows that give the label away."""
    from tefm.records.infer import sample_of
    from tefm.records.leakage import check_leakage, label_copies
    from tefm.records.vectorise import Vectoriser
    from tefm.records.words import text_of

    if schema.label is None:
        return []
    frame = sample_of(opened)
    labels = text_of(frame[schema.label], schema.missing_words)
    frame, labels = frame.filter(labels.is_not_null()), labels.drop_nulls()
    if labels.n_unique() < 2:
        return []
    vectoriser = Vectoriser.fit(frame, schema)
    leaks = check_leakage(vectoriser.transform(frame), vectoriser.layout, labels.to_numpy())
    return [*leaks, *label_copies(frame, schema)]


def _ambiguities(opened: Any, schema: Any) -> list[str]:
    """What the records of an entity leave open; what a fit would refuse about them is said here already."""
    from tefm.records.ambiguity import ambiguities

    roles = [name for name in (schema.entity, schema.time, schema.label) if name is not None]
    try:
        return ambiguities(opened.frame(roles), schema, file=opened.name) if schema.entity is not None else []
    except TefmError as error:
        return [str(error)]


def _pairs(settings: list[str]) -> dict[str, Any]:
    """`name=value` settings; values are read as JSON where they are JSON."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator:
            raise TefmError("--set takes name=value", value=setting, remedy="for example: --set beam=8")
        try:
            values[name] = json.loads(value)
        except json.JSONDecodeError:
            values[name] = value
    return values


def _share(text: str | None) -> float | None:
    """5% or 0.05."""
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise TefmError("--keep is a share of the slots", value=text, remedy="give 5% or 0.05, above 0 and up to 100%")
    return share


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _print_json(body: Any) -> None:
    sys.stdout.write(json.dumps(body, indent=1, ensure_ascii=False, default=str) + "\n")


if __name__ == "__main__":
    main()
