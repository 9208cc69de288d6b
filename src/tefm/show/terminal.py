"""Schemas and measurements as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from tefm.explain.cards import printable

if TYPE_CHECKING:  # showing a table must not wait for the import of torch
    import polars as pl

    from tefm.codes.doctor import Examination, Score
    from tefm.codes.fidelity import Collisions, Fidelity, LevelUse
    from tefm.explain.summary import Summary
    from tefm.language.shortening import TokenCount
    from tefm.questions.book import Book, Entry
    from tefm.scoring.breakdown import Confusion, Evaluation
    from tefm.show.figures import Outcome
    from tefm.show.html import HtmlTable
    from tefm.tables.infer import Guess
    from tefm.tables.schema import Schema


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> RichTable:
    """A plain table; the first `left` columns are words, the others numbers."""
    result = RichTable(title=title, title_justify="left", title_style="bold")
    for position, column in enumerate(columns):
        result.add_column(column, justify="left" if position < left else "right")
    for row in rows:
        result.add_row(*(escape(figure(value)) for value in row))
    return result


def of_page(title: str, page: HtmlTable) -> RichTable:
    """A table of a page, for a terminal."""
    return table(f"{title} ({page.caption})", page.header, page.rows, left=page.words)


def figure(value: object) -> str:
    """A cell as text: four decimals for shares and scores, separated thousands, a dash for None."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4f}"
        case int():
            return f"{value:,}"
        case _:
            return str(value)


def schema_table(name: str, schema: Schema, guesses: Sequence[Guess]) -> RichTable:
    """Every column, what it is used as, and why."""
    rows = [(g.column, g.kind, g.distinct, f"{g.missing:.1%}", g.why) for g in guesses]
    columns = ("column", "used as", "values", "missing", "reason")
    result = table(f"{name}: {len(schema.fields)} fields", columns, rows, left=2)
    result.columns[4].justify = "left"
    return result


def examination_tables(examination: Examination) -> Iterator[RenderableType]:
    """All tables of an examination, then its findings."""
    yield from codes_tables(examination)
    if examination.ceiling is not None:
        yield ceiling_table(examination.ceiling, task_aware=examination.task_aware)
    if not examination.findings:
        yield Text("No problems found.", style="green")
    for finding in examination.findings:
        text = Text(f"{finding.level}: {finding.problem}\n", style="yellow" if finding.level == "warning" else "")
        yield text.append(f"  → {finding.remedy}", style="default")


def codes_tables(measured: Examination) -> Iterator[RenderableType]:
    """How the codes are used, and what they preserve."""
    from tefm.show.report_page import fidelity_table

    yield of_page("Reconstruction", fidelity_table(measured.fidelity))
    yield field_table(measured.fidelity)
    yield use_table(measured.use)
    yield collision_table(measured.collisions)


def field_table(f: Fidelity, most: int = 60) -> RichTable:
    rows = [(x.name, x.kind, x.slots, x.accuracy, x.mode_accuracy, x.kept, "lost" if x.lost else "") for x in f.fields]
    title = "Field by field" + (f" (the first {most} of {len(rows)})" if len(rows) > most else "")
    columns = ("field", "kind", "slots", "accuracy", "most common value", "kept", "")
    return table(title, columns, rows[:most], left=2)


def use_table(levels: Sequence[LevelUse]) -> RichTable:
    rows = [
        (
            "abcdefghijklmnop"[x.level - 1],
            f"{x.used}/{x.entries}",
            f"{x.utilisation:.1%}",
            f"{x.perplexity:.1f}",
            f"{x.top_share:.1%}",
        )
        for x in levels
    ]
    return table("Codebooks", ("level", "used", "utilisation", "perplexity", "most used"), rows)


def collision_table(c: Collisions) -> RichTable:
    rows = [
        ("distinct records", c.distinct_records, c.distinct_records / c.records),
        ("distinct codes", c.distinct_codes, c.distinct_codes / c.records),
        ("records that share a code", c.colliding, c.colliding / c.records),
        ("  with identical records only", c.identical, c.identical / c.records),
        ("  with different records of the same label", c.different, c.different / c.records),
    ]
    if c.conflicting is not None:
        rows.append(("  with a record of another label", c.conflicting, c.conflicting / c.records))
    else:
        rows[-1] = ("  with different records", c.different, c.different / c.records)
    return table(f"Collisions ({c.records:,} records)", ("", "records", "share"), rows)


def ceiling_table(scores: dict[str, Score], *, task_aware: bool) -> RichTable:
    rows = [(name, f"{s.auroc:.4f} ± {s.auroc_se:.4f}", s.accuracy, s.macro_f1) for name, s in scores.items()]
    score = next(iter(scores.values()))
    training = "codes trained with labels" if task_aware else "codes trained without labels"
    title = (
        f"Code ceiling: LightGBM on {score.train_records:,} sequences, tested on {score.test_records:,} ({training})"
    )
    return table(title, ("input", "AUROC", "accuracy", "macro F1"), rows)


