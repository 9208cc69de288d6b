"""Commands that answer questions and explain answers: ask, teach, explain, and rationale for the paper's masks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.markup import escape

from tefm.base.errors import TefmError
from tefm.base.files import check_writable, write_text
from tefm.base.progress import err, out, shown
from tefm.cli.app import JsonOption, check_target, command, present
from tefm.cli.options import ModelArg, ModelOptions, RayOptions, TableArg


@dataclass(frozen=True)
class CardOptions:
    """Which sequences are explained, and where their cards go."""

    entity: Annotated[list[str] | None, typer.Option("--entity", help="explain only this one; repeatable")] = None
    limit: Annotated[int, typer.Option(help="cards to print, at most")] = 3
    target: Annotated[Path | None, typer.Option("--out", help="HTML page, or JSON lines, with all of them")] = None

    def check(self) -> None:
        problem, example = "explanations are written as HTML or JSON lines", "--out page.html"
        check_target(self.target, problem, example, ".html", ".jsonl")

    def show(
        self,
        as_values: list[dict[str, Any]],
        page: Callable[[], str],
        cards: Iterable[RenderableType],
        *,
        as_json: bool,
    ) -> None:
        """Explanations as a file, as JSON, or as cards."""
        if self.target is None:
            present(as_values, islice(cards, self.limit), as_json=as_json)
            return
        lines = (json.dumps(values, ensure_ascii=False) + "\n" for values in as_values)
        write_text(self.target, page() if self.target.suffix == ".html" else "".join(lines))
        err.print(f"{len(as_values):,} explanations written to {self.target}")


@command('tefm ask model admissions.csv "Next admission: heart failure?"')
def ask(
    model: ModelArg,
    options: ModelOptions,
    table: Annotated[str | None, typer.Argument(help="records to ask about, as for `tefm predict`")] = None,
    questions: Annotated[list[str] | None, typer.Argument(help="one question or more, in words")] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="list the questions that the model was trained on, with their scores")
    ] = False,
    entity: Annotated[list[str] | None, typer.Option("--entity", help="ask only about this one; repeatable")] = None,
    target: Annotated[Path | None, typer.Option("--out", help="CSV or Parquet file (default: print)")] = None,
    as_json: JsonOption = False,
) -> None:
    """Ask about every sequence of a table: the probability of yes, and how reliable answers to this question are."""
    import polars as pl

    from tefm.model.bundle import load_book
    from tefm.model.estimator import TEFM
    from tefm.questions.book import checked_question, question_frame
    from tefm.show.terminal import answer_table, question_tables
    from tefm.tables.chunks import write_frames

    if listed:
        book = load_book(model, options.domain)
        body = {"questions": question_frame(book).to_dicts(), "new": book.new.model_dump()}
        present(body, question_tables(book), as_json=as_json)
        return
    if table is None or not questions:
        raise TefmError(
            "`tefm ask` needs a table and a question",
            remedy='tefm ask MODEL TABLE "Next admission: heart failure?"; `tefm ask MODEL --list` shows what it knows',
        )
    check_target(target, "answers are written as CSV or Parquet", "--out answers.csv", ".csv", ".parquet")
    texts = [checked_question(text) for text in questions]
    with shown():
        opened, domain = options.readable(model, table)
        book = load_book(model, domain)
        loaded = TEFM.load(model, device=options.device, domain=domain)
        batches = loaded.ask_batches(opened, texts)
        if entity:
            noun = loaded.preparation.sequence_noun
            batches = (part.filter(pl.col(noun).cast(pl.String).is_in(entity)) for part in batches)
        if target is not None:
            written = write_frames(batches, target)
        else:
            answers = pl.concat(batches)
            if entity and not answers.height:
                raise TefmError(f"there is no such {noun} in this table", value=entity[0], remedy="check its name")
    if target is not None:
        err.print(f"{written:,} answers written to {target}")
    elif as_json:
        worth = {text: book.worth(text) for text in texts}
        present({"answers": answers.to_dicts(), "worth": worth}, [], as_json=True)
        return
    else:
        out.print(answer_table(answers))
    for text in texts:
        _say_worth(text, book.worth(text))


@command('tefm teach model labelled.csv --question "Is the wound infected?" --answer infected')
def teach(
    model: ModelArg,
    table: Annotated[str, typer.Argument(help="labelled records, as for `tefm predict`")],
    question: Annotated[str, typer.Option(help="the new question, in words")],
    answer: Annotated[str, typer.Option(help="column that holds the answer, at the last record of a sequence")],
    options: ModelOptions,
    yes: Annotated[str | None, typer.Option(help="value that means yes (default: detected)")] = None,
    share: Annotated[
        float | None, typer.Option(help="share of yes in the population, if the table has another one")
    ] = None,
    target: Annotated[Path | None, typer.Option("--out", help="folder to write (default: the model itself)")] = None,
    as_json: JsonOption = False,
) -> None:
    """Teach a model a new question from eight or more labelled sequences; all other answers stay the same."""
    from tefm.base.files import check_replaceable
    from tefm.model.bundle import is_saved
    from tefm.model.domains import Domains
    from tefm.model.estimator import TEFM
    from tefm.questions.book import checked_question

    text, folder = checked_question(question), target or model
    check_replaceable(folder, is_saved)
    check_writable(folder)
    with shown():
        opened, domain = options.readable(model, table)
        saved = (TEFM if domain is None else Domains).load(model, device=options.device)
        taught = saved if isinstance(saved, TEFM) else saved[str(domain)]
        worth = taught.teach(opened, text, answer=answer, yes=yes, share=share, absent=options.absent)
        saved.save(folder)
    if as_json:
        present({"question": text, "worth": worth, "model": str(folder)}, [], as_json=True)
        return
    _say_worth(text, worth)
    err.print(f"written to {folder}; ask it: tefm ask {folder} TABLE “{escape(text)}”", highlight=False)


def _say_worth(text: str, worth: str) -> None:
    """What answers to a question are worth."""
    out.print(f"“{escape(text)}” {escape(worth)}", highlight=False, soft_wrap=True)


# ---- explanations ---------------------------------------------------------------------------------------------------


@command("tefm explain model admissions.csv --entity 12345 --class died")
def explain(
    model: ModelArg,
    table: TableArg,
    cards: CardOptions,
    options: ModelOptions,
    ray: RayOptions,
    question_in_words: Annotated[
        str | None, typer.Option("--question", help="explain the answer to a question in words (`tefm ask`)")
    ] = None,
    of_class: Annotated[
        str | None, typer.Option("--class", help="show what speaks for and against this class; default: the answer")
    ] = None,
    precision: Annotated[
        float, typer.Option(help="share of the look-alikes (perturbed samples) that must get the same answer")
    ] = 0.9,
    most: Annotated[int, typer.Option(help="features that may settle an answer, at most")] = 10,
    population: Annotated[
        int | None, typer.Option(help="summarise explanations of N random sequences", metavar="N")
    ] = None,
    references: Annotated[
        Path | None, typer.Option(help="table of field, value, statement, source to cite beside the features")
    ] = None,
    case: Annotated[
        bool, typer.Option("--case", help="paragraphs (summary, diagnoses, drugs, …) in place of the card")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Explain predictions: features that settle the answer, and what speaks for and against a class."""
    from tefm.explain.render import cards_page, case_card, explanation_card
    from tefm.show.terminal import summary_tables
    from tefm.tables.references import References

    cards.check()
    if population is not None and (cards.entity or cards.target is not None):
        remedy = "leave --entity and --out out"
        raise TefmError("--population summarises a whole table on the terminal", value=population, remedy=remedy)
    question: dict[str, Any] = {"of_class": of_class, "precision": precision, "most": most}
    cited = None if references is None else References.read(references)
    cluster = ray.cluster(options.query, options.side)
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
                domain=options.domain,
                entities=cards.entity,
                references=cited,
                absent=options.absent,
                device=options.device,
                **question,
            )
        else:
            loaded, opened = options.opened(model, table)
            if population is not None:
                summary = loaded.explain_population(opened, sequences=population, **question)
            else:
                explanations = loaded.explain(
                    opened, question=question_in_words, entities=cards.entity, references=cited, **question
                )
    if population is not None:
        present(asdict(summary), summary_tables(summary), as_json=as_json)
        return
    printed = map(case_card if case else explanation_card, explanations)
    bodies = [one.to_json() for one in explanations]
    cards.show(bodies, lambda: cards_page(explanations, "Explanations"), printed, as_json=as_json)
    verdicts = Counter(one.verdict for one in explanations)
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.most_common())
    err.print(f"{len(explanations):,} explained: {counts}", highlight=False)


