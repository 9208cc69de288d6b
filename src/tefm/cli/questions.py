"""The commands that ask a model in words, and teach it new questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tefm.base.errors import TefmError
from tefm.base.progress import err, out, shown
from tefm.base.targets import check_writable
from tefm.cli.app import (
    AbsentOption,
    DeviceOption,
    DomainOption,
    JsonOption,
    ModelArg,
    QueryOption,
    app,
    escaped,
    print_json,
    readable,
)


@app.command(epilog='Example: tefm ask model admissions.csv "Next admission: heart failure?"')
def ask(
    model: ModelArg,
    table: Annotated[str | None, typer.Argument(help="records to ask about, as for `tefm predict`")] = None,
    questions: Annotated[list[str] | None, typer.Argument(help="one question or more, in words")] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="show what the model was trained on, and what it is worth")
    ] = False,
    entity: Annotated[
        list[str] | None, typer.Option("--entity", help="ask only about this one; may be given several times")
    ] = None,
    target: Annotated[Path | None, typer.Option("--out", help="CSV or Parquet file; printed when left out")] = None,
    query: QueryOption = None,
    absent: AbsentOption = False,
    domain: DomainOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask about every sequence of a table: the probability of yes, and what answers to this question are worth."""
    import polars as pl

    from tefm.bundle import load_book
    from tefm.model import TEFM
    from tefm.questions.book import checked_question, question_frame
    from tefm.records.writers import write_frames
    from tefm.show.terminal import answer_table, question_tables

    if listed:
        book = load_book(model, domain)
        if as_json:
            print_json({"questions": question_frame(book).to_dicts(), "new": book.new.model_dump()})
        else:
            for part in question_tables(book):
                out.print(part)
        return
    if table is None or not questions:
        raise TefmError(
            "`tefm ask` needs a table and a question",
            remedy='tefm ask MODEL TABLE "Next admission: heart failure?"; `tefm ask MODEL --list` shows what it knows',
        )
    if target is not None and target.suffix not in (".csv", ".parquet"):
        raise TefmError("answers are written as CSV or Parquet", value=target.name, remedy="--out answers.csv")
    if target is not None:
        check_writable(target)
    texts = [checked_question(text) for text in questions]
    with shown():
        opened, domain = readable(model, table, query, absent, domain)
        book = load_book(model, domain)
        loaded = TEFM.load(model, device=device, domain=domain)
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
        print_json({"answers": answers.to_dicts(), "worth": worth})
        return
    else:
        out.print(answer_table(answers))
    for text in texts:
        out.print(f"“{escaped(text)}” {escaped(book.worth(text))}", highlight=False, soft_wrap=True)


@app.command(epilog='Example: tefm teach model labelled.csv --question "Is the wound infected?" --answer infected')
def teach(
    model: ModelArg,
    table: Annotated[str, typer.Argument(help="labelled records, as for `tefm predict`")],
    question: Annotated[str, typer.Option(help="the new question, in words")],
    answer: Annotated[str, typer.Option(help="column that holds the answer, at the last record of a sequence")],
    yes: Annotated[str | None, typer.Option(help="the value that means yes; found by itself where it can be")] = None,
    share: Annotated[
        float | None, typer.Option(help="share of yes in the population, where the table has another one")
    ] = None,
    target: Annotated[Path | None, typer.Option("--out", help="folder to write; the model itself by default")] = None,
    query: QueryOption = None,
    absent: AbsentOption = False,
    domain: DomainOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Teach a model a new question from 8 to some hundred labelled sequences; all other answers stay what they are."""
    from tefm.base.files import check_replaceable
    from tefm.bundle import is_saved
    from tefm.domains import Domains
    from tefm.model import TEFM
    from tefm.questions.book import checked_question

    text, folder = checked_question(question), target or model
    check_replaceable(folder, is_saved)
    check_writable(folder)
    with shown():
        opened, domain = readable(model, table, query, absent, domain)
        if domain is None:
            saved: TEFM | Domains = TEFM.load(model, device=device)
        else:
            saved = Domains.load(model, device=device)
        taught = saved if isinstance(saved, TEFM) else saved[str(domain)]
        worth = taught.teach(opened, text, answer=answer, yes=yes, share=share, absent=absent)
        saved.save(folder)
    if as_json:
        print_json({"question": text, "worth": worth, "model": str(folder)})
        return
    out.print(f"“{escaped(text)}” {escaped(worth)}", highlight=False, soft_wrap=True)
    err.print(f"written to {folder}; ask it: tefm ask {folder} TABLE “{escaped(text)}”", highlight=False)
