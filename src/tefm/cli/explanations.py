"""Commands that explain answers: explain, and rationale for the paper's masks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType

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
    print_json,
    ray_engine,
    readable,
)

OnlyOption = Annotated[
    list[str] | None, typer.Option("--entity", help="explain only this one; may be given several times")
]
LimitOption = Annotated[int, typer.Option(help="cards to print, at most")]
CardsOption = Annotated[Path | None, typer.Option("--out", help="HTML page, or JSON lines, with all of them")]


@app.command(epilog="Example: tefm explain model admissions.csv --entity 12345 --class died")
def explain(
    model: ModelArg,
    table: TableArg,
    question_in_words: Annotated[
        str | None, typer.Option("--question", help="explain the answer to a question in words (`tefm ask`)")
    ] = None,
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
    case: Annotated[
        bool, typer.Option("--case", help="paragraphs (summary, diagnoses, drugs, …) in place of the card")
    ] = False,
    entity: OnlyOption = None,
    limit: LimitOption = 3,
    target: CardsOption = None,
    query: QueryOption = None,
    absent: AbsentOption = False,
    domain: DomainOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    workers: WorkersOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain predictions: features that settle the answer, and what speaks for and against a class."""
    from tefm.model import TEFM
    from tefm.rationale.explanation import to_json
    from tefm.rationale.render import case_card, explanation_card, explanations_page
    from tefm.records.references import References
    from tefm.show.terminal import summary_tables

    _refuse_format(target)
    if population is not None and (entity or target is not None):
        remedy = "leave --entity and --out out"
        raise TefmError("--population summarises a whole table on the terminal", value=population, remedy=remedy)
    question: dict[str, Any] = {"of_class": of_class, "precision": precision, "most": most}
    cited = None if references is None else References.read(references)
    cluster = ray_engine(engine, address, workers, query=query)
    if cluster is not None and population is not None:
        raise TefmError("--population is for the local engine", remedy="leave --engine ray out")
    if question_in_words is not None and (cluster is not None or population is not None):
        raise TefmError(
            "--question explains single answers on this machine", remedy="leave --population and --engine ray out"
        )
    with shown():
        if cluster is not None:
            from tefm.cluster.work import explain_on_ray

            explanations = explain_on_ray(
                cluster,
                model,
                table,
                domain=domain,
                entities=entity,
                references=cited,
                absent=absent,
                device=device,
                **question,
            )
        else:
            opened, domain = readable(model, table, query, absent, domain)
            loaded = TEFM.load(model, device=device, domain=domain)
            if population is not None:
                summary = loaded.explain_population(opened, sequences=population, **question)
            else:
                explanations = loaded.explain(
                    opened, question=question_in_words, entities=entity, references=cited, **question
                )
    if population is not None:
        if as_json:
            print_json(asdict(summary))
        else:
            for part in summary_tables(summary):
                out.print(part)
        return
    cards = ((case_card if case else explanation_card)(one) for one in explanations[:limit])
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
    domain: DomainOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Masked sufficiency, as in the paper: a few slots with which alone the model gives the same answer."""
    from tefm.model import TEFM
    from tefm.rationale.masks.card import to_json
    from tefm.rationale.render import card, to_html

    _refuse_format(target)
    choice: dict[str, Any] = {"keep": _share(keep), "of": of, "over": over, "by": by}
    with shown():
        opened, domain = readable(model, table, query, absent, domain)
        rationales = TEFM.load(model, device=device, domain=domain).explain_masked(opened, entities=entity, **choice)
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
    if target is not None:
        check_writable(target)


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
        print_json(as_values)
    else:
        for shown_card in cards:
            out.print(shown_card)


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