# ---- predictions ------------------------------------------------------------------------------------------------

#: How the models that a fit is compared with are called.
BASELINES = {"lightgbm": "LightGBM", "logistic": "logistic regression", "median": "always the median"}


def meaning_of(scores: Mapping[str, Any]) -> list[str]:
    """How scores are defined, where that needs to be said."""
    if "auroc" not in scores:
        meaning = [f"in the label's unit; the interval is meant to cover {scores['interval']:.0%} of the labels"]
        completed = "censored times are completed for all scores except concordance"
        return [*meaning, completed] if "concordance" in scores else meaning
    return [MEANS] if len(scores["classes"]) > 2 else []


#: How scores are defined for more than two classes.
MEANS = "AUROC, AUPRC and macro F1 are means over the classes that occur; rare classes count as much as others"


def evaluation_table(evaluation: Evaluation) -> RichTable:
    """Every score with its interval."""
    from tefm.show.figures import FEW_FOR_INTERVALS, titles_of

    scores = evaluation.to_dict()
    titles = titles_of(scores).items()
    rows: list[tuple[str | None, ...]] = [(name, *_interval(scores[key])) for key, name in titles]
    rows.append(("tokens per sequence", f"{evaluation.tokens_mean:.1f}", None))
    result = table(f"{evaluation.scores.n:,} sequences", ("score", "value", "95% interval"), rows)
    remarks = meaning_of(scores)
    if evaluation.unlabelled:
        remarks.append(f"{evaluation.unlabelled:,} more have no label and are not scored")
    if evaluation.scores.n < FEW_FOR_INTERVALS:
        remarks.append("too few sequences for reliable intervals")
    result.caption = "; ".join(remarks) or None
    return result


def evaluation_tables(evaluation: Evaluation, most: int = 12) -> Iterator[RenderableType]:
    """Every score, then the predictions class by class; with more than `most` classes, no confusion matrix."""
    yield evaluation_table(evaluation)
    if (decided := evaluation.decisions) is None:
        return
    rows = [(of.name, of.precision, of.recall, of.sequences) for of in decided.by_class]
    yield table(f"Predicted: {decided.decision}", ("class", "precision", "recall", "sequences"), rows)
    if len(decided.confusion.classes) <= most:
        yield confusion_table(decided.confusion)
    if decided.unknown:
        listed = ", ".join(f"{printable(name)} ({count:,})" for name, count in decided.unknown.items())
        count = f"{sum(decided.unknown.values()):,} sequences are of classes that the model does not know"
        yield Text(f"! {count}: {listed}. Accuracy and macro F1 count them as errors.", style="yellow")


def comparison_table(outcome: Outcome) -> RichTable:
    """AUROC and accuracy of the model and of tabular models on the same test sequences, with their intervals."""
    rows = [
        (name, *_interval(scores["auroc"]), *_interval(scores["accuracy"]))
        for name, scores in _scores_by_model(outcome).items()
    ]
    title = f"{outcome.sequences['test']:,} test sequences"
    return table(title, ("", "AUROC", "95%", "accuracy", "95%"), rows)


def _scores_by_model(outcome: Outcome) -> dict[str, Mapping[str, Any]]:
    baselines = {BASELINES.get(name, name): model["test_calibrated"] for name, model in outcome.baselines.items()}
    return {outcome.title: outcome.test.to_dict(), **baselines}


def outcome_tables(outcome: Outcome) -> Iterator[RenderableType]:
    """The scores of the model and of tabular models on the same test sequences, and the tokens of its input."""
    yield scores_table(outcome)
    if outcome.verdict is not None:
        yield Text(outcome.verdict.sentence, style="bold")
    if outcome.confusion is not None:
        yield confusion_table(outcome.confusion)
    for remark in outcome.remarks:
        yield Text(f"! {remark}", style="yellow")
    yield token_table(outcome.tokens)
    if outcome.questions is not None:
        yield from question_tables(outcome.questions)


def question_tables(book: Book, most: int = 200) -> Iterator[RenderableType]:
    """The questions of a model: what its answers are worth, next to one LightGBM per question; then means over them."""
    columns = ("question", "AUROC", "95%", "LightGBM", "asked", "yes")
    kinds = {
        "Trained questions": book.trained,
        "Taught questions (cross-validated)": book.taught,
        "Questions held out of training": book.held,
    }
    for title, entries in kinds.items():
        rows: list[tuple[object, ...]] = []
        for entry in entries[:most]:
            value = entry.figure
            interval = [] if value.low is None else [f"{value.low:.3f}–{value.high:.3f}"]
            told = ", ".join([*interval, *filter(None, [value.warning])]) or None
            rows.append((printable(entry.question.text), value.auroc, told, entry.lightgbm, entry.asked, entry.yes))
        if rows:
            on = f" ({book.measured_on} histories)" if book.measured_on and entries != book.taught else ""
            yield table(title + on, columns, rows)
    ours = _mean("", [entry.figure.auroc for entry in book.trained])
    if ours:
        trees = _mean(", one LightGBM per question", [entry.lightgbm for entry in book.trained])
        yield Text(f"Trained questions: mean AUROC{ours}{_alone(book.trained)}{trees}", style="bold")
    if book.new.auroc is not None:
        instead = (
            "" if book.in_place.auroc is None else f"; the best trained question in place of each: {book.in_place}"
        )
        new = f"New questions ({book.held_out} held out): mean {book.new}{_alone(book.held)}{instead}"
        yield Text(new, style="bold")


