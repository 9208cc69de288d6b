"""Tables and plots of a report about predictions: scores, tokens, calibration and cost."""

from __future__ import annotations

from dataclasses import dataclass

from tefm.scoring.metrics import Interval
from tefm.show.figures import Figures, Method
from tefm.show.html import HtmlTable, decimal
from tefm.show.plots import Axis, Level, Plot, Series, curves
from tefm.show.terminal import FEW_FOR_INTERVALS

#: Classes that get a row of their own.
CLASSES = 25
METRICS = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "brier": "Brier (lower is better)",
    "ece": "ECE (lower is better)",
}


@dataclass(frozen=True)
class PredictionsView:
    """What the templates show of the predictions."""

    figures: Figures

    @property
    def scores(self) -> HtmlTable:
        methods = self.figures.methods
        sequences = methods[0].scores["n"]
        few = " (too few for reliable intervals)" if sequences < FEW_FOR_INTERVALS else ""
        rows = [
            [title, *(str(metric) if (metric := _metric(method, name)) else "–" for method in methods)]
            for name, title in METRICS.items()
        ]
        rows.append(["tokens per sequence", *(f"{m.tokens:,.1f}" if m.tokens else "0" for m in methods)])
        return HtmlTable(["", *(method.name for method in methods)], rows, f"{sequences:,} sequences{few}")

    @property
    def by_class(self) -> HtmlTable | None:
        """Each of several classes; two need no table, since the scores cover them."""
        figures = self.figures
        if not figures.by_class:
            return None
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
    def more_classes(self) -> int:
        return max(0, len(self.figures.by_class) - CLASSES)

    @property
    def tokens(self) -> HtmlTable:
        figures = self.figures
        rows = [
            [a.format, a.tokenizer, f"{a.mean:,.1f}", f"{a.median:,.0f}", f"{a.largest:,}", f"{a.share_of_prose:.1%}"]
            for a in figures.tokens
        ]
        header = ["format", "tokenizer", "mean", "median", "largest", "share of prose"]
        return HtmlTable(header, rows, f"tokens per sequence, first {figures.tokens_counted:,} sequences", words=2)

    @property
    def tokens_plot(self) -> Plot:
        """Accuracy against tokens; what reads no tokens is a line across."""
        ours, *others = self.figures.methods
        accuracy = _metric(ours, "accuracy")
        own = self.figures.tokens[0].tokenizer
        texts = [a for a in self.figures.tokens if a.tokenizer == own and "question" not in a.format]
        series: list[Series | Level] = [
            Level(f"{method.name}, 0 tokens: {metric.value:.3f}", metric.value, colour=2 + number % 7)
            for number, method in enumerate(others)
            if (metric := _metric(method, "accuracy"))
        ]
        if accuracy:
            name = f"{ours.name}, {ours.tokens:,.1f} tokens: {accuracy}"
            low, high = (accuracy.low,), (accuracy.high,)
            series.append(Series(name, (ours.tokens,), (accuracy.value,), low, high, line=False, size=10))
        description = [one.name for one in series] + [f"{text.format}: {text.mean:,.0f} tokens" for text in texts]
        return curves(
            "plot-tokens",
            "Accuracy against tokens",
            "; ".join(description),
            Axis("tokens per sequence, mean (logarithmic)", log=True),
            Axis("accuracy", share=True),
            series,
            marks=[(text.mean, text.format) for text in texts],
        )

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
    def calibration(self) -> HtmlTable:
        rows = [[f"{b.predicted:.3f}", str(b.observed), f"{b.sequences:,}"] for b in self.figures.calibration]
        caption = f"probability of {self.probability}, in ten ranges"
        return HtmlTable(["predicted", "observed", "sequences"], rows, caption)

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

    @property
    def cost(self) -> HtmlTable:
        ours, cost = self.figures.methods[0], self.figures.cost
        explain = cost.seconds_to_explain
        rows = [
            ["input of the model", f"{ours.tokens:,.1f} tokens per sequence"],
            ["predicting, from table to probabilities", f"{cost.sequences_per_second:,.1f} sequences per second"],
            ["explaining and checking one prediction", "–" if explain is None else f"{explain:,.2f} seconds"],
        ]
        return HtmlTable(["", "cost"], rows, "cost")


def _metric(method: Method, name: str) -> Interval | None:
    """A metric with its interval; None where it is not defined. Without an interval, both ends are the value."""
    metric = method.scores[name]
    value, low, high = metric["value"], metric.get("low"), metric.get("high")
    if value is None:
        return None
    return Interval(value, value if low is None else low, value if high is None else high)
