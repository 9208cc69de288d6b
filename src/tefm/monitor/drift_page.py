"""What monitoring found: lines for a terminal, and an HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from tefm.base import __version__
from tefm.monitor.findings import AnswerFigures, BatchReport, Monitoring
from tefm.scoring.bootstrap import Interval
from tefm.scoring.metrics import Scores
from tefm.show import plots
from tefm.show.html import HtmlTable, Page, render
from tefm.show.terminal import table

#: Fields of a batch that are shown, those with the smallest p-values.
FIELDS = 12
#: At least this many batches are drawn over time.
MANY = 2


def drift_tables(report: Monitoring) -> Iterator[RenderableType]:
    """One line per batch, then the causes of each alarm."""
    name = "auroc" if len(report.classes) == 2 else "accuracy"
    title = "AUROC" if name == "auroc" else "accuracy"
    rows = [_line("reference", report.records, report.answered, name, "")]
    rows += [
        _line(batch.name, batch.records, batch.answered, name, "ALARM" if batch.alarm else "ok")
        for batch in report.batches
    ]
    columns = ("batch", "records", f"{title} expected", "with labels", "LightGBM", "")
    used = [place for place in range(len(columns)) if any(row[place] != "–" for row in rows)]
    rows = [tuple(row[place] for place in used) for row in rows]
    yield table(f"Compared with {report.reference}", [columns[place] for place in used], rows, left=1)
    for batch in report.batches:
        for cause in batch.diagnosis.causes:
            yield Text.assemble((f"{batch.name}  ", "bold"), (cause.sentence, "yellow"))
        if batch.diagnosis.consequences:
            yield Text(f"{batch.name}  with it moved: {', '.join(batch.diagnosis.consequences)}", style="dim")
    if not report.alarm:
        yield Text("No alarm.", style="green")


def _line(batch: str, records: int, answered: AnswerFigures, metric: str, verdict: str) -> tuple[object, ...]:
    scores = (None if of is None else getattr(of, metric) for of in (answered.scores, answered.lightgbm))
    return batch, records, *(interval(of) for of in (getattr(answered.expected, metric), *scores)), verdict


def interval(of: Interval | None) -> str:
    """
    >>> interval(Interval(0.9, 0.85, 0.95)), interval(None)
    ('0.900 [0.850, 0.950]', '–')
    """
    return "–" if of is None or of.value != of.value else str(of)


# ---- the page -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BatchView:
    """What the page shows of one batch."""

    batch: BatchReport
    #: its id on the page
    anchor: str
    report: Monitoring

    @property
    def verdict(self) -> str:
        return "Alarm" if self.batch.alarm else "No alarm"

    @property
    def tables(self) -> list[HtmlTable]:
        return [self._fields, self._answers]

    @property
    def _fields(self) -> HtmlTable:
        rows = [
            (
                watched.title,
                *(_was_now(pair) for pair in (watched.missing, watched.new)),
                f"{watched.distance:.1%}",
                f"{watched.p:.3f}",
            )
            for watched in sorted(self.batch.fields, key=lambda one: one.p)[:FIELDS]
        ]
        title = "Fields" if len(self.batch.fields) <= FIELDS else f"The {FIELDS} fields that differ most clearly"
        header = ("field", "missing, was → now", "new values, was → now", "values that moved", "p, all tests together")
        return HtmlTable(header, rows, title)

    @property
    def _answers(self) -> HtmlTable:
        batch, report = self.batch, self.report
        was, now = report.answered, batch.answered
        rows = [
            ("AUROC, expected", interval(was.expected.auroc), interval(now.expected.auroc)),
            ("accuracy, expected", interval(was.expected.accuracy), interval(now.expected.accuracy)),
            *_scored("", was.scores, now.scores),
            *_scored(" of LightGBM", was.lightgbm, now.lightgbm),
            ("mean probability of the likeliest class", f"{was.confidence:.3f}", f"{now.confidence:.3f}"),
            ("reconstruction error", f"{report.errors[0]:.4f}", f"{batch.errors[0]:.4f}"),
            ("quantisation error", f"{report.errors[1]:.3g}", f"{batch.errors[1]:.3g}"),
        ]
        for number, name in enumerate(report.classes):
            rows.append((f"{name}: predicted", f"{was.predicted[number]:.1%}", f"{now.predicted[number]:.1%}"))
            before, after = (
                f"{of.shares.shares[number]:.1%} ± {2 * of.shares.errors[number]:.1%}" for of in (was, now)
            )
            rows.append((f"{name}: estimated share", before, after))
        return HtmlTable(("", "reference", "this batch"), rows, "Answers and codes")


def _figures(answered: AnswerFigures) -> Iterator[str]:
    for name in ("auroc", "accuracy"):
        yield interval(getattr(answered.expected, name))
        yield interval(None if answered.scores is None else getattr(answered.scores, name))


def _was_now(pair: tuple[float, float] | None) -> str:
    return "–" if pair is None else f"{pair[0]:.1%} → {pair[1]:.1%}"


def _scored(suffix: str, was: Scores | None, now: Scores | None) -> Iterator[tuple[str, str, str]]:
    if now is None:
        return
    for name, title in (("auroc", "AUROC"), ("accuracy", "accuracy")):
        before, after = (interval(None if of is None else getattr(of, name)) for of in (was, now))
        yield f"{title}{suffix}, with labels", before, after


def drift_page(report: Monitoring) -> Page:
    """One HTML file with everything in it."""
    batches = [BatchView(batch, f"batch{number}", report) for number, batch in enumerate(report.batches, start=1)]
    alarms = [batch for batch in report.batches if batch.alarm]
    verdict = "No alarm." if not alarms else f"Alarm in {len(alarms)} of {len(batches)} batches."
    if len(batches) == 1:
        verdict = "Alarm." if alarms else "No alarm."
    lines = [
        (batch.name, f"{batch.records:,}", f"{batch.answered.sequences:,}", *_figures(batch.answered), batch.sentence)
        for batch in report.batches
    ]
    header = ("batch", "records", "sequences", "AUROC expected", "AUROC", "accuracy expected", "accuracy", "cause")
    overview = HtmlTable(header, lines, f"Compared with {report.reference}")
    return Page(
        render(
            "monitor/drift.html",
            title=f"Monitoring: {report.title}",
            version=__version__,
            plots_available=plots.available(),
            report=report,
            verdict=verdict,
            overview=overview,
            over_time=list(_over_time(report)) if len(batches) >= MANY else [],
            batches=batches,
        )
    )


def _over_time(report: Monitoring) -> Iterator[plots.Plot]:
    """The figures of every batch, in order, with the reference as a level."""
    places = [float(place) for place in range(len(report.batches))]
    for name, title in (("auroc", "AUROC"), ("accuracy", "Accuracy")):
        series: list[plots.Series | plots.Level] = [
            plots.Level("reference, expected", getattr(report.answered.expected, name).value)
        ]
        estimates = [getattr(batch.answered.expected, name) for batch in report.batches]
        series.append(_series("expected", places, estimates, 1))
        known = [
            (x, getattr(batch.answered.scores, name))
            for x, batch in zip(places, report.batches, strict=True)
            if batch.answered.scores is not None and getattr(batch.answered.scores, name).value >= 0
        ]
        if known:
            series.append(_series("with labels", [x + 0.15 for x, _ in known], [value for _, value in known], 2))
        words = ", ".join(f"{batch.name} {interval(of)}" for batch, of in zip(report.batches, estimates, strict=True))
        axis = plots.Axis("batch", names=tuple(batch.name for batch in report.batches))
        yield plots.curves(name, f"{title} by batch", f"Expected: {words}", axis, plots.Axis(title, high=1.0), series)


def _series(name: str, x: list[float], values: list[Interval], colour: int) -> plots.Series:
    kept = [(place, of) for place, of in zip(x, values, strict=True) if of.value == of.value and of.low == of.low]
    return plots.Series(
        name,
        [place for place, _ in kept],
        [of.value for _, of in kept],
        [of.low for _, of in kept],
        [of.high for _, of in kept],
        colour=colour,
    )