def _alone(entries: Sequence[Entry]) -> str:
    """What each of the two that answer questions is worth without the other."""
    by_model, by_fields = [entry.by_model for entry in entries], [entry.by_fields for entry in entries]
    return _mean("; the language model alone", by_model) + _mean(", the fields alone", by_fields)


def _mean(title: str, values: Sequence[float | None]) -> str:
    """The mean of the values that are known, after its title; nothing where none is."""
    known = [value for value in values if value is not None]
    return f"{title} {sum(known) / len(known):.3f}" if known else ""


def scores_table(outcome: Outcome) -> RichTable:
    """Every score of every model, with its interval."""
    from tefm.show.figures import titles_of

    models, test = _scores_by_model(outcome), outcome.test.to_dict()
    titles = titles_of(test).items()
    rows: list[tuple[str | None, ...]] = [
        (name, *(_with_interval(scores[key]) for scores in models.values())) for key, name in titles
    ]
    rows.append(("tokens", f"{outcome.test.tokens_mean:.1f}", *[None] * len(outcome.baselines)))
    counts = ", ".join(f"{count:,} {part}" for part, count in outcome.sequences.items())
    result = table(f"Test scores ({counts} sequences)", ("", *models), rows)
    result.caption = "; ".join(meaning_of(test)) or None
    return result


def confusion_table(confusion: Confusion) -> RichTable:
    """What was predicted for the test sequences of each class."""
    rows = [(name, *row) for name, row in zip(confusion.classes, confusion.counts, strict=True)]
    return table("Confusion matrix", ("true \\ predicted", *confusion.classes), rows)


def token_table(accounts: Sequence[TokenCount]) -> RichTable:
    """The tokens of a sequence in every format."""
    rows = [(a.format, a.tokenizer, f"{a.mean:,.1f}", f"{a.median:,.0f}", f"{a.share_of_prose:.1%}") for a in accounts]
    return table("Tokens per sequence", ("format", "tokenizer", "mean", "median", "share of prose"), rows, left=2)


def prediction_table(predictions: pl.DataFrame, most: int = 20, classes: int = 4) -> RichTable:
    """The first predictions; with many classes, only the probability of the predicted one."""
    title = f"{predictions.height:,} predictions" + (f", the first {most}" if predictions.height > most else "")
    columns, rows = predictions.columns, predictions.head(most).rows()
    if "prediction" in columns:  # a number, with its interval
        return table(title, columns[:6], [row[:6] for row in rows])
    if len(columns) > 3 + classes:  # the sequence, its records and its class come first
        rows = [(*row[:3], row[columns.index(f"p({row[2]})")]) for row in rows]
        columns = [*columns[:3], "its probability"]
    return table(title, columns, rows)


def answer_table(answers: pl.DataFrame, most: int = 20) -> RichTable:
    """The first answers to questions, each with what it is worth; what all have in common is left out."""
    title = f"{answers.height:,} answers" + (f", the first {most}" if answers.height > most else "")
    noun, question, p = answers.columns[:3]
    rows = []
    for row in answers.head(most).iter_rows(named=True):
        interval = "" if row["auroc_low"] is None else f" [{row['auroc_low']:.3f}, {row['auroc_high']:.3f}]"
        worth = "not known" if row["auroc"] is None else f"{row['auroc']:.3f}{interval}"
        rows.append((row[noun], printable(row[question]), row[p], row["known"], worth, row["remark"] or ""))
    columns = (noun, "question", "p(yes)", "question is", "AUROC", "remark")
    kept = [n for n in range(5) if n in (0, 2) or len({row[n] for row in rows}) > 1]
    kept += [5] * any(row[5] for row in rows)
    return table(title, [columns[n] for n in kept], [[row[n] for n in kept] for row in rows], left=1 + (1 in kept))


def summary_tables(summary: Summary) -> Iterator[RenderableType]:
    """What many explanations have in common: verdicts, rules, fields."""
    yield Text(summary.sentence)
    for title, columns, rows in summary.tables:
        yield table(title, columns, [list(map(printable, row)) for row in rows], left=2)


def _interval(score: dict[str, float | None]) -> tuple[str, str | None]:
    if score["value"] is None:
        return "–", None
    return figure(score["value"]), f"{score['low']:.3f}–{score['high']:.3f}"


def _with_interval(score: dict[str, float | None]) -> str:
    value, interval = _interval(score)
    return value if interval is None else f"{score['value']:.3f} [{interval}]"
