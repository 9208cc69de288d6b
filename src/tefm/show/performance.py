"""What a report shows of predictions and data: decisions, curves, scores, calibration, groups, missing values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tefm.scoring.breakdown import CURVES, GroupScores
from tefm.scoring.weighted import Interval
from tefm.show.figures import FEW_FOR_INTERVALS, FieldGroups, Figures, Method, titles_of
from tefm.show.html import HtmlTable, decimal
from tefm.show.plots import Axis, Level, Plot, Series, curves

#: Every how many thresholds the table has a row.
EVERY = 10
#: Height of the plots of curves, which are about square.
HEIGHT = 280
#: Classes that get a row of their own.
CLASSES = 25


@dataclass(frozen=True)
class PerformanceView:
    """What the templates show of decisions, predictions and data."""

    figures: Figures

    # ---- confusion matrix -----------------------------------------------------------------------------------------

    @property
    def confusion(self) -> HtmlTable:
        """Counts with shares of their row."""
        names, counts_QQ = self.figures.confusion.classes, self.figures.confusion.counts
        rows = []
        for name, counts_Q in zip(names, counts_QQ, strict=True):
            total = sum(counts_Q)
            cells = [f"{n:,} ({n / total:.0%})" if total else f"{n:,}" for n in counts_Q]
            rows.append([name, *cells, f"{total:,}"])
        header = ["recorded", *(f"predicted {name}" for name in names), "sequences"]
        return HtmlTable(header, rows, f"{self.figures.label}: recorded against predicted, with shares of each row")

    @property
    def one_class(self) -> str | None:
        """The class that is predicted for every sequence, if there is one."""
        predicted_Q = np.array(self.figures.confusion.counts).sum(axis=0)
        return self.figures.confusion.classes[predicted_Q.argmax()] if np.count_nonzero(predicted_Q) == 1 else None

    # ---- curves ---------------------------------------------------------------------------------------------------

    @property
    def plots(self) -> list[Plot]:
        """ROC and precision–recall, with the decisions of the model marked."""
        measured = self.figures.curves
        if not measured:
            return []
        chance: Series | Level = Series("chance", (0, 1), (0, 1), colour=0, points=False, dashed=True)
        roc = self._ranking(
            ("plot-roc", "ROC curve"),
            (Axis("false positive rate (1 − specificity)", 0, 1), Axis("sensitivity (recall)", 0, 1)),
            [(f"AUROC {of.auroc:.3f}", of.false_positive_rate, of.true_positive_rate) for of in measured],
            ("false_positive_rate", "recall"),
            [chance],
        )
        share = measured[0].sequences / sum(map(sum, self.figures.confusion.counts))
        ranked = self._ranking(
            ("plot-precision-recall", "Precision–recall curve"),
            (Axis("recall (sensitivity)", 0, 1), Axis("precision", 0, 1)),
            [(f"AUPRC {of.average_precision:.3f}", of.recall, of.precision) for of in measured],
            ("recall", "precision"),
            [Level(f"chance: {share:.3f}", share)] if self.figures.positive is not None else [],
        )
        return [roc, ranked]

    def _ranking(
        self,
        name: tuple[str, str],
        axes: tuple[Axis, Axis],
        points: Sequence[tuple[str, Sequence[float], Sequence[float]]],
        marked: tuple[str, str],
        chance: Sequence[Series | Level],
    ) -> Plot:
        """A curve per class, and a mark where the decisions of the model are; the first mark has the name of all."""
        series = list(chance)
        for number, (curve, (area, x, y)) in enumerate(zip(self.figures.curves, points, strict=True), start=1):
            series.append(Series(f"{curve.name}: {area}", x, y, colour=number, points=False))
        decided = [curve.operating for curve in self.figures.curves]
        counts = self.figures.thresholds
        title = "the model's decisions" if counts is None else f"threshold {counts.thresholds[counts.own]:.3f}"
        for number, operating in enumerate(decided, start=1):
            x, y = (getattr(operating, rate) for rate in marked)
            if x is not None and y is not None:
                words = f"{title} ({x:.2f}, {y:.2f})" if title and len(decided) == 1 else title
                colour = 2 if len(decided) == 1 else number
                series.append(Series(words, (x,), (y,), colour=colour, line=False, size=10))
                title = ""
        description = "; ".join(one.name for one in series if one.name)
        return curves(*name, description, *axes, series, height=HEIGHT)

    @property
    def more_classes(self) -> int:
        """Classes of several that have no curve of their own."""
        return max(0, len(self.figures.confusion.classes) - CURVES) if self.figures.positive is None else 0

    # ---- thresholds -----------------------------------------------------------------------------------------------

    @property
    def thresholds(self) -> HtmlTable:
        """Every tenth threshold and the model's own."""
        counts = self.figures.thresholds
        assert counts is not None, "several classes have no threshold"
        round_ones = {round(place / EVERY, 2) for place in range(EVERY + 1)}
        rows = []
        for number, threshold in enumerate(counts.thresholds):
            if threshold not in round_ones and number != counts.own:
                continue
            hits, alarms = counts.true_positives[number], counts.false_positives[number]
            missed, rejected = counts.positives - hits, counts.negatives - alarms
            shares = (
                (hits, counts.positives),
                (rejected, counts.negatives),
                (hits, hits + alarms),
                (2 * hits, 2 * hits + alarms + missed),
                (hits + alarms, counts.positives + counts.negatives),
            )
            name = f"{threshold:.3f} (the model's)" if number == counts.own else f"{threshold:.1f}"
            figures = [decimal(part / whole if whole else None, 3) for part, whole in shares]
            rows.append([name, *(f"{n:,}" for n in (hits, alarms, missed, rejected)), *figures])
        header = ["threshold", "true positives", "false positives", "false negatives", "true negatives"]
        header += ["sensitivity", "specificity", "precision", "F1", "called positive"]
        caption = f"predicting {self.figures.label} = {self.figures.positive} from each probability on"
        return HtmlTable(header, rows, caption)

    # ---- scores, tokens and calibration ---------------------------------------------------------------------------

    @property
    def scores(self) -> HtmlTable:
        methods = self.figures.methods
        sequences = methods[0].scores["n"]
        few = " (too few for reliable intervals)" if sequences < FEW_FOR_INTERVALS else ""
        rows = [
            [title, *(str(metric) if (metric := _metric(method, name)) else "–" for method in methods)]
            for name, title in titles_of(methods[0].scores).items()
        ]
        rows.append(["tokens per sequence", *(f"{m.tokens:,.1f}" if m.tokens else "0" for m in methods)])
        return HtmlTable(["", *(method.name for method in methods)], rows, f"{sequences:,} sequences{few}")

    @property
    def remaining_plot(self) -> Plot | None:
        """Of times until an event: the share without it over time, as it was and as it was predicted."""
        if (remaining := self.figures.remaining) is None:
            return None
        names = "Kaplan–Meier estimate of these sequences", "mean of the predictions"
        series = [
            Series(name, *of, colour=number, points=number > 0)
            for number, (name, of) in enumerate(zip(names, remaining, strict=True))
        ]
        last = [f"{name}: {y[-1]:.2f} at {x[-1]:.4g}" for name, (x, y) in zip(names, remaining, strict=True) if x]
        x = Axis(self.figures.label)
        return curves("plot-remaining", "Without the event", "; ".join(last), x, Axis("share", 0, 1), series)

    @property
    def by_class(self) -> HtmlTable:
        """Each of several classes; two need no table, since the scores cover them."""
        figures = self.figures
        rows = [
            [
                scores.name,
                f"{scores.sequences:,}" + (" (few)" if scores.sequences < figures.few else ""),
                *(decimal(share, 3) for share in (scores.recall, scores.precision, scores.f1)),
            ]
            for scores in figures.by_class[:CLASSES]
        ]
        caption = f"{figures.methods[0].name} by class; few: fewer than {figures.few} sequences, mostly noise"
        return HtmlTable([figures.label, "sequences", "recall", "precision", "F1"], rows, caption)

    @property
    def probability(self) -> str:
        """Which probability calibration is about."""
        figures = self.figures
        return "the predicted class" if figures.positive is None else f"{figures.label} = {figures.positive}"

    @property
    def ece(self) -> Interval | None:
        """The expected calibration error of this model."""
        return _metric(self.figures.methods[0], "ece")

    @property
    def calibration_plot(self) -> Plot:
        bins = self.figures.calibration
        return curves(
            "plot-calibration",
            "Calibration",
            "; ".join(f"predicted {b.predicted:.2f}, observed {b.observed}, {b.sequences} sequences" for b in bins),
            Axis(f"predicted probability of {self.probability}", 0, 1),
            Axis("observed share", 0, 1),
            [
                Series("perfect calibration", (0, 1), (0, 1), colour=0, points=False, dashed=True),
                Series(
                    "this model, with 95% interval",
                    [b.predicted for b in bins],
                    [b.observed.value for b in bins],
                    [b.observed.low for b in bins],
                    [b.observed.high for b in bins],
                ),
            ],
        )

    # ---- results by group -----------------------------------------------------------------------------------------

    def groups(self, fields: Sequence[FieldGroups], caption: str) -> HtmlTable:
        """The scores of the groups of some fields."""
        two = self.figures.positive is not None
        header = ["group", "sequences", "accuracy"]
        header += [f"{self.figures.label} = {self.figures.positive}", "AUROC"] if two else []
        rows = [
            [f"{field.field}: {group.name}", f"{group.sequences:,}", *self._scores(group, two)]
            for field in fields
            for group in field.groups
        ]
        return HtmlTable(header, rows, caption)

    def _scores(self, group: GroupScores, two: bool) -> list[str]:
        if group.accuracy is None:
            return [f"too small (fewer than {self.figures.few})", *(["–", "–"] if two else [])]
        if group.positive is None:
            return [str(group.accuracy)]
        return [str(group.accuracy), f"{group.positive:.1%}", "–" if group.auroc is None else str(group.auroc)]

    # ---- the data -------------------------------------------------------------------------------------------------

    @property
    def classes(self) -> HtmlTable:
        """The classes of each part, in the order of the last one, which the report is about."""
        parts = self.figures.overview.classes
        totals = {part: sum(counts.values()) for part, counts in parts.items()}
        names = list(list(parts.values())[-1])

        def cell(part: str, count: int) -> str:
            return f"{count:,} ({count / totals[part]:.1%})" if totals[part] else "0"

        def row(name: str, of: Sequence[str]) -> list[str]:
            return [name, *(cell(part, sum(counts.get(one, 0) for one in of)) for part, counts in parts.items())]

        rows = [row(name, [name]) for name in names[:CLASSES]]
        if names[CLASSES:]:
            rows.append(row(f"{len(names[CLASSES:])} more classes", names[CLASSES:]))
        rows.append(["all", *(f"{total:,}" for total in totals.values())])
        return HtmlTable([self.figures.label, *parts], rows, "labelled sequences by class")


def _metric(method: Method, name: str) -> Interval | None:
    """A metric with its interval; None where it is not defined. Without an interval, both ends are the value."""
    metric = method.scores.get(name, {"value": None})
    value, low, high = metric["value"], metric.get("low"), metric.get("high")
    if value is None:
        return None
    return Interval(value, value if low is None else low, value if high is None else high)
