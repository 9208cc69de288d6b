"""Commands for a model in use: explain, rationale (the paper's masks), monitor, serve; and the demo."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from typer import Argument, Option

from tefm.base.errors import TefmError, extra
from tefm.base.files import write_text
from tefm.base.progress import err, shown
from tefm.cli.app import (
    DeviceOption,
    ModelArg,
    ModelOptions,
    RayOptions,
    Results,
    TableArg,
    check_target,
    command,
    page_written,
    warn_of_training_data,
)
from tefm.serve.limits import ServeSettings

if TYPE_CHECKING:
    from tefm.explain.cards import Card

#: Groups of the options of `explain` and `rationale`; those about the model and the machine come first.
asked_option, which_option, cards_option = (
    partial(Option, rich_help_panel=title) for title in ("What is asked", "Which sequences", "Cards")
)
#: The exit status of `tefm monitor` when a batch has drifted; 0 is no alarm, 1 an error.
ALARM = 3


# ---- explanations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CardOptions:
    """Which sequences are explained, and where their cards go."""

    entity: Annotated[list[str] | None, which_option("--entity", help="explain only this entity; repeatable")] = None
    limit: Annotated[int, cards_option(help="sequences to explain on the terminal (--json and --out: all)")] = 3
    target: Annotated[Path | None, cards_option("--out", help="HTML page or JSON lines with all of them")] = None

    def check(self) -> None:
        problem, example = "explanations are written as HTML or JSON lines", "--out page.html"
        check_target(self.target, problem, example, ".html", ".jsonl")

    def results(
        self, found: Sequence[Card], shown_as: Callable[[Any], RenderableType], title: str, counts: str
    ) -> Results | None:
        """Explanations as JSON, as cards, or as a file."""
        from tefm.explain.render import cards_page

        bodies, remark = [one.to_json() for one in found], f"{len(found):,} explained: {counts}"
        if self.target is None and len(found) >= self.limit:
            remark += "; --limit N shows more, --out page.html all of them"
        if self.target is None:
            return Results(bodies, map(shown_as, found[: self.limit]), remark)
        lines = (json.dumps(body, ensure_ascii=False) + "\n" for body in bodies)
        write_text(self.target, cards_page(found, title) if self.target.suffix == ".html" else "".join(lines))
        err.print(f"{len(found):,} explanations written to {self.target}")
        err.print(remark, highlight=False)
        return None


@command("tefm explain model admissions.csv --entity 12345 --class died")
def explain(
    model: ModelArg,
    table: TableArg,
    cards: CardOptions,
    options: ModelOptions,
    ray: RayOptions,
    question_in_words: Annotated[
        str | None, asked_option("--question", help="explain the answer to a question in words (`tefm ask`)")
    ] = None,
    of_class: Annotated[
        str | None, asked_option("--class", help="evidence for and against this class (default: the predicted one)")
    ] = None,
    above: Annotated[
        float | None,
        asked_option(help="numeric label: explain why it is above or below this value (default: the median)"),
    ] = None,
    precision: Annotated[
        float, asked_option(help="minimum share of a rule's made-up and real cases that must get the same answer")
    ] = 0.9,
    most: Annotated[int, asked_option(help="maximum number of conditions in a rule")] = 10,
    without: Annotated[
        list[str] | None, asked_option("--without", help="leave this field out of rules and effects; repeatable")
    ] = None,
    sensitive: Annotated[
        list[str] | None,
        asked_option("--sensitive", help="mark this field, and show the answer with other values of it; repeatable"),
    ] = None,
    similar: Annotated[
        int, cards_option(help="also show the N most similar training sequences that satisfy the rule")
    ] = 0,
    population: Annotated[
        int | None, which_option(help="summarise explanations of N random sequences", metavar="N")
    ] = None,
    references: Annotated[
        Path | None, cards_option(help="table with columns field, value, statement, source, cited under the conditions")
    ] = None,
    bibliography: Annotated[bool, cards_option("--bibliography", help="list the sources of the references")] = False,
    as_json: bool = False,
) -> Results | None:
    """Explain predictions: a rule that settles the answer, checked on made-up and real cases, and its effect."""
    from tefm.explain.render import explanation_card
    from tefm.show.terminal import summary_tables
    from tefm.tables.references import References

    cards.check()
    if population is not None and (cards.entity or cards.target is not None or sensitive or similar):
        remedy = "leave out --entity, --out, --sensitive and --similar"
        raise TefmError("--population summarises a whole table on the terminal", value=population, remedy=remedy)
    question: dict[str, Any] = {"of_class": of_class, "above": above, "precision": precision, "most": most}
    question["without"] = without
    cited = None if references is None else References.read(references)
    job = ray.job(model, table, **vars(options))
    if job is not None and population is not None:
        raise TefmError("--population works with the local engine only", remedy="leave out --engine ray")
    if question_in_words is not None and (job is not None or population is not None):
        raise TefmError("--question cannot be combined with --population or --engine ray", remedy="leave them out")
    if job is not None:
        explanations = job.explain(
            entities=cards.entity, references=cited, sensitive=sensitive, similar=similar, **question
        )
    else:
        loaded, opened = options.opened(model, table)
        if population is not None:
            summary = loaded.explain_population(opened, sequences=population, **question)
            return Results(asdict(summary), summary_tables(summary))
        asked: dict[str, Any] = {"question": question_in_words, "entities": cards.entity, "references": cited}
        asked |= {"sensitive": sensitive, "similar": similar}
        asked["limit"] = None if as_json or cards.target is not None else cards.limit  # each takes seconds
        explanations = loaded.explain(opened, **asked, **question)
    verdicts = Counter(one.verdict for one in explanations)
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.most_common())
    shown_as = partial(explanation_card, bibliography=bibliography)
    return cards.results(explanations, shown_as, "Explanations", counts)


@command("tefm rationale model admissions.csv --keep 5%")
def rationale(
    model: ModelArg,
    table: TableArg,
    cards: CardOptions,
    options: ModelOptions,
    keep: Annotated[
        str | None, Option(help="share of the slots to keep, e.g. 5% (default: the smallest sufficient rationale)")
    ] = None,
    of: Annotated[str, Option(help="what --keep is a share of: all slots, or those present in a record")] = "all",
    over: Annotated[str, Option(help="keep the share of each record, or of the whole sequence")] = "sequence",
) -> Results | None:
    """Masked sufficiency, as in the paper: a few slots that alone lead to the same answer."""
    from tefm.explain.render import card

    cards.check()
    choice: dict[str, Any] = {"keep": _share(keep), "of": of, "over": over}
    loaded, opened = options.opened(model, table)
    rationales = loaded.explain_masked(opened, entities=cards.entity, **choice)
    sufficient = sum(one.passed for one in rationales)
    default = sum(one.verdict == "default" for one in rationales)
    counts = f"{sufficient:,} with sufficient slots, {default:,} default answers, the same with all slots masked"
    return cards.results(rationales, card, "Rationales", counts)


def _share(text: str | None) -> float | None:
    """5% or 0.05."""
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise TefmError("--keep must be a share of the slots", value=text, remedy="give 5% or 0.05, up to 100%")
    return share


# ---- a model in use, and the demo -----------------------------------------------------------------------------------


@command("tefm monitor model new_admissions.csv --by week --html drift.html")
def monitor(
    model: ModelArg,
    table: TableArg,
    options: ModelOptions,
    reference: Annotated[
        str | None, Option(help="table of normal records to compare with (default: the records held out by the fit)")
    ] = None,
    by: Annotated[str | None, Option(help="batches by day, week or month (default: one batch)")] = None,
    html: Annotated[Path | None, Option(help="also write one HTML page")] = None,
    level: Annotated[float, Option(help="false alarm rate per batch, over all tests together")] = 0.05,
) -> Results:
    """Compare new records with those at fit time: what changed by more than chance.

    Exit status: 0 no alarm, 3 alarm in at least one batch, 1 error. Labels in the table are used if it has them.
    """
    from tefm.monitor.drift_page import drift_page, drift_tables
    from tefm.tables.readers.table import open_table

    check_target(html, "the page is written as HTML", "--html drift.html", ".html")
    usual = None if reference is None else open_table(reference)
    loaded, opened = options.opened(model, table)
    warn_of_training_data(loaded, table)
    report = loaded.monitor(opened, reference=usual, by=by, absent=options.absent, level=level)
    if html is not None:
        page_written("page", html, drift_page(report))
    return Results(report.to_dict(), drift_tables(report), status=ALARM if report.alarm else 0)


@command("tefm serve model --port 8000")
def serve(
    models: Annotated[list[str], Argument(help="model folders; NAME=FOLDER serves one under another name")],
    settings: ServeSettings,
    host: Annotated[str, Option(help="address to listen on (loopback only, unless there are API keys)")] = "127.0.0.1",
    port: Annotated[int, Option(help="port to listen on; 0 takes a free one", min=0, max=65_535)] = 8_000,
    api_key_file: Annotated[Path | None, Option(help="file with one API key per line")] = None,
    remember: Annotated[bool, Option(help="cache answers to repeated prompts")] = True,
    access_log: Annotated[bool, Option(help="log one line per request, without its contents")] = True,
    device: DeviceOption = None,
) -> None:
    """Serve models over HTTP: predictions, explanations, and a page to try them at /.

    Put a proxy in front for TLS. On SIGTERM, accepted requests are still answered.
    """
    with extra("serve", "serving needs {package}"):
        from tefm.serve.protect import Keys, check_host
        from tefm.serve.server import load_models, run

    keys = Keys([]) if api_key_file is None else Keys.read(api_key_file)
    check_host(host, keys)  # before anything is loaded
    with shown():
        loaded = load_models(models, remember=remember, device=device)
    run(loaded, host=host, port=port, settings=settings, keys=keys, access_log=access_log)


@command("tefm demo", log=True)
def demo(
    steps: Annotated[int, Option(help="training steps of the tokenizer")] = 1_300,
    layers: Annotated[int, Option(help="use only the first N blocks of the language model")] = 4,
    tune_steps: Annotated[int, Option(help="training steps of the language model")] = 160,
    target: Annotated[Path, Option("--out", help="HTML file for the details")] = Path("tefm-demo.html"),
    save: Annotated[Path | None, Option(help="also save the model in this folder")] = None,
    verbose: Annotated[bool, Option("--verbose", help="also print the tables of every stage")] = False,
) -> Results:
    """Predict death from hospital admissions on embedded data, against LightGBM, and explain one prediction."""
    from tefm.cli.story import run_demo

    story = run_demo(steps=steps, layers=layers, tune_steps=tune_steps, report=target, save=save)
    return Results(story.to_dict(), story.shown(verbose=verbose))
