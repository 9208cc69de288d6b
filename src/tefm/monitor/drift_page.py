"""What monitoring found: lines for a terminal, and an HTML page."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from tefm.base import __version__
from tefm.monitor.monitor import AnswerFigures, BatchReport, Monitoring
from tefm.scoring.weighted import Interval
from tefm.show import plots
from tefm.show.html import HtmlTable, Page, render
from tefm.show.terminal import table

#: Fields of a batch that are shown, those with the smallest p-values.
FIELDS = 12
#: At least this many batches are drawn over time.
MANY = 2
METRICS = {"auroc": "AUROC", "accuracy": "accuracy"}


def drift_tables(report: Monitoring) -> Iterator[RenderableType]:
    """One line per batch, then the causes of each alarm."""
    metric = "auroc" if len(report.classes) == 2 else "accuracy"
    rows = [("reference", report.sequences, _figure(report.answered, metric), "")]
    rows += [
        (batch.name, batch.answered.sequences, _figure(batch.answered, metric), "ALARM" if batch.alarm else "ok")
        for batch in report.batches
    ]
    columns = ("batch", "sequences", METRICS[metric], "")
    used = [place for place in range(len(columns)) if any(row[place] != "–" for row in rows)]
    shown = [[row[place] for place in used] for row in rows]
    compared = table(f"Compared with {report.reference}", [columns[place] for place in used], shown, left=1)
    compared.caption = report.title
    yield compared
    for batch in report.batches:
        for cause in batch.diagnosis.causes:
            yield Text.assemble((f"{batch.name}  ", "bold"), (cause.sentence, "yellow"))
        if batch.diagnosis.consequences:
            yield Text(f"{batch.name}  with it moved: {', '.join(batch.diagnosis.consequences)}", style="dim")
    if any(cause.kind == "answers" for batch in report.batches for cause in batch.diagnosis.causes):
        yield Text(
            "A model is surer of records that it was trained on: other answers to those are no drift.", style="dim"
        )
    if not report.alarm:
        yield Text("No alarm.", style="green")


def _figure(answered: AnswerFigures, metric: str) -> str:
    """A metric of the answers to which there are labels."""
    return interval(None if answered.scores is None else getattr(answered.scores, metric))


def interval(of: Interval | None) -> str:
    """
    >>> interval(Interval(0.9, 0.85, 0.95)), interval(None)
    ('0.900 [0.850, 0.950]', '–')
    """
    return "–" if of is None or of.value != of.value else str(of)


# ---- the page -----------------------------------------------------------------------------------------------------


def drift_page(report: Monitoring) -> Page:
    """One HTML file with everything in it."""
    return Page(
        render(
            "monitor/drift.html",
            title=f"Monitoring: {report.title}",
            version=__version__,
            plots_available=plots.available(),
            report=report,
            overview=_overview(report),
            over_time=list(_over_time(report)) if len(report.batches) >= MANY else [],
            tables=[(_fields(batch), _answers(report, batch)) for batch in report.batches],
        )
    )


def _overview(report: Monitoring) -> HtmlTable:
    """One line per batch."""
    rows = [
        (
            batch.name,
            f"{batch.records:,}",
            f"{batch.answered.sequences:,}",
            *(_figure(batch.answered, metric) for metric in METRICS),
            batch.sentence,
        )
        for batch in report.batches
    ]
    header = ("batch", "records", "sequences", *METRICS.values(), "cause")
    return HtmlTable(header, rows, f"Compared with {report.reference}")


def _fields(batch: BatchReport) -> HtmlTable:
    """The fields of a batch."""
    rows = []
    for of in sorted(batch.fields, key=lambda of: of.p)[:FIELDS]:
        shares = ("–" if pair is None else f"{pair[0]:.1%} → {pair[1]:.1%}" for pair in (of.missing, of.new))
        rows.append((of.title, *shares, f"{of.distance:.1%}", f"{of.p:.3f}"))
    title = "Fields" if len(batch.fields) <= FIELDS else f"The {FIELDS} fields that differ most clearly"
    header = ("field", "missing, was → now", "new values, was → now", "values that moved", "p, all tests together")
    return HtmlTable(header, rows, title)


def _answers(report: Monitoring, batch: BatchReport) -> HtmlTable:
    """The answers of a batch and of the reference, figure by figure."""
    was, now = report.answered, batch.answered
    rows: list[tuple[str, ...]] = [
        (title, _figure(was, metric), _figure(now, metric)) for metric, title in METRICS.items()
    ]
    rows += [
        ("mean probability of the likeliest class", f"{was.mean_confidence:.3f}", f"{now.mean_confidence:.3f}"),
        ("reconstruction error", f"{report.errors[0]:.4f}", f"{batch.errors[0]:.4f}"),
        ("quantisation error", f"{report.errors[1]:.3g}", f"{batch.errors[1]:.3g}"),
    ]
    for q, name in enumerate(report.classes):
        rows.append((f"{name}: predicted", *(f"{of.predicted_shares[q]:.1%}" for of in (was, now))))
        shares = (of.class_shares for of in (was, now))
        rows.append((f"{name}: estimated share", *(f"{of.shares[q]:.1%} ± {2 * of.errors[q]:.1%}" for of in shares)))
    return HtmlTable(("", "reference", "this batch"), rows, "Answers and codes")


def _over_time(report: Monitoring) -> Iterator[plots.Plot]:
    """The figures of every batch with labels, in order, with the reference as a level."""
    names = tuple(batch.name for batch in report.batches)
    scores = [(place, batch.answered.scores) for place, batch in enumerate(report.batches)]
    for metric, title in (("auroc", "AUROC"), ("accuracy", "Accuracy")):
        measured = [(place, getattr(of, metric)) for place, of in scores if of is not None]
        known = [(place, of) for place, of in measured if of.low == of.low]
        if not known:
            continue
        series: list[plots.Series | plots.Level] = [
            plots.Series(
                "with labels",
                [place for place, _ in known],
                [of.value for _, of in known],
                [of.low for _, of in known],
                [of.high for _, of in known],
                colour=1,
            )
        ]
        if report.answered.scores is not None:
            series.insert(0, plots.Level("reference", getattr(report.answered.scores, metric).value))
        words = ", ".join(f"{names[place]} {interval(of)}" for place, of in known)
        axis = plots.Axis("batch", names=names)
        yield plots.curves(metric, f"{title} by batch", words, axis, plots.Axis(title, high=1.0), series)
