"""Tables and plots of a report about explanations: how many features are enough, and examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tefm.rationale.card import Rationale
from tefm.rationale.faithfulness import Faithfulness
from tefm.scoring.breakdown import wilson
from tefm.show.figures import Case, Rationales
from tefm.show.html import HtmlTable
from tefm.show.plots import Axis, Level, Plot, Series, curves

#: What `faithfulness` calls the two ends: all features kept, and none.
ALL, NONE = "everything", "nothing"


@dataclass(frozen=True)
class CaseView:
    """An explained prediction with the class that was recorded."""

    case: Case
    #: its id on the page
    anchor: str

    @property
    def rationale(self) -> Rationale:
        return self.case.rationale

    @property
    def recorded(self) -> str:
        return self.rationale.named(self.case.label)

    @property
    def correct(self) -> bool:
        return self.case.label == self.rationale.predicted


@dataclass(frozen=True)
class RationalesView:
    """What the templates show of the explanations."""

    rationales: Rationales

    @property
    def plots(self) -> list[Plot]:
        return [
            self._plot("plot-accuracy", "Accuracy on the selected features", lambda curve: curve.accuracy),
            self._plot("plot-agreement", "Same prediction as with all features", lambda curve: curve.agreement),
        ]

    def _plot(self, anchor: str, title: str, value: Callable[[Faithfulness], float]) -> Plot:
        measured = self.rationales.curves
        ends = {curve.strategy: value(curve) for curve in measured if curve.strategy in (ALL, NONE)}
        strategies = list(dict.fromkeys(curve.strategy for curve in measured if curve.strategy not in ends))
        series: list[Series | Level] = [
            Level(f"all features: {ends[ALL]:.3f}", ends[ALL], colour=8),
            Level(f"no features: {ends[NONE]:.3f}", ends[NONE], colour=0),
        ]
        for number, strategy in enumerate(strategies, start=1):
            points = [curve for curve in measured if curve.strategy == strategy]
            series.append(self._series(strategy, points, value, number))
        return curves(
            anchor,
            title,
            "; ".join(f"{curve.strategy} {curve.retention:.0%}: {value(curve):.3f}" for curve in measured),
            Axis("share of the present features that is selected", low=0, percent=True),
            Axis("share of the sequences", share=True),
            series,
        )

    def _series(
        self, name: str, points: Sequence[Faithfulness], value: Callable[[Faithfulness], float], colour: int
    ) -> Series:
        shares = [wilson(value(point), self.rationales.sequences) for point in points]
        return Series(
            name,
            [point.retention for point in points],
            [share.value for share in shares],
            [share.low for share in shares],
            [share.high for share in shares],
            colour=colour,
        )

    @property
    def faithfulness(self) -> HtmlTable:
        sequences = self.rationales.sequences
        rows = [
            [
                curve.strategy,
                f"{curve.retention:.0%}",
                f"{curve.kept:,.1f}",
                str(wilson(curve.accuracy, sequences)),
                str(wilson(curve.agreement, sequences)),
                f"{curve.passed:.1%}",
                f"{curve.sufficiency:.3f}",
            ]
            for curve in self.rationales.curves
        ]
        header = ["ranked by", "selected", "features per record", "accuracy", "same prediction", "pass", "p lost"]
        caption = f"{sequences:,} sequences; p lost: by how much the probability of the prediction falls"
        return HtmlTable(header, rows, caption)

    @property
    def default_sentence(self) -> str:
        """How many predictions do not depend on any feature."""
        count = self.rationales.default
        if not count:
            return ""
        predictions = (
            f"{count:,} prediction{'s are' if count > 1 else ' is a'} default answer{'s' if count > 1 else ''}"
        )
        return f"{predictions}: the model predicts the same with no features, so there is nothing to explain."

    @property
    def wrong_words(self) -> str:
        """Which wrong predictions are among the examples."""
        count = self.rationales.wrong
        if count < 2:
            return ", and the only wrong one" if count else "; no prediction on this page's sequences is wrong"
        return f", and one of the {count:,} wrong ones"

    @property
    def cases(self) -> list[CaseView]:
        cases = enumerate(self.rationales.cases, start=1)
        return [CaseView(case, f"case{number}") for number, case in cases]
