"""Tables and plots of a report about decisions: confusion matrix, ROC and precision–recall curves, thresholds."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from markupsafe import Markup

from tefm.scoring.curves import CURVES, MACRO, Curve
from tefm.show.figures import Figures
from tefm.show.html import HtmlTable, decimal, render
from tefm.show.plots import Axis, Level, Plot, Series, curves

#: Every how many thresholds the table has a row.
EVERY = 10
#: Height of the plots of curves, which are about square.
HEIGHT = 280


@dataclass(frozen=True)
class DecisionsView:
    """What the templates show of the decisions."""

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
        roc: list[Series | Level] = [Series("chance", (0, 1), (0, 1), colour=0, points=False, dashed=True)]
        ranked: list[Series | Level] = []
        if self.figures.positive is not None:
            share = measured[0].sequences / sum(map(sum, self.figures.confusion.counts))
            ranked.append(Level(f"chance: {share:.3f}", share))
        for number, curve in enumerate(measured, start=1):
            look: dict[str, Any] = {"points": False}
            look |= {"colour": 8, "dashed": True} if curve.name == MACRO else {"colour": number}
            x, y = curve.false_positive_rate, curve.true_positive_rate
            roc.append(Series(f"{curve.name}: AUROC {curve.auroc:.3f}", x, y, **look))
            name = f"{curve.name}: AUPRC {curve.average_precision:.3f}"
            ranked.append(Series(name, curve.recall, curve.precision, **look))
        decided = [curve for curve in measured if curve.operating is not None]
        roc += self._marks(decided, "false_positive_rate", "recall")
        ranked += self._marks(decided, "recall", "precision")
        return [
            curves(
                "plot-roc",
                "ROC curve",
                _description(roc),
                Axis("false positive rate (1 − specificity)", 0, 1),
                Axis("sensitivity (recall)", 0, 1),
                roc,
                height=HEIGHT,
            ),
            curves(
                "plot-precision-recall",
                "Precision–recall curve",
                _description(ranked),
                Axis("recall (sensitivity)", 0, 1),
                Axis("precision", 0, 1),
                ranked,
                height=HEIGHT,
            ),
        ]

    def _marks(self, decided: list[Curve], x: str, y: str) -> list[Series]:
        """A point per class where the decisions of the model are; the first one has the name of all."""
        marks: list[Series] = []
        for number, curve in enumerate(decided, start=1):
            place, height = getattr(curve.operating, x), getattr(curve.operating, y)
            if place is None or height is None:
                continue
            colour = 2 if len(decided) == 1 else number
            name = "" if marks else f"{self.operating_words}{self._at(place, height) if len(decided) == 1 else ''}"
            marks.append(Series(name, (place,), (height,), colour=colour, line=False, size=10))
        return marks

    @staticmethod
    def _at(place: float, height: float) -> str:
        return f" ({place:.2f}, {height:.2f})"

    @property
    def operating_words(self) -> str:
        """What the marks on the curves are."""
        counts = self.figures.thresholds
        return "the model's decisions" if counts is None else f"threshold {counts.thresholds[counts.own]:.3f}"

    @property
    def more_classes(self) -> int:
        """Classes of several that have no curve of their own."""
        return max(0, len(self.figures.confusion.classes) - CURVES) if self.figures.positive is None else 0

    # ---- thresholds -----------------------------------------------------------------------------------------------

    @property
    def thresholds(self) -> HtmlTable | None:
        """Every tenth threshold and the model's own; None for several classes."""
        counts = self.figures.thresholds
        if counts is None:
            return None
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

    @property
    def other(self) -> str:
        """Of two classes, the one that is not the positive one."""
        return next(name for name in self.figures.confusion.classes if name != self.figures.positive)

    @property
    def threshold_data(self) -> dict[str, Any] | None:
        """What the slider reads."""
        return None if self.figures.thresholds is None else asdict(self.figures.thresholds)

    @cached_property
    def script(self) -> Markup:
        """The code of the slider, the only script of the page."""
        return Markup(render("threshold.js"))

    @property
    def script_hash(self) -> str:
        """The hash by which the page allows this script and no other."""
        return b64encode(sha256(self.script.encode()).digest()).decode()


def _description(series: list[Series | Level]) -> str:
    return "; ".join(one.name for one in series if one.name)
