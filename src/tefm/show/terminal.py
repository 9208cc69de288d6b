"""Schemas and measurements as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

if TYPE_CHECKING:  # looking at a table must not wait for torch
    import polars as pl

    from tefm.codes.ceiling import Score
    from tefm.codes.doctor import Examination
    from tefm.codes.fidelity import Collisions, Fidelity, LevelUse
    from tefm.codes.hierarchy import PrefixDistance
    from tefm.language.align import Alignment
    from tefm.language.token_counts import Account
    from tefm.outcome import Evaluation, Outcome
    from tefm.records.infer import Guess
    from tefm.records.schema import Schema


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> RichTable:
    """A plain table; the first `left` columns are words, the others figures."""
    made = RichTable(title=title, title_justify="left", title_style="bold")
    for position, column in enumerate(columns):
        made.add_column(column, justify="left" if position < left else "right")
    for row in rows:
        made.add_row(*(escape(figure(value)) for value in row))
    return made


def figure(value: object) -> str:
    """Four digits after the point for shares and scores, thousands separated, a dash for what does not exist."""
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
    """Every column with what it was taken for."""
    rows = [(g.column, g.kind, g.distinct, f"{g.missing:.1%}", g.why) for g in guesses]
    made = table(
        f"{name}: {len(schema.fields)} fields", ("column", "taken as", "values", "missing", "why"), rows, left=2
    )
    made.columns[4].justify = "left"
    return made


def examination_tables(found: Examination) -> Iterator[RenderableType]:
    """All tables of an examination, then the findings in words."""
    yield fidelity_table(found.fidelity)
    yield field_table(found.fidelity)
    yield use_table(found.use)
    yield collision_table(found.collisions)
    yield hierarchy_table(found.hierarchy)
    if found.ceiling is not None:
        yield ceiling_table(found.ceiling, task_aware=found.task_aware)
    if not found.findings:
        yield Text("Nothing to complain about.", style="green")
    for finding in found.findings:
        text = Text(f"{finding.level}: {finding.problem}\n", style="yellow" if finding.level == "warning" else "")
        yield text.append(f"  → {finding.remedy}", style="default")


def fidelity_table(f: Fidelity) -> RichTable:
    rows: list[tuple[object, ...]] = [
        ("slot accuracy", f.slot_accuracy, f.mode_slot_accuracy),
        ("slot accuracy ±1", f.close_accuracy, f.mode_close_accuracy),
        ("normalised MSE", f.nmse, f.mode_nmse),
        ("field accuracy", f.field_accuracy, f.mode_field_accuracy),
        ("recall of present members", f.recall, None if f.recall is None else 0.0),
        ("precision of members", f.precision, None),
    ]
    shown = [row for row in rows if row[1] is not None]
    return table(f"What comes back ({f.records:,} records, {f.slots} slots)", ("", "codes", "all-mode"), shown)


def field_table(f: Fidelity, most: int = 60) -> RichTable:
    rows = [(x.name, x.kind, x.slots, x.accuracy, x.mode_accuracy, x.kept, "lost" if x.lost else "") for x in f.fields]
    title = "Field by field" + (f" (the first {most} of {len(rows)})" if len(rows) > most else "")
    columns = ("field", "kind", "slots", "accuracy", "all-mode", "kept", "")
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
        ("  with different ones of the same label", c.different, c.different / c.records),
    ]
    if c.conflicting is not None:
        rows.append(("  with one of another label", c.conflicting, c.conflicting / c.records))
    else:
        rows[-1] = ("  with different records", c.different, c.different / c.records)
    return table(f"Collisions ({c.records:,} records)", ("", "records", "share"), rows)


def hierarchy_table(prefixes: Sequence[PrefixDistance]) -> RichTable:
    def spread(mean: float | None, std: float | None) -> str | None:
        return None if mean is None else f"{mean:.3f} ± {std:.3f}"

    rows = [
        (p.name, p.groups, spread(p.intra_mean, p.intra_std), spread(p.inter_mean, p.inter_std), p.ratio)
        for p in prefixes
    ]
    return table(
        "Hierarchy (distances of 5,000 pairs)", ("prefix", "groups", "same prefix", "other prefix", "ratio"), rows
    )


def ceiling_table(scores: dict[str, Score], *, task_aware: bool) -> RichTable:
    rows = [(name, f"{s.auroc:.4f} ± {s.auroc_se:.4f}", s.accuracy, s.macro_f1) for name, s in scores.items()]
    one = next(iter(scores.values()))
    kind = "the codes saw training labels" if task_aware else "the codes saw no label"
    title = f"Code ceiling: LightGBM on {one.train_records:,} sequences, scored on {one.test_records:,} ({kind})"
    return table(title, ("read from", "AUROC", "accuracy", "macro F1"), rows)


# ---- predictions ------------------------------------------------------------------------------------------------

#: A bootstrap over fewer sequences than this gives intervals that are too narrow.
FEW = 50
FIGURES = {
    "auroc": "AUROC",
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "auprc": "AUPRC",
    "brier": "Brier",
    "ece": "ECE",
}


#: What the figures are when there are more than two classes.
MEANS = "AUROC, AUPRC and macro F1 are means over the classes that occur, rare ones count as much as others"


def evaluation_table(found: Evaluation) -> RichTable:
    """Every figure with its interval."""
    figures = found.to_dict()
    rows: list[tuple[str | None, ...]] = [(name, *_interval(figures[key])) for key, name in FIGURES.items()]
    rows.append(("tokens per sequence", f"{found.tokens_mean:.1f}", None))
    made = table(f"{found.scores.n:,} sequences", ("figure", "value", "95%"), rows)
    remarks = [MEANS] if len(found.scores.classes) > 2 else []
    if found.unlabelled:
        remarks.append(f"{found.unlabelled:,} more have no label and are not judged")
    if found.scores.n < FEW:
        remarks.append("too few sequences for the intervals to hold")
    made.caption = "; ".join(remarks) or None
    return made


def outcome_tables(outcome: Outcome) -> Iterator[RenderableType]:
    """The model beside tabular ones on the same test sequences, and what its input costs."""
    test = outcome.test.to_dict()
    rows: list[tuple[str | None, ...]] = [
        (f"TEFM ({outcome.inputs})", *(_short(test[key]) for key in FIGURES), f"{outcome.test.tokens_mean:.1f}")
    ]
    for name, found in outcome.baselines.items():
        rows.append((name, *(_short(found["test_calibrated"][key]) for key in FIGURES), None))
    counts = ", ".join(f"{count:,} {part}" for part, count in outcome.sequences.items())
    made = table(f"test part ({counts} sequences)", ("", *FIGURES.values(), "tokens"), rows)
    made.caption = MEANS if len(outcome.test.scores.classes) > 2 else None
    yield made
    for remark in outcome.remarks:
        yield Text(f"! {remark}", style="yellow")
    if outcome.alignment is not None:
        yield alignment_table(outcome.alignment)
    yield token_table(outcome.tokens)


def token_table(accounts: Sequence[Account]) -> RichTable:
    """What sequences cost in every form."""
    rows = [(a.format, a.tokenizer, f"{a.mean:,.1f}", f"{a.median:,.0f}", f"{a.share_of_prose:.1%}") for a in accounts]
    return table("tokens per sequence", ("form", "tokenizer", "mean", "median", "share of prose"), rows, left=2)


def alignment_table(found: Alignment) -> RichTable:
    """Codes written from words, beside what the true codes give back."""
    rows = [
        ("slot accuracy", found.slot_accuracy, found.upper_slot_accuracy, found.mode_slot_accuracy),
        ("slot accuracy ±1", found.close_accuracy, found.upper_close_accuracy, None),
        *(
            (f"exact codes, level {level}", share, 1.0, None)
            for level, share in zip("abcdefghijklmnop", found.exact, strict=False)
        ),
        ("loss of the words, nats per token", found.true_loss, None, None),
        ("the same under another record's code", found.shuffled_loss, None, None),
    ]
    title = f"alignment, {found.records:,} held-out records"
    return table(title, ("", "from words", "true codes", "most common value"), rows)


def prediction_table(found: pl.DataFrame, most: int = 20, classes: int = 4) -> RichTable:
    """The first predictions; of many classes, only the probability of the one that is predicted."""
    title = f"{found.height:,} predictions" + (f", the first {most}" if found.height > most else "")
    columns, rows = found.columns, found.head(most).rows()
    if len(columns) > 3 + classes:  # the sequence, its records and its class come first
        rows = [(*row[:3], row[columns.index(f"p({row[2]})")]) for row in rows]
        columns = [*columns[:3], "its probability"]
    return table(title, columns, rows)


def _interval(found: dict[str, float | None]) -> tuple[str, str | None]:
    if found["value"] is None:
        return "–", None
    return figure(found["value"]), f"{found['low']:.3f}–{found['high']:.3f}"


def _short(found: dict[str, float | None]) -> str:
    return "–" if found["value"] is None else f"{found['value']:.3f}"