@command("tefm rationale model admissions.csv --keep 5%")
def rationale(
    model: ModelArg,
    table: TableArg,
    cards: CardOptions,
    options: ModelOptions,
    keep: Annotated[
        str | None,
        typer.Option(help="share of the slots to keep, e.g. 5% (default: the smallest sufficient rationale)"),
    ] = None,
    of: Annotated[str, typer.Option(help="what --keep is a share of: all slots, or those present in a record")] = "all",
    over: Annotated[str, typer.Option(help="keep the share of each record, or of the whole sequence")] = "sequence",
    by: Annotated[str, typer.Option(help="count every slot, or fields: a set counts the values it has")] = "slot",
    as_json: JsonOption = False,
) -> None:
    """Masked sufficiency, as in the paper: a few slots with which alone the model gives the same answer."""
    from tefm.explain.render import card, cards_page

    cards.check()
    choice: dict[str, Any] = {"keep": _share(keep), "of": of, "over": over, "by": by}
    with shown():
        loaded, opened = options.opened(model, table)
        rationales = loaded.explain_masked(opened, entities=cards.entity, **choice)
    bodies = [one.to_json() for one in rationales]
    cards.show(bodies, lambda: cards_page(rationales, "Rationales"), map(card, rationales), as_json=as_json)
    sufficient = sum(one.passed for one in rationales)
    default = sum(one.verdict == "default" for one in rationales)
    counts = f"{sufficient:,} with sufficient slots, {default:,} default answers, the same with all slots masked"
    err.print(f"{len(rationales):,} explained: {counts}", highlight=False)


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
